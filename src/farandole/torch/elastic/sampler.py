"""A sampler whose epoch goes on with another number of workers, without samples seen twice."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch

from farandole.engine.context import rank, size


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Deals the samples of an epoch that are left to the workers that there are.

    Put it into a TorchState, call `record_batch` after every step, and `set_epoch` at the end of
    an epoch, not at its begin: it forgets what has been processed.

    Every worker gets equally many samples. Where those that are left cannot be divided so, the last
    few (fewer than there are workers) are taken from the front once more.
    """

    def __init__(self, dataset: Any, shuffle: bool = True, seed: int = 0) -> None:
        """Begin with epoch 0.

        Args:
            dataset: What is sampled; its length counts.
            shuffle: Whether each epoch has an order of its own.
            seed: Of the orders; the same on every worker.
        """
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        """How many samples of this epoch all workers together have been trained on."""
        self.num_replicas = 0
        self.rank = 0
        self.remaining_indices: list[int] = []
        self.num_samples = 0
        self.total_size = 0
        self.indices: list[int] = []
        """This worker's, in the iteration that was begun last."""
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begin another epoch: nothing of it has been processed."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Take note that every worker has trained on a batch.

        Args:
            batch_idx: Its number; Horovod's, and not needed.
            batch_size: Samples per worker.
        """
        del batch_idx
        self.processed_num += batch_size * self.num_replicas

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """Return the samples in a batch of the iteration that was begun last."""
        return self.indices[batch_idx * batch_size : (batch_idx + 1) * batch_size]

    def state_dict(self) -> dict[str, int]:
        """Return where the epoch stands."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Go on from where an epoch stood."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Deal what is left of the epoch to the workers that there are now."""
        self.num_replicas = size()
        self.rank = rank()
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        self.remaining_indices = order[self.processed_num :]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        left = self.remaining_indices
        missing = self.total_size - len(left)
        # Few samples for many workers: more than once around.
        filler = (left * -(-missing // len(left)))[:missing] if left else []
        self.indices = (left + filler)[self.rank : self.total_size : self.num_replicas]
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples
