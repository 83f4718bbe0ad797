"""Which studies the driving lab makes at which size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from farandole.format import listed
from farandole.labs import effort as alike
from farandole.labs.lab import Asked, Choice, DataFacts, Plan, Planned, Rate
from farandole.labs.training import Training, Workload

WORK = Workload(
    name="driving",
    script="driving.py",
    batch=32,
    learning_rate=0.0001,
    guess=Rate(samples_per_s=220.0, startup_s=6.0),
    few_test_samples=64,
)
LAB_EPOCHS = 10
RECIPES = ("linear", "fixed", "warmup", "longer")
"""The lab's own first: it scaled the rate."""
SIZES = (4, 2)
"""The study of sizes trains on a quarter and on half of the samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much of the lab is run; a larger effort has no smaller figure."""

    samples: int
    """To train on; 0: all."""
    test_samples: int
    epochs: int
    seeds: int
    workers: tuple[int, ...]
    recipes: int
    """How many of RECIPES."""
    sizes: bool
    """Whether smaller data sets are timed, too."""


def _effort(
    samples: int,
    test_samples: int,
    epochs: int,
    seeds: int,
    workers: tuple[int, ...],
    *,
    recipes: int = 2,
    sizes: bool = False,
) -> Effort:
    return Effort(
        samples=samples,
        test_samples=test_samples,
        epochs=epochs,
        seeds=seeds,
        workers=workers,
        recipes=recipes,
        sizes=sizes,
    )


_TWO, _FOUR, _EIGHT = (1, 2), (1, 2, 4), (1, 2, 4, 8)

QUICK = _effort(768, 200, 4, 1, _TWO)
LADDER = (
    _effort(256, 128, 3, 1, _TWO),
    _effort(384, 128, 4, 1, _FOUR),
    _effort(512, 200, 6, 1, _FOUR),
    _effort(768, 200, LAB_EPOCHS, 1, _FOUR),
    _effort(1024, 400, LAB_EPOCHS, 2, _FOUR),
    _effort(1024, 400, LAB_EPOCHS, 3, _FOUR),
    _effort(0, 0, LAB_EPOCHS, 3, _FOUR),
    _effort(0, 0, LAB_EPOCHS, 3, _FOUR, sizes=True),
    _effort(0, 0, LAB_EPOCHS, 3, _EIGHT, sizes=True),
    _effort(0, 0, LAB_EPOCHS, 3, _EIGHT, recipes=4, sizes=True),
    _effort(0, 0, LAB_EPOCHS, 5, _EIGHT, recipes=4, sizes=True),
)
FULL = _effort(0, 0, LAB_EPOCHS, 3, _EIGHT, recipes=4, sizes=True)


def pilot(asked: Asked) -> tuple[Planned, ...]:
    """Return the study that measures what one worker does in a second."""
    return (WORK.pilot(asked),)


def plan(asked: Asked, data: DataFacts, rates: Mapping[str, Rate], effort: int) -> Plan:
    """Return the studies of a size."""
    here = {"quick": QUICK, "full": FULL}.get(asked.size) or LADDER[effort]
    first, *rest = alike.recipes(asked, RECIPES[: here.recipes])
    workers = alike.counts(asked, here.workers)
    training = Training(
        workload=WORK,
        asked=asked,
        data=data,
        rate=rates.get(WORK.name, WORK.guess),
        samples=here.samples,
        test_samples=here.test_samples,
        epochs=here.epochs,
        seeds=here.seeds,
    )
    studies = [
        training.study(
            name="workers",
            title=f"Time and loss by workers, recipe {first}",
            recipes=(first,),
            workers=workers,
        )
    ]
    several = tuple(count for count in workers if count > 1)
    if rest and several:
        studies.append(
            training.study(
                name="recipes",
                title=f"Loss by workers, {listed(rest)}",
                recipes=tuple(rest),
                workers=several,
            )
        )
    timed = tuple(count for count in workers if count <= asked.cores)
    if here.sizes and timed:
        studies.append(
            training.study(
                name="size",
                title="Job time by size of the data set",
                recipes=(first,),
                workers=timed,
                sizes=tuple(_sizes(here, data)),
            )
        )
    return Plan(studies=tuple(studies), choices=_choices(asked, data, here))


def _sizes(here: Effort, data: DataFacts) -> list[int]:
    whole = alike.taken(here.samples, data.train)
    return sorted({max(1, whole // part) for part in SIZES})


def _choices(asked: Asked, data: DataFacts, here: Effort) -> tuple[Choice, ...]:
    workers = alike.counts(asked, here.workers)
    named = alike.recipes(asked, RECIPES[: here.recipes])
    return alike.differing(
        [
            Choice(
                what="device",
                lab="GPUs, T4 and DGX",
                here=f"{asked.cores} CPU cores, a thread per worker",
            ),
            Choice(what="data set", lab="a car's camera, not named", here=data.source),
            Choice(what="network", lab="not named", here="NVIDIA's PilotNet"),
            alike.of_samples("training samples", "not said", here.samples, data.train),
            alike.of_samples("test samples", "not said", here.test_samples, data.test),
            Choice(
                what="epochs",
                lab=f"{LAB_EPOCHS}",
                here=f"{here.epochs}",
                why="to fit the time" if here.epochs < LAB_EPOCHS else "",
            ),
            Choice(
                what="workers",
                lab="2, 4 and 8",
                here=alike.words(workers),
                why=alike.beyond(workers, asked.cores),
            ),
            Choice(
                what="learning rate",
                lab="scaled by the workers, as it seems",
                here=alike.recipe_words(WORK.learning_rate, named),
                why="fixed beside linear tells fewer steps from the scaled rate"
                if {"fixed", "linear"} <= set(named)
                else "",
            ),
            alike.of_decay(),
        ]
    )
