"""What optimizers do: the time of updates, the ends of steps, and which parameters they hold."""

from __future__ import annotations

import hashlib
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from farandole.recorder.batches import Loaders, Passes
from farandole.recorder.noise import scaled_by
from farandole.recorder.recorder import Recorder, current, wrap
from farandole.recorder.steps import StreamClock, peak_bytes


class _Update:
    """An optimizer's step() under way."""

    __slots__ = ("begin_s", "closure_s", "mark", "optimizer")

    def __init__(self, optimizer: Any, begin_s: float) -> None:
        self.optimizer, self.begin_s = optimizer, begin_s
        self.closure_s = 0.0
        self.mark: Any = None

    def timed(self, closure: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap what computes the gradients: its time is not the optimizer's."""

        def run(*arguments: Any, **named: Any) -> Any:
            begin_s = time.monotonic()
            try:
                return closure(*arguments, **named)
            finally:
                self.closure_s += time.monotonic() - begin_s

        return run


class Optimizers:
    """Follows the optimizers of one worker."""

    def __init__(self, loaders: Loaders, passes: Passes) -> None:
        self._loaders, self._passes = loaders, passes
        self._rounds = Rounds()
        self._rates = Rates()
        self._weights = Weights()
        self._gradient_times = GradientTimes()
        self._under_way: list[_Update] = []
        self._stream: StreamClock | None = None
        self._parameters: dict[int, int] = {}
        self.updates = 0

    def before(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Take note of the beginning of an update (torch's pre-hook)."""
        if current() is None:
            return None
        for update in self._under_way:
            if update.optimizer is optimizer:
                self._under_way.clear()  # the last one failed, and the script went on
                break
        update = _Update(optimizer, time.monotonic())
        self._under_way.append(update)
        if self._stream is not None:
            update.mark = self._stream.mark()
        if len(args) > 1 and args[1] is not None:
            return (args[0], update.timed(args[1]), *args[2:]), kwargs
        if kwargs.get("closure") is not None:
            return args, {**kwargs, "closure": update.timed(kwargs["closure"])}
        return None

    def after(self, optimizer: Any, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        """Take note of the end of an update (torch's post-hook)."""
        recorder = current()
        if recorder is None or not self._under_way:
            return
        update = self._under_way.pop()
        if self._under_way:
            return  # an optimizer that works for another one
        self.updates += 1
        if not self._weights.updated(optimizer):
            self._introduce(optimizer, recorder)
        if self._stream is None or update.mark is None:
            recorder.optimizer(update.begin_s + update.closure_s, time.monotonic())
        elif not update.closure_s:
            recorder.optimizer_later(self._stream.between(update.mark, self._stream.mark()))
        if self._rounds.ended_by(id(optimizer)):
            self._end_step(recorder, optimizer)

    def skipped(self, optimizer: Any) -> None:
        """Take note of an update that a GradScaler has left out: the step ended all the same."""
        recorder = current()
        if recorder is not None and self._rounds.ended_by(id(optimizer)):
            self._end_step(recorder, optimizer)

    def dropped(self, optimizer: Any) -> None:
        """Take note that an optimizer is about to be freed."""
        self._weights.dropped(optimizer)

    def _end_step(self, recorder: Recorder, optimizer: Any) -> None:
        self._loaders.settle(recorder)
        self._passes.step_ends(recorder, lambda: set(self._trained()))
        self._rates.held_by(recorder, optimizer)
        if recorder.steps in LOOKS:
            self._sample(recorder)
        if self._stream is None:
            recorder.step()
        else:
            recorder.step(self._stream.reached(self._stream.mark()))

    def _sample(self, recorder: Recorder) -> None:
        """Look when gradients are ready."""
        self._gradient_times.step_ends(recorder, list(self._trained().values()))

    def _trained(self) -> dict[int, Any]:
        """Return the parameters of all optimizers, by their ids."""
        return {id(p): p for one in self._weights.optimizers() for p in parameters_of(one)}

    def _introduce(self, optimizer: Any, recorder: Recorder) -> None:
        """Tell of an optimizer that makes its first update."""
        if not self._parameters:
            recorder.add_ending(lambda: self._ending(recorder))
        parameters = parameters_of(optimizer)
        self._parameters |= {id(p): p.numel() for p in parameters if p.requires_grad}
        device = parameters[0].device.type if parameters else "cpu"
        if device == "cuda" and self._stream is None:
            self._stream = StreamClock()
        ours = hasattr(optimizer, "_hvd")
        recorder.assume(framework="farandole.torch" if ours else "torch")
        recorder.setup(parameters=sum(self._parameters.values()), device=device)

    def _ending(self, recorder: Recorder) -> dict[str, Any]:
        weights = self._weights.fingerprint()
        if self._weights.changed:
            recorder.note(CHANGED)
        return {"weights": weights, "peak_gpu_bytes": peak_bytes()}


def install(optimizers: Optimizers) -> None:
    """Follow all optimizers of torch."""
    import torch
    from torch.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    register_optimizer_step_pre_hook(optimizers.before)
    register_optimizer_step_post_hook(optimizers.after)
    base: Any = torch.optim.Optimizer
    if not hasattr(base, "__del__"):
        # A script's main() frees its optimizer before Python ends, and with it the weights.
        base.__del__ = lambda optimizer: optimizers.dropped(optimizer)
    scaler: Any = torch.amp.grad_scaler.GradScaler

    @wrap(scaler, "scale")
    def scale(original: Any, scaler: Any, outputs: Any) -> Any:
        scaled_by(scaler)
        return original(scaler, outputs)

    @wrap(scaler, "step")
    def step(original: Any, scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        before = optimizers.updates
        result = original(scaler, optimizer, *args, **kwargs)
        if optimizers.updates == before:
            optimizers.skipped(optimizer)
        return result


# A schedule that changes a little in every step makes some hundreds of lines, not one per step.
LEAST_CHANGE = 0.01


class Rates:
    """Remembers what was told last."""

    def __init__(self) -> None:
        self._told: float | None = None
        self._same: float | None = None
        """The very object that held in the step before."""

    def held_by(self, recorder: Recorder, optimizer: Any) -> None:
        """Tell which learning rate one of torch's optimizers has in the step that ends."""
        groups = optimizer.param_groups
        rate = groups[0].get("lr")
        # The usual case, at the least cost; a tensor may be another number than it was.
        if rate is self._same and rate.__class__ is float and len(groups) == 1:
            return
        self._same = rate
        self.held(recorder, recorder.steps, torch_rate(optimizer))

    def held(self, recorder: Recorder, step: int, rate: float | None) -> None:
        """Tell which learning rate held in a step, if it is known and not what was told last."""
        if rate is None or rate == self._told:
            return
        if self._told is None or abs(rate - self._told) >= LEAST_CHANGE * abs(self._told):
            self._told = rate
            recorder.tell("learning_rate", step=step, value=rate)


def torch_rate(optimizer: Any) -> float | None:
    """Return the largest rate of an optimizer's groups; None where reading it would take long."""
    rates = [group["lr"] for group in optimizer.param_groups if "lr" in group]
    # One on a GPU would have to be waited for.
    if not rates or any(getattr(rate, "is_cuda", False) for rate in rates):
        return None
    return float(max(rates))


class Rounds:
    """Follows who makes updates."""

    def __init__(self) -> None:
        self._leader: int | None = None
        self._others: set[int] = set()

    def ended_by(self, optimizer: int) -> bool:
        """Take note of an update; return whether it ended a step."""
        if self._leader is None or optimizer in self._others:
            self._leader = optimizer
        if optimizer == self._leader:
            self._others.clear()
            return True
        self._others.add(optimizer)
        return False


CHANGED = (
    "The weights were not compared between the ranks: something wrote to them after the last step."
)


@dataclass(slots=True)
class _Seen:
    optimizer: weakref.ref[Any]
    number: int
    probes: list[Any]
    versions: list[int] = field(default_factory=list)


class Weights:
    """Follows optimizers; keeps none of them alive, so that their memory is freed as ever."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}
        self._digests: dict[int, bytes] = {}
        self._count = 0
        self.changed = False

    def updated(self, optimizer: Any) -> bool:
        """Take note of an update; return whether this optimizer was seen before."""
        seen = self._seen.get(id(optimizer))
        known = seen is not None
        if seen is None:
            seen = self._meet(optimizer)
        seen.versions = _versions(seen)
        return known

    def _meet(self, optimizer: Any) -> _Seen:
        # Whoever writes to the parameters later (a checkpoint restored, on one rank only) writes to
        # all: it is enough to look at two.
        found = parameters_of(optimizer)
        probes = [weakref.ref(parameter) for parameter in (*found[:1], *found[1:][-1:])]
        seen = self._seen[id(optimizer)] = _Seen(weakref.ref(optimizer), self._count, probes)
        self._count += 1
        return seen

    def dropped(self, optimizer: Any) -> None:
        """Take the fingerprint of an optimizer that is about to go."""
        seen = self._seen.pop(id(optimizer), None)
        if seen is not None:
            self._take(optimizer, seen)

    def optimizers(self) -> list[Any]:
        """Return those that were seen and are still there, in the order of their first updates."""
        found = (seen.optimizer() for seen in self._seen.values())
        return [optimizer for optimizer in found if optimizer is not None]

    def fingerprint(self) -> str | None:
        """Return one fingerprint of all; None if there is nothing to be compared."""
        for seen in list(self._seen.values()):
            optimizer = seen.optimizer()
            if optimizer is not None:
                self._take(optimizer, seen)
        # Optimizers go with the interpreter, too; that is too late for anything.
        self._seen.clear()
        return combined(self._digests) if self._digests and not self.changed else None

    def _take(self, optimizer: Any, seen: _Seen) -> None:
        if _versions(seen) != seen.versions:
            self.changed = True
            return
        digest = _digest(parameters_of(optimizer))
        if digest is not None:
            self._digests[seen.number] = digest


def parameters_of(optimizer: Any) -> list[Any]:
    """Return an optimizer's parameters, each once."""
    found = {id(p): p for group in optimizer.param_groups for p in group["params"]}
    return list(found.values())


def _versions(seen: _Seen) -> list[int]:
    parameters = [probe() for probe in seen.probes]
    return [-1 if parameter is None else parameter._version for parameter in parameters]


def _digest(parameters: list[Any]) -> bytes | None:
    import torch

    flat = (parameter.detach().cpu().contiguous().reshape(-1) for parameter in parameters)
    return digest_of(one.view(torch.uint8).numpy() for one in flat)


def digest_of(arrays: Iterable[Any]) -> bytes | None:
    """Return a fingerprint of weights; None for those that have no memory here to be read."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        for array in arrays:
            digest.update(array)
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return None  # sharded over the ranks, given away to a computation, unknown to NumPy
    return digest.digest()


def combined(digests: Mapping[int, bytes]) -> str:
    """Return one fingerprint of the weights of several owners, by their numbers."""
    whole = hashlib.blake2b(digest_size=16)
    for number in sorted(digests):
        whole.update(digests[number])
    return whole.hexdigest()


# Behind the first steps, which are slower, and early enough for launches of twenty steps; then now
# and then: a run may slow down or speed up.
SAMPLED = frozenset([*range(6, 61, 6), *range(64, 1409, 64)])
"""The steps to look at, counting from 0."""
LOOKS = SAMPLED | {step - 1 for step in SAMPLED}
"""The steps at whose ends there is something to do."""
MOST_PIECES = 64
"""Parameters to look at: the largest, which hold nearly all of a model, for a hook costs more than
ten microseconds."""

Piece = tuple[int, float]
"""Bytes, and when all of them were ready."""


def scaled_pieces(pieces: Sequence[Piece], total_bytes: int) -> list[Piece]:
    """Return pieces in the order of their times, as large together as all gradients are."""
    seen = sum(nbytes for nbytes, _ in pieces)
    ordered = sorted(pieces, key=lambda piece: piece[1])
    return [(round(nbytes * total_bytes / seen), ready_s) for nbytes, ready_s in ordered]


class GradientTimes:
    """Watches parameters in sampled steps."""

    def __init__(self) -> None:
        self._hooks: list[Any] = []
        self._came: dict[int, Piece] = {}
        self._total_bytes = 0

    def step_ends(self, recorder: Recorder, parameters: Sequence[Any]) -> None:
        """Tell of the step that is about to end, if it was watched; watch the next, if sampled."""
        if self._hooks:
            for hook in self._hooks:
                hook.remove()
            self._hooks.clear()
            self._tell(recorder)
        if recorder.steps + 1 in SAMPLED:
            self._watch(parameters)

    def _tell(self, recorder: Recorder) -> None:
        pieces = scaled_pieces(list(self._came.values()), self._total_bytes)
        self._came.clear()
        if pieces:
            recorder.tell(
                "buckets",
                step=recorder.steps,
                bytes=[nbytes for nbytes, _ in pieces],
                ready_s=[round(ready_s, 6) for _, ready_s in pieces],
            )

    def _watch(self, parameters: Sequence[Any]) -> None:
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        # On a device the host's clock says nothing; sharded ones have gradients of their own kind.
        if not all(map(_is_plain, trained)):
            return
        largest = sorted(trained, key=lambda parameter: -parameter.nbytes)[:MOST_PIECES]
        self._total_bytes = sum(parameter.nbytes for parameter in trained)
        self._hooks = [p.register_post_accumulate_grad_hook(self._note) for p in largest]

    def _note(self, parameter: Any) -> None:
        gradient = parameter.grad
        if gradient is not None and not gradient.is_sparse:
            # With several backward passes the last one counts.
            self._came[id(parameter)] = (gradient.nbytes, time.monotonic())


def _is_plain(parameter: Any) -> bool:
    import torch

    return (
        type(parameter) in (torch.nn.Parameter, torch.Tensor)
        and parameter.is_leaf
        and parameter.device.type == "cpu"
    )
