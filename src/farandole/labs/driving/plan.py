"""Which studies the driving lab makes at which size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from farandole.labs import effort as alike
from farandole.labs.duration import STUDY_S, launch_s, steps_s
from farandole.labs.lab import Asked, Choice, DataFacts, Plan, Planned, Rate
from farandole.recipes import recipe
from farandole.report.text import listed

SCRIPT = "driving.py"
WORKLOAD = "driving"
BATCH = 32
LEARNING_RATE = 0.0001
"""Of one worker."""
LAB_EPOCHS = 10
RECIPES = ("linear", "fixed", "warmup", "longer")
"""The lab's own first: it scaled the rate."""
SIZES = (4, 2)
"""The study of sizes trains on a quarter and on half of the samples."""

# Of one core of a virtual machine, where no pilot has measured: for `quick` and `full`.
_GUESS = Rate(samples_per_s=220.0, startup_s=6.0)
_PILOT_STEPS = 12
_PILOT_TEST_SAMPLES = 64


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
    return (
        Planned(
            name=WORKLOAD,
            title="How fast one worker trains",
            flags=(
                *("-np", "1", "--threads", "1", "-L", f"batch={BATCH}"),
                *("--steps", str(_PILOT_STEPS), "--repeats", "1"),
                *("--no-epoch", "--no-today", "--no-calibration"),
            ),
            script=SCRIPT,
            arguments=(
                *alike.data_arguments(asked),
                *("--epochs", "1000", "--batch-size", "{batch}", "--samples", "0"),
                *("--test-samples", str(_PILOT_TEST_SAMPLES)),
                *("--lr", f"{LEARNING_RATE:g}", "--recipe", "fixed"),
            ),
            estimate_s=steps_s(_GUESS, threads=1, batches=(BATCH,), steps=_PILOT_STEPS) + STUDY_S,
            environ=alike.KERAS,
        ),
    )


def plan(asked: Asked, data: DataFacts, rates: Mapping[str, Rate], effort: int) -> Plan:
    """Return the studies of a size."""
    here = {"quick": QUICK, "full": FULL}.get(asked.size) or LADDER[effort]
    rate = rates.get(WORKLOAD, _GUESS)
    first, *rest = alike.recipes(asked, RECIPES[: here.recipes])
    workers = alike.counts(asked, here.workers)
    shared = _Shared(asked=asked, data=data, rate=rate, here=here)
    studies = [
        shared.study(
            name="workers",
            title=f"Time and loss by workers, recipe {first}",
            recipes=(first,),
            workers=workers,
        )
    ]
    several = tuple(count for count in workers if count > 1)
    if rest and several:
        studies.append(
            shared.study(
                name="recipes",
                title=f"Loss by workers, {listed(rest)}",
                recipes=tuple(rest),
                workers=several,
            )
        )
    timed = tuple(count for count in workers if count <= asked.cores)
    if here.sizes and timed:
        studies.append(
            shared.study(
                name="size",
                title="Job time by size of the data set",
                recipes=(first,),
                workers=timed,
                sizes=tuple(_sizes(here, data)),
                seeds=1,
            )
        )
    return Plan(studies=tuple(studies), choices=_choices(asked, data, here))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """What all studies of a plan have in common."""

    asked: Asked
    data: DataFacts
    rate: Rate
    here: Effort

    def study(
        self,
        *,
        name: str,
        title: str,
        recipes: tuple[str, ...],
        workers: tuple[int, ...],
        sizes: tuple[int, ...] = (),
        seeds: int | None = None,
    ) -> Planned:
        """Return a study whose launches run to the script's end: loss, and times beside it."""
        here, data = self.here, self.data
        seeds = seeds or here.seeds
        trained = sizes or (alike.taken(here.samples, data.train),)
        one_seed = sum(
            launch_s(
                self.rate,
                workers=count,
                cores=self.asked.cores,
                samples=samples,
                epochs=recipe(each).epochs(here.epochs),
                test_samples=alike.taken(here.test_samples, data.test),
            )
            for count in workers
            for each in recipes
            for samples in trained
        )
        samples = "{samples}" if sizes else str(alike.subset(here.samples, data.train))
        return Planned(
            name=name,
            title=title,
            flags=(
                *("-np", alike.numbers(workers), "-L", f"batch={BATCH}"),
                *("-L", f"recipe={','.join(recipes)}"),
                *(("-L", f"samples={alike.numbers(sizes)}") if sizes else ()),
                *("--measure", "accuracy", "--seeds", str(seeds), "--no-calibration"),
                *(() if self.asked.size == "full" else ("--keep-busy",)),
            ),
            script=SCRIPT,
            arguments=(
                *alike.data_arguments(self.asked),
                *("--epochs", str(here.epochs), "--batch-size", "{batch}", "--samples", samples),
                *("--test-samples", str(alike.subset(here.test_samples, data.test))),
                *("--lr", f"{LEARNING_RATE:g}", "--recipe", "{recipe}", "--seed", "{seed}"),
            ),
            estimate_s=seeds * one_seed + STUDY_S,
            environ=alike.KERAS,
        )


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
                here=f"{LEARNING_RATE:g} for one worker; recipes {listed(list(named))}",
                why="fixed beside linear tells fewer steps from the scaled rate"
                if {"fixed", "linear"} <= set(named)
                else "",
            ),
            alike.of_decay(),
            alike.of_runs(here.seeds),
        ]
    )
