"""Beginning: what init() does for TensorFlow beyond meeting the other workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farandole.engine import context
from farandole.engine.process_sets import ProcessSet
from farandole.tensorflow import clean_stop


def init(
    comm: Any = None, process_sets: str | Sequence[ProcessSet | Sequence[int]] | None = None
) -> None:
    """Meet the other workers. A second call without shutdown() changes nothing.

    Args:
        comm: Horovod's: all ranks, or a communicator of mpi4py that has all. Nothing else is taken.
        process_sets: sets to make at once, the same on every worker; "dynamic" lets
            `add_process_set` make some later.

    Raises:
        UsageError: a ValueError: sets that cannot be, or are there twice.
    """
    context.init(comm, process_sets)
    clean_stop.install()
