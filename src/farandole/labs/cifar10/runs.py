"""What the cifar10 lab's studies hold of one way of training, whichever of them ran it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from farandole.labs.cifar10.plan import ACCURACY, BASELINE, FEWER, NORM, ORDER, SYNC
from farandole.labs.evidence import argument, final_mean, steps_made
from farandole.labs.lab import Found
from farandole.model.gap import Gap, finals_by_seed, paired_gap
from farandole.model.info.communication import Communication
from farandole.model.info.launches import CellRow
from farandole.model.info.metric import MetricCurve
from farandole.model.info.scaling import ScalingInfo
from farandole.model.statistics import Estimate
from farandole.recipes import RECIPES, recipe
from farandole.study.records import Launch

METRIC = "val_accuracy"
_REMEDIES = (BASELINE, FEWER, ACCURACY, NORM, SYNC)
_TRAINED = (*_REMEDIES, ORDER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """All launches that were trained to the end in one way."""

    info: ScalingInfo
    """Of the study that has them."""
    launches: tuple[Launch, ...]
    """At least one."""

    @property
    def workers(self) -> int:
        """How many there were."""
        return self.launches[0].cell.workers

    @property
    def recipe(self) -> str:
        """Its name."""
        return argument(self.launches[0], "--recipe") or "fixed"

    @property
    def norm(self) -> str:
        """What is done with batch norm's statistics."""
        return argument(self.launches[0], "--norm") or "local"

    @property
    def name(self) -> str:
        """The recipe, with what else is meant to keep accuracy."""
        return f"{self.recipe} + SyncBatchNorm" if self.norm == "sync" else self.recipe

    @property
    def by_seed(self) -> Mapping[int, float]:
        """Accuracy at the end."""
        return finals_by_seed(self.launches, METRIC)

    @property
    def accuracy(self) -> Estimate | None:
        """Mean over seeds."""
        return final_mean(self.launches, METRIC)

    @property
    def steps(self) -> int | None:
        """Updates of the weights in a run."""
        return steps_made(self.launches)

    @property
    def epochs(self) -> int | None:
        """Of a run, as its recipe has them."""
        plain = argument(self.launches[0], "--epochs")
        if plain is None or not plain.isdecimal():
            return None
        return recipe(self.recipe).epochs(int(plain)) if self.recipe in RECIPES else int(plain)

    @property
    def batch(self) -> int | None:
        """Per worker."""
        return self.launches[0].cell.batch

    @property
    def row(self) -> CellRow | None:
        """Its cell with what counts of its speed."""
        cell = self.launches[0].cell
        return next((row for row in self.info.cells if row.cell == cell), None)

    @property
    def communication(self) -> Communication | None:
        """What its workers sent; None for one worker."""
        cell = self.launches[0].cell
        return next((row for row in self.info.communication if row.cell == cell), None)

    @property
    def curve(self) -> MetricCurve | None:
        """Accuracy by epoch."""
        cell = self.launches[0].cell
        curves = (curve for curve in self.info.metric_curves if curve.metric == METRIC)
        return next((curve for curve in curves if curve.cell == cell), None)

    def gap_to(self, other: Trained) -> Gap | None:
        """Return how far its accuracy lies above another's, seed by seed."""
        return paired_gap(self.by_seed, other.by_seed)


def trained(
    found: Found,
    *,
    workers: int,
    recipe: str = "fixed",
    norm: str = "local",
    order: str = "epoch",
) -> Trained | None:
    """Return the launches that were trained in this way; None when there are none.

    What a launch was told stands in its command, so that it does not matter which study it was
    made in.
    """
    wanted = {"--recipe": recipe, "--norm": norm, "--order": order}
    for name in _TRAINED:
        study = found.records.get(name)
        launches = tuple(
            launch
            for launch in (study.launches if study else ())
            if launch.cell.workers == workers
            and launch.outcome == "ok"
            and all(argument(launch, flag) == value for flag, value in wanted.items())
        )
        if launches:
            return Trained(info=found.studies[name], launches=launches)
    return None


def all_trained(found: Found) -> tuple[Trained, ...]:
    """Return one worker, then whatever is meant to keep accuracy, at every number of workers."""
    ways: dict[tuple[str, int, str], None] = {}
    for name in _REMEDIES:
        study = found.records.get(name)
        for launch in study.launches if study else ():
            norm = argument(launch, "--norm") or "local"
            if norm != "broadcast":
                ways[argument(launch, "--recipe") or "fixed", launch.cell.workers, norm] = None
    order = sorted(ways, key=lambda way: way[1] > 1)
    made = (trained(found, workers=n, recipe=name, norm=norm) for name, n, norm in order)
    return tuple(one for one in made if one is not None)


def base_recipe(found: Found) -> str:
    """Return the recipe that was held fixed where something else was varied."""
    study = found.records.get(ACCURACY)
    names = [argument(launch, "--recipe") for launch in study.launches] if study else []
    return next((name for name in names if name), "fixed")


def fewest_workers(found: Found) -> int | None:
    """Return the smallest number of workers above one that was trained to the end."""
    counts = [one.workers for one in all_trained(found) if one.workers > 1]
    return min(counts, default=None)


def tested_on(found: Found) -> int:
    """Return how many samples accuracies are a share of."""
    for name in _TRAINED:
        for launch in found.records[name].launches if name in found.records else ():
            given = argument(launch, "--test-samples")
            if given is not None and given.isdecimal() and int(given):
                return int(given)
    return found.data.test


def why_missing(info: ScalingInfo | None) -> str:
    """Say why a study has no speed to show."""
    if info is None:
        return "its study could not be made"
    whys = [row.why for row in info.launches if row.why and row.outcome in ("ok", "stopped")]
    return whys[0] if whys else "no launch of it counts"
