"""Which studies a lab on transfer learning makes at which size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from farandole.format import listed
from farandole.labs import effort as alike
from farandole.labs.lab import Asked, DataFacts, Plan, Planned, Rate
from farandole.labs.original import ORIGINAL
from farandole.labs.training import Training, Workload
from farandole.labs.transfer.choices import choices
from farandole.labs.transfer.kind import RECIPES, Effort, Kind

IMAGE_SIZES = {"quick": 64, "budget": 96, "full": 224}
"""Pixels of a side. Networks of ImageNet take 224; on a CPU that costs several times as much."""
_RECIPE_WORKERS = 4
"""The most that recipes beside the first are tried on, unless the user asks for more."""


def pilot(kind: Kind, asked: Asked) -> tuple[Planned, ...]:
    """Return the study that measures what one worker does in a second."""
    return (work_of(kind, asked).pilot(asked),)


def plan(kind: Kind, asked: Asked, data: DataFacts, rates: Mapping[str, Rate], effort: int) -> Plan:
    """Return the studies of a size."""
    here = {"quick": kind.quick, "full": kind.full}.get(asked.size) or kind.ladder[effort]
    work = work_of(kind, asked)
    training = Training(
        workload=work,
        asked=asked,
        data=data,
        rate=rates.get(work.name, work.guess),
        samples=here.samples,
        test_samples=here.test_samples,
        epochs=here.epochs,
        seeds=here.seeds,
    )
    studies = (
        *_by_workers(kind, training, here),
        *_original(kind, training, here),
        *_same_batch(training, here),
        *_unwrapped(training, here),
    )
    return Plan(studies=studies, choices=choices(kind, asked, data, here, IMAGE_SIZES[asked.size]))


def work_of(kind: Kind, asked: Asked) -> Workload:
    """Return the script with the images' size, and the weights that were asked for."""
    size = ("--image-size", str(IMAGE_SIZES[asked.size]))
    weights = () if asked.weights is None else ("--weights", asked.weights)
    return replace(kind.work, arguments=(*size, *weights, *kind.work.arguments))


def named_recipes(asked: Asked, here: Effort) -> tuple[str, ...]:
    """Return the recipes but `original`, which has a rate of its own."""
    chosen = tuple(name for name in asked.recipes if name != ORIGINAL.name)
    if asked.recipes and not chosen:
        return ()
    return alike.recipes(replace(asked, recipes=chosen), RECIPES[: here.recipes])


def _by_workers(kind: Kind, training: Training, here: Effort) -> list[Planned]:
    asked = training.asked
    workers = alike.counts(asked, here.workers)
    first, *rest = named_recipes(asked, here) or (ORIGINAL.name,)
    if first == ORIGINAL.name:
        training = _at_original_rate(kind, training)
    studies = [
        training.study(
            name="workers",
            title=f"Time and accuracy by workers, recipe {first}",
            recipes=(first,),
            workers=workers,
        )
    ]
    # With one worker they are the same, or nearly so.
    some = tuple(n for n in workers if n > 1 and (asked.workers or n <= _RECIPE_WORKERS))
    if rest and some:
        studies.append(
            training.study(
                name="recipes",
                title=f"Accuracy by workers, {listed(rest)}",
                recipes=tuple(rest),
                workers=some,
            )
        )
    return studies


def _original(kind: Kind, training: Training, here: Effort) -> list[Planned]:
    """Return the study of the original's rate, unless the study of workers has it already."""
    asked = training.asked
    unwanted = asked.recipes and ORIGINAL.name not in asked.recipes
    if unwanted or not named_recipes(asked, here):
        return []
    study = replace(_at_original_rate(kind, training), seeds=min(training.seeds, 2)).study(
        name="original",
        title=f"Accuracy with the original's learning rate, {kind.original_rate:g} x workers",
        recipes=(ORIGINAL.name,),
        workers=alike.counts(asked, here.original),
    )
    # What such a rate destroys needs no narrow interval to be seen.
    return [replace(study, worth_repeating=False)]


def _at_original_rate(kind: Kind, training: Training) -> Training:
    work = replace(training.workload, learning_rate=kind.original_rate)
    return replace(training, workload=work)


def _same_batch(training: Training, here: Effort) -> list[Planned]:
    """Let two workers make the steps of one: the same global batch, rate and number of steps."""
    workers = alike.counts(training.asked, here.workers)
    first = next(iter(named_recipes(training.asked, here)), ORIGINAL.name)
    # One worker to compare with must have the same rate and epochs.
    alike_alone = first not in (ORIGINAL.name, "longer")
    if not here.same_batch or not alike_alone or not {1, 2} <= set(workers):
        return []
    work = training.workload
    halved = replace(training, workload=replace(work, batch=work.batch // 2))
    return [
        halved.study(
            name="same_batch",
            title="Accuracy of 2 workers that share the batch of one",
            recipes=("fixed",),
            workers=(2,),
        )
    ]


def _unwrapped(training: Training, here: Effort) -> list[Planned]:
    """Train for one epoch without a DistributedOptimizer, to show what it does."""
    several = [count for count in alike.counts(training.asked, here.workers) if count > 1]
    if not several:
        return []
    study = replace(training, epochs=1, seeds=1).study(
        name="unwrapped",
        title="The same script without a DistributedOptimizer",
        recipes=("fixed",),
        workers=(several[0],),
        arguments=("--unwrapped",),
    )
    return [replace(study, worth_repeating=False)]
