"""Metrics and evaluation: what was evaluated, averaged, shown and compared (facts of FD4xx).

An evaluation is what a trained model is called with, between two updates, while gradients are off.
Numbers that a script takes out of tensors and clocks are floats of a kind of our own, `Figure`: it
remembers what it was made from, so that whoever prints a number, or decides by one, is seen. Only
numbers that the script itself asks for are such, and only in a doctor's short run.
"""

from __future__ import annotations

import builtins
import logging
import re
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

from farandole.recorder.batches import MOST_SAMPLES, arrays_of, first_length, hash_samples
from farandole.recorder.detail import call_site, detail, frames, is_users
from farandole.recorder.recorder import Recorder, current, when_opened, wrap

MOST_EVALUATIONS = 100
MOST_LINES = 300
"""Lines of each kind: what is shown in every step is enough to be seen in the first ones."""
_MOST_VALUES = 400
_NUMBER = re.compile(r"(?<![\w.])[-+]?(\d+\.\d+(?:e[-+]?\d+)?|\d+(?=\s?%))", re.IGNORECASE)
_MODES = ("Dropout", "BatchNorm", "InstanceNorm", "RReLU")
_LOSSES = (
    *("cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"),
    *("binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div"),
)
_DDP = "DistributedDataParallel"
_CLOCKS = ("time", "perf_counter", "monotonic")


class Figure(float):
    """A number of the script, with what it was made from."""

    origin: tuple[Any, ...]
    """("train" or "eval", file:line), ("clock", s), ("span", begin_s, end_s) or ("rate", ...)."""

    def __new__(cls, value: float, origin: tuple[Any, ...]) -> Figure:
        """Make one of a plain number."""
        made = super().__new__(cls, value)
        made.origin = origin
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """Be a plain number for whoever copies or stores it."""
        return float, (float(self),)

    def __repr__(self) -> str:
        """Tell that it is shown."""
        _follower.shown(self)
        return float.__repr__(self)

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        """Tell that it is shown."""
        _follower.shown(self)
        return float.__format__(self, spec)

    def __round__(self, digits: int | None = None) -> Any:  # type: ignore[override]
        """Stay one where it is not made a whole number."""
        found = float.__round__(self, digits)
        return found if digits is None else Figure(found, self.origin)

    __hash__ = float.__hash__


class Count(int):
    """A whole number of the script; it stays one in sums and quotients only."""

    origin: tuple[Any, ...]

    def __new__(cls, value: int, origin: tuple[Any, ...]) -> Count:
        """Make one of a plain number."""
        made = super().__new__(cls, value)
        made.origin = origin
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """Be a plain number for whoever copies or stores it."""
        return int, (int(self),)


def _made_from(name: str, mine: tuple[Any, ...], other: Any) -> tuple[Any, ...]:
    theirs = getattr(other, "origin", None)
    kinds = {mine[0], theirs[0] if theirs else ""}
    if "clock" in kinds:
        if theirs and mine[0] == theirs[0] and name in ("__sub__", "__rsub__"):
            return ("span", min(mine[1], theirs[1]), max(mine[1], theirs[1]))
        return ()
    if mine[0] == "span" and theirs and theirs[0] == "span":
        return ("span", min(mine[1], theirs[1]), max(mine[2], theirs[2]))
    if mine[0] == "span" and name in ("__truediv__", "__rtruediv__"):
        return ("rate", mine[1], mine[2], float(other) if name == "__rtruediv__" else None)
    if theirs and theirs[0] == "span" and name in ("__truediv__", "__rtruediv__"):
        return ("rate", theirs[1], theirs[2], None)
    return mine if mine[0] != "train" or not theirs or theirs[0] == "train" else theirs


def _arithmetic(base: type, made: type, name: str) -> Callable[[Any, Any], Any]:
    plain = getattr(base, name)

    def operate(self: Any, other: Any) -> Any:
        found = plain(self, other)
        if found is NotImplemented:
            return found
        origin = _made_from(name, self.origin, other)
        kind = made if isinstance(found, int) else Figure
        return kind(found, origin) if origin else found

    return operate


def _comparison(name: str) -> Callable[[Any, Any], Any]:
    plain = getattr(float, name)

    def compare(self: Any, other: Any) -> Any:
        _follower.compared(self, other)
        return plain(self, other)

    return compare


