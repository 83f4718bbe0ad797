"""Launches: their commands, what they gather, their order, and that nothing stays behind."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from farandole.bench import run
from farandole.bench.plan import Group, Implementation, Launcher
from farandole.bench.run import (
    LaunchRecord,
    launch,
    missing,
    run_group,
    series_values,
    worker_environment,
)
from farandole.world.machine import Disturbance


def _implementation(launcher: Launcher, num_ranks: int = 2, **options: Any) -> Implementation:
    return Implementation(name="x", launcher=launcher, num_ranks=num_ranks, options=options)


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A folder of the right name is not an installation.
    (tmp_path / "hollow" / "torch").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    found = _implementation("farandole run", library="hollow.torch")
    assert missing(found) == "hollow.torch is not installed"
    found = _implementation("direct", backend="nonesuch")
    assert missing(found) == "nonesuch is not installed: pip install 'farandole[nonesuch]'"


# No torch in these workers: what is tested is the launching.
_PRELUDE = """\
import json, os, pathlib, sys, time
given = json.loads(sys.argv[1])
def report(**values):
    path = pathlib.Path(given["report_dir"], f"rank-{given['rank']}.json")
    path.write_text(json.dumps(values))
"""


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run, "WORKERS", tmp_path / "w.py")
    return tmp_path


def _worker(workers: Path, body: str) -> Implementation:
    (workers / "w.py").write_text(_PRELUDE + body)
    environment = {"OWN": "{scratch}/x"}
    return Implementation(name="w", num_ranks=2, environment=environment, synchronized=True)


def test_a_launch_gathers_every_rank(workers: Path) -> None:
    body = (
        "assert os.environ['OWN'] == given['report_dir'] + '/x'\n"
        "report(series={'step': [1.0 + given['rank'], 4.0, 4.0 - given['rank']]})"
    )
    record = launch(_worker(workers, body), round_number=3, time_limit_s=60)
    assert (record.failure, record.round) == (None, 3)
    assert record.values == {"step": pytest.approx(4.0)}  # of 2, 4, 4


@pytest.mark.parametrize(
    ("body", "limit_s", "failure"),
    [
        # A failing rank ends the others.
        ("sys.exit('no luck' * given['rank']) if given['rank'] else time.sleep(600)", 60, "luck"),
        ("given['rank'] or report(series={})", 60, "rank 1 of 2 ended without a report"),
        ("time.sleep(600)", 0.2, "did not end within the time limit"),
        ("report(series={}, facts={'weights_crc': given['rank']})", 60, "different weights"),
    ],
)
def test_a_launch_that_fails_says_why(
    workers: Path, body: str, limit_s: float, failure: str
) -> None:
    record = launch(_worker(workers, body), round_number=1, time_limit_s=limit_s)
    assert failure in (record.failure or "")
    assert record.values == {}


def test_the_last_rank_to_arrive_and_the_largest_count() -> None:
    reports = [
        {"reached_monotonic_s": 103.0, "memory_kb": {"pss": 300, "pss_anon": 100, "pss_shmem": 20}},
        {"reached_monotonic_s": 104.5, "memory_kb": {"pss": 250, "pss_anon": 90, "pss_shmem": 40}},
    ]
    found = series_values(reports, started_monotonic_s=100.0)
    assert found == {"start": 4.5, "pss": 300 * 1024.0, "own_pss": 130 * 1024.0}


def test_a_launch_inherits_no_world_and_no_python_path() -> None:
    around = {"PATH": "/bin", "PYTHONPATH": "/elsewhere/src", "FARANDOLE_RANK": "1"}
    around |= {"FARANDOLE_TRANSPORT": "gloo", "OMPI_COMM_WORLD_RANK": "1", "OMP_NUM_THREADS": "8"}
    found = worker_environment(around)
    wanted = {"PATH": "/bin", "FARANDOLE_TRANSPORT": "gloo", "OMP_NUM_THREADS": "1"}
    assert found.items() >= wanted.items()
    assert not {"PYTHONPATH", "FARANDOLE_RANK", "OMPI_COMM_WORLD_RANK"} & found.keys()


def _group(*names: str) -> Group:
    """Implementations by their names; what "absent" needs is nowhere installed."""
    library = {"absent": "no_such_package.torch"}
    every = (
        Implementation(name=name, num_ranks=1, options={"library": library.get(name, "none")})
        for name in names
    )
    return Group("g", tuple(every), ())


def _run(
    group: Group,
    *,
    busy: Callable[[int], bool] = lambda _: False,
    broken: str = "",
    num_launches: int = 3,
    quiet: bool = True,
) -> tuple[list[LaunchRecord], list[str]]:
    """Play launches: those whose number is `busy` are disturbed."""
    said: list[str] = []
    numbers = count(1)

    def start(one: Implementation, *, round_number: int, time_limit_s: float) -> LaunchRecord:
        share = 0.2 if busy(next(numbers)) else 0.0
        return LaunchRecord(
            name=one.name,
            round=round_number,
            values={"step": 1.0},
            disturbance=Disturbance(foreign_share=share, steal_share=0.0),
            wall_s=time_limit_s,
            failure="exit code 1" if one.name == broken else None,
        )

    records = run_group(
        group, num_launches=num_launches, say=said.append, start=start, wait=lambda **_: quiet
    )
    return records, said


def test_a_void_launch_is_repeated_in_its_place_and_said() -> None:
    records, said = _run(_group("a", "b"), busy=lambda number: number == 2, num_launches=2)
    assert [record.name for record in records] == list("abbab")
    assert [record.counts for record in records] == [True, False, True, True, True]
    assert "void" in said[1]
    assert "foreign CPU 20.0%" in said[1]


@pytest.mark.parametrize(("quiet", "launches"), [(True, 6), (False, 4)])
def test_repeats_are_bounded_on_a_busy_machine(quiet: bool, launches: int) -> None:
    # Nobody waits twice for a machine that stays busy: three rounds, one repeat.
    records, _ = _run(_group("a"), busy=lambda _: True, quiet=quiet)
    assert len(records) == launches
    assert not any(record.counts for record in records)


def test_failing_and_absent_implementations_are_said_and_left_out() -> None:
    records, said = _run(_group("absent", "a", "b"), broken="a", num_launches=2)
    assert [record.name for record in records] == ["absent", "a", "b", "b"]
    assert records[0].missing == "no_such_package.torch is not installed"
    assert "not installed" in said[0]
    assert "failed: exit code 1" in said[1]
