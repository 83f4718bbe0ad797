from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from farandole.errors import UsageError
from farandole.launch.plan import (
    Plan,
    make_plan,
    resolve_command,
    threads_from,
)
from farandole.world.cores import Cores
from farandole.world.environment import DEFAULT_START_TIMEOUT_S, scaled_start_timeout_s

EIGHT = Cores(affinity=8, quota=None, physical=4)


def plan(**changes: Any) -> Plan:
    defaults: dict[str, Any] = {
        "command": [sys.executable, "-c", "pass"],
        "np": "2",
        "environ": {},
        "cores": EIGHT,
    }
    return make_plan(**(defaults | changes))


def test_defaults() -> None:
    made = plan()
    assert (made.num_workers, made.threads, made.transport) == (2, 4, "auto")
    assert (made.horovod_alias, made.own_launcher, made.cwd) == (True, False, None)
    assert (made.start_timeout_s, made.silence_timeout_s, made.output_dir) == (60.0, 30.0, None)


@pytest.mark.parametrize(
    ("changes", "workers"),
    [
        ({"np": 3}, 3),
        ({"np": "auto"}, 4),
        ({"np": "AUTO", "num_gpus": 2}, 2),
        ({"np": "auto", "cores": Cores(affinity=8, quota=2.5, physical=4)}, 2),
        ({"np": None, "environ": {"FARANDOLE_NP": "5"}}, 5),
        ({"np": "2", "environ": {"FARANDOLE_NP": "5"}}, 2),
    ],
)
def test_workers(changes: dict[str, Any], workers: int) -> None:
    assert plan(**changes).num_workers == workers


@pytest.mark.parametrize(
    ("changes", "threads", "override"),
    [
        ({"np": "16"}, 1, False),
        ({"environ": {"OMP_NUM_THREADS": "3"}}, 3, False),
        ({"environ": {"OMP_NUM_THREADS": "3,2"}}, 3, False),
        ({"environ": {"OMP_NUM_THREADS": "3"}, "threads": "2"}, 2, True),
        ({"environ": {"FARANDOLE_THREADS": "5"}}, 5, True),
    ],
)
def test_threads(changes: dict[str, Any], threads: int, override: bool) -> None:
    made = plan(**changes)
    assert (made.threads, made.override_threads) == (threads, override)


def test_every_flag_has_a_variable() -> None:
    made = plan(
        environ={
            "FARANDOLE_TRANSPORT": "gloo",
            "FARANDOLE_OUTPUT_DIR": "logs",
            "FARANDOLE_START_TIMEOUT": "7",
            "FARANDOLE_SILENCE_TIMEOUT": "8.5",
            "FARANDOLE_EXIT_TIMEOUT": "9",
            "FARANDOLE_SHOW_RANKS": "1",
        }
    )
    assert made.shown == {1}
    assert (made.transport, made.output_dir) == ("gloo", Path("logs"))
    assert (made.start_timeout_s, made.silence_timeout_s) == (7.0, 8.5)
    assert made.exit_timeout_s == 9.0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"np": "0"}, "-np 0: give a number of workers from 1 up, or auto"),
        ({"np": "-1"}, "-np -1"),
        ({"np": "two"}, "-np two"),
        ({"np": None}, "How many workers?"),
        ({"np": None, "environ": {"FARANDOLE_NP": "x"}}, "FARANDOLE_NP=x"),
        ({"threads": "0"}, "--threads 0"),
        ({"transport": "pigeon"}, "--transport pigeon: choose a transport from auto, shm, gloo"),
        ({"environ": {"FARANDOLE_TRANSPORT": "owl"}}, "FARANDOLE_TRANSPORT=owl"),
        ({"start_timeout": "soon"}, "--start-timeout soon"),
        ({"silence_timeout": "inf"}, "--silence-timeout inf"),
        ({"command": []}, "No command was given"),
        ({"command": ["-m"]}, "-m needs a module"),
        ({"command": ["nowhere.py"]}, "nowhere.py: there is no such script"),
        ({"command": ["no-such-program"]}, "no-such-program: there is no such command"),
        ({"show_ranks": "2"}, "--show-ranks 2: the job has 2 workers, ranks 0 to 1"),
        ({"show_ranks": "1-0"}, "--show-ranks 1-0"),
        ({"show_ranks": "first"}, "--show-ranks first: give ranks such as 0, 0,2 or 0-3, or all"),
        ({"show_ranks": ""}, "--show-ranks : give ranks"),
    ],
)
def test_bad_input_is_named(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan(**changes)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        (None, None),
        ("all", None),
        (0, {0}),
        ("0,2", {0, 2}),
        ("1-3", {1, 2, 3}),
        ("0, 2-3", {0, 2, 3}),
    ],
)
def test_ranks_that_are_shown(text: str | int | None, ranks: set[int] | None) -> None:
    assert plan(np=4, show_ranks=text).shown == ranks


@pytest.mark.parametrize(("np", "workers"), [(None, 4), ("auto", 4), (2, 2)])
def test_slots_of_hosts_are_workers_unless_said_otherwise(np: object, workers: int) -> None:
    assert plan(np=np, num_slots=4).num_workers == workers


def test_ranks_that_share_cores_get_more_time_to_start() -> None:
    assert scaled_start_timeout_s(2, 4) == scaled_start_timeout_s(4, 4) == DEFAULT_START_TIMEOUT_S
    assert scaled_start_timeout_s(16, 4) == DEFAULT_START_TIMEOUT_S + 60
    assert not plan(np=2).start_timeout_given
    given = plan(np=64, start_timeout=7)
    assert (given.start_timeout_s, given.start_timeout_given) == (7, True)


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my train.py").write_text("")
    (tmp_path / "job.sh").write_text("")
    nowhere = str(tmp_path)
    assert resolve_command(["my train.py", "--lr", "0.1"], path=nowhere) == (
        sys.executable,
        "my train.py",
        "--lr",
        "0.1",
    )
    assert resolve_command(["-m", "pkg.mod", "-x"], path=nowhere) == (
        sys.executable,
        "-m",
        "pkg.mod",
        "-x",
    )
    assert resolve_command(["python", "x.py"], path=nowhere) == (sys.executable, "x.py")
    assert resolve_command(["sh", "-c", "a 'b'\n"], path="/bin:/usr/bin") == (
        "sh",
        "-c",
        "a 'b'\n",
    )
    with pytest.raises(UsageError, match="chmod"):
        resolve_command(["./job.sh"], path=nowhere)


@pytest.mark.parametrize(
    ("environ", "threads"),
    [({}, None), ({"MKL_NUM_THREADS": "2"}, 2), ({"OMP_NUM_THREADS": "many"}, None)],
)
def test_threads_from(environ: dict[str, str], threads: int | None) -> None:
    assert threads_from(environ) == threads