for _name in ("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__"):
    setattr(Figure, _name, _arithmetic(float, Figure, _name))
    setattr(Count, _name, _arithmetic(int, Count, _name))
for _name in ("__truediv__", "__rtruediv__"):
    setattr(Figure, _name, _arithmetic(float, Figure, _name))
    setattr(Count, _name, _arithmetic(int, Count, _name))
for _name in ("__lt__", "__le__", "__gt__", "__ge__"):
    setattr(Figure, _name, _comparison(_name))


class _Clock:
    """One of time's clocks; no function, which a class would make its method."""

    def __init__(self, original: Callable[[], float]) -> None:
        self._original = original

    def __call__(self) -> float:
        found = self._original()
        if is_users(sys._getframe(1).f_code.co_filename):
            return Figure(found, ("clock", _monotonic()))
        return found


class _Print:
    """The builtin print, which tells of numbers in what it prints."""

    def __init__(self, original: Callable[..., None]) -> None:
        self._original = original

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if _follower.listens:
            _follower.printed(" ".join(map(str, args)), sys._getframe(1))
        self._original(*args, **kwargs)


_monotonic = time.monotonic


class _Evaluation:
    """One evaluation under way."""

    def __init__(self, number: int, step: int, source: Any) -> None:
        self.source = source
        """The pass over a loader that it takes its batches from, if any."""
        self.modules: dict[int, int] = {}
        """Samples by module that was called."""
        self.first: weakref.ref[Any] | None = None
        self.parameters: list[int] = []
        """Of the first module, which may be gone when the script ends."""
        self.hashes: list[str] = []
        self.items: dict[str, list[float]] = {}
        self.exchanged: list[str] = []
        self.trimmed = False
        self.fields: dict[str, Any] = {"number": number, "step": step, "sizes": [], "where": ""}
        self.fields["training"] = []


class _Pass:
    """One pass over a loader."""

    def __init__(self, iterator: Any, loader: Any) -> None:
        self.fetched = 0
        sampler = getattr(loader, "sampler", None)
        self.fields = {
            "dataset_size": _length(iterator._dataset),
            "sampler": type(sampler).__name__,
            # torch's DistributedSampler, and Accelerate's BatchSamplerShard
            "replicas": getattr(sampler, "num_replicas", None)
            or getattr(getattr(loader, "batch_sampler", None), "num_processes", None),
        }
        self.length = _length(loader) if loader is not None else None
        self.whole = False
        self.trains: list[tuple[Any, int, str]] = []
        """Calls in training mode: module, samples, file:line."""
        self.backwards = _follower.backwards


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None


