"""Run a group's launches: interleaved, repeated when others disturbed them, within bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from farandole.bench.contestant import Contestant, missing
from farandole.bench.launch import LaunchRecord, available_cores, launch
from farandole.bench.rows import Group
from farandole.world.foreign import Disturbance, wait_until_quiet

QUIET_LIMIT_S = 30.0
QUICK_QUIET_LIMIT_S = 3.0


class Launch(Protocol):
    """Runs one launch; the tests put a fake here."""

    def __call__(
        self, contestant: Contestant, *, round_number: int, time_limit_s: float
    ) -> LaunchRecord: ...


def wait_for_quiet(limit_s: float = QUIET_LIMIT_S) -> bool:
    """Wait for the machine to be left alone, within the limit."""
    return wait_until_quiet(limit_s=limit_s, num_cores=available_cores())


def run_group(
    group: Group,
    *,
    num_launches: int,
    say: Callable[[str], None],
    start: Launch = launch,
    find_missing: Callable[[Contestant], str | None] = missing,
    wait: Callable[[], bool] = wait_for_quiet,
) -> list[LaunchRecord]:
    """Return the records of all launches, in the order in which they ran.

    Contestants take turns (ABCABC), so that a drift of the machine meets all of them. A void
    launch is repeated in its place, after a wait for quiet; each contestant has `num_launches`
    repeats in all, so that a busy machine ends with void rows and not never.

    Args:
        say: receives one line of progress per launch.
    """
    records: list[LaunchRecord] = []
    out: set[str] = set()
    for contestant in group.contestants:
        reason = find_missing(contestant)
        if reason is not None:
            out.add(contestant.name)
            records.append(_absent(contestant, reason))
            say(f"{group.key}: {contestant.name} not measured: {reason}")
    repeats_left = {contestant.name: num_launches for contestant in group.contestants}
    for round_number in range(1, num_launches + 1):
        for contestant in group.contestants:
            if contestant.name in out:
                continue
            for record in _turn(
                contestant, round_number, repeats_left, start, wait, group.time_limit_s
            ):
                records.append(record)
                say(f"{group.key}: {_line(record, num_launches)}")
            if records[-1].failure is not None:
                # It would fail the same way again; one report of it is enough.
                out.add(contestant.name)
    return records


def _turn(
    contestant: Contestant,
    round_number: int,
    repeats_left: dict[str, int],
    start: Launch,
    wait: Callable[[], bool],
    time_limit_s: float,
) -> Iterator[LaunchRecord]:
    while True:
        record = start(contestant, round_number=round_number, time_limit_s=time_limit_s)
        yield record
        if record.failure is not None or record.counts:
            return
        if repeats_left[contestant.name] == 0:
            return
        repeats_left[contestant.name] -= 1
        if not wait():
            # Nobody left the machine within the limit: waiting again would cost the same.
            repeats_left[contestant.name] = 0


def _absent(contestant: Contestant, reason: str) -> LaunchRecord:
    return LaunchRecord(
        contestant=contestant.name,
        round=0,
        disturbance=Disturbance(foreign_share=0.0, steal_share=0.0),
        wall_s=0.0,
        missing=reason,
    )


def _line(record: LaunchRecord, num_launches: int) -> str:
    turn = f"launch {record.round} of {num_launches}, {record.contestant}"
    if record.failure is not None:
        return f"{turn}: failed: {record.failure}"
    taken = record.disturbance
    others = f"foreign CPU {taken.foreign_share:.1%}, steal {taken.steal_share:.1%}"
    state = "void" if record.void else "done"
    return f"{turn}: {state} in {record.wall_s:.1f} s ({others})"
