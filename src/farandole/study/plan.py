"""Which cells and launches a study has, in which order, and how long they take."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from farandole.errors import UsageError
from farandole.format import plural
from farandole.study.records import Cell, Launch, Purpose
from farandole.study.spec import ENOUGH_S, Spec, per_host


def make_cells(spec: Spec, *, max_batch: int | None = None) -> tuple[Cell, ...]:
    """Return the cells of a study, no cell twice, the one-process cell of today last.

    `max_batch` is the largest batch per worker that fits, once it has been found.
    """
    cells = tuple(dict.fromkeys(_grid(spec, max_batch)))
    alone = [cell for cell in cells if cell.workers == 1]
    if (
        not spec.today
        or spec.measure == "accuracy"
        or spec.room.gpus
        or spec.launcher
        or any(cell.threads == spec.room.cores for cell in alone)
    ):
        return cells
    like = alone[0] if alone else cells[0]
    today = replace(like, workers=1, hosts=1, threads=spec.room.cores, transport="auto", today=True)
    return (*cells, today)


def preview(spec: Spec) -> tuple[Cell, ...]:
    """Return the cells as far as they are known before the largest batch is."""
    unknown = spec.find_max and not spec.batches
    return make_cells(replace(spec, batches=(1,)) if unknown else spec)


def is_void_for_speed(spec: Spec, cell: Cell) -> bool:
    """Say whether ranks outnumber what they run on, so that times say nothing."""
    return per_host(cell.workers, cell.hosts) > spec.room.per_host


def left_out(spec: Spec, cells: Iterable[Cell]) -> list[str]:
    """Say which cells are not measured for speed, and why."""
    void = {(c.workers, c.hosts): c.placement for c in cells if is_void_for_speed(spec, c)}
    if not void:
        return []
    room, several = spec.room, spec.room.hosts > 1
    noun = "slot" if room.per_host == room.slots else "GPU" if room.gpus else "core"
    have = plural(room.per_host, noun) + " each" * several
    listed = ", ".join(words if several else str(n) for (n, _), words in sorted(void.items()))
    then = "run for accuracy only"
    if spec.measure == "speed":
        then = "left out (--measure accuracy runs them)"
    return [f"{listed} workers on {have} take turns: not measured for speed; {then}."]


def _grid(spec: Spec, max_batch: int | None) -> Iterator[Cell]:
    names = [name for name, _ in spec.params]
    recipes = list(itertools.product(*(values for _, values in spec.params)))
    pairs = [(place, threads) for threads in spec.threads for place in spec.placed]
    if spec.split:
        pairs = list(zip(spec.placed, spec.threads, strict=True))
    for recipe, transport in itertools.product(recipes, spec.transports):
        for (workers, hosts), threads in pairs:
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


def _batches(spec: Spec, workers: int, max_batch: int | None) -> Sequence[int | None]:
    """Return the batches per worker of cells with so many workers."""
    if not spec.sets_batch:
        return [None]
    found: set[int] = set()
    shared = {batch: f"-L global_batch={batch}" for batch in spec.global_batches}
    if spec.scaling in ("weak", "both"):
        found |= {*spec.batches} | ({max_batch} if max_batch is not None else set())
    if spec.scaling in ("strong", "both"):
        flags = f"with --scaling {spec.scaling}"
        shared = {batch: f"-L batch={batch} {flags}" for batch in spec.batches} | shared
        whole = math.lcm(*spec.workers)
        if max_batch is not None and max_batch >= whole:
            shared[max_batch - max_batch % whole] = ""
    for batch, flag in sorted(shared.items()):
        _check_shared(batch, spec.workers, flag)
    return sorted(found | {batch // workers for batch in shared})


def _check_shared(batch: int, workers: tuple[int, ...], flag: str) -> None:
    """Refuse a global batch that some number of workers does not divide."""
    for count in workers:
        if batch % count:
            whole = math.lcm(*workers)
            below = batch - batch % whole
            nearest = [str(value) for value in (below, below + whole) if value > 0]
            raise UsageError(
                f"{flag}: {count} workers cannot share a global batch of {batch} evenly. "
                f"Use {' or '.join(nearest)}, which {', '.join(map(str, workers))} workers can."
            )


# The largest batch that fits.

# Nearer than an eighth is not worth another launch.
_NEAR = 8
_MOST = 1 << 20


def next_trial(start: int, tried: Mapping[int, bool]) -> int | None:
    """Return the batch to try next; None when the largest is known well enough."""
    if not tried:
        return start
    below = largest(tried)
    too_large = [batch for batch, fits in tried.items() if not fits]
    if below is None:
        return min(too_large) // 2 or None
    if not too_large:
        return 2 * below if 2 * below <= _MOST else None
    near = min(too_large) - below <= max(1, below // _NEAR)
    return None if near else (below + min(too_large)) // 2


def largest(tried: Mapping[int, bool]) -> int | None:
    """Return the largest batch that fitted; None when none did."""
    return max((batch for batch, fits in tried.items() if fits), default=None)


# Launches.


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A launch to be made."""

    cell: Cell
    purpose: Purpose
    repeat: int
    seed: int = 0


