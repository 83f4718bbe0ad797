"""How much of the cifar10 lab is run: in a minute, in a given time, or all of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from farandole.labs import effort as alike
from farandole.labs.lab import Asked
from farandole.recipes import recipe

LAB_SAMPLES = 50_000
LAB_BATCHES = (32, 128, 512)
LAB_TOO_LARGE = 2048
"""The lab's batch that did not fit its GPU."""
LAB_ACCURACY_BATCH = 512
LEARNING_RATE = 0.01
"""Of one worker at `BATCH`."""
BATCH = 32
"""Per worker, of the runs for accuracy."""
RECIPES = ("fixed", "linear", "warmup", "longer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much of the lab is run; a larger effort has no smaller figure."""

    batches: tuple[int, ...]
    """Per worker, of ResNet-18's times."""
    too_large: int
    """A batch that the limit of memory does not leave room for."""
    steps: int
    """Of each launch for times; 0: a whole epoch."""
    repeats: int
    """Of each launch for times."""
    calibrated: bool
    """Whether the link between the workers is measured, too."""
    model: str
    """Of the runs for accuracy."""
    batch: int
    """Per worker, of the runs for accuracy."""
    samples: int
    """To train on for accuracy; 0: all."""
    test_samples: int
    epochs: int
    seeds: int
    workers: tuple[int, ...]
    recipes: int
    """How many of RECIPES are tried on the most workers."""
    recipes_below: int
    """How many of them on fewer workers."""
    replica_steps: int
    """Of each launch with replicas as threads."""


def _effort(
    time: tuple[tuple[int, ...], int, int, int],
    data: tuple[int, int, int],
    seeds: int,
    workers: tuple[int, ...],
    recipes: int,
) -> Effort:
    batches, too_large, steps, repeats = time
    samples, test_samples, epochs = data
    return Effort(
        batches=batches,
        too_large=too_large,
        steps=steps,
        repeats=repeats,
        calibrated=repeats > 1,
        model="small",
        batch=BATCH,
        samples=samples,
        test_samples=test_samples,
        epochs=epochs,
        seeds=seeds,
        workers=workers,
        recipes=recipes,
        recipes_below=1 if len(workers) < 4 else recipes,
        replica_steps=24 if seeds == 1 else 60,
    )


_TWO, _FOUR = (1, 2), (1, 2, 4)
_FAR, _EIGHT = (1, 2, 8), (1, 2, 4, 8)
_SHORT = ((8, 32), 256, 6, 1)
_TWICE = ((8, 32), 256, 8, 2)
_THREE = ((8, 32, 64), 512, 10, 3)
_WIDE = ((8, 32, 128), 1024, 12, 3)
_LONG = ((8, 32, 128), 1024, 20, 3)

QUICK = _effort(((2, 8), 256, 3, 1), (512, 250, 2), 1, _TWO, 2)
LADDER = (
    _effort(((4, 16), 256, 4, 1), (1024, 500, 3), 1, _TWO, 2),
    _effort(_SHORT, (1024, 1000, 3), 1, _TWO, 4),
    _effort(_SHORT, (2048, 1000, 4), 1, _FAR, 4),
    _effort(_SHORT, (2048, 2000, 6), 1, _FAR, 4),
    _effort(_TWICE, (2048, 2000, 6), 2, _FAR, 4),
    _effort(_TWICE, (2048, 2000, 6), 3, _FAR, 4),
    _effort(_TWICE, (3072, 2000, 6), 3, _FAR, 4),
    _effort(_TWICE, (4096, 2000, 6), 3, _FAR, 4),
    _effort(_TWICE, (4096, 2000, 8), 3, _FAR, 4),
    _effort(_THREE, (4096, 2000, 8), 3, _FAR, 4),
    _effort(_THREE, (6000, 2000, 10), 3, _FAR, 4),
    _effort(_THREE, (10_000, 2000, 10), 3, _FAR, 4),
    _effort(_WIDE, (10_000, 2000, 10), 3, _EIGHT, 4),
    _effort(_WIDE, (10_000, 5000, 15), 3, _EIGHT, 4),
    _effort(_WIDE, (20_000, 10_000, 15), 3, _EIGHT, 4),
    _effort(_LONG, (0, 0, 20), 3, _EIGHT, 4),
    _effort(_LONG, (0, 0, 20), 5, _EIGHT, 4),
)
FULL = replace(
    # One run of each, as the lab made them: each takes hours where it had GPUs.
    _effort((LAB_BATCHES, LAB_TOO_LARGE, 0, 1), (0, 0, 10), 1, _FOUR, 4),
    calibrated=True,
    recipes_below=4,
    model="resnet18",
    batch=LAB_ACCURACY_BATCH,
)


def effort_of(asked: Asked, effort: int) -> Effort:
    """Return what a size comes to."""
    return {"quick": QUICK, "full": FULL}.get(asked.size) or LADDER[effort]


def timed_counts(asked: Asked, here: Effort) -> tuple[int, ...]:
    """Return the numbers of workers whose speed counts; one is what the others are held against."""
    chosen = alike.counts(asked, here.workers)
    return tuple(sorted({1, *(count for count in chosen if count <= asked.cores)}))


def trained_counts(asked: Asked, here: Effort) -> tuple[int, ...]:
    """Return the numbers of workers beside one that are trained to the end."""
    return tuple(count for count in alike.counts(asked, here.workers) if count > 1)


def pair(asked: Asked, here: Effort) -> int | None:
    """Return how many workers threads and batch norm are looked at with: the fewest above one."""
    return min(trained_counts(asked, here), default=None)


def recipes(asked: Asked, here: Effort) -> tuple[str, ...]:
    """Return the recipes; the first is the one that everything else is held fixed at."""
    return alike.recipes(asked, RECIPES[: here.recipes])


def timed_samples(asked: Asked, here: Effort) -> int:
    """Return how many images the launches for times have; 0: all.

    Enough for one batch of each worker, also where that does not fit; passes over them go on.
    """
    return 0 if here.steps == 0 else here.too_large * timed_counts(asked, here)[-1]


def synchronised(asked: Asked, here: Effort) -> tuple[int, str] | None:
    """Return workers and recipe to try SyncBatchNorm with as a remedy, beside `pair`'s.

    Where a large global batch loses most, on top of the recipe that helps most as a rule.
    """
    named = [name for name in recipes(asked, here) if recipe(name).scaled]
    most = max(trained_counts(asked, here), default=0)
    if not named or here.recipes < len(RECIPES):
        return None
    if (most, named[-1]) == (pair(asked, here), recipes(asked, here)[0]):
        return None
    return most, named[-1]


def memory_bytes(asked: Asked, here: Effort) -> int:
    """Return a limit per worker that half as much again as the largest batch fits into.

    Peak of ResNet-18 with SGD on torch 2.13, without mapped files: 387 MB at batch 4, 1360 MB at
    128, that is 355 MB and 7.85 MB an image of a batch. On top come what the heap keeps for the
    next step (engine.memory), the shared buckets of gradients, and the images to choose from as
    32-bit numbers, three times while they are made. The batch that is too large goes beyond the
    limit in its first layers.
    """
    fixed, kept, per_image, buckets = 355e6, 100e6, 7.85e6, 150e6
    images = 3 * 4 * 32 * 32 * 3 * (timed_samples(asked, here) or LAB_SAMPLES)
    return int(fixed + kept + buckets + images + 1.5 * per_image * max(here.batches))
