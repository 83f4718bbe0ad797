"""torch.distributed's functions as scripts call them: bytes, and gradients averaged by hand.

Each function is wrapped where scripts find it. A wrapper counts and times, and changes nothing;
while torch.compile traces, it is not there. What DDP sends from C++ does not come by here: `ddp`
reads its timers.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from farandole.recorder.ending import refuse_if_ended
from farandole.recorder.noise import NOT_MEASURED
from farandole.recorder.recorder import Recorder, current, wrap

# Where each function has what it sends: the place of the argument, and its name.
PAYLOAD = {
    "all_reduce": (0, "tensor"),
    "all_reduce_coalesced": (0, "tensors"),
    "reduce": (0, "tensor"),
    "reduce_scatter": (1, "input_list"),
    "reduce_scatter_single": (1, "input"),
    "reduce_scatter_tensor": (1, "input"),
    "_reduce_scatter_base": (1, "input"),
    "broadcast": (0, "tensor"),
    "all_gather": (1, "tensor"),
    "all_gather_single": (1, "input_tensor"),
    "all_gather_into_tensor": (1, "input_tensor"),
    "_all_gather_base": (1, "input_tensor"),
    "all_gather_coalesced": (1, "input_tensor_list"),
    "gather": (0, "tensor"),
    "scatter": (0, "tensor"),
    "all_to_all": (1, "input_tensor_list"),
    "all_to_all_single": (1, "input"),
    "send": (0, "tensor"),
    "isend": (0, "tensor"),
}
_REDUCING = frozenset(name for name in PAYLOAD if "reduce" in name)
# These pickle, and send what they have pickled by the functions above.
OBJECTS = (
    "all_gather_object",
    "gather_object",
    "broadcast_object_list",
    "scatter_object_list",
    "send_object_list",
    "recv_object_list",
)
CONTROL = ("barrier", "monitored_barrier")


class _Thread(threading.local):
    """Where a thread is: in a call that is counted, or in one whose inner calls are of a kind."""

    counted = False
    kind: str | None = None


_thread = _Thread()
_hooks_send_gradients = False


@contextmanager
def sending(kind: str) -> Iterator[None]:
    """Count what this thread sends meanwhile as of this kind."""
    before, _thread.kind = _thread.kind, kind
    try:
        yield
    finally:
        _thread.kind = before


def hooks_send_gradients() -> None:
    """From now on count what other threads send as gradients: callbacks of a DDP hook's futures."""
    global _hooks_send_gradients
    _hooks_send_gradients = True


def install(torch: Any) -> None:
    """Wrap torch.distributed's functions, and take note of optimizers' parameters."""
    distributed = torch.distributed
    known = Parameters()
    known.install(torch)
    by_hand = _ByHand(torch, known)
    for name, (place, argument) in PAYLOAD.items():
        _replace(
            torch, name, functools.partial(_sending, by_hand, name, place=place, argument=argument)
        )
    for name in OBJECTS:
        _replace(torch, name, _pickling)
    for name in CONTROL:
        _replace(torch, name, functools.partial(_controlling, name))
    if hasattr(distributed, "Work"):
        distributed.Work.wait = by_hand.waiting(distributed.Work.wait)


def _replace(torch: Any, name: str, wrap: Callable[[Callable[..., Any]], Any]) -> None:
    """Put a wrapper in the place of a function, in both modules in which scripts find it."""
    original = getattr(torch.distributed, name, None)
    if original is None:
        return  # a torch that does not have it, or no longer
    wrapped = wrap(original)
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        # Constant to the tracer, which then sees the original alone.
        if is_compiling():
            return original(*args, **kwargs)
        return wrapped(*args, **kwargs)

    for module in (torch.distributed, torch.distributed.distributed_c10d):
        if getattr(module, name, None) is original:
            setattr(module, name, function)


def _sending(
    by_hand: _ByHand, name: str, original: Callable[..., Any], *, place: int, argument: str
) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        if _thread.counted:
            return original(*args, **kwargs)
        refuse_if_ended()
        recorder = current()
        if recorder is None:
            return original(*args, **kwargs)
        payload = args[place] if len(args) > place else kwargs.get(argument)
        kind = by_hand.kind(name, payload)
        recorder.sent(kind, _nbytes(payload))
        begin_s = time.monotonic()
        _thread.counted = True
        try:
            result = original(*args, **kwargs)
        finally:
            _thread.counted = False
        if kind == "gradients":
            by_hand.averaged(recorder, payload, result, begin_s)
        elif recorder.timeline and result is None:
            recorder.event("communication", name, begin_s, time.monotonic())
        return result

    return function


def _pickling(original: Callable[..., Any]) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        refuse_if_ended()
        with sending("objects"):
            return original(*args, **kwargs)

    return function


