"""Shared memory as a torch.distributed backend: init_process_group("farandole").

DDP, and whatever else talks to torch.distributed, gets its all-reduces, broadcasts, gathers and
barriers from shared memory; all other operations go to a real Gloo group inside. Operations of one
group run in the order of their submission, as torch has it; the same progress loop drives them.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from farandole.engine.handle import Handle
from farandole.engine.loop import Lane, Loop, process_loop
from farandole.errors import UsageError
from farandole.torch.operations import TYPE_NAMES, buffer_of
from farandole.transport.gloo import let_gloo_settle
from farandole.transport.hosts import shared_memory_works
from farandole.transport.protocol import LOOPBACK, Buffer, Steps
from farandole.transport.reduction import Reduction
from farandole.transport.shm import slots
from farandole.transport.shm.segment import Fabric
from farandole.transport.shm.slots import SlotChannel
from farandole.world.store import StoreRendezvous

NAME = "farandole"
_NO_SHARED_MEMORY = (
    f'init_process_group("{NAME}") uses Gloo here: shared memory needs Linux on x86-64.'
)

# torch's stubs know little of these classes.
_c10d: Any = dist.distributed_c10d
_Group: Any = dist.ProcessGroup
_Work: Any = _c10d.Work


class ProcessGroup(_Group):  # type: ignore[misc]
    """A process group of workers on one host."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._rank, self._size, self._timeout = rank, size, timeout
        meeting = StoreRendezvous(
            _c10d.PrefixStore(NAME, store), rank, size, timeout_s=timeout.total_seconds()
        )
        regions = {slots.REGION: SlotChannel.NBYTES}
        self._fabric = Fabric.open(rank, size, meeting.exchange, regions)
        self._channel = SlotChannel(self._fabric)
        self._lane = Lane(in_order=True, check_peers=self._fabric.check_peers)
        self._loop = process_loop()
        self._loop.add(self._lane)
        self._open = True
        self.waited_s = 0.0
        """What the ends of backward passes have waited for so far; a recorder looks here."""
        # The store may be one that an earlier group of this name has used, with its addresses.
        visit = store.add(f"gloo/visits/{rank}", 1)
        self._gloo = _gloo(_c10d.PrefixStore(f"gloo/{visit}", store), rank, size, timeout)
        # What is not overridden below, torch hands to the backend of the tensor's device.
        self._register_backend(torch.device("cpu"), _Group.BackendType.GLOO, self._gloo)
        self._set_default_backend(_Group.BackendType.GLOO)

    def getBackendName(self) -> str:  # noqa: N802 (torch's name)
        """Return the name that torch shows."""
        return NAME

    def name(self) -> str:
        """Return the name that torch shows."""
        return NAME

    def allreduce(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        """Combine tensors in place."""
        how = _reduction(opts)
        if how is None or not all(map(_fits, tensors)):
            return self._gloo.allreduce(tensors, opts)
        return self._start(
            tensors, [self._channel.allreduce(buffer, buffer, how) for buffer in _buffers(tensors)]
        )

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        """Combine several tensors in place."""
        return self.allreduce(tensors, opts)

    def broadcast(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        """Overwrite tensors with the root's."""
        if not all(map(_fits, tensors)):
            return self._gloo.broadcast(tensors, opts)
        root = opts.rootRank if opts is not None else 0
        return self._start(
            tensors, [self._channel.broadcast(buffer, root) for buffer in _buffers(tensors)]
        )

    def allgather(
        self,
        output_tensors: Sequence[Sequence[torch.Tensor]],
        input_tensors: Sequence[torch.Tensor],
        opts: Any = None,
    ) -> Any:
        """Give everybody all inputs."""
        if len(input_tensors) != 1 or not _fits(input_tensors[0]):
            return self._gloo.allgather(output_tensors, input_tensors, *([opts] if opts else []))
        return self._start(output_tensors, [self._gather(output_tensors[0], input_tensors[0])])

    def barrier(self, opts: Any = None) -> Any:
        """Wait until everybody is here."""
        token = torch.zeros(1)
        return self.allreduce([token])

    def shutdown(self) -> None:
        """Leave the group."""
        if self._open:
            self._open = False
            self._loop.remove(self._lane)
            self._fabric.close()
            let_gloo_settle()
            self._gloo.shutdown()

    def abort(self) -> None:
        """Leave the group at once."""
        self.shutdown()

    def _gather(self, outputs: Sequence[torch.Tensor], mine: torch.Tensor) -> Steps:
        count = mine.numel()
        everything = mine.new_empty(count * self._size)
        source, target = buffer_of(mine.contiguous()), buffer_of(everything)
        yield from self._channel.allgather(source, target, [count] * self._size)
        for rank, output in enumerate(outputs):
            output.copy_(everything[rank * count : (rank + 1) * count].view(mine.shape))

    def _start(self, result: Any, operations: list[Steps]) -> Any:
        future: torch.futures.Future[Any] = torch.futures.Future()
        handle = Handle()
        with self._loop.exclusive():
            self._lane.start(_resolving(operations, future, list(result)), handle)
        work = _HandleWork(handle, future, self._loop, self._timeout)
        if torch._C._current_graph_task_id() != -1:
            # DDP waits for the future in C++ at the end of backward, where nobody can drive. Its
            # own callback is queued after the last all-reduce, and so behind this one.
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(lambda: self._wait_after_backward(handle))
        self._loop.nobody_waits()
        return work

    def _wait_after_backward(self, handle: Handle) -> None:
        begin_s = time.monotonic()
        self._loop.wait(handle.check)
        self.waited_s += time.monotonic() - begin_s


class _HandleWork(_Work):  # type: ignore[misc]
    """torch's view of an operation under way."""

    def __init__(
        self,
        handle: Handle,
        future: torch.futures.Future[Any],
        loop: Loop,
        timeout: timedelta,
    ) -> None:
        super().__init__()
        self._handle, self._future, self._loop, self._timeout = handle, future, loop, timeout

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Drive everything until this is done, or raise its error."""
        limit = timeout.total_seconds() or self._timeout.total_seconds()
        deadline = time.monotonic() + limit

        def done() -> bool:
            if self._handle.check():
                return True
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"An operation of the farandole process group was not done within {limit:g} s."
                )
            return False

        self._loop.wait(done)
        if self._handle.error is not None:
            raise self._handle.error
        return True

    def synchronize(self) -> None:
        """Wait."""
        self.wait()

    def is_completed(self) -> bool:
        """Say whether it is done."""
        if not self._handle.check():
            self._loop.advance()
        return self._handle.check()

    def is_success(self) -> bool:
        """Say whether it went well."""
        return self._handle.check() and self._handle.error is None

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future of the tensors."""
        return self._future

    def result(self) -> Any:
        """Return the tensors."""
        return self._future.value()


def register() -> None:
    """Let init_process_group know the name "farandole"."""
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _create, devices=["cpu"])


def _create(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    # torch drops the other backends of a mixed group without a word when one of them is a process
    # group in Python, and does not pass the whole string on.
    config = sys._getframe(1).f_locals.get("backend_config")
    others = set(getattr(config, "device_backend_map", {}).values()) - {NAME}
    if others:
        raise UsageError(
            f"{NAME!r} cannot be combined with {', '.join(sorted(others))} in one group. Use "
            f'init_process_group("{NAME}") for CPU tensors, and a new_group(backend="nccl") of '
            "its own for CUDA tensors."
        )
    if not shared_memory_works(sys.platform, platform.machine()):
        if rank == 0:
            sys.stderr.write(f"farandole: {_NO_SHARED_MEMORY}\n")
        return _gloo(store, rank, size, timeout)
    return ProcessGroup(store, rank, size, timeout)


def _gloo(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    gloo: Any = _c10d.ProcessGroupGloo
    options = gloo._Options()
    options._devices = [gloo.create_device(hostname=LOOPBACK)]
    options._timeout = timeout
    return gloo(store, rank, size, options)


def _reduction(opts: Any) -> Reduction | None:
    """Return the reduction that torch's options ask for; None for one we leave to Gloo."""
    if opts is None:
        return Reduction()
    names = {
        dist.ReduceOp.SUM: "sum",
        dist.ReduceOp.AVG: "average",
        dist.ReduceOp.MIN: "min",
        dist.ReduceOp.MAX: "max",
        dist.ReduceOp.PRODUCT: "product",
    }
    for op, name in names.items():
        if opts.reduceOp == op:
            return Reduction(op=name)
    return None


def _fits(tensor: torch.Tensor) -> bool:
    return (
        tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and tensor.dtype in TYPE_NAMES
        and tensor.is_contiguous()
    )


def _buffers(tensors: Sequence[torch.Tensor]) -> list[Buffer]:
    return [buffer_of(tensor) for tensor in tensors]


def _resolving(operations: list[Steps], future: torch.futures.Future[Any], result: Any) -> Steps:
    """Run operations one after the other; resolve the future with them."""
    try:
        for operation in operations:
            yield from operation
    except Exception as error:
        future.set_exception(error)
        raise
    future.set_result(result)