def make_plan(spec: Spec, cells: Sequence[Cell]) -> list[Planned]:
    """Return all launches in their order: cells take turns, so that a drift meets all of them.

    Every other round goes backwards, so that a steady drift favours none. One whole epoch per
    number of workers comes after the first round: whatever time is left, there is something of
    everything.
    """
    planned: list[Planned] = []
    measured = [cell for cell in cells if not cell.today]
    timed = [cell for cell in cells if not is_void_for_speed(spec, cell)]
    # Today alone is nothing to compare.
    if spec.measure != "accuracy" and not all(cell.today for cell in timed):
        first_of_count = {cell.workers: cell for cell in reversed(timed) if not cell.today}
        for repeat in range(spec.repeats):
            turns = timed[::-1] if repeat % 2 else timed
            planned += [Planned(cell=cell, purpose="speed", repeat=repeat) for cell in turns]
            if repeat == 0 and spec.epoch_launches and spec.measure == "speed":
                chosen = [cell for cell in timed if first_of_count.get(cell.workers) == cell]
                planned += [Planned(cell=cell, purpose="epoch", repeat=0) for cell in chosen]
    if spec.measure != "speed":
        # Threads and transports end with the same model.
        learning: dict[Cell, Cell] = {}
        for cell in measured:
            learning.setdefault(replace(cell, threads=None, transport="auto"), cell)
        for seed in range(spec.seeds):
            turns = list(learning.values())[:: -1 if seed % 2 else 1]
            planned += [
                Planned(cell=cell, purpose="accuracy", repeat=seed, seed=seed) for cell in turns
            ]
    return planned


def pending(
    spec: Spec, planned: Sequence[Planned], done: Sequence[Launch], *, earlier: int = 0
) -> list[Planned]:
    """Return what is still to be made, with further tries of what others disturbed at the end.

    What failed in an earlier session is tried again, because it may have been fixed since;
    within one session it would fail the same way again. What took too much memory or time is a
    result. The first `earlier` of the launches that are done are of an earlier session.
    """
    counted = [launch for launch in done[:earlier] if launch.outcome != "failed"] + [
        *done[earlier:]
    ]
    made = {(_key(spec, x.cell), x.purpose, x.repeat) for x in counted}
    hopeless = _hopeless(spec, counted)
    open_ones = [x for x in planned if (_key(spec, x.cell), x.purpose, x.repeat) not in made]
    if spec.retry_busy:
        cells = dict.fromkeys(one.cell for one in planned if one.purpose == "speed")
        tries = [_tries(spec, cell, open_ones, done, earlier) for cell in cells]
        # A machine that is never quiet must not make a study much longer: a fifth, cells in turn.
        tried = sum(x.purpose == "speed" and x.repeat >= spec.repeats for x in done[earlier:])
        room = max(0, math.ceil(len(planned) / 5) - tried)
        in_turn = [one for turn in itertools.zip_longest(*tries) for one in turn if one is not None]
        open_ones += in_turn[:room]
    return [one for one in open_ones if (_key(spec, one.cell), one.purpose) not in hopeless]


