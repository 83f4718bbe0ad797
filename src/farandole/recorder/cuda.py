"""Times on a GPU, by events of its stream that are read a step later; nothing here waits for it.

As thin as torch allows: it has not been run on a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from farandole.recorder.step import Later


class StreamClock:
    """Tells when the current stream reached a place in the program."""

    def __init__(self) -> None:
        self._first = self.mark()
        # The stream may be behind the program here; that is one constant for all times of a rank.
        self._first_s = time.monotonic()

    @staticmethod
    def mark() -> Any:
        """Mark this place in the stream."""
        event = _cuda().Event(enable_timing=True)
        event.record()
        return event

    def reached(self, mark: Any) -> Later:
        """Return what will say when the stream came to a mark."""
        return lambda: (
            self._first_s + self._first.elapsed_time(mark) / 1000 if mark.query() else None
        )

    def between(self, begin: Any, end: Any) -> Later:
        """Return what will say how long the stream took between two marks."""
        return lambda: begin.elapsed_time(end) / 1000 if end.query() else None


def number_later(tensor: Any) -> Later:
    """Begin to fetch a number from a GPU, and return what will say it."""
    import torch

    host = torch.empty((), dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor.detach().reshape(()), non_blocking=True)
    event = _cuda().Event()
    event.record()
    return lambda: float(host) if event.query() else None


def numbers_later(values: Sequence[Any]) -> Callable[[], list[float] | None]:
    """Begin to fetch numbers, some of them from a GPU, and return what will say them."""
    import torch

    device = next(value.device for value in values if isinstance(value, torch.Tensor))
    parts = [torch.as_tensor(value, dtype=torch.float32, device=device) for value in values]
    host = torch.empty(len(parts), pin_memory=True)
    host.copy_(torch.stack([part.reshape(()) for part in parts]), non_blocking=True)
    event = _cuda().Event()
    event.record()
    return lambda: host.tolist() if event.query() else None


def peak_bytes() -> int | None:
    """Return the most memory that torch has held on this worker's GPU; None without one."""
    cuda = _cuda()
    return int(cuda.max_memory_allocated()) if cuda.is_initialized() else None


def _cuda() -> Any:
    import torch

    return torch.cuda
