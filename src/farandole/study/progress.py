"""How far a study is: what its listeners are told, and the sentences for it."""

from __future__ import annotations

from dataclasses import dataclass

from farandole.format import brief, percent, plural, seconds
from farandole.study.plan import Estimate, Planned
from farandole.study.records import Cell, Launch

_WORDS = {"ok": "done", "stopped": "done", "out_of_memory": "out of memory"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """A moment within a launch."""

    elapsed_s: float
    steps: int = 0
    samples_per_s: float | None = None
    """Of all workers together, over the last block of steps that rank 0 wrote."""


class Listener:
    """Whoever shows a study's progress; this one shows nothing."""

    def say(self, line: str) -> None:
        """Take a sentence for the user."""

    def began(
        self, one: Planned, *, number: int, total: int, seconds: float, left_s: float
    ) -> None:
        """Take note of a launch and its place, of what it and all that is left will take."""

    def now(self, moment: Now) -> None:
        """Take note of how a launch goes on, twice a second."""

    def ended(self, launch: Launch, *, number: int, total: int, left_s: float) -> None:
        """Take note of a launch's end, and of what the rest is expected to take."""


def cell_words(cell: Cell) -> str:
    """Name a cell: `2 workers, batch 64, lr=0.1`; one thread per worker goes without saying."""
    words = [plural(cell.workers, "worker") + f" on {cell.hosts} hosts" * (cell.hosts > 1)]
    if cell.today:
        words = [f"1 process with all {plural(cell.threads or 1, 'core')}"]
    elif cell.threads is not None and cell.threads > 1:
        words.append(f"{cell.threads} threads{' each' * (cell.workers != 1)}")
    if cell.batch is not None:
        words.append(f"batch {cell.batch}")
    if cell.transport != "auto":
        words.append(cell.transport)
    return ", ".join([*words, *(f"{name}={value}" for name, value in cell.params)])


def planned_words(one: Planned | Launch) -> str:
    """Name a launch: `2 workers, batch 64, repeat 1`."""
    which = {
        "speed": f"repeat {one.repeat + 1}",
        "epoch": "one epoch",
        "accuracy": f"seed {one.seed or 0}",
        "imported": "imported",
    }
    return f"{cell_words(one.cell)}, {which[one.purpose]}"


def ended_line(launch: Launch, *, number: int, total: int, left_s: float) -> str:
    """Say how a launch ended: `[3/12] 2 workers, ...: done in 9.1 s; about 2 min left`."""
    how = _WORDS.get(launch.outcome, launch.outcome)
    took = "" if launch.wall_s is None else f" in {seconds(launch.wall_s)}"
    share = max(launch.foreign_share or 0.0, launch.steal_share or 0.0)
    used = f"{percent(share)} of " if share else ""
    busy = f", but others used {used}the machine" if launch.busy and launch.succeeded else ""
    why = f": {launch.reason}" if launch.reason else ""
    left = f"; about {duration(left_s)} left" if left_s > 0 else ""
    return f"[{number}/{total}] {planned_words(launch)}: {how}{took}{busy}{why}{left}"


def launches_line(whole: Estimate, open_ones: Estimate, *, guess: bool = False) -> str:
    """Say how many launches there are and how long they take, by a mere guess only if asked to."""
    # Tries of what others disturbed are not part of the plan.
    done = max(0, whole.launches - open_ones.launches)
    line = f"{plural(whole.launches, 'launch')}{f', {done} of them done' if done else ''}."
    if open_ones.guessed == open_ones.launches and not guess:
        return line
    source = ""
    if open_ones.guessed == open_ones.launches:
        source = ", a guess until similar launches have run"
    elif open_ones.guessed:
        source = f" (of these, {plural(open_ones.guessed, 'launch')} by a guess)"
    hours = brief(open_ones.worker_hours)
    return f"{line} About {duration(open_ones.seconds)} and {hours} worker-hours{source}."


def duration(seconds: float) -> str:
    """Write a duration for people: `40 s`, `14 min`, `2.5 h`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"