def _tries(
    spec: Spec, cell: Cell, open_ones: Sequence[Planned], done: Sequence[Launch], earlier: int
) -> list[Planned]:
    """Return further launches of a cell, as many as were disturbed.

    No more in one session than there are repeats: on a machine that is never quiet a study has to
    end, too, and --resume tries again.
    """

    def of_cell(launches: Sequence[Launch]) -> list[Launch]:
        key = _key(spec, cell)
        return [x for x in launches if x.purpose == "speed" and _key(spec, x.cell) == key]

    made = of_cell(done)
    busy = sum(launch.busy for launch in made if launch.succeeded)
    clean = sum(not launch.busy for launch in made if launch.succeeded)
    coming = sum(one.purpose == "speed" and one.cell == cell for one in open_ones)
    tried = sum(launch.repeat >= spec.repeats for launch in of_cell(done[earlier:]))
    missing = min(spec.repeats - clean - coming, busy, spec.repeats - tried)
    first = max([spec.repeats - 1, *(launch.repeat for launch in made)]) + 1
    return [Planned(cell=cell, purpose="speed", repeat=first + number) for number in range(missing)]


def _hopeless(spec: Spec, done: Sequence[Launch]) -> set[tuple[Cell, Purpose]]:
    """Return cells that failed and never worked: they would fail the same way again."""
    good = {(_key(spec, x.cell), x.purpose) for x in done if x.succeeded}
    found: set[tuple[Cell, Purpose]] = set()
    for launch in done:
        if launch.succeeded or launch.outcome == "interrupted":
            continue
        # Too slow to end in time says nothing about shorter launches; a crash comes in all.
        purposes: tuple[Purpose, ...] = ("speed", "epoch", "accuracy")
        if launch.outcome == "timeout":
            purposes = (launch.purpose,)
        found |= {(_key(spec, launch.cell), purpose) for purpose in purposes}
    return found - good


def _key(spec: Spec, cell: Cell) -> Cell:
    """Return the cell as it was planned: a batch that the recorder saw was not part of it."""
    return cell if spec.sets_batch else replace(cell, batch=None)


# How long launches take.

# What a launch is guessed to take before one has been made; said to be a guess.
_GUESS_S: dict[Purpose, float] = {"speed": 20.0, "epoch": 60.0, "accuracy": 300.0, "imported": 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """How long launches will take."""

    launches: int
    seconds: float
    worker_hours: float
    guessed: int
    """How many of them were guessed, for want of a launch like them."""


def seconds_of(spec: Spec, one: Planned, done: Sequence[Launch]) -> tuple[float, bool]:
    """Estimate what a launch takes from the most similar ones, and whether that is a guess."""
    timed = [launch for launch in done if launch.wall_s and launch.succeeded]
    like = [launch for launch in timed if launch.purpose == one.purpose]
    # A script that came to its end by itself takes as long for every purpose.
    ended = [launch for launch in timed if launch.outcome == "ok"]
    key, workers = _key(spec, one.cell), one.cell.workers
    for similar in (
        [launch for launch in like if _key(spec, launch.cell) == key],
        [launch for launch in like if launch.cell.workers == workers],
        like,
        [launch for launch in ended if launch.cell.workers == workers],
        ended,
    ):
        if similar:
            return median(launch.wall_s or 0.0 for launch in similar), False
    others = [launch.wall_s or 0.0 for launch in timed]
    if others and one.purpose != "speed":
        return max(_GUESS_S[one.purpose], *others), True
    if others:
        return min(median(others), ENOUGH_S + _GUESS_S["speed"]), True
    return _GUESS_S[one.purpose], True


def estimate(spec: Spec, launches: Sequence[Planned], done: Sequence[Launch]) -> Estimate:
    """Add up what launches will take."""
    each = [(*seconds_of(spec, one, done), one.cell.workers) for one in launches]
    return Estimate(
        launches=len(launches),
        seconds=sum(seconds for seconds, _, _ in each),
        worker_hours=sum(seconds * workers for seconds, _, workers in each) / 3600,
        guessed=sum(is_guess for _, is_guess, _ in each),
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
    seconds, is_guess = seconds_of(spec, first, done)
    if first.repeat == 0 and first.purpose in ("speed", "accuracy"):
        return left_s > 0 if is_guess or first.purpose == "speed" else seconds <= left_s
    together = [x for x in open_ones if (x.purpose, x.repeat) == (first.purpose, first.repeat)]
    return sum(seconds_of(spec, one, done)[0] for one in together) <= left_s


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
