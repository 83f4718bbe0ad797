"""How much of the faces lab is run: in minutes, in a given time, or all of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from farandole.labs import effort as alike
from farandole.labs.lab import Asked

PILOT_PIXELS = 75
"""What InceptionV3 takes at least, and what rates are measured at."""
LAB_PIXELS = 224
LAB_BATCH, LAB_GLOBAL_BATCH = 32, 128
LAB_SPLITS = (2, 4)
"""Processes of a node beside one: 2 x 14 and 4 x 7 threads of 28 cores."""
RECIPES = ("linear", "fixed", "warmup", "longer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much of the lab is run; a larger effort has no smaller figure."""

    pixels: int
    """Side of an image in the runs for speed."""
    batch: int
    """Per worker, for weak scaling."""
    global_batch: int
    """For strong scaling and for splits of the cores."""
    sweep: tuple[int, ...]
    """Batches of one process with all cores, beside the global one."""
    steps: int
    """Of each launch for speed."""
    repeats: int
    workers: tuple[int, ...]
    """Beyond the cores for accuracy only."""
    recipes: int
    """How many of RECIPES."""
    samples: int
    """To train on for accuracy; 0: all."""
    epochs: int
    seeds: int

    @property
    def sweep_repeats(self) -> int:
        """Launches of a batch of the sweep: what it compares differs more than what scales does."""
        return max(1, self.repeats - 1)


def _effort(
    time: tuple[int, int, tuple[int, ...], int, int],
    workers: tuple[int, ...],
    recipes: int,
    accuracy: tuple[int, int, int],
) -> Effort:
    pixels, batch, sweep, steps, repeats = time
    samples, epochs, seeds = accuracy
    return Effort(
        pixels=pixels,
        batch=batch,
        global_batch=batch,
        sweep=sweep,
        steps=steps,
        repeats=repeats,
        workers=workers,
        recipes=recipes,
        samples=samples,
        epochs=epochs,
        seeds=seeds,
    )


_TWO, _FOUR, _EIGHT = (1, 2), (1, 2, 4), (1, 2, 4, 8)
_SMALL, _WIDE, _MANY = (1, 4), (1, 4, 8), (1, 2, 4, 8, 16)

QUICK = _effort((75, 6, (2,), 4, 1), _TWO, 1, (0, 2, 1))
LADDER = (
    _effort((75, 8, (2,), 5, 1), _TWO, 1, (0, 4, 1)),
    _effort((75, 8, (2,), 6, 2), _TWO, 1, (0, 4, 1)),
    _effort((75, 8, (2,), 6, 3), _TWO, 1, (0, 8, 1)),
    _effort((75, 8, _SMALL, 6, 3), _FOUR, 1, (0, 8, 1)),
    _effort((75, 16, _SMALL, 6, 3), _FOUR, 1, (0, 8, 2)),
    _effort((75, 16, _SMALL, 8, 3), _FOUR, 2, (0, 10, 3)),
    _effort((75, 16, _WIDE, 8, 3), _FOUR, 2, (0, 10, 3)),
    _effort((75, 16, _WIDE, 8, 5), _FOUR, 2, (0, 15, 3)),
    _effort((96, 32, _MANY, 8, 5), _EIGHT, 3, (0, 20, 5)),
    _effort((128, 32, _MANY, 8, 5), _EIGHT, 4, (0, 20, 5)),
    _effort((LAB_PIXELS, 32, _MANY, 8, 5), _EIGHT, 4, (0, 20, 5)),
)
FULL = Effort(
    pixels=LAB_PIXELS,
    batch=LAB_BATCH,
    global_batch=LAB_GLOBAL_BATCH,
    sweep=(1, 2, 4, 8, 16, 32, 64),
    steps=20,
    repeats=1,
    workers=_EIGHT,
    recipes=1,
    samples=0,
    epochs=20,
    seeds=1,
)


def effort_of(asked: Asked, effort: int) -> Effort:
    """Return what a size comes to."""
    return {"quick": QUICK, "full": FULL}.get(asked.size) or LADDER[effort]


def timed_counts(asked: Asked, here: Effort) -> tuple[int, ...]:
    """Return the numbers of workers whose speed counts; one is what others are held against."""
    chosen = alike.counts(asked, here.workers)
    return tuple(sorted({1, *(count for count in chosen if count <= asked.cores)}))


def split_counts(asked: Asked, here: Effort) -> tuple[int, ...]:
    """Return the processes of the lab's splits that no other study runs.

    One process with all cores is in the sweep of batches, one thread each in the scaling.
    """
    return tuple(
        count
        for count in LAB_SPLITS
        if count <= asked.cores
        and asked.cores % count == 0
        and not (count == asked.cores and count in timed_counts(asked, here))
    )


def shared_batch(asked: Asked, here: Effort) -> int:
    """Return the global batch: what all numbers of processes can share, no smaller than planned."""
    whole = math.lcm(*timed_counts(asked, here), *split_counts(asked, here))
    return math.ceil(here.global_batch / whole) * whole


def loop(asked: Asked, here: Effort, available: int) -> int:
    """Return how many images the runs for speed go round: a few batches of the most workers."""
    largest = max(shared_batch(asked, here), *here.sweep)
    return min(available, 4 * max(largest, here.batch * timed_counts(asked, here)[-1]))
