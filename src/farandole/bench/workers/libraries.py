"""The libraries that are compared, each behind the same few names; imported when chosen."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

from .measure import Barrier, forbid_farandole

LEARNING_RATE = 0.01


def optimizer_of(given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the kind of optimizer and its options."""
    import torch

    if given.get("optimizer") == "adam":
        return torch.optim.Adam, {"lr": LEARNING_RATE / 100}
    return torch.optim.SGD, {"lr": LEARNING_RATE}


class Unconnected:
    """Processes that do not communicate: the limit. They meet through shared memory."""

    rank: int
    size: int
    barrier: Callable[[], object]
    close: Callable[[], object] = staticmethod(lambda: None)
    sum_in_place: Callable[..., object]
    """Takes a buffer and a name."""
    facts: dict[str, Any]

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.rank, self.size, self.facts = given["rank"], given["num_ranks"], {}
        self.barrier = Barrier(fd=given["barrier_fd"], rank=self.rank, num_ranks=self.size).wait

    def buffer(self, num_elements: int, name: str) -> tuple[Any, Callable[[], object]]:
        """Return a buffer of float32, and what sums it over the ranks in place."""
        import torch

        tensor = torch.ones(num_elements)
        return tensor, partial(self.sum_in_place, tensor, name=name)

    def distribute(self, model: Any) -> tuple[Any, Any]:
        """Return the model to call and the optimizer to step; SGD does least work of its own."""
        kind, options = optimizer_of(self.given)
        return model, kind(model.parameters(), **options)


class Horovod(Unconnected):
    """Horovod's API: a module of Farandole's, or Horovod's own."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.hvd = hvd = importlib.import_module(given["library"].replace(" sharded", ".torch"))
        hvd.init()
        self.rank, self.size, self.facts = hvd.rank(), hvd.size(), {}
        self.barrier, self.close = hvd.barrier, hvd.shutdown
        if hasattr(hvd, "allreduce_"):  # not in Keras
            self.sum_in_place = partial(hvd.allreduce_, op=hvd.Sum)

    def distribute(self, model: Any) -> tuple[Any, Any]:
        """Follow Horovod's recipe."""
        model, sgd = super().distribute(model)
        more = {"sharded": True} if self.given["library"].endswith(" sharded") else {}
        optimizer = self.hvd.DistributedOptimizer(sgd, model.named_parameters(), **more)
        self.hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        return model, optimizer


class Buckets(Horovod):
    """Farandole's gradient buckets, whose memory the peers can read where it lies."""

    def __init__(self, given: dict[str, Any]) -> None:
        from farandole.engine.context import current

        super().__init__({**given, "library": "farandole.torch"})
        self._engine = current().engine
        self.facts = {"transport": self._engine.transport.name}

    def buffer(self, num_elements: int, name: str) -> tuple[Any, Callable[[], object]]:
        """Return one bucket that holds all elements, and the engine's all-reduce of it."""
        import numpy as np

        from farandole.engine.buckets import FULL, open_buckets
        from farandole.transport.reduction import SUM

        note, steps, wait = np.zeros(1, np.uint8), count(1), self._engine.wait
        layout = [(num_elements, "float32")]
        buckets = open_buckets(self._engine, f"bench.{name}", layout, len(note))
        return buckets.arrays[0], lambda: wait(buckets.submit(0, next(steps), SUM, FULL, note))


class Gloo(Unconnected):
    """torch.distributed over Gloo, and DistributedDataParallel."""

    def __init__(self, given: dict[str, Any]) -> None:
        import torch.distributed as dist

        self.given = given
        where: dict[str, Any] = {}
        if "rendezvous" in given:
            # Through a file: a port might be taken. Under torchrun the environment says it all.
            where = {"init_method": f"file://{given['rendezvous']}"}
            where |= {"rank": given["rank"], "world_size": given["num_ranks"]}
        dist.init_process_group("gloo", **where)
        self.rank, self.size, self.facts = dist.get_rank(), dist.get_world_size(), {}
        self.barrier, self.close = dist.barrier, dist.destroy_process_group
        self.sum_in_place = lambda tensor, name: dist.all_reduce(tensor)

    def distribute(self, model: Any) -> tuple[Any, Any]:
        """Wrap the model by DistributedDataParallel."""
        from torch.nn.parallel import DistributedDataParallel

        return super().distribute(DistributedDataParallel(model))


class Zero(Gloo):
    """DistributedDataParallel, and torch's own optimizer that keeps state once."""

    def distribute(self, model: Any) -> tuple[Any, Any]:
        """Wrap both."""
        from torch.distributed.optim import ZeroRedundancyOptimizer

        model, _ = super().distribute(model)
        kind, options = optimizer_of(self.given)
        return model, ZeroRedundancyOptimizer(model.parameters(), optimizer_class=kind, **options)


class OpenMpi(Unconnected):
    """Open MPI through mpi4py, which ends by itself."""

    def __init__(self, given: dict[str, Any]) -> None:
        from mpi4py import MPI

        world = MPI.COMM_WORLD
        self.rank, self.size, self.barrier = world.rank, world.size, world.Barrier
        self.facts = {"mpi": MPI.Get_library_version().split(",")[0]}
        self.sum_in_place = lambda tensor, name: world.Allreduce(MPI.IN_PLACE, tensor.numpy())


_LIBRARIES = {
    "none": Unconnected,
    "farandole buckets": Buckets,
    "gloo": Gloo,
    "zero": Zero,
    "openmpi": OpenMpi,
}


@contextmanager
def connect(given: dict[str, Any]) -> Iterator[Any]:
    """Connect this process with its peers by the option `library`, or a module of Horovod's API."""
    library = _LIBRARIES.get(given["library"], Horovod)(given)
    yield library
    library.close()
    if not given["library"].startswith("farandole"):
        forbid_farandole()
