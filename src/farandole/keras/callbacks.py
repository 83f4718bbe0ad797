"""Callbacks for `model.fit` on several workers, with Horovod's names and meaning.

`standard(...)` returns the right ones in the right order.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import keras

from farandole import recipes
from farandole.engine import context
from farandole.engine.arguments import check_root
from farandole.engine.objects import allgather_object, broadcast_object
from farandole.errors import CollectiveError, MismatchError, UsageError
from farandole.keras.collectives import broadcast_variables
from farandole.keras.metrics import MetricAverageCallback
from farandole.recipes import Recipe

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
    "RecipeCallback",
    "StopTogetherCallback",
    "standard",
]


class StopTogetherCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Stop every worker at the end of an epoch in which a callback has stopped one of them.

    Put it last: it looks at what callbacks before it have decided. A worker that is stopped in the
    middle of an epoch is too early for this, and an error on every rank.
    """

    def __init__(self) -> None:
        """Prepare."""
        super().__init__()
        self.stopped_by: list[int] = []
        """Ranks that wanted to stop."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Stop if any rank stops."""
        if context.size() == 1:
            return
        model = self.model
        wishes = allgather_object(bool(model.stop_training), name="keras.stop_training")
        self.stopped_by = [rank for rank, wish in enumerate(wishes) if wish]
        model.stop_training = bool(self.stopped_by)


def standard(
    initial_lr: float | None = None,
    *,
    warmup_epochs: float = 5,
    recipe: str | Recipe | None = None,
    base_lr: float | None = None,
    decay: str = "constant",
    checkpoint: str | os.PathLike[str] | keras.callbacks.Callback | None = None,
    early_stopping: int | keras.callbacks.Callback | None = None,
    monitor: str = "val_loss",
    mode: str = "auto",
    callbacks: Iterable[keras.callbacks.Callback] = (),
    root_rank: int = 0,
    steps_per_epoch: int | None = None,
    momentum_correction: bool = True,
    verbose: int = 0,
) -> list[keras.callbacks.Callback]:
    """Return the callbacks for `fit`, in this order.

    1. BroadcastGlobalVariablesCallback: nothing counts before all workers have the same weights.
    2. MetricAverageCallback: whatever decides by metrics must see those over all workers, or
       workers decide differently.
    3. LearningRateWarmupCallback, if there is an `initial_lr`, or RecipeCallback, if there is a
       `recipe`: before callbacks that lower the rate at the end of an epoch.
    4. `callbacks`, yours: among them ReduceLROnPlateau, TensorBoard.
    5. BestModelCheckpoint and EarlyStopping: after yours, which may add to the logs; the
       checkpoint first, so that the last epoch is saved, too.
    6. StopTogetherCallback: last, when everybody has said whether to stop.

    Call `hvd.init()` before.

    Args:
        initial_lr: the learning rate after warm-up, the one that the optimizer has: usually
            `rate * hvd.size()`. None is for no warm-up.
        warmup_epochs: how long warm-up takes.
        recipe: how the learning rate follows from `base_lr` and the number of workers (its name,
            or one of your own), instead of `initial_lr`.
        base_lr: the learning rate that is good for one worker, with `recipe`.
        decay: how the rate falls in the course of training, with `recipe`.
        checkpoint: where rank 0 keeps the best model (ends in .keras, or in .weights.h5 for
            weights only), or a callback of yours.
        early_stopping: after how many epochs without a better `monitor` to stop, or an
            EarlyStopping of yours.
        monitor: the metric that the last two go by.
        mode: "min", "max", or "auto" to know by the metric.
        callbacks: more of them.
        root_rank: whose weights count at the beginning.
        steps_per_epoch: batches per epoch, for warm-up, where `fit` does not know.
        momentum_correction: as of LearningRateScheduleCallback.
        verbose: 1 to let rank 0 say when warm-up ends, the model is saved, training stops.

    Example:
        model.fit(x, y, callbacks=hvd.callbacks.standard(0.1 * hvd.size(), early_stopping=3))
    """
    loud = verbose if context.rank() == 0 else 0
    yours = list(callbacks)
    ours = (BroadcastGlobalVariablesCallback, MetricAverageCallback, StopTogetherCallback)
    for callback in yours:
        if isinstance(callback, ours):
            raise UsageError(
                f"{type(callback).__name__} is part of standard(). Leave it out of callbacks=."
            )
    chosen: list[Any] = [BroadcastGlobalVariablesCallback(root_rank), MetricAverageCallback()]
    _check_rates(initial_lr, recipe, base_lr)
    if recipe is not None and base_lr is not None:
        chosen.append(
            RecipeCallback(
                recipe,
                base_lr,
                decay=decay,
                momentum_correction=momentum_correction,
                steps_per_epoch=steps_per_epoch,
                verbose=loud,
            )
        )
    if initial_lr is not None:
        chosen.append(
            LearningRateWarmupCallback(
                initial_lr,
                warmup_epochs=warmup_epochs,
                momentum_correction=momentum_correction,
                steps_per_epoch=steps_per_epoch,
                verbose=loud,
            )
        )
    chosen += yours
    if isinstance(checkpoint, keras.callbacks.Callback):
        chosen.append(checkpoint)
    elif checkpoint is not None:
        path = os.fspath(checkpoint)
        chosen.append(
            BestModelCheckpoint(
                monitor=monitor,
                mode=mode,
                verbose=loud,
                save_weights_only=path.endswith(".weights.h5"),
                filepath=path,
            )
        )
    if isinstance(early_stopping, keras.callbacks.Callback):
        chosen.append(early_stopping)
    elif early_stopping is not None:
        chosen.append(
            keras.callbacks.EarlyStopping(
                monitor=monitor, mode=mode, patience=_patience(early_stopping), verbose=loud
            )
        )
    return [*chosen, StopTogetherCallback()]


