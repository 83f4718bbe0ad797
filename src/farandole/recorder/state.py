"""What workers must have alike: hashes of weights, buffers, optimizer state, gradients, settings.

Nothing is exchanged: every rank tells of the same steps, and whoever reads compares. A hash is the
sum of a tensor's 64-bit words, which runs at the speed of memory; it does not see an exchange of
words within one tensor.
"""

from __future__ import annotations

import gc
import hashlib
import math
import sys
import time
import weakref
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from farandole.recorder.detail import EVERY, call_site, detail, sampled
from farandole.recorder.recorder import Recorder, current, wrap

_MASK = (1 << 64) - 1
# A state may cost this share of the steps between two of them, in a watched run.
_SHARE = 0.003
# Every change of a schedule is told of in so many steps, and then only in every 50th.
_EVERY_CHANGE = 100
_SPARSE = 50


def word_sum(array: Any) -> str:
    """Return a hash of a contiguous NumPy array."""
    import numpy as np

    flat = array.reshape(-1).view(np.uint8)
    whole = flat.size // 8 * 8
    total = int(np.add.reduce(flat[:whole].view(np.uint64), dtype=np.uint64)) if whole else 0
    rest = int.from_bytes(flat[whole:].tobytes(), "little")
    return f"{(total + rest + flat.size) & _MASK:016x}"


def tensor_hash(tensor: Any) -> str:
    """Return a hash of a tensor; empty for one that has no memory here to be read."""
    try:
        return word_sum(_plain(tensor))
    except (RuntimeError, TypeError, ValueError, NotImplementedError, AttributeError):
        return ""


def tensor_norm(tensor: Any) -> float:
    """Return a tensor's norm; NaN for one that cannot be read."""
    import numpy as np

    try:
        flat = _plain(tensor).reshape(-1)
        wide = flat if flat.dtype in (np.float32, np.float64) else flat.astype(np.float32)
        return math.sqrt(float(np.dot(wide, wide)))
    except (RuntimeError, TypeError, ValueError, NotImplementedError, AttributeError):
        return math.nan


def _plain(tensor: Any) -> Any:
    if type(tensor).__name__ == "FlatParameter":
        raise NotImplementedError  # FSDP's: every rank has another part
    plain = tensor.detach()
    if plain.is_sparse:
        plain = plain.to_dense()
    if plain.device.type != "cpu":
        plain = plain.cpu()
    if str(plain.dtype) == "torch.bfloat16":
        plain = plain.float()
    return plain.contiguous().numpy()


