"""The order of launches, and what happens to void ones, with launches that are played."""

from __future__ import annotations

from collections.abc import Callable

from farandole.bench.contestant import Contestant, Role, Starter
from farandole.bench.launch import LaunchRecord
from farandole.bench.rows import Group
from farandole.bench.run import run_group
from farandole.world.foreign import Disturbance

_QUIET = Disturbance(foreign_share=0.0, steal_share=0.0)
_BUSY = Disturbance(foreign_share=0.2, steal_share=0.0)


def _group(*names: str) -> Group:
    return Group(
        key="g",
        contestants=tuple(
            Contestant(name=name, role=Role.PEER, starter=Starter.DIRECT, worker="x", num_ranks=1)
            for name in names
        ),
        rows=(),
    )


class _Stage:
    """Plays launches: those whose number is listed are disturbed, or fail."""

    def __init__(self, *, busy: Callable[[int], bool] = lambda _: False, broken: str = "") -> None:
        self._busy = busy
        self._broken = broken
        self._count = 0

    def __call__(
        self, contestant: Contestant, *, round_number: int, time_limit_s: float
    ) -> LaunchRecord:
        self._count += 1
        return LaunchRecord(
            contestant=contestant.name,
            round=round_number,
            values={"step": 1.0},
            disturbance=_BUSY if self._busy(self._count) else _QUIET,
            wall_s=time_limit_s,
            failure="exit code 1" if contestant.name == self._broken else None,
        )


def _run(
    group: Group, stage: _Stage, *, num_launches: int = 3, quiet: bool = True
) -> tuple[list[LaunchRecord], list[str]]:
    said: list[str] = []
    records = run_group(
        group,
        num_launches=num_launches,
        say=said.append,
        start=stage,
        find_missing=lambda c: "not installed" if c.name == "absent" else None,
        wait=lambda: quiet,
    )
    return records, said


def test_contestants_take_turns() -> None:
    records, said = _run(_group("a", "b", "c"), _Stage())
    assert [record.contestant for record in records] == list("abcabcabc")
    assert [record.round for record in records] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert len(said) == 9


def test_a_void_launch_is_repeated_in_its_place_and_said() -> None:
    records, said = _run(_group("a", "b"), _Stage(busy=lambda count: count == 2), num_launches=2)
    assert [record.contestant for record in records] == list("abbab")
    assert [record.counts for record in records] == [True, False, True, True, True]
    assert "void" in said[1]
    assert "foreign CPU 20.0%" in said[1]


def test_repeats_are_bounded_on_a_busy_machine() -> None:
    records, _ = _run(_group("a"), _Stage(busy=lambda _: True), num_launches=3)
    assert len(records) == 6
    assert not any(record.counts for record in records)


def test_nobody_waits_twice_for_a_machine_that_stays_busy() -> None:
    records, _ = _run(_group("a"), _Stage(busy=lambda _: True), num_launches=3, quiet=False)
    assert len(records) == 4  # three rounds, one repeat


def test_a_contestant_that_fails_is_not_started_again() -> None:
    records, said = _run(_group("a", "b"), _Stage(broken="a"), num_launches=2)
    assert [record.contestant for record in records] == ["a", "b", "b"]
    assert "failed: exit code 1" in said[0]


def test_a_contestant_that_is_not_installed_is_said_and_left_out() -> None:
    records, said = _run(_group("absent", "b"), _Stage(), num_launches=1)
    assert [(record.contestant, record.missing) for record in records] == [
        ("absent", "not installed"),
        ("b", None),
    ]
    assert "not installed" in said[0]