def _check_rates(
    initial_lr: float | None, recipe: str | Recipe | None, base_lr: float | None
) -> None:
    if (recipe is None) != (base_lr is None):
        raise UsageError(
            f"recipe={recipe!r} and base_lr={base_lr!r}: a recipe makes the learning rate from the "
            "one that is good for one worker. Give both, or none."
        )
    if recipe is not None and initial_lr is not None:
        raise UsageError(
            f"recipe={recipe!r} and initial_lr={initial_lr!r} both set the learning rate. Leave "
            "one of them out."
        )


def _patience(early_stopping: Any) -> int:
    if isinstance(early_stopping, bool) or not isinstance(early_stopping, int):
        raise UsageError(
            f"early_stopping={early_stopping!r}: give the number of epochs to wait for a better "
            "metric, or a keras.callbacks.EarlyStopping."
        )
    return early_stopping


Outline = tuple[str, tuple[int, ...], str]
"""A variable's path, shape and type."""


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Give every worker the root's weights and optimizer state when training begins.

    States of random generators stay each worker's own: with the root's, dropout would drop the
    same units everywhere.

    On TensorFlow a model without an Input is built by its first batch; it is broadcast right after
    that batch then.
    """

    def __init__(
        self, root_rank: int, device: str = "", local_variables: Iterable[Any] | None = None
    ) -> None:
        """Prepare.

        Args:
            root_rank: whose values count.
            device: Horovod's, without effect.
            local_variables: variables that stay each worker's own, and with them their part of
                the optimizer's state.
        """
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.local_variables = list(local_variables or ())
        self.broadcast_done = False
        self._batches = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Broadcast what is built."""
        check_root(self.root_rank)
        self.broadcast_done = context.size() == 1
        self._batches = 0
        self._broadcast()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Broadcast what the first batch has built.

        Not at that batch's end: a callback with something to do there would slow all batches down,
        as Keras then waits for each of them.
        """
        self._after_batches()
        self._batches += 1

    def on_test_begin(self, logs: Any = None) -> None:
        """Broadcast before validation if the first epoch had one batch only."""
        self._after_batches()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Broadcast at last if the first epoch had one batch only."""
        self._after_batches()

    def _after_batches(self) -> None:
        if not self.broadcast_done and self._batches:
            self._broadcast()

    def _broadcast(self) -> None:
        if self.broadcast_done:
            return
        model = self.model
        variables = (
            global_variables(model, self.local_variables) if build_optimizer(model) else None
        )
        outlines = allgather_object(
            None if variables is None else [outline(v) for v in variables],
            name="keras.broadcast.outlines",
        )
        # A worker that has loaded its model may be ahead of others, which build theirs later.
        if variables is None or any(each is None for each in outlines):
            return
        check_outlines(outlines, self.root_rank)
        broadcast_variables(variables, self.root_rank)
        self.broadcast_done = True


