"""Who gets what of an epoch: one order for all ranks, and every rank's share of it.

All of it is computed from (length, size, batch, seed, epoch) alone, so that ranks agree without a
word, and a resumed run goes on as the first one would have.

The order of an epoch is dealt out like cards: rank r gets positions r, r + size, r + 2 size, and so
on. Step s of all ranks together is then a slice of the order, the very batch that one worker with a
batch `size` times as large would have taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

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
    """Decide how many items are dealt out.

    Args:
        length: how many there are.
        size: the number of workers.
        batch: items per step and worker.
        remainder: what happens when workers do not divide the length: "drop" leaves out up to
            size - 1 items, "pad" gives out as many a second time, "keep" lets shares differ by one.
        drop_last: also leave out the incomplete batch at the end of every share.
        limit: the largest number of steps in an epoch.
        unit: what the items are called.

    Raises:
        UsageError: there is nothing to train on for some worker, or fewer steps than asked for.
    """
    if length < size:
        raise UsageError(
            f"{length} {unit} cannot be shared by {plural(size, 'worker')}: each needs at "
            "least one. "
            f"Use at most {plural(max(length, 1), 'worker')}, or more data."
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
                f"drop_last=True leaves nothing: {length} {unit} over "
                f"{plural(size, 'worker')} do not fill "
                f"one batch of {batch}. Use a smaller batch, or drop_last=False."
            )
    whole = Split(length=length, size=size, batch=batch, used=used, remainder=remainder)
    if limit is None:
        return whole
    # Rank 0 has the longest share; only "keep" lets others have a shorter one.
    most = whole.steps(0)
    if limit > most:
        raise UsageError(
            f"You asked for {plural(limit, 'step')}, but {length} {unit} over "
            f"{plural(size, 'worker')} in batches of "
            f"{batch} make {most}. Use steps={most} or leave it out."
        )
    return Split(
        length=length,
        size=size,
        batch=batch,
        used=min(used, limit * batch * size),
        remainder=remainder,
    )


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