def _controlling(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        refuse_if_ended()
        recorder = current()
        begin_s = time.monotonic()
        with sending("control"):
            result = original(*args, **kwargs)
        if recorder is not None and recorder.timeline:
            recorder.event("communication", name, begin_s, time.monotonic())
        return result

    return function


class Parameters:
    """The parameters that optimizers hold, to tell gradients from other tensors."""

    def __init__(self) -> None:
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._by_size: dict[int, list[weakref.ref[Any]]] = {}
        self._total = 0
        self._grown = True

    def install(self, torch: Any) -> None:
        """Take note of every optimizer from now on."""

        @wrap(torch.optim.Optimizer, "add_param_group")
        def add_param_group(original: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(optimizer, *args, **kwargs)
            self.add(optimizer)
            return result

    def add(self, optimizer: Any) -> None:
        """Take note of an optimizer whose parameters are new."""
        self._optimizers.add(optimizer)
        self._grown = True

    def is_gradient(self, tensor: Any) -> bool:
        """Say whether a tensor is some parameter's gradient, or all of them in one piece."""
        count = tensor.numel()
        alike = self._alike(count)
        if not alike:
            return bool(count) and count == self._total
        place = tensor.data_ptr()
        return any(p.grad is not None and p.grad.data_ptr() == place for p in alike)

    def is_parameter(self, tensor: Any) -> bool:
        """Say whether a tensor is some parameter."""
        place = tensor.data_ptr()
        return any(parameter.data_ptr() == place for parameter in self._alike(tensor.numel()))

    def _alike(self, count: int) -> list[Any]:
        """Return the parameters of so many elements."""
        if self._grown:
            self._grown, self._total = False, 0
            self._by_size.clear()
            for optimizer in self._optimizers:
                for group in optimizer.param_groups:
                    for parameter in group["params"]:
                        self._total += parameter.numel()
                        alike = self._by_size.setdefault(parameter.numel(), [])
                        alike.append(weakref.ref(parameter))
        found = (reference() for reference in self._by_size.get(count, ()))
        return [parameter for parameter in found if parameter is not None]


class _ByHand:
    """What a script averages itself between its backward and its optimizer's step."""

    def __init__(self, torch: Any, known: Parameters) -> None:
        self._known = known
        self._parameter: type = torch.nn.Parameter
        self._task: Callable[[], int] = torch._C._current_graph_task_id
        self._told = False
        self._step, self._ready_s = -1, 0.0
        self._under_way: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()

    def kind(self, name: str, payload: Any) -> str:
        """Say what a call sends."""
        if _thread.kind is not None:
            return _thread.kind
        if _hooks_send_gradients and threading.current_thread() is not threading.main_thread():
            return "gradients"
        if name in _REDUCING:
            # Inside of backward nothing but gradients is reduced: FSDP's, or those of hooks.
            if self._task() != -1:
                return "gradients"
            tensors = [payload] if name in ("all_reduce", "reduce") else payload
            first = next(_tensors(tensors), None)
            if first is not None and self._known.is_gradient(first):
                return "gradients"
        elif name == "broadcast" and (
            isinstance(payload, self._parameter) or self._known.is_parameter(payload)
        ):
            return "parameters"
        return "other"

    def averaged(self, recorder: Recorder, payload: Any, result: Any, begin_s: float) -> None:
        """Tell of gradients that were sent, or are on their way."""
        if _thread.kind is not None:
            return  # from a hook of DDP's, which DDP times
        if not self._told:
            self._told = True
            recorder.setup(framework="process_group")
            recorder.note(f"{NOT_MEASURED}: calls of torch.distributed combine the gradients.")
        first = next(_tensors(payload), None)
        if first is None or first.device.type != "cpu":
            recorder.note("Communication was not timed: on a GPU a call returns before it is done.")
            return
        if self._step != recorder.steps:
            # All gradients of a step were ready when the first of them went.
            self._step, self._ready_s = recorder.steps, begin_s
        if result is None:
            end_s = time.monotonic()
            self._done(recorder, begin_s, end_s, end_s - begin_s)
            return
        try:
            # Another backend's own way to wait.
            if type(result).__dict__.get("wait") is not None and hasattr(result, "__dict__"):
                result.wait = functools.partial(self._wait, result.wait, result)
            self._under_way[result] = begin_s
        except (AttributeError, TypeError):
            recorder.note("Waiting for gradients was not measured: its handle cannot be watched.")

    def waiting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a Work.wait that knows which handles are gradients."""

        @functools.wraps(original)
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._under_way:
                return original(work, *args, **kwargs)
            return self._wait(functools.partial(original, work), work, *args, **kwargs)

        return wait

    def _wait(self, original: Callable[..., Any], work: Any, *args: Any, **kwargs: Any) -> Any:
        wait_s = time.monotonic()
        result = original(*args, **kwargs)
        begin_s = self._under_way.pop(work, None)
        recorder = current() if begin_s is not None else None
        if recorder is not None and begin_s is not None:
            end_s = time.monotonic()
            self._done(recorder, begin_s, end_s, end_s - wait_s)
        return result

    def _done(self, recorder: Recorder, begin_s: float, end_s: float, exposed_s: float) -> None:
        recorder.gradients(
            ready_s=self._ready_s, done_s=end_s, began_s=begin_s, exposed_s=exposed_s
        )


def _tensors(payload: Any) -> Iterator[Any]:
    if hasattr(payload, "data_ptr"):
        yield payload
    elif isinstance(payload, Iterable):
        for part in payload:
            yield from _tensors(part)


def _nbytes(payload: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(payload))