def global_variables(model: Any, local: Sequence[Any] = ()) -> list[Any]:
    """Return a model's weights and its optimizer's variables, without local ones."""
    # Not `variables`, which has its seed generators: with the root's, every worker would drop the
    # same units.
    found = list(model.weights)
    optimizer = model.optimizer
    left = {id(variable) for variable in local}
    if optimizer is not None:
        found += optimizer.variables
        left |= {id(slot) for slot in _slots(optimizer, left)}
    unique = {id(variable): variable for variable in found}
    return [variable for key, variable in unique.items() if key not in left]


def check_outlines(outlines: Sequence[Sequence[Outline]], root: int) -> None:
    """Raise MismatchError, on every rank the same, if a rank has another model than the root.

    Paths may differ: Keras counts names up by what a process has made before.
    """
    wanted = outlines[root]
    for rank, found in enumerate(outlines):
        if len(found) != len(wanted):
            raise MismatchError(
                f"Rank {rank} has a model and optimizer with {len(found)} variables, and rank "
                f"{root}, whose values shall count, {len(wanted)}. Build the same on every rank."
            )
        for theirs, roots in zip(found, wanted, strict=True):
            if theirs[1:] != roots[1:]:
                raise MismatchError(
                    f"The variable {theirs[0]!r} is {_describe(theirs)} on rank {rank}, and "
                    f"{_describe(roots)} on rank {root}, whose values shall count. Build the same "
                    "model on every rank, or name it in local_variables."
                )


def build_optimizer(model: Any) -> bool:
    """Make sure that the optimizer has its variables; return False if the model has none yet."""
    if not all(layer.built for layer in model._flatten_layers()):
        return False
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not optimizer.built:
        # On TensorFlow only: the other backends have done so before any callback is called.
        optimizer.build(model.trainable_variables)
    return True


