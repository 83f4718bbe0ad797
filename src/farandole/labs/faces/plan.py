"""Which studies the faces lab makes at which size; no two of them run the same cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from farandole.format import listed
from farandole.labs import effort as alike
from farandole.labs.duration import STUDY_S, launch_s, steps_s
from farandole.labs.faces.choices import choices
from farandole.labs.faces.effort import (
    PILOT_PIXELS,
    RECIPES,
    Effort,
    effort_of,
    loop,
    shared_batch,
    split_counts,
    timed_counts,
)
from farandole.labs.faces.questions import MODELS
from farandole.labs.lab import Asked, DataFacts, Plan, Planned, Rate
from farandole.labs.training import Training, Workload, busy_flags, speed_flags

SCALING, BATCH, SPLIT = "scaling", "batch", "split"
WORKERS, RECIPE = "workers", "recipes"
"""Names of the studies."""

SMALL = Workload(
    name="small",
    script="faces.py",
    batch=16,
    learning_rate=0.002,
    guess=Rate(samples_per_s=350.0, startup_s=7.0),
    few_test_samples=32,
    arguments=("--model", "small", "--image-size", "64"),
)
# Of one core of a virtual machine at PILOT_PIXELS, where no pilot has measured.
_GUESS = {
    "inceptionv3": Rate(samples_per_s=10.0, startup_s=8.5),
    "resnet50": Rate(samples_per_s=8.0, startup_s=8.5),
    "vgg16": Rate(samples_per_s=4.0, startup_s=8.5),
}
_PILOT_STEPS, _PILOT_BATCH = 4, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizing:
    """What all studies of speed of one plan have in common."""

    asked: Asked
    rates: Mapping[str, Rate]
    """At this plan's pixels."""
    images: int
    """That there are."""
    here: Effort

    def planned(
        self, name: str, title: str, grid: tuple[str, ...], *, once_s: float, repeats: int = 0
    ) -> Planned:
        """Return a study of all three networks.

        Args:
            name: Its folder.
            title: What it is for.
            grid: Flags that say which cells there are, beside the networks.
            once_s: What one launch of each cell takes.
            repeats: Of each cell; 0: as many as this effort has.
        """
        repeats = repeats or self.here.repeats
        return Planned(
            name=name,
            title=title,
            flags=(
                *(*grid, "-L", f"model={','.join(MODELS)}"),
                *("--steps", str(self.here.steps), *speed_flags(repeats)),
                *_patient(self.asked),
            ),
            script=SMALL.script,
            arguments=speed_arguments(
                self.asked, "{model}", self.here.pixels, loop(self.asked, self.here, self.images)
            ),
            estimate_s=repeats * once_s + STUDY_S,
            environ=alike.KERAS,
        )

    def launches_s(self, cells: Iterable[tuple[int, int]]) -> float:
        """Return what one launch of each network takes for cells of workers and their batches."""
        return sum(
            launch_s(
                rate,
                workers=count,
                cores=self.asked.cores,
                samples=self.here.steps * batch * count,
                epochs=1,
            )
            for rate in self.rates.values()
            for count, batch in cells
        )


def pilot(asked: Asked) -> tuple[Planned, ...]:
    """Return the studies that measure what one worker does in a second, for each network."""
    for_speed = tuple(
        Planned(
            name=model,
            title=f"How fast one worker trains {title}",
            flags=(
                *("-np", "1", "--threads", "1", "-L", f"batch={_PILOT_BATCH}"),
                *("--steps", str(_PILOT_STEPS), *speed_flags(1), *busy_flags(asked)),
            ),
            script=SMALL.script,
            arguments=speed_arguments(asked, model, PILOT_PIXELS, 4 * _PILOT_BATCH),
            estimate_s=steps_s(
                _GUESS[model], threads=1, batches=(_PILOT_BATCH,), steps=_PILOT_STEPS
            )
            + STUDY_S,
            environ=alike.KERAS,
        )
        for model, title in MODELS.items()
    )
    return (*for_speed, SMALL.pilot(asked))