class Follower:
    """Follows the calls of models, and the numbers that the script makes of them."""

    def __init__(self) -> None:
        self._torch: Any = None
        self._open: list[_Evaluation] = []
        """Of this window: behind an update, and before training goes on."""
        self._pass: _Pass | None = None
        self._count = 0
        self._told = {"shown": 0, "compared": 0, "item": 0}
        self._parameters: set[int] = set()
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._inside = False
        self._busy = False
        self._evaluation_mode = 0
        """Calls with gradients, in evaluation mode, since training mode was last seen."""
        self._trained_so = 0
        self._training_mode = False
        self.backwards = 0
        self._under_way = False
        """Whether a training pass has begun since the last update."""
        self._exchanged = False
        """Whether the script averaged or gathered anything since the last update."""

    @property
    def listens(self) -> bool:
        """Whether there is an evaluation that what is printed may be about."""
        return bool(self._open)

    # What the framework does

    def called(self, module: Any, args: Any, kwargs: Any) -> None:
        """Take note of a call of a module that is not within another one's."""
        if self._torch.is_grad_enabled():
            # A wrapper's own mode is not always that of what it wraps.
            inner = module.module if type(module).__name__ == _DDP else module
            if inner.training:
                if any(id(one) in self._parameters for one in _first_parameters(module)):
                    self._training_mode, self._evaluation_mode = True, 0
                    self._under_way = True
                    source = self._pass
                    self.close()
                    self._pass = source
                    if source is not None and len(source.trains) < _MOST_VALUES:
                        samples = first_length((args, kwargs)) or 0
                        place = call_site(sys._getframe(2))
                        source.trains.append((module, samples, place))
            else:
                self._evaluation_mode += 1
            return
        recorder = current()
        if recorder is None or not any(True for _ in module.parameters()):
            return
        samples = first_length((args, kwargs)) or 0
        one = self._evaluation(recorder)
        if one is None:
            return
        one.modules[id(module)] = one.modules.get(id(module), 0) + samples
        if one.first is None:
            one.first = weakref.ref(module)
            one.parameters = [id(p) for p in module.parameters()]
            one.fields["where"] = call_site(sys._getframe(2))
            one.fields["training"] = _training_layers(module)
        if one.first() is module and len(one.fields["sizes"]) < _MOST_VALUES:
            one.fields["sizes"].append(samples)
            if len(one.hashes) < MOST_SAMPLES and self._count < 4:
                one.hashes += hash_samples(arrays_of((args, kwargs)), samples)

    def _evaluation(self, recorder: Recorder) -> _Evaluation | None:
        if self._open and self._open[-1].source is self._pass:
            return self._open[-1]
        if self._count >= MOST_EVALUATIONS:
            return None
        self._open.append(_Evaluation(self._count, recorder.steps, self._pass))
        self._count += 1
        return self._open[-1]

    def fetched(self, iterator: Any) -> None:
        """Take note of a batch of a loader."""
        one = iterator.__dict__.get("_farandole_evaluation")
        if one is None:
            loader = _loaders.get(iterator)
            one = iterator.__dict__["_farandole_evaluation"] = _Pass(iterator, loader)
        one.fetched += 1
        one.whole = one.length is not None and one.fetched >= one.length
        self._pass = one

    def exhausted(self, iterator: Any) -> None:
        """Take note of the end of a pass; one without a backward is an evaluation, too."""
        one = iterator.__dict__.get("_farandole_evaluation")
        if one is None:
            return
        one.whole = True
        recorder = current()
        trains, one.trains = one.trains, []
        if not trains or recorder is None or one.backwards != self.backwards:
            return
        module, _, where = trains[0]
        found = _Evaluation(self._count, recorder.steps, one)
        self._count += 1
        found.first = weakref.ref(module)
        found.parameters = [id(p) for p in module.parameters()]
        found.modules[id(module)] = sum(samples for _, samples, _ in trains)
        found.fields |= {"where": where, "training": _training_layers(module)}
        found.fields["sizes"] = [samples for _, samples, _ in trains]
        self._open.append(found)

    def lost(self, name: str, loss: Any) -> None:
        """Take note of the loss of a batch that is evaluated."""
        if self._open and getattr(loss, "dim", lambda: 1)() == 0:
            kept = self._open[-1].items.setdefault(name, [])
            if len(kept) < _MOST_VALUES:
                self._busy = True
                kept.append(float(loss.detach()))
                self._busy = False

    def updated(self, optimizer: Any, *_: Any) -> None:
        """Take note of an update: what was evaluated is over."""
        if optimizer not in self._optimizers:
            self._optimizers.add(optimizer)
            self._parameters |= {id(p) for g in optimizer.param_groups for p in g["params"]}
        if self._evaluation_mode and self._training_mode:
            self._trained_so += 1
        self._evaluation_mode, self._exchanged, self._under_way = 0, False, False
        self.close()

    def exchanged(self, operation: str) -> None:
        """Take note of a collective that the script, or a library for it, has called."""
        if "reduce" not in operation and "gather" not in operation:
            return
        callers = {frame.f_code.co_name for frame in frames(sys._getframe(1))}
        if "reduce_boolean_decision" in callers:
            return  # Lightning asks whether to stop
        self._exchanged = True
        trimmed = "gather_for_metrics" in callers
        for one in self._open:
            one.trimmed |= trimmed
            if operation not in one.exchanged:
                one.exchanged.append(operation)

    def close(self) -> None:
        """Tell of the evaluations of a window."""
        recorder = current()
        if recorder is None or not self._open:
            return
        found, self._open, self._pass = self._open, [], None
        for one in found:
            if self._parameters.isdisjoint(one.parameters):
                continue  # a teacher, which is not trained
            source = one.source
            recorder.tell(
                "evaluation",
                **one.fields,
                **(source.fields if source else {}),
                samples=max(one.modules.values(), default=0),
                whole=bool(source and source.whole),
                hashes=one.hashes[:MOST_SAMPLES],
                exchanged=one.exchanged,
                trimmed=one.trimmed,
                items={where: values for where, values in one.items.items() if values},
                end_s=_monotonic(),
            )

    # What the script makes of it

    def item(self, value: Any, frame: Any) -> Any:
        """Take note of a number that the script takes out of a tensor; return it, followed."""
        if isinstance(value, bool) or not isinstance(value, int | float) or self._busy:
            return value
        # What libraries ask for, such as an optimizer its step, is not the script's.
        while frame is not None and frame.f_code.co_filename.endswith("/torch/_tensor.py"):
            frame = frame.f_back
        recorder = current()
        if recorder is None or frame is None or not is_users(frame.f_code.co_filename):
            return value
        where = call_site(frame)
        if self._open:
            for one in self._open:
                kept = one.items.setdefault(where, [])
                if len(kept) < _MOST_VALUES:
                    kept.append(float(value))
            origin: tuple[Any, ...] = ("eval", where, self._open[-1].fields["number"])
        else:
            origin = ("train", where)
            self._tell("item", where=where, value=float(value), exchanged=self._exchanged)
        return Figure(value, origin) if isinstance(value, float) else Count(value, origin)

    def shown(self, figure: Figure) -> None:
        """Take note of a figure that is turned into text."""
        kind = figure.origin[0]
        if self._busy or kind in ("clock", "span"):
            return
        where = call_site(sys._getframe(2))
        if where:
            self._tell(
                "shown",
                where=where,
                value=float.__float__(figure),
                origin=list(figure.origin),
                after=self._count if self._open else 0,
            )

    def compared(self, figure: Figure, other: Any) -> None:
        """Take note of a decision by a figure of an evaluation."""
        if self._busy or figure.origin[0] != "eval" or not isinstance(other, int | float):
            return
        frame = sys._getframe(2)
        where = call_site(frame)
        if where:
            self._tell("compared", where=where, value=float.__float__(figure))

    def printed(self, text: str, frame: Any) -> None:
        """Take note of the numbers in a text for people."""
        if not self._open or self._busy or len(text) > 2000:
            return
        numbers, end = [], 0
        for at in _NUMBER.finditer(text):
            numbers.append((text[max(end, at.start() - 24) : at.start()].strip(" \t\n,;|"), at[0]))
            end = at.end()
        if not numbers:
            return
        where = call_site(frame)
        if where:
            self._tell(
                "printed",
                where=where,
                number=self._open[-1].fields["number"],
                numbers=numbers[:12],
            )

    def _tell(self, kind: str, **fields: Any) -> None:
        recorder = current()
        count = self._told.get(kind, 0)
        if recorder is None or count >= MOST_LINES:
            return
        self._told[kind] = count + 1
        recorder.tell(kind, step=recorder.steps, **fields)

    def opened(self, recorder: Recorder) -> None:
        """Tell of what is left at the end."""

        def ending() -> dict[str, Any]:
            self.close()
            return {
                "trained_in_evaluation_mode": self._trained_so,
                "pass_under_way": self._under_way,
            }

        recorder.add_ending(ending)
        from farandole.recorder import calls

        calls.listeners.append(self.exchanged)


