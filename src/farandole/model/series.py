"""A launch's metrics as series over epochs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, median

from farandole.model.pace import STATED
from farandole.study.records import Launch, Metric

_HIGHER = ("acc", "auc", "f1", "score", "precision", "recall", "iou", "map", "bleu", "r2", "top")
_LOWER = ("loss", "error", "err", "mae", "mse", "rmse", "perplexity", "ppl", "wer", "cer")
_PREFERRED = (
    *("val_accuracy", "val_acc", "validation_accuracy", "test_accuracy", "test_acc"),
    *("accuracy", "acc", "val_loss", "validation_loss", "test_loss", "loss"),
)
_HELD_OUT = ("val_", "valid_", "validation_", "test_", "eval_")
_LAST_STEPS = 10
"""A value per step is noisy: the median of so many stands for the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One metric of one launch, by epoch (or by step where no epoch is known)."""

    epochs: tuple[float, ...]
    values: tuple[float, ...]
    times_s: tuple[float | None, ...]
    by_step: bool

    @property
    def final(self) -> float:
        """The value at the end; NaN when training diverged."""
        if not self.by_step or not math.isfinite(self.values[-1]):
            return self.values[-1]
        last = [value for value in self.values[-_LAST_STEPS:] if math.isfinite(value)]
        return median(last)


def series_of(launch: Launch) -> dict[str, Series]:
    """Collect a launch's metrics by name.

    Values of several ranks or steps in one epoch are averaged, as the script's author would. Epochs
    say how many are done: 1 after the first, also where a script calls that one 0. A metric among
    an imported table's figures is a series of one point.
    """
    by_name: dict[str, list[Metric]] = {}
    ranks: Iterable[Metric] = (metric for rank in launch.ranks for metric in rank.metrics)
    for metric in (*launch.metrics, *ranks):
        if metric.name not in STATED:
            by_name.setdefault(metric.name, []).append(metric)
    first = _number_of_first(launch)
    found = {name: _series(metrics, 1.0 - first) for name, metrics in by_name.items()}
    for name, value in launch.figures.items():
        if name not in found and higher_is_better(name) is not None:
            epoch = float(launch.figures.get("epochs", 1.0))
            found[name] = Series(
                epochs=(epoch,), values=(float(value),), times_s=(None,), by_step=False
            )
    return found


def higher_is_better(name: str) -> bool | None:
    """Tell a metric's direction by its name; None when the name does not tell."""
    words = name.lower().replace("-", "_").replace("/", "_").replace(" ", "_").split("_")
    if any(word.startswith(_LOWER) or word.endswith("loss") for word in words):
        return False
    return True if any(word.startswith(_HIGHER) for word in words) else None


def held_out(name: str) -> bool:
    """Tell whether a metric is of data that the model was not trained on."""
    return name.lower().replace("-", "_").startswith(_HELD_OUT)


def main_metric(names: Iterable[str]) -> str | None:
    """Choose the metric that stands for accuracy: validation before training, accuracy first."""
    names = sorted(set(names))
    lowered = {name.lower().replace("-", "_").replace(" ", "_"): name for name in names}
    for name in _PREFERRED:
        if name in lowered:
            return lowered[name]
    for held in (True, False):
        for higher in (True, False):
            for name in names:
                if held_out(name) is held and higher_is_better(name) is higher:
                    return name
    return None


def training_partner(name: str, names: Iterable[str]) -> str | None:
    """Return the training metric that belongs to a held-out one: val_loss has loss."""
    if not held_out(name):
        return None
    lowered = {other.lower().replace("-", "_"): other for other in names}
    bare = name.lower().replace("-", "_").split("_", 1)[1]
    for candidate in (f"train_{bare}", f"training_{bare}", bare):
        if candidate in lowered:
            return lowered[candidate]
    return None


def _number_of_first(launch: Launch) -> float:
    """Return what a launch calls its first epoch: 0, as Keras and range() do, or 1.

    A 0 stands for a look before training where as many epochs were made as the last one's number.
    """
    ranks = (metric for rank in launch.ranks for metric in rank.metrics)
    told = [one.epoch for one in (*launch.metrics, *ranks) if one.epoch is not None]
    if not told or min(told) != 0 or any(epoch != int(epoch) for epoch in told):
        return 1.0
    made = max((len(rank.epochs) for rank in launch.ranks), default=0)
    return 1.0 if made and max(told) >= made else 0.0


def _series(metrics: list[Metric], later: float) -> Series:
    by_step = all(metric.epoch is None for metric in metrics)
    keyed: dict[float, list[Metric]] = {}
    counters: dict[int | None, int] = {}
    for metric in metrics:
        if metric.epoch is not None:
            key = float(metric.epoch) + later
        elif by_step and metric.step is not None:
            key = float(metric.step)
        else:
            # Neither: the n-th value that this rank reported.
            counters[metric.rank] = counters.get(metric.rank, 0) + 1
            key = float(counters[metric.rank])
        keyed.setdefault(key, []).append(metric)
    order = sorted(keyed)
    times = [[m.time_s for m in keyed[key] if m.time_s is not None] for key in order]
    return Series(
        epochs=tuple(order),
        values=tuple(fmean(metric.value for metric in keyed[key]) for key in order),
        times_s=tuple(max(known) if known else None for known in times),
        by_step=by_step and any(metric.step is not None for metric in metrics),
    )
