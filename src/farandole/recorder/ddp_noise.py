"""How far DistributedDataParallel's gradients scatter, in the steps that are sampled.

A communication hook would see the buckets, and change DDP's arithmetic. So hooks are put on the
parameters for a sampled step, and taken off at its end: they see each gradient after autograd has
accumulated it and before DDP takes it over. The results are seen by a callback of autograd's that
comes after DDP's own, which waits for them; a script has not clipped anything by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from farandole.recorder.noise import NOT_MEASURED, SPARSE, Schedule, Telling, squared_norm
from farandole.recorder.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN_HOOK = f"{NOT_MEASURED}: a communication hook of the script's own combines the gradients."
SEVERAL = f"{NOT_MEASURED}: gradients are averaged several times in a step."
# DDP's own: its first bucket is small, unless a script sets a size for all.
_BUCKET_BYTES, _FIRST_BYTES = 25 << 20, 1 << 20


class DdpNoise:
    """Watches one DDP module."""

    def __init__(self, ddp: Any, recorder: Recorder) -> None:
        import torch

        self._recorder = recorder
        engine: Any = torch.autograd.Variable._execution_engine
        self._when_backward_ends: Callable[[Callable[[], None]], None] = engine.queue_callback
        ignored = getattr(ddp, "parameters_to_ignore", ())
        self._parameters = [
            parameter
            for name, parameter in ddp.module.named_parameters()
            if parameter.requires_grad and name not in ignored
        ]
        self._some_may_lack = bool(ddp.find_unused_parameters)
        rank, size = ddp.process_group.rank(), ddp.process_group.size()
        self._mine = share_of(self._parameters, rank, size)
        stats = ddp.logger._get_ddp_logging_data().ints_map
        self._buckets, self._bytes = buckets_of(self._parameters, stats.get("bucket_cap_bytes", -1))
        # A group of some workers has another mean than that of the others.
        self._stopped = size == 1 or size != recorder.size
        self._telling, self._schedule = Telling(), Schedule()
        self._hooks: list[Any] = []
        self._before: dict[int, Any] = {}
        self._found: tuple[list[Any], list[Any]] | None = None
        self._passes = 0
        self._queued = False
        self._told = -1
        self._spent_s = 0.0
        self.own_hook = False
        """Whether a hook of the script's own combines the gradients."""

    def forward_began(self) -> None:
        """Watch the backward of a forward that has just begun, if its step is sampled."""
        step = self._recorder.steps
        sampled = self._schedule.samples(step + 1) and step != self._told
        if self._stopped or not sampled:
            self._release()
            return
        if self.own_hook:
            self._recorder.note(OWN_HOOK)
            self._stopped = True
            return
        self._before.clear()
        self._queued = False
        if not self._hooks:
            with self._guarded():
                self._hooks = [
                    parameter.register_post_accumulate_grad_hook(self._came)
                    for parameter in self._parameters
                ]

    def updated(self) -> None:
        """Take note of an update; tell of the gradients that went into it, if they were watched."""
        self._schedule.ended(time.monotonic())
        self._telling.settle(self._recorder)
        found, passes = self._found, self._passes
        if not self._hooks or not passes:
            return
        self._release()
        self._told = self._recorder.steps
        if passes > 1:
            self._recorder.note(SEVERAL)
            self._stopped = True
        elif found is not None:
            head = {"update": self._told + 1, "step": self._told, "bytes": self._bytes}
            self._telling.tell(self._recorder, head, *found)
            self._schedule.spent(self._spent_s)
        self._spent_s = 0.0

    def _came(self, parameter: Any) -> None:
        """Square a gradient before DDP takes it over."""
        with self._guarded():
            self._before[id(parameter)] = self._squared(parameter.grad)
            if not self._queued:
                self._queued = True
                # DDP's own callback is put there by its last gradient. The one that this one puts
                # there comes after it.
                again = self._when_backward_ends
                again(lambda: again(self._backward_ended))

    def _backward_ended(self) -> None:
        """Square my share of the results: all workers have the same."""
        with self._guarded():
            self._queued = False
            if not self._some_may_lack and len(self._before) < len(self._parameters):
                return  # the backward of a checkpoint inside of it
            self._passes += 1
            after = {id(parameter): self._squared(parameter.grad) for parameter in self._mine}
            self._found = self._by_bucket(self._before), self._by_bucket(after)

    def _by_bucket(self, squares: Mapping[int, Any]) -> list[Any]:
        totals: list[Any] = [0.0] * len(self._bytes)
        for parameter, square in squares.items():
            totals[self._buckets[parameter]] += square
        return totals

    def _squared(self, gradient: Any) -> Any:
        if gradient is None:
            return 0.0
        if gradient.is_sparse:
            self._recorder.note(SPARSE)
            return 0.0
        return squared(gradient)

    def _release(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._before.clear()
        self._passes = 0

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Count the time; what fails here ends the sampling, not the training."""
        began_s = time.monotonic()
        try:
            yield
        except Exception as error:
            self._stopped, self._found = True, None
            self._recorder.note(f"{NOT_MEASURED}: {type(error).__name__}: {error}")
        self._spent_s += time.monotonic() - began_s


def buckets_of(parameters: Sequence[Any], most_bytes: int) -> tuple[dict[int, int], list[int]]:
    """Return the bucket of each parameter, by its id, and the bytes of each bucket.

    Filled from the last parameter on, as DDP does before it knows better. Later DDP goes by when
    gradients come; here the same ones stay together, so that their figures can be averaged.

    Args:
        parameters: in the module's order.
        most_bytes: how many DDP puts into a bucket; its default where that is not above 0.
    """
    usual = most_bytes <= 0 or most_bytes == _BUCKET_BYTES
    most_bytes = _BUCKET_BYTES if usual else most_bytes
    places: dict[int, int] = {}
    sizes: list[int] = []
    for parameter in reversed(parameters):
        full = _FIRST_BYTES if usual and len(sizes) == 1 else most_bytes
        if not sizes or sizes[-1] >= full:
            sizes.append(0)
        places[id(parameter)] = len(sizes) - 1
        sizes[-1] += parameter.nbytes
    return places, sizes


def share_of(parameters: Sequence[Any], rank: int, size: int) -> list[Any]:
    """Return those of the parameters that are this rank's, of about as many elements as others'."""
    total = sum(parameter.numel() for parameter in parameters)
    mine, reached = [], 0
    for parameter in parameters:
        # By its middle, so that a large one goes where most of it lies.
        middle = reached + parameter.numel() / 2
        reached += parameter.numel()
        if min(int(middle * size / total), size - 1) == rank:
            mine.append(parameter)
    return mine


def squared(gradient: Any) -> Any:
    """Return a dense gradient's squared norm: a float, or a tensor on its device."""
    import torch

    plain = gradient.detach()
    if plain.dim() == 4 and plain.is_contiguous(memory_format=torch.channels_last):
        plain = plain.permute(0, 2, 3, 1)
    flat = plain.reshape(-1)
    if flat.device.type != "cpu":
        return squared_norm(flat, "")
    wide = flat if flat.dtype in (torch.float32, torch.float64) else flat.float()
    return squared_norm(wide.numpy(), "float32")