def plan(asked: Asked, data: DataFacts, rates: Mapping[str, Rate], effort: int) -> Plan:
    """Return the studies of a size."""
    here = effort_of(asked, effort)
    # Convolutions cost as many operations as there are pixels.
    slower = (here.pixels / PILOT_PIXELS) ** 2
    known = {model: rates.get(model, guess) for model, guess in _GUESS.items()}
    sizing = _Sizing(
        asked=asked,
        rates={
            model: replace(rate, samples_per_s=rate.samples_per_s / slower)
            for model, rate in known.items()
        },
        images=data.train,
        here=here,
    )
    studies = [_scaling(sizing), _batch(sizing)]
    studies += [_split(sizing)] if split_counts(asked, here) else []
    studies += _accuracy(asked, data, rates.get(SMALL.name, SMALL.guess), here)
    return Plan(studies=tuple(studies), choices=choices(asked, data, here, SMALL))


def speed_arguments(asked: Asked, model: str, pixels: int, images: int) -> tuple[str, ...]:
    """Return a job without an end over few images: the study ends it after so many steps."""
    return (
        *alike.data_arguments(asked),
        *("--model", model, "--image-size", str(pixels), "--loop", str(images)),
        *("--epochs", "1000", "--batch-size", "{batch}", "--recipe", "fixed"),
    )


def _scaling(sizing: _Sizing) -> Planned:
    counts, shared = (
        timed_counts(sizing.asked, sizing.here),
        shared_batch(sizing.asked, sizing.here),
    )
    batch = sizing.here.batch
    cells = {(count, size) for count in counts for size in (batch, shared // count)}
    return sizing.planned(
        SCALING,
        "Weak and strong scaling of the three networks",
        (
            *("-np", alike.numbers(counts), "--threads", "1"),
            *("-L", f"batch={batch}", "-L", f"global_batch={shared}"),
        ),
        once_s=sizing.launches_s(cells),
    )


def _batch(sizing: _Sizing) -> Planned:
    asked, here = sizing.asked, sizing.here
    batches = tuple(sorted({*here.sweep, shared_batch(asked, here)}))
    once_s = sum(
        steps_s(rate, threads=asked.cores, batches=batches, steps=here.steps)
        for rate in sizing.rates.values()
    )
    return sizing.planned(
        BATCH,
        "One process with all cores, by batch",
        ("-np", "1", "--threads", str(asked.cores), "-L", f"batch={alike.numbers(batches)}"),
        once_s=once_s,
        repeats=here.sweep_repeats,
    )


def _split(sizing: _Sizing) -> Planned:
    asked, shared = sizing.asked, shared_batch(sizing.asked, sizing.here)
    counts = split_counts(asked, sizing.here)
    once_s = sum(
        rate.startup_s + sizing.here.steps * shared / (rate.samples_per_s * asked.cores)
        for rate in sizing.rates.values()
        for _ in counts
    )
    return sizing.planned(
        SPLIT,
        "Processes x threads between one process and one thread each",
        ("-np", alike.numbers(counts), "--split", "all", "-L", f"global_batch={shared}"),
        once_s=once_s,
    )


def _accuracy(asked: Asked, data: DataFacts, rate: Rate, here: Effort) -> list[Planned]:
    """Return what trains the small network to the end, the lab's own recipe first."""
    training = Training(
        workload=SMALL,
        asked=asked,
        data=data,
        rate=rate,
        samples=here.samples,
        test_samples=0,
        epochs=here.epochs,
        seeds=here.seeds,
    )
    first, *rest = alike.recipes(asked, RECIPES[: here.recipes])
    counts = alike.counts(asked, here.workers)
    studies = [
        training.study(
            name=WORKERS,
            title=f"Accuracy of the small network by workers, recipe {first}",
            recipes=(first,),
            workers=counts,
        )
    ]
    several = tuple(count for count in counts if count > 1)
    if rest and several:
        studies.append(
            training.study(
                name=RECIPE,
                title=f"Accuracy of the small network by workers, {listed(rest)}",
                recipes=tuple(rest),
                workers=several,
            )
        )
    return studies


def _patient(asked: Asked) -> tuple[str, ...]:
    """Return what a launch may take: at full size a step is minutes long on a CPU."""
    return ("--launch-timeout", "24h") if asked.size == "full" else busy_flags(asked)
