"""Which cells and launches a study has, in which order, and how long they take."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from farandole.errors import UsageError
from farandole.format import plural
from farandole.study.records import Cell, Launch, Purpose
from farandole.study.spec import ENOUGH_S, Place, Spec, per_host


def make_cells(spec: Spec, *, max_batch: int | None = None) -> tuple[Cell, ...]:
    """Return the cells of a study, no cell twice, the one-process cell of today last.

    Args:
        spec: What was asked for.
        max_batch: The largest batch per worker that fits, once it has been found.

    Raises:
        UsageError: A batch cannot be shared by the workers.
    """
    cells = dict.fromkeys(_grid(spec, max_batch))
    today = _today(spec, tuple(cells))
    if today is not None:
        cells[today] = None
    return tuple(cells)


def is_void_for_speed(spec: Spec, cell: Cell) -> bool:
    """Say whether ranks outnumber what they run on, so that times say nothing."""
    return per_host(cell.workers, cell.hosts) > spec.room.per_host


def _grid(spec: Spec, max_batch: int | None) -> Iterator[Cell]:
    names = [name for name, _ in spec.params]
    recipes = list(itertools.product(*(values for _, values in spec.params)))
    for recipe, transport in itertools.product(recipes, spec.transports):
        for (workers, hosts), threads in _pairs(spec):
            for batch in _batches(spec, workers, max_batch):
                yield Cell(
                    workers=workers,
                    hosts=hosts,
                    threads=threads,
                    batch=batch,
                    transport=transport,
                    device="cuda" if spec.room.gpus else "cpu",
                    params=tuple(zip(names, recipe, strict=True)),
                )


def _pairs(spec: Spec) -> list[tuple[Place, int]]:
    """Return workers, hosts and threads of each cell."""
    if spec.split:
        return list(zip(spec.placed, spec.threads, strict=True))
    return [(place, threads) for threads in spec.threads for place in spec.placed]


def _batches(spec: Spec, workers: int, max_batch: int | None) -> Sequence[int | None]:
    """Return the batches per worker of cells with so many workers."""
    if not spec.sets_batch:
        return [None]
    given = set(spec.batches)
    shared = set(spec.global_batches)
    if max_batch is not None:
        given.add(max_batch)
    found: set[int] = set()
    if spec.scaling in ("weak", "both"):
        found |= given
    if spec.scaling in ("strong", "both"):
        whole = math.lcm(*spec.workers)
        for batch in spec.batches:
            _check_shared(batch, spec.workers, f"-L batch={batch} with --scaling {spec.scaling}")
        shared |= set(spec.batches)
        if max_batch is not None and max_batch >= whole:
            shared.add(max_batch - max_batch % whole)
    for batch in sorted(spec.global_batches):
        _check_shared(batch, spec.workers, f"-L global_batch={batch}")
    found |= {batch // workers for batch in shared}
    return sorted(found)


def _check_shared(batch: int, workers: tuple[int, ...], flag: str) -> None:
    """Refuse a global batch that some number of workers does not divide."""
    for count in workers:
        if batch % count:
            whole = math.lcm(*workers)
            below, above = batch - batch % whole, batch - batch % whole + whole
            nearest = [str(value) for value in (below, above) if value > 0]
            listed = ", ".join(map(str, workers))
            raise UsageError(
                f"{flag}: {count} workers cannot share a global batch of {batch} evenly. "
                f"Use {' or '.join(nearest)}, which {listed} workers can."
            )


def _today(spec: Spec, cells: tuple[Cell, ...]) -> Cell | None:
    """Return the cell of one process with all cores, unless the grid has it already."""
    if not spec.today or spec.measure == "accuracy" or spec.room.gpus or spec.launcher:
        return None
    alone = [cell for cell in cells if cell.workers == 1]
    if any(cell.threads == spec.room.cores for cell in alone):
        return None
    like = alone[0] if alone else cells[0]
    return Cell(
        workers=1,
        threads=spec.room.cores,
        batch=like.batch,
        device=like.device,
        params=like.params,
        today=True,
    )


# Nearer than an eighth is not worth another launch.
_NEAR = 8
_MOST = 1 << 20


def next_trial(start: int, tried: Mapping[int, bool]) -> int | None:
    """Return the batch to try next; None when the largest is known well enough.

    Args:
        start: The first batch to try.
        tried: For each batch that was tried whether it fitted.
    """
    fitting = [batch for batch, fits in tried.items() if fits]
    too_large = [batch for batch, fits in tried.items() if not fits]
    if not tried:
        return start
    if not too_large:
        return 2 * max(fitting) if 2 * max(fitting) <= _MOST else None
    below, above = max(fitting, default=0), min(too_large)
    if not below:
        return above // 2 or None
    if above - below <= max(1, below // _NEAR):
        return None
    return (below + above) // 2


def largest(tried: Mapping[int, bool]) -> int | None:
    """Return the largest batch that fitted; None when none did."""
    return max((batch for batch, fits in tried.items() if fits), default=None)


# What a launch is guessed to take before one has been made; said to be a guess.
_GUESS_S: dict[Purpose, float] = {"speed": 20.0, "epoch": 60.0, "accuracy": 300.0, "imported": 0.0}
_GOOD = ("ok", "stopped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A launch to be made."""

    cell: Cell
    purpose: Purpose
    repeat: int
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """How long launches will take."""

    launches: int
    seconds: float
    worker_hours: float
    guessed: int
    """How many of them were guessed, for want of a launch like them."""


