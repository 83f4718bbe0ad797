"""Who gets what of an epoch: one order for all ranks, and every rank's share of it.

All of it is computed from (length, size, batch, seed, epoch) alone, so that ranks agree without a
word, and a resumed run goes on as the first one would have.

The order of an epoch is dealt out like cards: rank r gets positions r, r + size, r + 2 size, and so
on. Step s of all ranks together is then a slice of the order, the very batch that one worker with a
batch `size` times as large would have taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from farandole.engine.objects import allgather_object
from farandole.errors import UsageError
from farandole.format import plural

Remainder = Literal["drop", "pad", "keep"]
REMAINDERS: tuple[str, ...] = get_args(Remainder)

Indices = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How an epoch is split over the workers."""

    length: int
    """Items there are: samples, or batches where the data comes in batches."""
    size: int
    batch: int
    """Items that a worker takes in a step."""
    used: int
    """Positions that are dealt out in an epoch, over all workers."""
    remainder: str

    @property
    def dropped(self) -> int:
        """Items that nobody sees in an epoch."""
        return max(self.length - self.used, 0)

    @property
    def padded(self) -> int:
        """Items that are seen a second time in an epoch."""
        return max(self.used - self.length, 0)

    def share(self, rank: int) -> int:
        """Return how many items a rank gets."""
        return len(range(rank, self.used, self.size))

    def steps(self, rank: int) -> int:
        """Return how many steps a rank's share makes."""
        return -(-self.share(rank) // self.batch)


def plan(
    length: int,
    *,
    size: int,
    batch: int = 1,
    remainder: str = "drop",
    drop_last: bool = False,
    limit: int | None = None,
    unit: str = "samples",
) -> Split:
    """Decide how many of `length` items are dealt out to `size` workers.

    Where workers do not divide the length, "drop" leaves out up to size - 1 items, "pad" gives out
    as many a second time, and "keep" lets shares differ by one. `drop_last` also leaves out the
    incomplete batch at the end of every share; `limit` is the largest number of steps in an epoch.

    Raises:
        UsageError: there is nothing to train on for some worker, or fewer steps than asked for.
    """
    if length < size:
        raise UsageError(
            f"{length} {unit} cannot be shared by {plural(size, 'worker')}: each needs at least "
            f"one. Use at most {plural(max(length, 1), 'worker')}, or more data."
        )
    if remainder == "drop":
        used = length - length % size
    elif remainder == "pad":
        used = length + -length % size
    else:
        used = length
    if drop_last:
        used -= used // size % batch * size
        if not used:
            raise UsageError(
                f"drop_last=True leaves nothing: {length} {unit} over {plural(size, 'worker')} do "
                f"not fill one batch of {batch}. Use a smaller batch, or drop_last=False."
            )
    whole = Split(length=length, size=size, batch=batch, used=used, remainder=remainder)
    if limit is None:
        return whole
    # Rank 0 has the longest share; only "keep" lets others have a shorter one.
    most = whole.steps(0)
    if limit > most:
        raise UsageError(
            f"You asked for {plural(limit, 'step')}, but {length} {unit} over "
            f"{plural(size, 'worker')} in batches of {batch} make {most}. Use steps={most} or "
            "leave it out."
        )
    return replace(whole, used=min(used, limit * batch * size))


def order(length: int, *, seed: int | None, epoch: int) -> Indices:
    """Return the order of an epoch: a permutation, or 0, 1, 2, ... without a seed."""
    if seed is None:
        return np.arange(length, dtype=np.int64)
    # A sequence of both, not their sum: seed 1 in epoch 0 is not seed 0 in epoch 1.
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, epoch))))
    return generator.permutation(length)


def indices(split: Split, rank: int, *, seed: int | None, epoch: int) -> Indices:
    """Return a rank's items of an epoch, in the order in which it takes them."""
    whole = order(split.length, seed=seed, epoch=epoch)
    if split.padded:
        whole = np.concatenate([whole, whole[: split.padded]])
    # A copy: a strided view would keep the whole order in memory.
    return whole[rank : split.used : split.size].copy()


def remark(split: Split, unit: str) -> str:
    """Say in one line how the data was split, and what was dropped or padded."""
    shares = sorted({split.share(rank) for rank in (0, split.size - 1)})
    steps = sorted({split.steps(rank) for rank in (0, split.size - 1)})
    text = (
        f"{split.length} {unit} over {split.size} {'worker' if split.size == 1 else 'workers'}: "
        f"{' or '.join(map(str, shares))} each, {' or '.join(map(str, steps))} "
        f"{'step' if steps == [1] else 'steps'} per epoch"
    )
    if split.batch > 1:
        text += f" in batches of {split.batch}"
    if split.dropped:
        text += f"; {split.dropped} left out in each epoch"
    if split.padded:
        text += f"; {split.padded} given out twice in each epoch"
    return text + "."


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
    """Raise UsageError for values that cannot be."""
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
    """Raise UsageError on all ranks alike if data or terms differ, by one small message."""
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


class Epochs:
    """Numbers the passes over sharded data.

    Keras looks at a first batch before it trains and makes iterators that it never uses, so that
    asking for data is no measure. `fit` is made to say which epoch begins, and that is exact: what
    was read in between, by such a look or an evaluation, does not matter. In loops of one's own,
    a pass that was seen to its end is an epoch.
    """

    def __init__(self, initial: int = 0) -> None:
        self.current = initial
        self._next = initial
        self._told: int | None = None
        self._shift = 0

    def tell(self, epoch: int) -> None:
        """Begin the epoch that fit calls so.

        Numbers that start again go on from here: programs that call `fit(epochs=1)` in a loop
        shall not get the same order each time. Those that give `initial_epoch` to `shard` only,
        not to `fit`, get what they asked for in the same way.
        """
        if self._told is None or epoch <= self._told:
            self._shift = max(self._next - epoch, 0)
        self._told = epoch
        self.current = self._next = epoch + self._shift

    def finish(self) -> None:
        """End the pass that is under way."""
        self.current += 1
        if self._told is not None:
            self._next = self.current
