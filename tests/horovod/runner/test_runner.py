"""`horovod.run`."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

import pytest

from farandole.errors import UsageError, WorkerFailedError
from farandole.horovod import runner
from farandole.horovod.runner.common.util.env import get_env_rank_and_size
from farandole.launch import function


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What reaches farandole.run, which has tests of its own."""
    seen: dict[str, Any] = {}

    def run(fn: Any, args: Any, kwargs: Any, **options: Any) -> list[Any]:
        seen.update(options, args=args, kwargs=kwargs)
        return [fn(*args, **(kwargs or {}))] * options["np"]

    monkeypatch.setattr(function, "run", run)
    return seen


def test_a_function_on_workers(called: dict[str, Any]) -> None:
    found = runner.run(lambda a, b: a + b, (1,), {"b": 2}, 3, hosts="localhost:4")
    assert found == [3, 3, 3]
    assert (called["start_timeout"], called["output_dir"]) == (None, None)
    runner.run(int, num_proc=1, start_timeout=9, output_filename="logs")
    assert (called["start_timeout"], called["output_dir"]) == (9, "logs")


def test_deprecated_names(called: dict[str, Any]) -> None:
    with pytest.warns(DeprecationWarning, match="use num_proc"):
        assert runner.run(int, np=2) == [0, 0]


def test_what_means_nothing_is_named(called: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match="use_gloo, verbose mean nothing"):
        runner.run(int, use_gloo=True, use_mpi=False, verbose=2)
    with pytest.warns(UserWarning, match="horovod.run: reset_limit means nothing"):
        runner.run(int, reset_limit=3)


def test_an_elastic_run(called: dict[str, Any]) -> None:
    found = runner.run(int, num_proc=3, min_num_proc=2, hosts="localhost:4", cooldown_range=(1, 9))
    assert found == [0, 0]
    assert (called["min_np"], called["max_np"], called["blacklist"]) == (2, "auto", "host")
    assert (called["hosts"], called["blacklist_cooldown_range"]) == ("localhost:4", (1, 9))
    runner.run(int, min_num_proc=2, max_num_proc=3, host_discovery_script="x.sh", slots=2)
    assert (called["np"], called["max_np"]) == (2, 3)
    assert (called["host_discovery_script"], called["slots_per_host"]) == ("x.sh", 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"hosts": "n1:2"}, "on this host, not on n1"),
        ({"hostfile": "nowhere"}, "--hostfile nowhere cannot be read"),
        ({"hosts": "localhost:2", "hostfile": "f"}, "both name hosts"),
        ({"hosts": "localhost:2", "num_proc": 3}, "the hosts have 2 slots"),
        ({"executable": "other-python"}, "this program's own Python"),
        ({"use_gloo": True, "use_mpi": True}, "only one of them"),
    ],
)
def test_what_cannot_be(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        runner.run(int, **arguments)


def test_this_host_by_its_names(called: dict[str, Any], tmp_path: Path) -> None:
    hostfile = tmp_path / "hosts"
    hostfile.write_text(f"localhost slots=1\n{platform.node()} slots=1\n")
    found = runner.run(int, num_proc=2, hostfile=str(hostfile), executable=sys.executable)
    assert found == [0, 0]


def test_a_failure_begins_as_in_horovod(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*arguments: Any, **options: Any) -> None:
        raise WorkerFailedError("rank 1 exited with code 3", rank=1, exit_code=3)

    monkeypatch.setattr(function, "run", run)
    words = "^Horovod detected that one or more processes exited with non-zero status.*\nrank 1 "
    with pytest.raises(RuntimeError, match=words) as failed:
        runner.run(int, num_proc=2)
    assert isinstance(failed.value, WorkerFailedError)
    assert (failed.value.rank, failed.value.exit_code) == (1, 3)


def test_who_am_i_before_init(monkeypatch: pytest.MonkeyPatch) -> None:
    assert get_env_rank_and_size() == (0, 1)
    monkeypatch.setenv("HOROVOD_RANK", "1")
    monkeypatch.setenv("HOROVOD_SIZE", "3")
    monkeypatch.setenv("HOROVOD_LOCAL_RANK", "1")
    monkeypatch.setenv("HOROVOD_LOCAL_SIZE", "3")
    assert get_env_rank_and_size() == (1, 3)