def make_plan(spec: Spec, cells: Sequence[Cell]) -> list[Planned]:
    """Return all launches in their order: cells take turns, so that a drift meets all of them.

    One whole epoch per number of workers comes after the first round: whatever time is left, there
    is something of everything.
    """
    planned: list[Planned] = []
    if spec.measure != "accuracy":
        timed = [cell for cell in cells if not is_void_for_speed(spec, cell)]
        if all(cell.today for cell in timed):
            timed = []  # today alone is nothing to compare
        for repeat in range(spec.repeats):
            planned += [Planned(cell=cell, purpose="speed", repeat=repeat) for cell in timed]
            if repeat == 0 and spec.epoch_launches and spec.measure == "speed":
                planned += [
                    Planned(cell=cell, purpose="epoch", repeat=0) for cell in _one_per_count(timed)
                ]
    if spec.measure != "speed":
        learning = _distinct_for_accuracy(cells)
        for seed in range(spec.seeds):
            planned += [
                Planned(cell=cell, purpose="accuracy", repeat=seed, seed=seed) for cell in learning
            ]
    return planned


def pending(
    spec: Spec, planned: Sequence[Planned], done: Sequence[Launch], *, earlier: int = 0
) -> list[Planned]:
    """Return what is still to be made, with further tries of what others disturbed at the end.

    What failed in an earlier session is tried again, because somebody may have mended it since;
    within one session it would fail the same way again. What took too much memory or time is a
    result.

    Args:
        spec: What was asked for.
        planned: All launches of the plan.
        done: The launches that were made, in their order.
        earlier: How many of them an earlier session made.
    """
    mended = [launch for launch in done[:earlier] if launch.outcome != "failed"] + [*done[earlier:]]
    made = {_key(spec, launch) for launch in mended}
    hopeless = _hopeless(spec, mended)
    open_ones = [one for one in planned if _key(spec, one) not in made]
    if spec.retry_busy:
        cells = dict.fromkeys(one.cell for one in planned if one.purpose == "speed")
        for cell in cells:
            open_ones += _tries(spec, cell, open_ones, done, earlier)
    return [one for one in open_ones if (_cell_key(spec, one.cell), one.purpose) not in hopeless]


def _tries(
    spec: Spec, cell: Cell, open_ones: Sequence[Planned], done: Sequence[Launch], earlier: int
) -> list[Planned]:
    """Return further launches of a cell, as many as were disturbed.

    No more in one session than there are repeats: on a machine that is never quiet a study has to
    end, too, and --resume tries again.
    """
    key = _cell_key(spec, cell)
    made = [x for x in done if x.purpose == "speed" and _cell_key(spec, x.cell) == key]
    good = [launch for launch in made if launch.outcome in _GOOD]
    clean = sum(not launch.busy for launch in good)
    coming = sum(one.purpose == "speed" and one.cell == cell for one in open_ones)
    tried = sum(
        launch.purpose == "speed"
        and launch.repeat >= spec.repeats
        and _cell_key(spec, launch.cell) == key
        for launch in done[earlier:]
    )
    disturbed = sum(launch.busy for launch in good)
    missing = min(spec.repeats - clean - coming, disturbed, spec.repeats - tried)
    first = max([spec.repeats - 1, *(launch.repeat for launch in made)]) + 1
    return [Planned(cell=cell, purpose="speed", repeat=first + number) for number in range(missing)]


def left_out(spec: Spec, cells: Iterable[Cell]) -> list[str]:
    """Say which cells are not measured for speed, and why."""
    void = {(c.workers, c.hosts): c.placement for c in cells if is_void_for_speed(spec, c)}
    if not void:
        return []
    noun = "GPU" if spec.room.gpus else "core"
    have = plural(spec.room.per_host, "slot" if spec.room.per_host == spec.room.slots else noun)
    have += " each" if spec.room.hosts > 1 else ""
    several = spec.room.hosts > 1
    listed = ", ".join(
        words if several else str(count) for (count, _), words in sorted(void.items())
    )
    then = (
        "they are left out (--measure accuracy would run them)"
        if spec.measure == "speed"
        else "they are run for accuracy only"
    )
    return [f"{listed} workers on {have}: void for speed, since they take turns; {then}."]


