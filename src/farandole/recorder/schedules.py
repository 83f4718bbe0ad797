"""How updates come about: each rank's own gradient, its loss, schedules, scalers and clipping.

A few values of a few gradients (probes) are kept as this rank computed them and as the update used
them: how much each rank's gradient counts in an update follows from that. The rest of a loss's
graph says by what it was divided.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from farandole.recorder import noise, samples
from farandole.recorder.detail import call_site, detail, frames, is_users, sampled
from farandole.recorder.recorder import Recorder, current, when_opened, wrap

_PROBES = 3
_VALUES = 24
"""Values of a probe that are kept."""
_LARGEST = 1 << 20
"""Elements of a gradient that is looked at in every step."""
_ALL_STEPS = 500
"""Steps of which each loss and gradient is looked at for NaN; then the sampled ones."""
_MOST_BAD = 5
_MOST_NODES = 24
_DENSE = 100
"""Steps in which each change of a scaler is told of."""


class Updates:
    """Follows the updates of one worker."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._level = detail() or "doctor"
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._probes: list[tuple[weakref.ref[Any], Any]] = []
        self._local: dict[int, list[float]] = {}
        self._used: list[list[float]] = []
        self.passes = 0
        """Backward passes since the last update."""
        self._all_passes = self._updates = 0
        self._losses: list[float] = []
        self._sites: dict[str, None] = {}
        self._roots: list[dict[str, Any]] = []
        self._carried = False
        self._finite = True
        self._bad = 0
        self._told = -1
        self._schedulers: weakref.WeakKeyDictionary[Any, tuple[int, str]] = (
            weakref.WeakKeyDictionary()
        )
        self._last_schedules: dict[int, dict[str, Any]] = {}
        self._scale: float | None = None
        self._planned = False
        self._last_work: tuple[int, int] = (0, 0)

    def opened(self, recorder: Recorder) -> None:
        """Tell of passes and updates now and then, and of schedules in the end."""
        recorder.add_source(lambda: self._work())
        recorder.add_ending(lambda: self._finish(recorder))

    # Backward passes

    def backward(self, loss: Any) -> None:
        """Take note of a backward pass that is about to begin."""
        recorder = current()
        if recorder is None or self._torch._C._current_graph_task_id() != -1:
            return
        first = self.passes == 0
        self.passes += 1
        self._all_passes += 1
        step = recorder.steps + 1
        near = sampled(step, self._level)
        if (near or step < _ALL_STEPS) and not loss.is_cuda and loss.numel() == 1:
            value = float(loss.detach())
            if not math.isfinite(value):
                self._bad_value(recorder, step, "loss")
            if len(self._losses) < 64:
                self._losses.append(value)
        if not near:
            return
        if first:
            # With two optimizers, as in a GAN, one's gradients wait while the other updates.
            self._carried = len(self._optimizers) == 1 and self._has_old_gradients()
        if len(self._sites) < 8:
            self._sites[call_site(sys._getframe(2))] = None
        if len(self._roots) < 8:
            self._roots.append(describe_root(loss.grad_fn))

    def _has_old_gradients(self) -> bool:
        """Say whether the gradients that the last update used are still there."""
        now = [self._values(one.grad, places) for one, places in self._alive()]
        return (
            bool(self._used)
            and any(any(row) for row in self._used)
            and len(now) == len(self._used)
            and all(
                len(a) == len(b)
                and all(
                    math.isclose(x, y, rel_tol=1e-6, abs_tol=0) for x, y in zip(a, b, strict=True)
                )
                for a, b in zip(now, self._used, strict=True)
            )
        )

    def _bad_value(self, recorder: Recorder, step: int, what: str) -> None:
        if self._bad < _MOST_BAD and self._finite:
            self._bad += 1
            self._finite = False
            recorder.tell("bad_gradient", step=step, what=what)

    # Gradients

    def _alive(self) -> list[tuple[Any, Any]]:
        return [(one, places) for ref, places in self._probes if (one := ref()) is not None]

    def _values(self, gradient: Any, places: Any) -> list[float]:
        if gradient is None or gradient.is_sparse or gradient.numel() <= int(places[-1]):
            return []
        found: list[float] = gradient.detach().reshape(-1)[places].float().tolist()
        return found

    def _choose(self, optimizer: Any) -> None:
        """Watch a few parameters from the next pass on."""
        held = {id(p): p for group in optimizer.param_groups for p in group["params"]}
        plain = [
            one
            for one in held.values()
            if one.requires_grad
            and one.is_leaf
            and one.is_floating_point()
            and 0 < one.numel() <= _LARGEST
            and type(one).__name__ in ("Parameter", "Tensor")
        ]
        if not plain:
            return
        chosen = {id(plain[at]): plain[at] for at in (0, len(plain) // 2, len(plain) - 1)}
        for number, parameter in enumerate(list(chosen.values())[:_PROBES]):
            count = min(_VALUES, parameter.numel())
            # Not a regular grid: rows of inputs that are always zero would be all there is.
            places = self._torch.tensor(
                sorted({(at * 2_654_435_761 + 7) % parameter.numel() for at in range(count)}),
                device=parameter.device,
            )
            self._probes.append((weakref.ref(parameter), places))
            parameter.register_hook(self._hook(number, places))

    def _hook(self, number: int, places: Any) -> Callable[[Any], None]:
        def look(gradient: Any) -> None:
            recorder = current()
            if recorder is None or gradient.is_sparse:
                return
            step = recorder.steps + 1
            near = sampled(step, self._level)
            if (near or step < _ALL_STEPS) and not gradient.is_cuda:
                scaler_on = noise._loss_scale() != 1.0
                if not scaler_on and not math.isfinite(float(gradient.sum())):
                    self._bad_value(recorder, step, "gradient")
            if near:
                values = self._values(gradient, places)
                before = self._local.get(number)
                self._local[number] = (
                    values
                    if before is None
                    else [a + b for a, b in zip(before, values, strict=False)]
                )

        return look

    # Updates

    def after(self, optimizer: Any, *_: Any) -> None:
        """Take note of an update (torch's post-hook), before the recorder's step ends."""
        recorder = current()
        if recorder is None:
            return
        self._updates += 1
        self._optimizers.add(optimizer)
        step = recorder.steps + 1
        if step == self._told:
            return
        self._told = step
        if sampled(step, self._level):
            self._used = [self._values(one.grad, places) for one, places in self._alive()]
            self._tell(recorder, step)
        elif sampled(step + 1, self._level):
            self._used = [self._values(one.grad, places) for one, places in self._alive()]
        self._planned = self._planned or self._plan(recorder, step)
        if not self._probes:
            self._choose(optimizer)
        self.passes = 0
        self._finite = True
        self._losses.clear()
        self._sites.clear()
        self._roots.clear()
        self._local.clear()

    def _tell(self, recorder: Recorder, step: int) -> None:
        scale = noise._loss_scale()
        recorder.tell(
            "local",
            step=step,
            passes=self.passes,
            sites=list(self._sites),
            losses=list(self._losses[:64]),
            local=[self._local.get(number, []) for number in range(len(self._probes))],
            used=self._used,
            scale=scale if isinstance(scale, float) else None,
            carried=self._carried,
            divisors=[one["divisors"] for one in self._roots],
            factors=[one["factors"] for one in self._roots],
            counts=[one["counts"] for one in self._roots],
            known=all(one["known"] for one in self._roots) and bool(self._roots),
        )
        self._tell_schedules(recorder, step)

    # Schedules

    def scheduler_made(self, scheduler: Any) -> None:
        """Take note of a scheduler and of where the script makes it."""
        self._schedulers[scheduler] = len(self._schedulers), call_site(sys._getframe(2))

    def _tell_schedules(self, recorder: Recorder, step: int) -> None:
        for scheduler, (number, where) in list(self._schedulers.items()):
            fields: dict[str, Any] = {
                "number": number,
                "name": type(scheduler).__name__,
                "where": where,
                "calls": getattr(scheduler, "last_epoch", None),
                "total": _total(scheduler),
                "numbers": _numbers(scheduler),
            }
            for name in ("best", "num_bad_epochs"):
                value = getattr(scheduler, name, None)
                if isinstance(value, float | int) and math.isfinite(value):
                    fields[name] = value
            if self._last_schedules.get(number) != fields:
                self._last_schedules[number] = fields
                recorder.tell("schedule", step=step, **fields)

    def _plan(self, recorder: Recorder, step: int) -> bool:
        """Tell for how many epochs the script means to train, if a variable says so."""
        if step not in (2, 10):
            return False
        epochs = planned_epochs(sys._getframe(1))
        if epochs is not None:
            recorder.tell("plan", epochs=epochs)
        return step == 10 or epochs is not None

    def _work(self) -> dict[str, Any] | None:
        now = self._all_passes, self._updates
        if now == self._last_work:
            return None
        self._last_work = now
        return {"kind": "work", "passes": now[0], "updates": now[1]}

    def _finish(self, recorder: Recorder) -> dict[str, Any]:
        self._tell_schedules(recorder, recorder.steps)
        return {}

    # Scalers and clipping

    def scaler_updated(self, scaler: Any) -> None:
        """Take note of a GradScaler's scale."""
        recorder = current()
        scale = getattr(scaler, "_scale", None)
        if recorder is None or scale is None:
            return
        step = recorder.steps
        if scale.is_cuda and not sampled(step, self._level):
            return
        value = float(scale)
        if value != self._scale and (step < _DENSE or sampled(step, self._level)):
            self._scale = value
            recorder.tell("scaler", step=step, scale=value)

    def clipped(self, norm: Any, most: Any) -> None:
        """Take note of a clipping."""
        recorder = current()
        if recorder is None or not sampled(recorder.steps + 1, self._level):
            return
        try:
            recorder.tell(
                "clip",
                step=recorder.steps + 1,
                norm=float(norm),
                most=float(most),
                where=call_site(sys._getframe(2)),
            )
        except (TypeError, ValueError, RuntimeError):
            return


def describe_root(node: Any) -> dict[str, Any]:
    """Say by what a loss was divided and multiplied, and over how many targets it is a mean.

    Follows a loss's graph down to where it was reduced; `known` is whether it got there.
    """
    divisors: list[float] = []
    factors: list[float] = []
    counts: list[list[float]] = []
    known = False
    rest, seen = [node], 0
    while rest and seen < _MOST_NODES:
        node = rest.pop(0)
        seen += 1
        if node is None:
            continue
        name = str(node.name())
        following = [one for one, _ in node.next_functions if one is not None]
        try:
            if name.startswith("DivBackward"):
                divisors += _scalar(node._saved_other)
                rest += following[:1]
            elif name.startswith("MulBackward"):
                factors += _scalar(node._saved_other) or _scalar(node._saved_self)
                rest += following[:1]
            elif name.startswith(("AddBackward", "SubBackward")):
                rest += following
            elif name.startswith("NllLoss"):
                known = True
                if node._saved_reduction == 1:
                    counts.append(
                        [float(node._saved_total_weight), float(node._saved_target.numel())]
                    )
            elif name.startswith(("Sum", "Mean", "Mse", "BinaryCross", "SmoothL1", "L1", "Huber")):
                known = True
            elif name.startswith(("ToCopy", "View", "Squeeze", "Clone", "Alias", "Reshape")):
                rest += following[:1]
        except (AttributeError, RuntimeError, TypeError):
            continue
    return {"divisors": divisors, "factors": factors, "counts": counts, "known": known}


def _scalar(value: Any) -> list[float]:
    if value is None or not hasattr(value, "numel") or value.numel() != 1 or value.is_cuda:
        return []
    return [float(value)]


def _total(scheduler: Any) -> int | None:
    """Return after how many calls a schedule is at its end."""
    for name in ("total_steps", "T_max", "total_iters"):
        value = getattr(scheduler, name, None)
        if isinstance(value, int | float) and 0 < value < 1e12:
            return int(value)
    milestones = getattr(scheduler, "milestones", None)
    try:
        return int(max(milestones)) if milestones else None
    except (TypeError, ValueError):
        return None


def _numbers(scheduler: Any) -> list[int]:
    """Return whole numbers that functions of a LambdaLR know: its steps are among them."""
    found: list[int] = []
    for function in getattr(scheduler, "lr_lambdas", None) or ():
        cells = getattr(function, "__closure__", None) or ()
        values: list[Any] = []
        for cell in cells:
            try:
                values.append(cell.cell_contents)
            except ValueError:
                continue
        values += list(getattr(function, "keywords", None) or {}) and list(
            function.keywords.values()
        )
        code = getattr(function, "__code__", None)
        if code is not None:
            values += [function.__globals__.get(name) for name in code.co_names]
            values += list(code.co_consts)
        found += [one for one in values if type(one) is int and 1 < one < 10**9]
    return sorted(set(found))[:16]


_EPOCHS = ("epochs", "num_epochs", "n_epochs", "max_epochs", "num_train_epochs", "total_epochs")


def planned_epochs(frame: Any) -> int | None:
    """Return what a script's variables call its number of epochs."""
    for one in frames(frame):
        if not is_users(one.f_code.co_filename):
            continue
        for scope in (one.f_locals, one.f_globals):
            for value in _named(scope):
                if type(value) is int and 0 < value < 100_000:
                    return value
    return None


def _named(scope: Any) -> Iterator[Any]:
    for name in _EPOCHS:
        yield scope.get(name)
        yield scope.get(name.upper())
    for owner in ("args", "opt", "config", "cfg", "hparams", "flags"):
        fields = getattr(scope.get(owner), "__dict__", scope.get(owner))
        if isinstance(fields, dict):
            yield from (fields.get(name) for name in _EPOCHS)


def _replace_everywhere(modules: Sequence[Any], name: str, make: Callable[[Any], Any]) -> None:
    original = getattr(modules[0], name)
    wrapped = make(original)
    for module in modules:
        if getattr(module, name, None) is original:
            setattr(module, name, wrapped)


def install_torch(torch: Any) -> None:
    """Follow backward passes, updates, schedulers, scalers and clipping."""
    if detail() != "doctor":
        return
    import functools

    from torch.optim.optimizer import register_optimizer_step_post_hook

    updates = Updates(torch)
    when_opened(updates.opened)
    samples.pending = lambda: updates.passes
    is_compiling = torch.compiler.is_compiling

    @wrap(torch.Tensor, "backward")
    def backward(original: Callable[..., Any], tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_compiling():
            updates.backward(tensor)
        return original(tensor, *args, **kwargs)

    register_optimizer_step_post_hook(updates.after)

    @wrap(torch.optim.lr_scheduler.LRScheduler, "__init__")
    def made(original: Callable[..., None], scheduler: Any, *args: Any, **kwargs: Any) -> None:
        original(scheduler, *args, **kwargs)
        updates.scheduler_made(scheduler)

    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
    if "__init__" in plateau.__dict__:

        @wrap(plateau, "__init__")
        def made_too(original: Callable[..., None], one: Any, *args: Any, **kwargs: Any) -> None:
            original(one, *args, **kwargs)
            updates.scheduler_made(one)

    @wrap(torch.amp.grad_scaler.GradScaler, "update")
    def update(original: Callable[..., Any], scaler: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(scaler, *args, **kwargs)
        updates.scaler_updated(scaler)
        return result

    def clipping(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def clip(parameters: Any, max_norm: Any, *args: Any, **kwargs: Any) -> Any:
            norm = original(parameters, max_norm, *args, **kwargs)
            updates.clipped(norm, max_norm)
            return norm

        return clip

    modules = [torch.nn.utils.clip_grad, torch.nn.utils]
    _replace_everywhere(modules, "clip_grad_norm_", clipping)
