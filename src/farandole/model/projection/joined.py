"""Steps and epochs joined: time to a goal, its cost, the metric, and what limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from farandole.errors import UsageError
from farandole.model.info.curve import CurvePoint
from farandole.model.projection import intervals
from farandole.model.projection.contention import InputRate
from farandole.model.projection.outlook import Goal, Limit, Outlook
from farandole.model.projection.records import EpochFit, EpochRow, Projected
from farandole.model.projection.rows import Basis, Beside
from farandole.model.projection.settings import Setting
from farandole.model.projection.steps.by_link import Speeds
from farandole.model.statistics import PROJECTION_CONFIDENCE, geometric_mean

_NOTABLE = 0.1
"""Share of the time that something must take to be called the limit in place of computing."""

MetricAt = Callable[[int], Projected | None]
"""The metric at a global batch, after the epochs of the measured runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """Everything that an outlook is made of."""

    basis: Basis
    speeds: Speeds
    goal: Goal | None
    epochs: EpochFit | None
    """To the goal; None: as many at every batch as the goal says."""
    epoch_rows: Sequence[EpochRow]
    metric_at: MetricAt
    told_batches: frozenset[int] | None = None
    """Global batches whose epochs can be told; None: any."""
    batch: int | None = None
    accumulate: int = 1
    input: InputRate | None = None
    """How fast batches come at most; None where nobody measured it."""

    def at(self, setting: Setting) -> Outlook:
        """Project one setting.

        Raises:
            UsageError: when there are more workers than samples in the global batch.
        """
        batch = self._batch(setting.workers)
        step = self.speeds.step_s(setting, batch)
        fed = intervals.at_least(step, self._loading_s(setting, batch * self.accumulate))
        starved_s = fed.value - step.value
        return self._outlook(setting, batch, self.accumulate, fed, starved_s, is_measured=False)

    def measured(self, point: CurvePoint, setting: Setting) -> Outlook | None:
        """Return a measured count in the same form; None when its launches gave no time."""
        batch = point.batch or 1
        times = [
            row.step_s
            for row in self.basis.rows
            if (row.workers, row.hosts, row.batch) == (point.workers, point.cell.hosts, batch)
        ]
        if not times:
            return None
        step = intervals.measured(geometric_mean(times, confidence=PROJECTION_CONFIDENCE))
        return self._outlook(setting, batch, 1, step, 0.0, is_measured=True)

    def base_throughput(self) -> float:
        """Return the throughput of the fewest measured workers."""
        fewest = self.basis.workers[0]
        batch = self.basis.batch_of(fewest)
        rows = [row for row in self.basis.rows if row.workers == fewest]
        times = [row.step_s for row in rows if row.batch == batch] or [r.step_s for r in rows]
        return self.basis.throughput(geometric_mean(times).value, batch * fewest)

    def _batch(self, workers: int) -> int:
        if self.batch is not None:
            return self.batch
        basis = self.basis
        if basis.scaling == "strong" and workers * self.accumulate > basis.batch:
            raise UsageError(
                f"A global batch of {basis.batch}, which this study keeps fixed, cannot be shared "
                f"by {workers * self.accumulate} workers. Ask for at most {basis.batch}, or for a "
                "batch per worker: --batch 32."
            )
        return basis.batch_of(workers * self.accumulate)

    def _loading_s(self, setting: Setting, samples: int) -> float:
        """Return what loading a worker's batches of a step takes, on a host like the measured."""
        if self.input is None:
            return 0.0
        return samples / self.input.at(math.ceil(setting.workers / setting.hosts))

    def _outlook(
        self,
        setting: Setting,
        batch: int,
        accumulate: int,
        step: Projected,
        starved_s: float,
        *,
        is_measured: bool,
    ) -> Outlook:
        basis = self.basis
        global_batch = batch * setting.workers * accumulate
        throughput = intervals.inverted(step, basis.throughput(1.0, global_batch))
        steps = basis.steps_per_epoch(global_batch)
        epoch = None if steps is None else intervals.scaled(step, steps)
        epochs = self._epochs(global_batch, is_measured=is_measured) if epoch else None
        time = cost = None
        if epoch is not None and epochs is not None:
            beside = self._beside(setting.workers)
            each = intervals.shifted(epoch, beside.per_epoch_s)
            time = intervals.shifted(intervals.product(each, epochs), beside.once_s)
        if time is not None and setting.cost_per_s is not None:
            cost = intervals.scaled(time, setting.cost_per_s)
        alone = self.speeds.alone_s(setting, batch) * accumulate / self.accumulate
        fed_s = step.value - starved_s
        split = {"compute": min(fed_s, alone), "communication": max(0.0, fed_s - alone)}
        if starved_s > 0:
            split["input"] = starved_s
        parts = self._parts(setting.workers, split, epochs, time, steps)
        return Outlook(
            workers=setting.workers,
            hosts=setting.hosts,
            link=setting.link.name if setting.link else None,
            batch=batch if basis.batch_known or self.batch else None,
            global_batch=global_batch if basis.batch_known or self.batch else None,
            measured=is_measured,
            step_s=step if basis.steps_known else None,
            throughput=throughput,
            speedup=intervals.scaled(throughput, 1 / self.base_throughput()),
            epoch_s=epoch,
            epochs=epochs,
            time_s=time,
            cost=cost,
            metric=self.metric_at(global_batch),
            limited_by=_limit(parts),
            parts=parts,
        )

    def _beside(self, workers: int) -> Beside:
        """Return what is no training; a goal of one epoch has no job around it."""
        if self.goal is None or self.goal.kind == "epoch":
            return Beside(once_s=0.0)
        return self.basis.beside_of(workers)

    def _epochs(self, global_batch: int, *, is_measured: bool) -> Projected | None:
        if self.goal is None:
            return None
        if self.epochs is None:
            return None if self.goal.epochs is None else intervals.exactly(self.goal.epochs)
        if self.told_batches is not None and global_batch not in self.told_batches:
            return None
        fitted = self.epochs.at(global_batch)
        runs = [row for row in self.epoch_rows if row.global_batch == global_batch]
        if not is_measured or not runs or not all(row.reached for row in runs):
            return fitted
        ends = [row.epochs for row in runs]
        own = geometric_mean(ends, confidence=PROJECTION_CONFIDENCE)
        if len(set(ends)) > 1:
            return intervals.measured(own)
        # One run, or as many epochs in all: how far runs spread is what the fit says.
        low, high = min(fitted.low, own.value), max(fitted.high, own.value)
        return replace(intervals.exactly(own.value), low=low, high=high)

    def _parts(
        self,
        workers: int,
        step: Mapping[str, float],
        epochs: Projected | None,
        time: Projected | None,
        steps: float | None,
    ) -> Mapping[str, float]:
        """Split the time: computing for the epochs of the smallest batch, and what comes on top."""
        if time is None or epochs is None or steps is None:
            whole = math.fsum(step.values())
            return {name: seconds / whole for name, seconds in step.items()}
        fewest = min(epochs.value, self._fewest_epochs())
        whole, beside = time.value, self._beside(workers)
        each = {name: epochs.value * steps * seconds / whole for name, seconds in step.items()}
        return each | {
            "compute": fewest * steps * step["compute"] / whole,
            "epochs": (epochs.value - fewest) * steps * step["compute"] / whole,
            "fixed_cost": (beside.once_s + epochs.value * beside.per_epoch_s) / whole,
        }

    def _fewest_epochs(self) -> float:
        """Return what the smallest measured global batch needs."""
        if self.epochs is None:
            return math.inf
        return self.epochs.at(min(row.global_batch for row in self.epoch_rows)).value


def _limit(parts: Mapping[str, float]) -> Limit:
    others = {name: share for name, share in parts.items() if name != "compute"}
    name = max(others, key=lambda other: others[other])
    if others[name] < _NOTABLE:
        return "compute"
    return name  # type: ignore[return-value]
