"""The flags of elastic runs: defaults, variables, and what cannot be used."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from farandole.errors import UsageError
from farandole.launch.elastic_options import ElasticOptions, read_options
from farandole.launch.placement import Slots

HOSTS = (Slots(name="a", count=2), Slots(name="b", count=2))


def options(
    np: int = 2, hosts: Any = None, environ: dict[str, str] | None = None, **given: Any
) -> ElasticOptions | None:
    return read_options(given, num_workers=np, hosts=hosts, environ=environ or {})


def test_without_flags_a_run_is_not_elastic() -> None:
    assert options() is None
    assert options(max_restarts="0") is None
    assert options(environ={"FARANDOLE_RESET_LIMIT": "3"}) is None, "says how, not whether"


def test_restarts_alone_start_all_again() -> None:
    found = options(np=4, max_restarts="3")
    assert found == ElasticOptions(min_np=4, max_np=4, in_place=False, max_restarts=3)


@pytest.mark.parametrize(
    ("given", "least", "most"),
    [
        ({"min_np": "1"}, 1, 2),
        ({"min_np": 2, "max_np": 4}, 2, 4),
        ({"max_np": "3"}, 2, 3),
        ({"min_np": 1, "max_np": "auto", "hosts": HOSTS}, 1, 4),
        ({"min_np": 1, "max_np": "auto"}, 1, 2),
    ],
)
def test_how_many_workers(given: dict[str, Any], least: int, most: int) -> None:
    found = options(**given)
    assert found is not None
    assert (found.min_np, found.max_np, found.in_place) == (least, most, True)


def test_variables_count_less_than_flags() -> None:
    environ = {"FARANDOLE_MIN_NP": "2", "HOROVOD_ELASTIC_TIMEOUT": "9"}
    found = options(environ=environ, min_np="1")
    assert found is not None
    assert (found.min_np, found.timeout_s) == (1, 9.0)
    environ["FARANDOLE_BLACKLIST_COOLDOWN_RANGE"] = "1,20"
    found = options(environ=environ)
    assert found is not None
    assert (found.min_np, found.cooldown_range_s) == (2, (1.0, 20.0))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"min_np": "3", "max_np": "2"}, r"--min-np 3 is more than .*--max-np 2"),
        ({"min_np": "3", "max_np": "4"}, r"-np 2 is less than --min-np 3"),
        ({"np": 5, "min_np": "1", "max_np": "4"}, r"-np 5 is more than --max-np 4"),
        ({"min_np": "none"}, r"--min-np none: give a number from 1 up"),
        ({"min_np": "0"}, r"--min-np 0: give a number from 1 up"),
        ({"reset_limit": "2"}, r"--reset-limit is for elastic runs.*Add --min-np"),
        ({"min_np": 1, "reset_limit": "-1"}, r"--reset-limit -1: give a number from 0 up"),
        ({"min_np": 1, "elastic_timeout": "0"}, r"--elastic-timeout 0: .* seconds above 0"),
        ({"min_np": 1, "blacklist": "rack"}, r"--blacklist rack: choose slot or host"),
        (
            {"min_np": 1, "blacklist_cooldown_range": ["9", "2"]},
            r"--blacklist-cooldown-range 9 2: .* Use 2 9",
        ),
        (
            {"min_np": 1, "environ": {"FARANDOLE_BLACKLIST_COOLDOWN_RANGE": "5"}},
            r"FARANDOLE_BLACKLIST_COOLDOWN_RANGE=5: give two numbers",
        ),
        ({"host_discovery_script": "none.sh"}, r"none\.sh: there is no such script"),
        ({"max_restarts": "-1"}, r"--max-restarts -1: give a number from 0 up"),
    ],
)
def test_what_cannot_be_used(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        options(**given)


def test_a_script_has_to_be_executable(tmp_path: Path) -> None:
    script = tmp_path / "hosts.sh"
    script.write_text("echo localhost:2\n")
    with pytest.raises(UsageError, match=rf"it is not executable.*chmod \+x {script}"):
        options(host_discovery_script=str(script))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    found = options(host_discovery_script=f"{script} --all", slots_per_host=2)
    assert found is not None
    assert found.discovery_command == (str(script), "--all")
    with pytest.raises(UsageError, match=r"finds the hosts, but a:2, b:2 are named too"):
        options(host_discovery_script=str(script), hosts=HOSTS)
