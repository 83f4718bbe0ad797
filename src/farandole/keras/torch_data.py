"""Sharded torch DataLoaders. Imported only when a DataLoader is given."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, RandomSampler, Sampler, SequentialSampler

from farandole.errors import UsageError
from farandole.keras.split import Epochs, Split, Terms, indices, plan, remark

# What a new loader takes over from the given one; some are not there in every version of torch.
_KEPT = (
    "batch_size",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "drop_last",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory_device",
    "in_order",
)


class ShardedLoader(DataLoader[Any]):
    """A DataLoader of one rank's share of each epoch, in an order that all ranks agree on."""

    unit = "samples"

    def __init__(self, loader: DataLoader[Any], terms: Terms) -> None:
        split = plan(
            len(loader.dataset),  # type: ignore[arg-type]
            size=terms.size,
            batch=loader.batch_size or 1,
            remainder=terms.remainder,
            drop_last=loader.drop_last,
            limit=terms.steps,
        )
        sampler = _Share(split, terms)
        known = inspect.signature(DataLoader.__init__).parameters
        kept = {name: getattr(loader, name) for name in _KEPT if name in known}
        super().__init__(loader.dataset, sampler=sampler, **kept)
        self.split = split
        self.steps = split.steps(terms.rank)
        self.dropped, self.padded = split.dropped, split.padded
        self.remark = remark(split, self.unit)
        self._epochs, self._share = Epochs(terms.initial_epoch), sampler

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch; `fit` is made to say so by itself."""
        self._epochs.tell(epoch)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        """Go over the epoch that is under way; one that is seen to its end is over."""
        # A generator: Keras makes iterators that it never uses, and they shall start no process.
        self._share.epoch = self._epochs.current
        for step, batch in enumerate(super().__iter__(), start=1):
            if step == self.steps:
                # Before the last batch goes out: Keras does not ask for more than it counted.
                self._epochs.finish()
            yield batch


def check(loader: DataLoader[Any], terms: Terms) -> None:
    """Raise UsageError for loaders whose samples cannot be dealt out by index."""
    if terms.batch_size is not None and terms.batch_size != loader.batch_size:
        raise UsageError(
            f"You gave batch_size={terms.batch_size}, but the DataLoader has batch_size="
            f"{loader.batch_size}. Leave it out."
        )
    if terms.remainder == "keep" and loader.drop_last:
        raise UsageError(
            'remainder="keep" keeps every sample, but the DataLoader has drop_last=True. Make the '
            'loader with drop_last=False, or use remainder="drop".'
        )
    if isinstance(loader.dataset, IterableDataset):
        raise UsageError(
            "A DataLoader over an IterableDataset cannot be sharded: its samples have no index. "
            "Let the dataset's __iter__ yield only every hvd.size()-th sample, from hvd.rank() on, "
            "and give fit(steps_per_epoch=...) the same number on every rank."
        )
    if not hasattr(loader.dataset, "__len__"):
        raise UsageError(
            f"The DataLoader's dataset, a {type(loader.dataset).__name__}, has no __len__. "
            "Give it one: sharding needs the number of samples."
        )
    if loader.batch_size is None and loader.batch_sampler is not None:
        raise UsageError(
            "A DataLoader with a batch_sampler of its own cannot be sharded. Make it with "
            "batch_size=..., or shard in the batch sampler, by hvd.rank() and hvd.size()."
        )
    # By exact type: a subclass may choose its samples in any way.
    if type(loader.sampler) not in (RandomSampler, SequentialSampler):
        raise UsageError(
            f"The DataLoader has a sampler of its own, a {type(loader.sampler).__name__}. Make it "
            "without: shard() deals out the samples and shuffles them. To keep the sampler, leave "
            "shard() out and let it choose by hvd.rank() and hvd.size()."
        )


class _Share(Sampler[int]):
    """A rank's indices of an epoch."""

    def __init__(self, split: Split, terms: Terms) -> None:
        self.epoch = 0
        self._split, self._rank, self._seed = split, terms.rank, terms.order_seed

    def __iter__(self) -> Iterator[int]:
        share = indices(self._split, self._rank, seed=self._seed, epoch=self.epoch)
        # As plain integers: datasets need not know NumPy's.
        return iter(share.tolist())

    def __len__(self) -> int:
        return self._split.share(self._rank)