_follower = Follower()
_loaders: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _first_parameters(module: Any) -> list[Any]:
    return [one for one, _ in zip(module.parameters(), range(3), strict=False)]


def _training_layers(module: Any) -> list[str]:
    """Name the layers in training mode that give other results there."""
    found = []
    for name, one in module.named_modules():
        kind = type(one).__name__
        if one.training and kind.startswith(_MODES) and getattr(one, "p", 1) != 0:
            found.append(f"{name or kind} ({kind})")
    return found[:20]


def install() -> None:
    """Follow clocks and what is printed, before the script imports either."""
    if detail() != "doctor":
        return
    for name in _CLOCKS:
        setattr(time, name, _Clock(getattr(time, name)))
    builtins.print = _Print(builtins.print)

    @wrap(logging.Logger, "handle")
    def handle(original: Any, logger: Any, record: Any) -> Any:
        if is_users(record.pathname):
            _follower.printed(record.getMessage(), sys._getframe(1))
        return original(logger, record)


def install_torch(torch: Any) -> None:
    """Follow modules, loaders and numbers of torch."""
    if detail() != "doctor":
        return
    follower = _follower
    follower._torch = torch
    is_compiling = torch.compiler.is_compiling

    @wrap(torch.nn.Module, "__call__")
    def call(original: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        if follower._inside or is_compiling():
            return original(module, *args, **kwargs)
        follower._inside = True
        try:
            if torch._C._current_graph_task_id() == -1:
                follower.called(module, args, kwargs)
            return original(module, *args, **kwargs)
        finally:
            follower._inside = False

    @wrap(torch.Tensor, "item")
    def item(original: Any, tensor: Any) -> Any:
        value = original(tensor)
        return value if is_compiling() else follower.item(value, sys._getframe(2))

    for name in _LOSSES:

        @wrap(torch.nn.functional, name)
        def loss(original: Any, *args: Any, _name: str = name, **kwargs: Any) -> Any:
            found = original(*args, **kwargs)
            if not is_compiling():
                follower.lost(_name, found)
            return found

    @wrap(torch.Tensor, "backward")
    def backward(original: Any, *args: Any, **kwargs: Any) -> Any:
        follower.backwards += 1
        return original(*args, **kwargs)

    @wrap(torch, "save")
    def save(original: Any, *args: Any, **kwargs: Any) -> Any:
        if where := call_site(sys._getframe(2)):
            follower._tell("saved", where=where)
        return original(*args, **kwargs)

    for name in ("__float__", "__int__", "tolist"):

        @wrap(torch.Tensor, name)
        def plain(original: Any, tensor: Any) -> Any:
            value = original(tensor)
            if not is_compiling():
                follower.item(value, sys._getframe(2))
            return value

    from torch.optim.optimizer import register_optimizer_step_post_hook
    from torch.utils.data import dataloader

    register_optimizer_step_post_hook(follower.updated)

    @wrap(dataloader._BaseDataLoaderIter, "__init__")
    def init(original: Any, iterator: Any, loader: Any) -> None:
        original(iterator, loader)
        _loaders[iterator] = loader

    @wrap(dataloader._BaseDataLoaderIter, "__next__")
    def fetch(original: Any, iterator: Any) -> Any:
        try:
            batch = original(iterator)
        except StopIteration:
            follower.exhausted(iterator)
            raise
        follower.fetched(iterator)
        return batch

    when_opened(follower.opened)


def install_keras(keras: Any) -> None:
    """Follow what Keras evaluates, and who decides by its metrics."""
    if detail() != "doctor":
        return
    count = 0

    @wrap(keras.Model, "evaluate")
    def evaluate(original: Any, model: Any, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        nonlocal count
        recorder = current()
        if recorder is not None and count < MOST_EVALUATIONS:
            recorder.tell("evaluation", number=count, step=recorder.steps, **_keras_data(x))
            count += 1
        return original(model, x, *args, **kwargs)

    @wrap(keras.callbacks.CallbackList, "on_train_begin")
    def begin(original: Any, callbacks: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = current()
        for one in callbacks.callbacks if recorder is not None else ():
            decides = type(one).__name__ != "ModelCheckpoint" or one.save_best_only
            if getattr(one, "monitor", None) and decides:
                assert recorder is not None
                recorder.tell("decides", name=type(one).__name__, monitor=str(one.monitor))
        return original(callbacks, *args, **kwargs)


def _keras_data(x: Any) -> dict[str, Any]:
    import numpy as np

    fields: dict[str, Any] = {"where": call_site(sys._getframe(2)), "whole": True}
    try:
        if hasattr(x, "shape"):
            rows = np.ascontiguousarray(np.asarray(x))
            fields |= {"samples": len(rows), "dataset_size": None}
            fields["hashes"] = hash_samples([rows], len(rows))
        elif hasattr(x, "__getitem__") and hasattr(x, "__len__") and len(x):
            first = x[0]
            rows = np.ascontiguousarray(np.asarray(arrays_of(first)[0]))
            fields |= {"samples": len(rows) * len(x), "hashes": hash_samples([rows], len(rows))}
    except Exception:
        return fields  # the script's own kind of data
    return fields
