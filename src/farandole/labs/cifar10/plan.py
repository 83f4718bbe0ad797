"""Which studies the cifar10 lab makes at which size; no two of them run the same cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from farandole.labs import effort as alike
from farandole.labs.cifar10.effort import (
    LEARNING_RATE,
    QUICK,
    Effort,
    effort_of,
    memory_bytes,
    pair,
    recipes,
    synchronised,
    timed_counts,
    timed_samples,
    trained_counts,
)
from farandole.labs.duration import STUDY_S, launch_s
from farandole.labs.lab import Asked, DataFacts, Planned, Rate
from farandole.recipes import recipe

SCRIPT = "cifar10.py"
TIME, BASELINE, ACCURACY, FEWER = "speedup", "baseline", "accuracy", "fewer"
ORDER, REPLICAS, NORM, SYNC = "order", "replicas", "norm", "sync"
"""Names of the studies. Those that end as a published table's name are drawn beside it."""
RESNET, SMALL = "resnet18", "small"
"""Names of the pilots, and of the networks."""

# Of one core of a virtual machine, where no pilot has measured: for `quick` and `full`.
_GUESS = {
    RESNET: Rate(samples_per_s=18.0, startup_s=3.5),
    SMALL: Rate(samples_per_s=1200.0, startup_s=3.5),
}
_PILOT_BATCH, _PILOT_STEPS = 8, {RESNET: 5, SMALL: 40}
_PILOT_SAMPLES = 512
_FEW_TEST_SAMPLES = 10
"""Of launches for times, whose accuracy says nothing."""
_LACK_S = 2.0
"""What a launch takes beyond its start until its memory is used up."""
_CALIBRATION_S = 18.0
"""Of the link, and of workers that send nothing, for each number of workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizing:
    """What all studies of one plan have in common."""

    asked: Asked
    data: DataFacts
    rates: Mapping[str, Rate]
    here: Effort

    @property
    def samples(self) -> int:
        return alike.taken(self.here.samples, self.data.train)

    @property
    def test_samples(self) -> int:
        return alike.taken(self.here.test_samples, self.data.test)

    def trained_s(self, count: int, name: str) -> float:
        """Return what one run to the end takes."""
        return launch_s(
            self.rates[self.here.model],
            workers=count,
            cores=self.asked.cores,
            samples=self.samples,
            epochs=recipe(name).epochs(self.here.epochs),
            test_samples=self.test_samples,
        )

    def stepped_s(self, model: str, count: int, batch: int, steps: int) -> float:
        """Return what a launch takes that ends after so many steps."""
        return launch_s(
            self.rates[model],
            workers=count,
            cores=self.asked.cores,
            samples=steps * batch * count,
            epochs=1,
        )


def pilot(asked: Asked) -> tuple[Planned, ...]:
    """Return the studies that measure what one worker does in a second, for both networks."""
    sizing = _Sizing(
        asked=asked,
        data=DataFacts(source="", train=1024, test=_FEW_TEST_SAMPLES, sample=""),
        rates=_GUESS,
        here=QUICK,
    )
    return tuple(
        Planned(
            name=model,
            title=f"How fast one worker trains {_WORDS[model]}",
            flags=(
                *("-np", "1", "--threads", "1", "-L", f"batch={batch}", "--steps", str(steps)),
                *(*_few(1), "--no-calibration", "--keep-busy"),
            ),
            script=SCRIPT,
            arguments=_timed(asked, model, samples=_PILOT_SAMPLES, test_samples=_FEW_TEST_SAMPLES),
            estimate_s=sizing.stepped_s(model, 1, batch, steps) + STUDY_S,
        )
        for model, batch, steps in (
            (RESNET, _PILOT_BATCH, _PILOT_STEPS[RESNET]),
            (SMALL, QUICK.batch, _PILOT_STEPS[SMALL]),
        )
    )


def studies(
    asked: Asked, data: DataFacts, rates: Mapping[str, Rate], effort: int
) -> tuple[Planned, ...]:
    """Return the studies of a size."""
    sizing = _Sizing(
        asked=asked, data=data, rates={**_GUESS, **rates}, here=effort_of(asked, effort)
    )
    planned = [_time(sizing), _baseline(sizing)]
    counts, two = trained_counts(asked, sizing.here), pair(asked, sizing.here)
    if counts and two is not None:
        planned += [_accuracy(sizing, counts[-1])]
        planned += [_fewer(sizing, counts[:-1])] if counts[1:] else []
        planned += [_norm(sizing, two), _replicas(sizing, two)]
        remedy = synchronised(asked, sizing.here)
        planned += [] if remedy is None else [_sync(sizing, *remedy)]
    return (*planned, _order(sizing))


def _time(sizing: _Sizing) -> Planned:
    asked, here = sizing.asked, sizing.here
    counts = timed_counts(asked, here)
    once = sum(
        launch_s(
            sizing.rates[RESNET],
            workers=count,
            cores=asked.cores,
            samples=sizing.data.train if here.steps == 0 else here.steps * batch * count,
            epochs=1,
        )
        for count in counts
        for batch in here.batches
    )
    lacking = sum(
        launch_s(sizing.rates[RESNET], workers=count, cores=asked.cores, samples=0, epochs=1)
        + _LACK_S
        for count in counts
    )
    ends = ("--epochs", "1") if here.steps == 0 else ("--steps", str(here.steps))
    limit = f"{memory_bytes(asked, here) // 10**6}M"
    batches = (*here.batches, here.too_large)
    calibration = () if here.calibrated else ("--no-calibration",)
    return Planned(
        name=TIME,
        title="ResNet-18's times by batch and workers",
        flags=(
            *("-np", alike.numbers(counts), "--threads", "1"),
            *("-L", f"batch={alike.numbers(batches)}", *ends, "--memory", limit),
            *(*_few(here.repeats), *calibration, *_busy(asked)),
        ),
        script=SCRIPT,
        arguments=_timed(
            asked,
            RESNET,
            samples=alike.subset(timed_samples(asked, here), sizing.data.train),
            test_samples=alike.subset(_FEW_TEST_SAMPLES, sizing.data.test),
        ),
        estimate_s=here.repeats * once
        + lacking
        + STUDY_S
        + (_CALIBRATION_S * (len(counts) - 1) if here.calibrated else 0.0),
    )


def _baseline(sizing: _Sizing) -> Planned:
    return _trained(
        sizing,
        name=BASELINE,
        title="Accuracy of one worker",
        counts=(1,),
        settings=(("fixed", "local", "epoch"),),
        factor=("recipe", ("fixed",)),
    )


def _accuracy(sizing: _Sizing, count: int) -> Planned:
    names = recipes(sizing.asked, sizing.here)
    return _trained(
        sizing,
        name=ACCURACY,
        title=f"Accuracy of {count} workers by recipe",
        counts=(count,),
        settings=tuple((name, "local", "epoch") for name in names),
        factor=("recipe", names),
    )


def _fewer(sizing: _Sizing, counts: tuple[int, ...]) -> Planned:
    names = recipes(sizing.asked, sizing.here)[: sizing.here.recipes_below]
    return _trained(
        sizing,
        name=FEWER,
        title="Accuracy of fewer workers",
        counts=counts,
        settings=tuple((name, "local", "epoch") for name in names),
        factor=("recipe", names),
    )


def _norm(sizing: _Sizing, count: int) -> Planned:
    # Statistics left alone are in the study of the recipes.
    (name, *_) = recipes(sizing.asked, sizing.here)
    others = ("broadcast", "sync")
    return _trained(
        sizing,
        name=NORM,
        title="Batch norm's statistics broadcast and synchronised",
        counts=(count,),
        settings=tuple((name, norm, "epoch") for norm in others),
        factor=("norm", others),
    )


def _sync(sizing: _Sizing, count: int, name: str) -> Planned:
    return _trained(
        sizing,
        name=SYNC,
        title=f"Accuracy of {count} workers with batch norm synchronised, recipe {name}",
        counts=(count,),
        settings=((name, "sync", "epoch"),),
        factor=("norm", ("sync",)),
    )


def _order(sizing: _Sizing) -> Planned:
    return _trained(
        sizing,
        name=ORDER,
        title="One worker that sees its samples in the same order in every epoch",
        counts=(1,),
        settings=(("fixed", "local", "fixed"),),
        factor=("order", ("fixed",)),
    )


def _replicas(sizing: _Sizing, count: int) -> Planned:
    asked, here = sizing.asked, sizing.here
    one = sizing.stepped_s(here.model, count, here.batch, here.replica_steps)
    return Planned(
        name=REPLICAS,
        title=f"{count} replicas as threads of one process",
        flags=(
            *("-np", "1", "--threads", "1", "-L", f"replicas={count}"),
            *("--steps", str(here.replica_steps)),
            *(*_few(max(here.repeats, here.seeds)), "--no-calibration", *_busy(asked)),
        ),
        script=SCRIPT,
        arguments=(
            *alike.data_arguments(asked),
            *("--model", here.model, "--epochs", "1000", "--batch-size", str(here.batch)),
            *("--samples", str(alike.subset(here.samples, sizing.data.train))),
            *("--test-samples", str(alike.subset(_FEW_TEST_SAMPLES, sizing.data.test))),
            *("--lr", f"{LEARNING_RATE:g}"),
            *("--recipe", "fixed", "--norm", "local", "--order", "epoch"),
            *("--replicas", "{replicas}", "--seed", "{seed}"),
        ),
        estimate_s=max(here.repeats, here.seeds) * one + STUDY_S,
    )


def _trained(
    sizing: _Sizing,
    *,
    name: str,
    title: str,
    counts: tuple[int, ...],
    settings: tuple[tuple[str, str, str], ...],
    factor: tuple[str, tuple[str, ...]],
) -> Planned:
    """Return a study whose launches run to the script's end.

    Args:
        sizing: of this plan.
        name: of the study.
        title: in words.
        counts: numbers of workers.
        settings: recipe, batch norm and order of each launch of one count and seed.
        factor: which of the three is varied, and its values.
    """
    here, (varied, values) = sizing.here, factor
    fixed = dict(zip(("recipe", "norm", "order"), settings[0], strict=True))
    given = {key: "{" + key + "}" if key == varied else value for key, value in fixed.items()}
    one_seed = sum(sizing.trained_s(count, setting[0]) for count in counts for setting in settings)
    return Planned(
        name=name,
        title=title,
        flags=(
            *("-np", alike.numbers(counts), "--threads", "1"),
            *("-L", f"{varied}={','.join(values)}"),
            *("--measure", "accuracy", "--seeds", str(here.seeds), "--no-calibration"),
            *_busy(sizing.asked),
        ),
        script=SCRIPT,
        arguments=(
            *alike.data_arguments(sizing.asked),
            *("--model", here.model, "--epochs", str(here.epochs)),
            *("--batch-size", str(here.batch)),
            *("--samples", str(alike.subset(here.samples, sizing.data.train))),
            *("--test-samples", str(alike.subset(here.test_samples, sizing.data.test))),
            *("--lr", f"{LEARNING_RATE:g}", "--recipe", given["recipe"]),
            *("--norm", given["norm"], "--order", given["order"], "--seed", "{seed}"),
        ),
        estimate_s=here.seeds * one_seed + STUDY_S,
    )


def _timed(asked: Asked, model: str, *, samples: int, test_samples: int) -> tuple[str, ...]:
    """Return a job without an end: the study ends it after so many steps or an epoch."""
    return (
        *alike.data_arguments(asked),
        *("--model", model, "--epochs", "1000", "--batch-size", "{batch}"),
        *("--samples", str(samples), "--test-samples", str(test_samples)),
        *("--lr", f"{LEARNING_RATE:g}", "--recipe", "fixed"),
    )


def _few(repeats: int) -> tuple[str, ...]:
    return ("--repeats", str(repeats), "--no-epoch", "--no-today")


def _busy(asked: Asked) -> tuple[str, ...]:
    """Make no launch again that others disturbed where time is short."""
    # Whole epochs of ResNet-18 take longer than a launch usually may.
    return ("--launch-timeout", "24h") if asked.size == "full" else ("--keep-busy",)


_WORDS = {RESNET: "ResNet-18", SMALL: "the small network"}
