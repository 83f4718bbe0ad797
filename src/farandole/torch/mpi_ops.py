"""What programs import from `horovod.torch.mpi_ops`: the names of the front door, and basics."""

from __future__ import annotations

from typing import Any

from farandole.engine.names import Basics


def __getattr__(name: str) -> Any:
    """Return what `farandole.torch` has under this name."""
    import farandole.torch as hvd

    if name == "__all__" or name in hvd.__all__:
        return getattr(hvd, name)
    raise AttributeError(f"horovod.torch.mpi_ops has no {name} here.", name=name)


_basics = Basics(__getattr__)
