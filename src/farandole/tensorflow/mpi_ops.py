"""What programs import from `horovod.tensorflow.mpi_ops`: the front door's names, and basics."""

from __future__ import annotations

from typing import Any

from farandole.engine.names import Basics


def __getattr__(name: str) -> Any:
    """Return what `farandole.tensorflow` has under this name."""
    import farandole.tensorflow as hvd

    if name == "__all__" or name in hvd.__all__:
        return getattr(hvd, name)
    raise AttributeError(f"horovod.tensorflow.mpi_ops has no {name} here.", name=name)


_basics = Basics(__getattr__)
