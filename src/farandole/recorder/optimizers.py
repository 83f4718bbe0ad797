"""What optimizers do: the time of updates, the ends of steps, and which parameters they hold."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from farandole.recorder.cuda import StreamClock, peak_bytes
from farandole.recorder.gradient_times import LOOKS, GradientTimes
from farandole.recorder.loaders import Loaders
from farandole.recorder.noise import scaled_by
from farandole.recorder.passes import Passes
from farandole.recorder.rates import Rates
from farandole.recorder.recorder import Recorder, current
from farandole.recorder.rounds import Rounds
from farandole.recorder.weights import CHANGED, Weights, parameters_of


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
    step, scale = scaler.step, scaler.scale

    def scaling(self: Any, outputs: Any) -> Any:
        scaled_by(self)
        return scale(self, outputs)

    def scaled_step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        before = optimizers.updates
        result = step(self, optimizer, *args, **kwargs)
        if optimizers.updates == before:
            optimizers.skipped(optimizer)
        return result

    scaler.step, scaler.scale = scaled_step, scaling