def seconds_of(spec: Spec, one: Planned, done: Sequence[Launch]) -> tuple[float, bool]:
    """Estimate what a launch takes from the most similar ones, and whether that is a guess."""
    like = [
        launch
        for launch in done
        if launch.purpose == one.purpose and launch.wall_s is not None and launch.outcome in _GOOD
    ]
    key = _cell_key(spec, one.cell)
    for similar in (
        [launch for launch in like if _cell_key(spec, launch.cell) == key],
        [launch for launch in like if launch.cell.workers == one.cell.workers],
        like,
    ):
        if similar:
            return statistics.median(launch.wall_s or 0.0 for launch in similar), False
    # A script that came to its end by itself takes as long for every purpose.
    ended = [launch for launch in done if launch.wall_s and launch.outcome == "ok"]
    same = [launch for launch in ended if launch.cell.workers == one.cell.workers]
    if ended:
        return statistics.median(launch.wall_s or 0.0 for launch in same or ended), False
    others = [launch.wall_s for launch in done if launch.wall_s and launch.outcome in _GOOD]
    if others and one.purpose != "speed":
        return max(_GUESS_S[one.purpose], *others), True
    if spec.stop(one.purpose) is not None and others:
        return min(statistics.median(others), ENOUGH_S + _GUESS_S["speed"]), True
    return _GUESS_S[one.purpose], True


def estimate(spec: Spec, launches: Sequence[Planned], done: Sequence[Launch]) -> Estimate:
    """Add up what launches will take."""
    seconds, worker_seconds, guessed = 0.0, 0.0, 0
    for one in launches:
        each, is_guess = seconds_of(spec, one, done)
        seconds += each
        worker_seconds += each * one.cell.workers
        guessed += is_guess
    return Estimate(
        launches=len(launches),
        seconds=seconds,
        worker_hours=worker_seconds / 3600,
        guessed=guessed,
    )


def fits(
    spec: Spec, open_ones: Sequence[Planned], done: Sequence[Launch], *, left_s: float
) -> bool:
    """Say whether the next launch still belongs into the time that is left.

    Within a round of repeats all cells or none: a cell with more repeats than the others helps
    nobody. The first round is always begun: without it there is nothing to report. A whole training
    in it is begun unless launches like it are known to take longer than what is left.
    """
    first = open_ones[0]
    if first.purpose == "speed" and first.repeat == 0:
        return left_s > 0
    if first.purpose == "accuracy" and first.repeat == 0:
        seconds, is_guess = seconds_of(spec, first, done)
        return left_s > 0 if is_guess else seconds <= left_s
    together = [one for one in open_ones if _round(one) == _round(first)]
    need = sum(seconds_of(spec, one, done)[0] for one in together)
    return need <= left_s


def fitting(
    spec: Spec, open_ones: Sequence[Planned], done: Sequence[Launch], *, left_s: float
) -> int:
    """Return how many launches a time limit has room for, by what they are expected to take."""
    for number, one in enumerate(open_ones):
        if not fits(spec, open_ones[number:], done, left_s=left_s):
            return number
        left_s -= seconds_of(spec, one, done)[0]
        if left_s < 0:
            return number  # it would be ended half-way
    return len(open_ones)


def _round(one: Planned) -> tuple[str, int]:
    return (one.purpose, one.repeat)


def _one_per_count(cells: Sequence[Cell]) -> list[Cell]:
    """Choose one cell per number of workers: its first, as the user gave the values."""
    chosen: dict[int, Cell] = {}
    for cell in cells:
        if not cell.today:
            chosen.setdefault(cell.workers, cell)
    return list(chosen.values())


def _distinct_for_accuracy(cells: Sequence[Cell]) -> list[Cell]:
    """Choose cells that may end with different models; threads and transports make none."""
    chosen: dict[Cell, Cell] = {}
    for cell in cells:
        if not cell.today:
            chosen.setdefault(replace(cell, threads=None, transport="auto"), cell)
    return list(chosen.values())


def _hopeless(spec: Spec, done: Sequence[Launch]) -> set[tuple[Cell, Purpose]]:
    """Return cells that failed and never worked: they would fail the same way again."""
    good = {(_cell_key(spec, x.cell), x.purpose) for x in done if x.outcome in _GOOD}
    found: set[tuple[Cell, Purpose]] = set()
    for launch in done:
        if launch.outcome in _GOOD or launch.outcome == "interrupted":
            continue
        cell = _cell_key(spec, launch.cell)
        # Too slow to end in time says nothing about shorter launches; a crash comes in all.
        purposes: tuple[Purpose, ...] = ("speed", "epoch", "accuracy")
        if launch.outcome == "timeout":
            purposes = (launch.purpose,)
        found |= {(cell, purpose) for purpose in purposes}
    return found - good


def _key(spec: Spec, one: Planned | Launch) -> tuple[Cell, Purpose, int]:
    return (_cell_key(spec, one.cell), one.purpose, one.repeat)


def _cell_key(spec: Spec, cell: Cell) -> Cell:
    """Return the cell as it was planned: a batch that the recorder saw was not part of it."""
    return cell if spec.sets_batch else replace(cell, batch=None)