class States:
    """Follows the optimizers of one worker, and what they hold."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._level = detail()
        self._everything = self._level == "doctor"
        self._made: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._groups: dict[int, Any] = {}
        self._parameters: list[weakref.ref[Any]] = []
        self._buffers: list[weakref.ref[Any]] = []
        self._introduced = -1
        """Parameters of whom the model was told."""
        self._told = -1
        self._every = EVERY["watch"]
        self._last_s = time.monotonic()

    def made(self, optimizer: Any) -> None:
        """Take note of an optimizer and of where the script makes it."""
        self._made[optimizer] = call_site(sys._getframe(2))

    def before(self, optimizer: Any, *_: Any) -> None:
        """Tell of the state before the first update (torch's pre-hook)."""
        recorder = current()
        if recorder is None or self._told >= 0 or recorder.steps:
            return
        self._tell(recorder, 0)

    def after(self, optimizer: Any, *_: Any) -> None:
        """Tell of an update (torch's post-hook), before the recorder's step ends."""
        recorder = current()
        if recorder is None:
            return
        number = self._numbers.get(optimizer)
        if number is None:
            number = self._introduce(recorder, optimizer)
        self._compare_groups(recorder, number, optimizer)
        step = recorder.steps + 1
        if step == self._told:
            return
        if sampled(step, self._level) and (step < EVERY["watch"] or step % self._every == 0):
            if self._everything:
                self._tell_gradients(recorder, step)
            self._tell(recorder, step)

    def _introduce(self, recorder: Recorder, optimizer: Any) -> int:
        number = self._numbers[optimizer] = len(self._numbers)
        held = _held(optimizer)
        recorder.tell(
            "optimizer",
            number=number,
            name=type(optimizer).__name__,
            where=self._where(optimizer),
            step_where=call_site(),
            tensors=len(held),
            parameters=sum(one.numel() for one in held),
            distributed=hasattr(optimizer, "_hvd"),
        )
        return number

    def _where(self, optimizer: Any) -> str:
        if optimizer in self._made:
            return self._made[optimizer]
        # One that was wrapped: made of another with the same parameters.
        mine = {id(one) for one in _held(optimizer)}
        for other, where in list(self._made.items()):
            if mine & {id(one) for one in _held(other)}:
                return where
        return ""

    def _compare_groups(self, recorder: Recorder, number: int, optimizer: Any) -> None:
        now = [
            [(name, value) for name, value in group.items() if name != "params"]
            for group in optimizer.param_groups
        ]
        if now == self._groups.get(number):
            return
        step = recorder.steps
        if number in self._groups and step >= _EVERY_CHANGE and step % _SPARSE:
            return
        self._groups[number] = now
        plain = [{name: _setting(value) for name, value in group} for group in now]
        recorder.tell("groups", step=step, optimizer=number, groups=plain)

    def _tell_gradients(self, recorder: Recorder, step: int) -> None:
        found = [one.grad if one is not None else None for one in self._alive()]
        norms = [math.nan if one is None else tensor_norm(one) for one in found]
        recorder.tell(
            "gradients",
            step=step,
            hashes=["" if one is None else tensor_hash(one) for one in found],
            norms=norms,
            finite=all(
                math.isfinite(norm)
                for one, norm in zip(found, norms, strict=True)
                if one is not None
            ),
        )

    def _tell(self, recorder: Recorder, step: int) -> None:
        began_s = time.monotonic()
        self._told = step
        self._meet(recorder)
        parameters = [one for one in self._alive() if one is not None]
        buffers = [one for reference in self._buffers if (one := reference()) is not None]
        fields: dict[str, Any] = {"weights": [tensor_hash(one) for one in parameters]}
        fields["buffers"] = [tensor_hash(one) for one in buffers]
        if self._everything:
            fields["weight_norms"] = [tensor_norm(one) for one in parameters]
            fields["buffer_norms"] = [tensor_norm(one) for one in buffers]
            fields["buffer_means"] = [float(one.detach().float().mean()) for one in buffers]
            fields["rng"] = self._rng()
        if self._everything or step < 2:
            fields["optimizer"], fields["optimizer_steps"] = self._optimizer_state(parameters)
        recorder.tell("state", step=step, **fields)
        now_s = time.monotonic()
        if not self._everything and step >= EVERY["watch"]:
            # Twice as seldom: what ranks tell of still meets.
            while now_s - began_s > _SHARE * (now_s - self._last_s) and self._every < 100_000:
                self._every *= 2
                self._last_s -= now_s - self._last_s
        self._last_s = now_s

    def _optimizer_state(self, parameters: Sequence[Any]) -> tuple[list[str], float | None]:
        by_parameter: dict[int, list[Any]] = {}
        steps = []
        for optimizer in list(self._made):
            for parameter, state in list(optimizer.state.items()):
                if not isinstance(state, Mapping):
                    continue
                tensors = [value for value in state.values() if hasattr(value, "data_ptr")]
                by_parameter.setdefault(id(parameter), []).extend(tensors)
                if "step" in state:
                    steps.append(float(state["step"]))
        hashes = [
            hashlib.blake2b(
                "".join(tensor_hash(value) for value in by_parameter[id(one)]).encode(),
                digest_size=8,
            ).hexdigest()
            if by_parameter.get(id(one))
            else ""
            for one in parameters
        ]
        return hashes, max(steps, default=None)

    def _rng(self) -> dict[str, str]:
        import random

        found = {"torch": tensor_hash(self._torch.get_rng_state())}
        found["python"] = f"{zlib.crc32(repr(random.getstate()).encode()):08x}"
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            state = numpy.random.get_state()
            found["numpy"] = word_sum(state[1]) + f"{state[2]:x}"
        return found

    def _alive(self) -> list[Any]:
        return [reference() for reference in self._parameters]

    def _meet(self, recorder: Recorder) -> None:
        """Learn the parameters of all optimizers that there are by now, and their names."""
        held = {id(one): one for optimizer in list(self._made) for one in _held(optimizer)}
        if len(held) == self._introduced:
            return
        self._introduced = len(held)
        self._parameters = [weakref.ref(one) for one in held.values()]
        names, buffers, unheld = _names(self._torch, held)
        self._buffers = [weakref.ref(one) for _, one in buffers]
        recorder.tell(
            "model",
            names=[names.get(key, f"parameter {at}") for at, key in enumerate(held)],
            shapes=["x".join(map(str, one.shape)) for one in held.values()],
            trainable=[bool(one.requires_grad) for one in held.values()],
            buffers=[name for name, _ in buffers],
            unheld=unheld,
        )


def _held(optimizer: Any) -> list[Any]:
    found = {id(p): p for group in optimizer.param_groups for p in group["params"]}
    return list(found.values())


def _names(
    torch: Any, held: Mapping[int, Any]
) -> tuple[dict[int, str], list[tuple[str, Any]], list[str]]:
    """Return names by parameter, buffers by name, and trainable parameters nobody holds."""
    kind = torch.nn.Module
    modules = [one for one in gc.get_objects() if issubclass(type(one), kind)]
    modules = [one for one in modules if "_modules" in one.__dict__]
    inner = {id(child) for one in modules for child in one._modules.values()}
    names: dict[int, str] = {}
    buffers: dict[int, tuple[str, Any]] = {}
    unheld: list[str] = []
    for top in modules:
        if id(top) in inner:
            continue
        mine = [(_plain_name(name), one) for name, one in top.named_parameters()]
        if not any(id(one) in held for _, one in mine):
            continue
        for name, one in mine:
            names.setdefault(id(one), name)
            if id(one) not in held and one.requires_grad:
                unheld.append(name)
        for name, one in top.named_buffers():
            if one.is_floating_point():
                buffers.setdefault(id(one), (_plain_name(name), one))
    return names, list(buffers.values()), sorted(set(unheld))


def _plain_name(name: str) -> str:
    return name.removeprefix("module.").removeprefix("_orig_mod.")


def _setting(value: Any) -> Any:
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value
    if isinstance(value, list | tuple):
        return [_setting(one) for one in value]
    if hasattr(value, "numel") and value.numel() == 1 and not getattr(value, "is_cuda", False):
        return float(value)
    return type(value).__name__


def install_torch(torch: Any) -> None:
    """Follow all optimizers of torch; to be called before what ends steps is installed."""
    from torch.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    states = States(torch)

    @wrap(torch.optim.Optimizer, "__init__")
    def init(original: Callable[..., None], optimizer: Any, *args: Any, **kwargs: Any) -> None:
        original(optimizer, *args, **kwargs)
        states.made(optimizer)

    register_optimizer_step_pre_hook(states.before)
    register_optimizer_step_post_hook(states.after)
