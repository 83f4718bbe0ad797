"""What Keras's PyDataset adapter does differently for sharded data.

`fit` shuffles the batches of a PyDataset, with a random state that is each process's own: ranks
would take the batches of a step from different places of the order that they agreed on. And with
several loading threads, batches that were loaded for the look at the first one are given out again
in the first epoch, in the place of its last ones. For TensorFlow it makes a generator of
everything, where there may be a faster way.
"""

from __future__ import annotations

import functools
import queue
from typing import Any

_installed = False


def install(sharded: type[Any]) -> None:
    """Make Keras take this kind of PyDataset in its own order, each batch once."""
    global _installed
    if _installed:
        return
    _installed = True
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

    plain_init, plain_end = PyDatasetAdapter.__init__, PyDatasetAdapter.on_epoch_end
    plain_dataset = PyDatasetAdapter.get_tf_dataset

    @functools.wraps(plain_init)
    def __init__(self: Any, x: Any, class_weight: Any = None, shuffle: bool = False) -> None:  # noqa: N807
        shuffle = shuffle and not isinstance(x, sharded)
        plain_init(self, x, class_weight=class_weight, shuffle=shuffle)

    @functools.wraps(plain_end)
    def on_epoch_end(self: Any) -> None:
        plain_end(self)
        if self.enqueuer is not None and isinstance(self.py_dataset, sharded):
            self.enqueuer.ready_queue = queue.Queue()

    @functools.wraps(plain_dataset)
    def get_tf_dataset(self: Any) -> Any:
        data = self.py_dataset
        # Weights of classes are added to batches by the adapter itself.
        ours = isinstance(data, sharded) and self.class_weight is None
        dataset = data.as_tf_dataset() if ours else None
        return plain_dataset(self) if dataset is None else dataset

    PyDatasetAdapter.__init__ = __init__
    PyDatasetAdapter.get_tf_dataset = get_tf_dataset
    PyDatasetAdapter.on_epoch_end = on_epoch_end