def _slots(optimizer: Any, local: set[int]) -> list[Any]:
    """Return what an optimizer keeps for these variables: its lists run along the trained ones."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    trained = list(getattr(inner, "_trainable_variables", ()))
    places = [place for place, variable in enumerate(trained) if id(variable) in local]
    lists = [
        kept
        for name, kept in vars(inner).items()
        if isinstance(kept, list) and len(kept) == len(trained) and name != "_trainable_variables"
    ]
    return [kept[place] for kept in lists for place in places]


def outline(variable: Any) -> Outline:
    """Return what tells variables of different models apart: path, shape and type."""
    return variable.path, tuple(int(n) for n in variable.shape), str(variable.dtype)


def _describe(found: Outline) -> str:
    return f"{found[2]} of shape {found[1]}"


_WEIGHTS = (".weights.h5",)
_MODEL = (".keras", ".h5")


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """Save the model whenever the monitored metric is better than ever before.

    Rank 0 decides and writes; all ranks go on when the file is there. It is written under another
    name first, so that there is never half a model. A metric that is not a number is never best.

    Put it after MetricAverageCallback: the best of rank 0's share is not the best of all.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
        *,
        filepath: str | os.PathLike[str] | None = None,
    ) -> None:
        """Prepare.

        Args:
            monitor: a name in the logs.
            verbose: 1 to let rank 0 say what it does.
            save_weights_only: leave the architecture and `compile`'s settings out.
            mode: "min", "max", or "auto" to know by the metric.
            save_freq: "epoch", or a number of batches.
            filepath: where to; may have {epoch} and names of metrics in it, as Keras's
                ModelCheckpoint has it. It can be set as an attribute later, before `fit`.
        """
        suffixes = _WEIGHTS if save_weights_only else _MODEL
        # Keras wants a path at once; Horovod's programs set the attribute later.
        super().__init__(
            filepath=f"unset{suffixes[0]}" if filepath is None else _checked(filepath, suffixes),
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
        self._suffixes = suffixes
        self.best: float | None = None
        if filepath is None:
            self.filepath: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Check that there is a path."""
        if self.filepath is None:
            raise UsageError(
                "BestModelCheckpoint has no filepath. Give it one: "
                "BestModelCheckpoint(filepath='best.keras')."
            )
        self.filepath = _checked(self.filepath, self._suffixes)
        super().on_train_begin(logs)

    def _save_model(self, epoch: int, batch: int | None, logs: dict[str, Any] | None) -> None:
        """Save if this is the best; Keras calls this at the end of an epoch or of some batches."""
        if self.monitor_op is None:
            self._set_monitor_op()
        path, error = None, None
        if context.rank() == 0:
            try:
                path = self._save_if_best(epoch, batch, logs or {})
            except Exception as reason:
                error = reason
        said = None if error is None else str(error) or type(error).__name__
        answer = broadcast_object((path, said, _plain(self.best)), name="keras.best_model")
        path, said, self.best = answer
        if said is not None:
            raise CollectiveError(
                f"Rank 0 could not save the best model as {self.filepath}: {said}"
            ) from error

    def _save_if_best(self, epoch: int, batch: int | None, logs: dict[str, Any]) -> str | None:
        """Return where the model was saved, or None."""
        filepath = self._get_file_path(epoch, batch, logs)
        if not _is_number(logs.get(self.monitor)):
            # Keras would take it for the best of all, and never find a better one.
            return None
        if not self._should_save_model(epoch, batch, logs, filepath):
            return None
        save = self.model.save_weights if self.save_weights_only else self.model.save
        if "://" in filepath:
            save(filepath, overwrite=True)  # object stores show whole files only
        else:
            _replace(Path(filepath), save, self._suffixes)
        return str(filepath)


def _replace(path: Path, save: Any, suffixes: tuple[str, ...]) -> None:
    """Save under a name beside its place, then rename."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder. Choose the name of a file.")
    path.parent.mkdir(parents=True, exist_ok=True)
    suffix = next(end for end in suffixes if path.name.endswith(end))
    # Keras goes by the end of the name.
    stem = path.name.removesuffix(suffix)
    temporary = path.with_name(f".{stem}.{os.getpid()}{suffix}")
    try:
        save(str(temporary), overwrite=True)
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _checked(filepath: str | os.PathLike[str], suffixes: tuple[str, ...]) -> str:
    path = os.fspath(filepath)
    if not path.endswith(suffixes):
        raise UsageError(
            f"filepath={path!r}: it must end in {' or '.join(suffixes)} here "
            f"(save_weights_only={suffixes == _WEIGHTS})."
        )
    return path


def _is_number(value: Any) -> bool:
    try:
        return value is None or not math.isnan(float(value))
    except (TypeError, ValueError):
        return True  # Keras has words for it


def _plain(value: Any) -> float | None:
    return None if value is None else float(value)


# Optimizers of Keras whose velocity has the learning rate in it, and what they call it.
_VELOCITIES = ((keras.optimizers.SGD, "momentums"), (keras.optimizers.RMSprop, "_momentums"))


class LearningRateScheduleCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Set the learning rate to a multiple of `initial_lr` that depends on the epoch.

    The rate is in the logs of each epoch as `learning_rate`.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: float = 0,
        end_epoch: float | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        """Prepare.

        Args:
            initial_lr: what is multiplied.
            multiplier: a number, or a function of the epoch, which counts from 0; it is a whole
                number with staircase, and has the part of the epoch that is done without.
            start_epoch: the first epoch in which the rate is set.
            end_epoch: the first epoch in which it is not set any more.
            staircase: change the rate at the beginning of epochs only; with a number as
                multiplier it always does.
            momentum_correction: when the rate changes, scale the velocity of SGD and RMSprop with
                momentum by as much (Goyal et al. 2017, https://arxiv.org/abs/1706.02677). Horovod
                changes the momentum for one batch, which is the same but for Nesterov's look
                ahead; here the momentum is part of what TensorFlow and JAX have compiled.
            steps_per_epoch: batches per epoch; by default what `fit` knows. Without staircase only.
        """
        super().__init__()
        check_rate(initial_lr, "initial_lr", "0.01 * hvd.size()")
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.plan = Plan(
            initial_lr=float(initial_lr),
            multiplier=multiplier if callable(multiplier) else partial(_constant, multiplier),
            start_epoch=start_epoch,
            end_epoch=end_epoch,
            staircase=staircase or not callable(multiplier),
        )
        self.current_epoch = 0
        self._steps: int | None = None
        self._rate: float | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Check that the rate can be set."""
        _check_optimizer(self.model.optimizer, type(self).__name__)
        self._rate = None
        if not self.plan.staircase:
            self._steps = self.steps_per_epoch or (self.params or {}).get("steps")
            if not self._steps:
                raise UsageError(
                    f"{type(self).__name__} changes the learning rate with every batch, and fit "
                    "does not know how many there are in an epoch. Give steps_per_epoch=."
                )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Note the epoch."""
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Set the rate of this batch."""
        rate = self.plan.rate(self.current_epoch, batch, self._steps)
        # Within an epoch a rate that has not changed must cost nothing: on JAX `self.model` takes
        # all variables out of the compiled step and puts them back. Between epochs others (say,
        # ReduceLROnPlateau) may have changed it.
        if rate is None or (batch and rate == self._rate):
            return
        self._rate = rate
        self._set(self.model.optimizer, rate)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Put the rate into the logs."""
        if logs is not None:
            logs["learning_rate"] = _rate_of(self.model.optimizer)

    def _set(self, optimizer: Any, rate: float) -> None:
        old = _rate_of(optimizer)
        optimizer.learning_rate = rate
        factor = momentum_correction(old, rate)
        if self.momentum_correction and factor != 1.0:
            for velocity in _velocities(optimizer):
                velocity.assign(velocity * factor)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raise the learning rate from `initial_lr / size` to `initial_lr`, batch by batch.

    Large batches at the full rate can throw a fresh model off (Goyal et al. 2017,
    https://arxiv.org/abs/1706.02677). With `initial_lr = hvd.size() * rate` training begins at the
    rate of one worker.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        """Prepare.

        Args:
            initial_lr: the rate after warm-up.
            warmup_epochs: how long it takes; 0 leaves the optimizer's rate alone.
            momentum_correction: as of LearningRateScheduleCallback.
            steps_per_epoch: batches per epoch; by default what `fit` knows.
            verbose: 1 to let rank 0 say when it has ended.
        """
        if not (math.isfinite(warmup_epochs) and warmup_epochs >= 0):
            raise UsageError(f"warmup_epochs={warmup_epochs!r}: it must be 0 or more.")
        super().__init__(
            initial_lr,
            self._multiplier,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.warmup_epochs = warmup_epochs
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Put the rate into the logs; say so when warm-up has ended."""
        super().on_epoch_end(epoch, logs)
        if self.verbose and epoch < self.warmup_epochs <= epoch + 1 and context.rank() == 0:
            sys.stdout.write(
                f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to "
                f"{self.plan.initial_lr:g}.\n"
            )

    def _multiplier(self, epoch: float) -> float:
        assert self._steps is not None
        return warmup_multiplier(
            epoch,
            size=context.size(),
            warmup_epochs=self.warmup_epochs,
            steps_per_epoch=self._steps,
        )


def _constant(multiplier: float, epoch: float) -> float:
    return float(multiplier)


def check_rate(rate: Any, name: str, example: str) -> None:
    """Raise UsageError if an argument of this name is no learning rate."""
    try:
        good = math.isfinite(rate) and rate > 0
    except TypeError:
        good = False
    if not good:
        raise UsageError(f"{name}={rate!r}: it must be a number above 0, such as {example}.")


def _check_optimizer(optimizer: Any, who: str) -> None:
    if hasattr(optimizer, "optimizers"):
        raise UsageError(
            f"{who} sets one learning rate, and a MultiOptimizer has several. Leave {who} out, and "
            "set the rates of its optimizers."
        )
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if not isinstance(getattr(inner, "_learning_rate", None), keras.Variable):
        kind = type(getattr(inner, "_learning_rate", None)).__name__
        raise UsageError(
            f"{who} sets the learning rate, and the optimizer's learning_rate is a {kind}, which "
            f"sets it, too. Give the optimizer a number, or leave {who} out."
        )


def _rate_of(optimizer: Any) -> float:
    return float(keras.ops.convert_to_numpy(optimizer.learning_rate))


def _velocities(optimizer: Any) -> list[Any]:
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    for kind, name in _VELOCITIES:
        if isinstance(inner, kind) and inner.built and inner.momentum > 0:
            return list(getattr(inner, name))
    return []


Multiplier = Callable[[float], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which learning rate each batch gets."""

    initial_lr: float
    multiplier: Multiplier
    start_epoch: float = 0
    end_epoch: float | None = None
    staircase: bool = True
    """Whether the rate changes from epoch to epoch only, else with every batch."""

    def rate(self, epoch: int, batch: int, steps_per_epoch: int | None) -> float | None:
        """Return the rate of a batch, or None if it stays what it is."""
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return None
        if self.staircase:
            return self.initial_lr * self.multiplier(epoch) if batch == 0 else None
        assert steps_per_epoch is not None
        return self.initial_lr * self.multiplier(epoch + batch / steps_per_epoch)


def warmup_multiplier(
    epoch: float, *, size: int, warmup_epochs: float, steps_per_epoch: int
) -> float:
    """Return the share of the full rate in warm-up: from 1 / size to 1, in a straight line.

    It is that of the batch's end, so that the last batch of warm-up has the full rate.
    """
    done = min((epoch + 1.0 / steps_per_epoch) / warmup_epochs, 1.0)
    # A sum of batches' shares that is 1 but for rounding is 1.
    done = 1.0 if math.isclose(done, 1.0) else done
    return (1.0 + done * (size - 1)) / size


def momentum_correction(old_rate: float, new_rate: float) -> float:
    """Return by what a velocity that has the old rate in it is multiplied for the new one."""
    return new_rate / old_rate if old_rate > 0.0 else 1.0


class RecipeCallback(LearningRateScheduleCallback):
    """Set the learning rate of every batch by a recipe.

    The rate is assigned when the recipe changes it. So what other callbacks make of it (say,
    ReduceLROnPlateau) stays while the recipe keeps it constant.
    """

    def __init__(
        self,
        recipe: str | Recipe,
        base_lr: float,
        epochs: int | None = None,
        *,
        workers: float | None = None,
        decay: str = "constant",
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        """Prepare.

        Args:
            recipe: its name, or one of your own.
            base_lr: the rate that is good for one worker.
            epochs: how many there are, by `Recipe.epochs`; by default those of `fit`.
            workers: how many times larger than one worker's the global batch is; by default
                `hvd.size()`. Give 1 where workers share out a batch of fixed size.
            decay: "constant", "cosine" or "step".
            momentum_correction: as of LearningRateScheduleCallback.
            steps_per_epoch: batches per epoch; by default what `fit` knows. Not needed where the
                rate never changes.
            verbose: 1 to let rank 0 say what the rate does.
        """
        check_rate(base_lr, "base_lr", "0.01")
        self.recipe = recipes.recipe(recipe)
        if decay not in recipes.DECAYS:
            raise UsageError(f"There is no decay {decay!r}. There are {', '.join(recipes.DECAYS)}.")
        super().__init__(
            base_lr,
            self._multiplier,
            staircase=self.recipe.constant(decay),
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.epochs, self.workers, self.decay = epochs, workers, decay
        self.verbose = verbose

    def on_train_begin(self, logs: Any = None) -> None:
        """Find out how long training is, and say what the rate does."""
        super().on_train_begin(logs)
        if self.verbose and context.rank() == 0:
            sys.stdout.write(f"{self.describe()}\n")

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Set the rate of this batch."""
        if self.plan.rate(self.current_epoch, batch, self._steps) != self._rate:
            super().on_train_batch_begin(batch, logs)

    def describe(self) -> str:
        """Say in words what the rate does."""
        base = self.plan.initial_lr
        return self.recipe.describe(base, self._workers(), self._epochs(), decay=self.decay)

    def _multiplier(self, epoch: float) -> float:
        return self.recipe.rate(1.0, self._workers(), epoch, self._epochs(), decay=self.decay)

    def _workers(self) -> float:
        return float(context.size() if self.workers is None else self.workers)

    def _epochs(self) -> int:
        epochs = self.epochs or (self.params or {}).get("epochs")
        if not epochs:
            raise UsageError(
                "RecipeCallback needs the number of epochs, and fit does not know it. Give epochs=."
            )
        return int(epochs)
