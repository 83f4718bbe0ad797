"""Backward passes of an update, and the samples that the model was called with for them.

A script without a DataLoader may divide its gradient accumulation by the number of workers: then a
step of two workers has half the passes of one. Passes are counted in every script; samples only
where no DataLoader and no `farandole.record(samples=...)` has told them by the end of the first
step. Modules that hold the optimizers' parameters are looked for then, and calls of their classes
are followed: nothing is put into the modules themselves, which scripts copy, pickle and export.
"""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from farandole.recorder.recorder import Recorder, current
from farandole.recorder.sampling import first_length

_LOOKS = (0, 3)
"""Steps after which modules are looked for, if nobody has told any samples yet."""


class Passes:
    """Follows the passes of one worker."""

    def __init__(self, torch: Any) -> None:
        self._is_compiling: Callable[[], bool] = torch.compiler.is_compiling
        self._grad_enabled: Callable[[], bool] = torch.is_grad_enabled
        self._graph_task: Callable[[], int] = torch._C._current_graph_task_id
        self._module: Any = torch.nn.Module
        self._followed: dict[int, weakref.ref[Any]] = {}
        self._kinds: set[type] = set()
        self._inside = False
        """Whether a call of a followed module is under way."""
        self._called: dict[int, int] = {}
        """Samples by module, of the calls since the last backward pass."""
        self._passes = 0
        self._told = False

    def backward(self) -> None:
        """Take note of a backward pass; not of those within another, as checkpointing makes."""
        recorder = current()
        if recorder is not None and self._graph_task() == -1:
            self._passes += 1
            self._tell(recorder)

    def step_ends(self, recorder: Recorder, parameters: Callable[[], set[int]]) -> None:
        """Take note of the end of a step, before it is told.

        Args:
            recorder: of this worker.
            parameters: returns the ids of what the optimizers hold.
        """
        if self._called and not self._passes:
            self._tell(recorder)  # gradients by other means, such as torch.autograd.grad
        self._called.clear()
        self._passes = 0
        if recorder.steps in _LOOKS and not recorder.knows_samples:
            self.follow(parameters())

    def follow(self, parameters: set[int]) -> None:
        """Count the samples of modules that hold these parameters, from their next call on."""
        kind = self._module
        modules = [found for found in gc.get_objects() if issubclass(type(found), kind)]
        inner = {id(child) for module in modules for child in _children(module)}
        for top in modules:
            if id(top) not in inner:
                for module in _chain(top, parameters):
                    self._followed[id(module)] = weakref.ref(module)
                    self._follow_kind(type(module))

    def _tell(self, recorder: Recorder) -> None:
        # An encoder and a decoder are called with the same samples; a module that is called
        # several times has several.
        samples = max(self._called.values(), default=None)
        self._called.clear()
        recorder.backward(samples)
        if samples and not self._told:
            self._told = True
            recorder.assume(batch_seen=samples)

    def _follow_kind(self, kind: Any) -> None:
        if kind in self._kinds:
            return
        self._kinds.add(kind)
        own = kind.__dict__.get("__call__")
        is_compiling = self._is_compiling

        def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 (takes its place)
            counts = not is_compiling() and self._counts(module)
            if counts:
                self._inside = True
                samples = first_length((args, kwargs))
                if samples is not None:
                    self._called[id(module)] = self._called.get(id(module), 0) + samples
            try:
                if own is not None:
                    return own(module, *args, **kwargs)
                return super(kind, module).__call__(*args, **kwargs)  # type: ignore[misc]
            finally:
                if counts:
                    self._inside = False

        kind.__call__ = __call__

    def _counts(self, module: Any) -> bool:
        followed = self._followed.get(id(module))
        return (
            followed is not None
            and not self._inside
            and module.training
            and self._grad_enabled()
            and followed() is module
            and self._graph_task() == -1  # what checkpointing computes anew
        )


def install(torch: Any, passes: Passes) -> None:
    """Follow all backward passes of torch."""
    backward = torch.Tensor.backward
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(backward)
    def counted(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_compiling():
            passes.backward()
        return backward(tensor, *args, **kwargs)

    torch.Tensor.backward = counted


def _chain(module: Any, parameters: set[int]) -> Iterator[Any]:
    """Yield a module that holds some of these, then the child with half of them or more, ...

    A wrapper is not always what a script calls. What is inside of a compiled module is no call.
    """
    held = _held(module, parameters)
    while held:
        yield module
        if "_orig_mod" in module._modules:
            return
        counts = [(_held(child, parameters), child) for child in _children(module)]
        most, child = max(counts, key=lambda pair: pair[0], default=(0, None))
        if 2 * most < held:
            return
        module, held = child, most


def _held(module: Any, parameters: set[int]) -> int:
    return len({id(p) for p in module.parameters()} & parameters)


def _children(module: Any) -> list[Any]:
    # A module whose __init__ has not run has none.
    return [child for child in module.__dict__.get("_modules", {}).values() if child is not None]
