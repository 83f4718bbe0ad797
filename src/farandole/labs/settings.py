"""What a lab's script was run with, setting by setting, out of its launches' own commands."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from farandole.labs.effort import LAB_RECIPES, lab_recipe
from farandole.labs.evidence import argument, final_mean, steps_made
from farandole.labs.lab import Found
from farandole.model.jobs import training_steps
from farandole.model.metrics import Gap, finals_by_seed, paired_gap
from farandole.model.statistics import Estimate
from farandole.study.records import Launch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Setting:
    """One way in which the script was run, with all launches of it, whatever their seeds."""

    study: str
    workers: int
    batch: int
    """Per worker."""
    recipe: str
    samples: int
    """Of an epoch, over all workers."""
    test_samples: int
    epochs: int
    base_rate: float
    """The learning rate of one worker."""
    launches: tuple[Launch, ...]

    @property
    def rate(self) -> float:
        """The learning rate once it has grown."""
        return self.base_rate * (self.workers if lab_recipe(self.recipe).scaled else 1)

    @property
    def global_batch(self) -> int:
        """Samples of a step, over all workers."""
        return self.batch * self.workers

    @property
    def steps(self) -> float:
        """Steps of the job by the formula: epochs x samples / global batch."""
        return training_steps(self.epochs, self.samples, self.batch, self.workers)

    @property
    def whole_steps(self) -> int:
        """Steps of the job when each epoch ends with what is left of every worker's share."""
        return self.epochs * math.ceil(self.samples // self.workers / self.batch)

    @property
    def counted(self) -> int | None:
        """Steps that workers recorded."""
        return steps_made(self.launches)

    @property
    def seeds(self) -> int:
        """How many runs ended."""
        return len({one.seed for one in self.launches if one.outcome == "ok"})

    def final(self, metric: str) -> Estimate | None:
        """Return a metric at the end, over seeds."""
        return final_mean(self.launches, metric)

    def gap(self, other: Setting, metric: str) -> Gap | None:
        """Return how far a metric lies above another setting's, paired by seeds."""
        return paired_gap(
            finals_by_seed(self.launches, metric), finals_by_seed(other.launches, metric)
        )

    def wall_s(self) -> float | None:
        """Return how long a job took from its launch to its end, the median over launches."""
        times = [one.wall_s for one in self.launches if one.outcome == "ok" and one.wall_s]
        return median(times) if times else None


def settings_of(found: Found, *studies: str) -> tuple[Setting, ...]:
    """Return the settings of these studies, study by study, by recipe, workers and samples.

    A recipe says nothing about one worker unless it trains for longer; what it was run with counts.
    """
    groups: dict[tuple[str, int, int, str, int], list[Launch]] = {}
    for name in studies:
        study = found.records.get(name)
        for launch in study.launches if study else ():
            chosen = argument(launch, "--recipe")
            batch = launch.cell.batch
            if chosen is None or chosen not in LAB_RECIPES:
                continue
            if batch is not None and not launch.cell.today:
                samples = int(argument(launch, "--samples") or 0) or found.data.train
                key = (name, launch.cell.workers, batch, chosen, samples)
                groups.setdefault(key, []).append(launch)
    order = list(LAB_RECIPES)
    return tuple(
        Setting(
            study=name,
            workers=workers,
            batch=batch,
            recipe=chosen,
            samples=samples,
            test_samples=int(argument(launches[0], "--test-samples") or 0) or found.data.test,
            epochs=lab_recipe(chosen).epochs(int(argument(launches[0], "--epochs") or 1)),
            base_rate=float(argument(launches[0], "--lr") or "nan"),
            launches=tuple(launches),
        )
        for (name, workers, batch, chosen, samples), launches in sorted(
            groups.items(),
            key=lambda item: (
                *(studies.index(item[0][0]), order.index(item[0][3])),
                *(item[0][1], item[0][4]),
            ),
        )
    )
