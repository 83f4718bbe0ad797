"""What all ranks say about an epoch, made into one: pure, and so the same on every rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from farandole.transport.reduction import Array

VALIDATION = "val_"
"""What Keras puts before the names of validation metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What one rank says about an epoch."""

    values: Mapping[str, Array | str]
    """Its logs as float64; of a value that is not numeric, its type's name."""
    states: Mapping[str, Sequence[Array]]
    """By a metric's first name in the logs: state that may be summed over ranks."""
    samples: Mapping[str, float]
    """How many samples its metrics are of: under "" in training, under "val_" in validation."""

    def plain(self) -> dict[str, object]:
        """Return this as data that can be sent."""
        return {
            "values": dict(self.values),
            "states": {label: list(state) for label, state in self.states.items()},
            "samples": dict(self.samples),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What all ranks together say."""

    sums: Mapping[str, Sequence[Array]]
    """Summed states: what these metrics would hold had one process seen all samples."""
    means: Mapping[str, Array]
    """Of every name in any rank's logs: the average, weighted by samples."""
    remark: str | None
    """What a user must know: the same text on every rank."""


def merge(accounts: Sequence[Account]) -> Merged:
    """Put all ranks' accounts together, in rank order."""
    names = sorted({name for account in accounts for name in account.values})
    means, odd = {}, list[str]()
    absent: dict[str, list[int]] = {}
    broken: dict[str, list[int]] = {}
    for name in names:
        found = {r: a.values[name] for r, a in enumerate(accounts) if name in a.values}
        numbers = {r: value for r, value in found.items() if not isinstance(value, str)}
        if len(numbers) < len(found) or len({value.shape for value in numbers.values()}) > 1:
            # What is text on every rank that has it is no metric.
            if numbers:
                odd.append(f"{name} is {_shapes(found)}")
            continue
        if len(found) < len(accounts):
            absent[name] = [r for r in range(len(accounts)) if r not in found]
        unfit = [r for r, value in numbers.items() if not np.isfinite(value).all()]
        if unfit:
            broken[name] = unfit
        phase = VALIDATION if name.startswith(VALIDATION) else ""
        weights = [accounts[r].samples.get(phase, 0.0) for r in numbers]
        means[name] = _mean(list(numbers.values()), weights)
    return Merged(
        sums=_sums(accounts), means=means, remark=_remark(broken, absent, odd, len(accounts))
    )


def _sums(accounts: Sequence[Account]) -> dict[str, list[Array]]:
    """Add up the states that every rank offers in the same form."""
    shared = set(accounts[0].states).intersection(*(account.states for account in accounts[1:]))
    sums = {}
    for label in sorted(shared):
        states = [account.states[label] for account in accounts]
        if len({tuple(part.shape for part in state) for state in states}) == 1:
            sums[label] = [np.sum(parts, axis=0) for parts in zip(*states, strict=True)]
    return sums


def _mean(values: Sequence[Array], weights: Sequence[float]) -> Array:
    if all(np.array_equal(value, values[0]) for value in values[1:]):
        return values[0]
    # Who has not counted samples on every rank has no weights at all.
    if min(weights) <= 0.0:
        weights = [1.0] * len(values)
    with np.errstate(invalid="ignore"):  # infinities of both signs: the remark speaks of them
        return np.asarray(np.average(np.stack(values), axis=0, weights=weights))


def _remark(
    broken: Mapping[str, Sequence[int]],
    absent: Mapping[str, Sequence[int]],
    odd: Sequence[str],
    size: int,
) -> str | None:
    parts = []
    if broken:
        listed = "; ".join(f"{name} on {_ranks(ranks, size)}" for name, ranks in broken.items())
        parts.append(
            f"Metrics that are not a number: {listed}. Over all ranks they are not one either. "
            "Look at that rank's data, or lower the learning rate."
        )
    if absent:
        listed = "; ".join(f"{name} on {_ranks(ranks, size)}" for name, ranks in absent.items())
        parts.append(
            f"Metrics that are missing: {listed}. Every rank now has their average over the ranks "
            "that have them. Compile, validate and log alike on every rank."
        )
    if odd:
        parts.append(
            f"Logs that cannot be averaged: {'; '.join(odd)}. Each rank keeps its own. Log numbers "
            "of one shape on every rank."
        )
    return " ".join(parts) or None


def _ranks(ranks: Iterable[int], size: int) -> str:
    listed = [str(rank) for rank in ranks]
    if len(listed) == size:
        return "all ranks"
    return f"rank{'s' if len(listed) > 1 else ''} {', '.join(listed)}"


def _shapes(found: Mapping[int, Array | str]) -> str:
    return ", ".join(
        f"{f'a {value}' if isinstance(value, str) else f'of shape {value.shape}'} on rank {rank}"
        for rank, value in found.items()
    )
