"""What `shard` was asked for, checked, and compared between the ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from farandole.engine.objects.exchange import allgather_object
from farandole.errors import UsageError
from farandole.keras.data.split import REMAINDERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On what terms data is shared out."""

    rank: int
    size: int
    batch_size: int | None
    shuffle: bool | int
    seed: int
    remainder: str
    initial_epoch: int
    steps: int | None

    @property
    def order_seed(self) -> int | None:
        """What orders are drawn with; None leaves the data's own."""
        return self.seed if self.shuffle else None


def check(terms: Terms) -> None:
    """Refuse values that cannot be.

    Raises:
        UsageError: says which, and what can be.
    """
    if terms.remainder not in REMAINDERS:
        raise UsageError(
            f"remainder={terms.remainder!r} is not known. Choices: {', '.join(REMAINDERS)}."
        )
    _whole("batch_size", terms.batch_size, at_least=1)
    _whole("steps", terms.steps, at_least=1)
    _whole("seed", terms.seed, at_least=0)
    _whole("initial_epoch", terms.initial_epoch, at_least=0)
    if not isinstance(terms.shuffle, bool):
        _whole("shuffle", terms.shuffle, at_least=1)


def agree(terms: Terms, kind: str, length: int | None) -> None:
    """Compare data and terms over all ranks, by one small message.

    Raises:
        UsageError: they differ; on all ranks alike.
    """
    if terms.size == 1:
        return
    facts = {
        "the kind of data": kind,
        "the number of items": "unknown" if length is None else length,
        "batch_size": terms.batch_size,
        "shuffle": terms.shuffle,
        "seed": terms.seed,
        "remainder": terms.remainder,
        "initial_epoch": terms.initial_epoch,
        "steps": terms.steps,
    }
    difference = disagreement(allgather_object(facts, name="keras.shard"))
    if difference is not None:
        raise UsageError(
            f"shard() was given different things on the workers: {difference}. Give every worker "
            "the whole data and the same arguments; shard() deals it out."
        )


def disagreement(facts: Sequence[Mapping[str, Any]]) -> str | None:
    """Say in what the ranks' facts, in rank order, first differ; None if in nothing."""
    for name, first in facts[0].items():
        for rank, theirs in enumerate(facts):
            if theirs.get(name) != first:
                return f"{name} is {first} on rank 0 and {theirs.get(name)} on rank {rank}"
    return None


def _whole(name: str, value: Any, *, at_least: int) -> None:
    """Refuse what is not a whole number, or too small; None is always good."""
    if value is None:
        return
    try:
        good = not isinstance(value, bool) and value.__index__() >= at_least
    except AttributeError:
        good = False
    if not good:
        raise UsageError(f"{name}={value!r} must be a whole number of at least {at_least}.")
