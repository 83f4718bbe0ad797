"""How workers of a host slow each other down: measured with some, and taken on for more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from farandole.model.projection.records import StepRow
from farandole.study.records import Apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """How many times as long something takes with so many workers on a host.

    Between measured numbers of workers lie straight lines. Beyond them each worker more costs as
    much as the measured ones did.
    """

    measured: tuple[tuple[int, float], ...] = ((1, 1.0),)
    """(workers, factor), from the fewest workers on."""

    def at(self, per_host: int) -> float:
        """Return the factor, over that of one worker or of the fewest measured ones."""
        counts = np.array([workers for workers, _ in self.measured], dtype=float)
        factors = np.array([factor for _, factor in self.measured])
        if per_host <= counts[-1]:
            return float(np.interp(per_host, counts, factors))
        over = counts[1:] - counts[0]
        slope = float(over @ (factors[1:] - factors[0]) / (over @ over)) if len(over) else 0.0
        return float(factors[-1] + slope * (per_host - counts[-1]))


def of_factors(factors: Mapping[int, float]) -> Contention:
    """Return the contention of factors by workers; none is below 1, which only noise can make."""
    pairs = {1: 1.0} | {workers: max(1.0, factor) for workers, factor in factors.items()}
    return Contention(measured=tuple(sorted(pairs.items())))


def of_apart(
    apart: Iterable[Apart],
    alone: Callable[[Apart], float | None],
    together: Callable[[Apart], float | None],
) -> Contention | None:
    """Return the contention of what workers took each for itself; None where nobody measured it.

    Args:
        apart: one for each number of workers.
        alone: what one took, in seconds.
        together: what each took with all at once.
    """
    factors = {
        one.cell.workers: after / before
        for one in apart
        if (before := alone(one)) and (after := together(one))
    }
    return of_factors(factors) if factors else None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRate:
    """How fast batches come at most: loaders with nothing beside them but each other."""

    alone_per_s: float
    """Samples per second of one worker's loader with nobody else there."""
    contention: Contention

    def at(self, per_host: int) -> float:
        """Return samples per second of one worker."""
        return self.alone_per_s / self.contention.at(per_host)


def input_rate(apart: Iterable[Apart], rows: Sequence[StepRow] = ()) -> InputRate | None:
    """Return how fast batches come; None where nobody measured it.

    Training is proof that they come as fast as it took them.

    Args:
        apart: one for each number of workers.
        rows: measured steps.
    """
    taken: dict[int, float] = {}
    for row in rows:
        if row.hosts == 1:
            taken[row.workers] = max(taken.get(row.workers, 0.0), row.batch / row.step_s)
    alone, together = [], {}
    for one in apart:
        if one.loaded_alone_per_s and one.loaded_together_per_s:
            workers = one.cell.workers
            alone.append(one.loaded_alone_per_s)
            together[workers] = max(one.loaded_together_per_s, taken.get(workers, 0.0))
    if not alone:
        return None
    alone_per_s = max(float(np.median(alone)), taken.get(1, 0.0))
    factors = {workers: alone_per_s / each for workers, each in together.items()}
    return InputRate(alone_per_s=alone_per_s, contention=of_factors(factors))


def loading_alone_s(one: Apart) -> float | None:
    """Return what loading a sample takes alone."""
    return 1 / one.loaded_alone_per_s if one.loaded_alone_per_s else None


def loading_together_s(one: Apart) -> float | None:
    """Return what loading a sample takes with all at once."""
    return 1 / one.loaded_together_per_s if one.loaded_together_per_s else None
