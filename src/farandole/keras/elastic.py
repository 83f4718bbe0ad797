"""Elastic training with Keras 3, on each of its backends: Horovod's names, Horovod's meaning."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from farandole.elastic import generation
from farandole.elastic.state import ObjectState, run_fn
from farandole.engine.context import rank
from farandole.engine.objects import allgather_object, broadcast_object
from farandole.errors import UsageError
from farandole.keras.backends import backend_name
from farandole.keras.callbacks import build_optimizer, check_outlines, outline
from farandole.keras.collectives import broadcast_variables
from farandole.keras.optimizer import averaging_of, is_wrapped
from farandole.transport.reduction import Array

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]


class KerasState(ObjectState):
    """A model, its optimizer, and other things by name.

    Seeds of layers that draw random numbers stay each rank's own. While gradients are added up for
    an update (`backward_passes_per_step`), `commit` does nothing.
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        """Begin, and save what there is.

        Args:
            model: A compiled model.
            optimizer: What trains it; by default the one that it was compiled with.
            kwargs: Anything else: plain data, copied at every commit.
        """
        self.model = model
        self.optimizer = getattr(model, "optimizer", None) if optimizer is None else optimizer
        self._saved_values: dict[int, tuple[Any, Array]] = {}
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **kwargs)
        self._save_values()

    def commit(self) -> None:
        """Save, then look for changed hosts (see State.commit); not in the middle of a step."""
        if not self._in_step:
            super().commit()

    def check_host_updates(self) -> None:
        """Look for changed hosts (see State); not in the middle of a step."""
        if not self._in_step:
            super().check_host_updates()

    def save(self) -> None:
        """Copy everything."""
        self._save_values()
        super().save()

    def restore(self) -> None:
        """Go back to what was saved last."""
        if is_wrapped(self.optimizer):
            averaging_of(self.optimizer).forget()
        for variable in self._variables():
            saved = self._saved_values.get(id(variable))
            # What has been made since holds nothing yet.
            variable.assign(np.zeros(variable.shape) if saved is None else saved[1])
        super().restore()

    def sync(self) -> None:
        """Give every rank what rank 0 has, and save that."""
        variables = self._shared_variables()
        outlines = allgather_object([outline(each) for each in variables], name="keras.elastic")
        check_outlines(outlines, 0)
        broadcast_variables(variables, 0)
        super().sync()
        self._save_values()

    def contents(self) -> Any:
        """Return what was saved last."""
        values = [value for _, value in self._saved_values.values()]
        return {"values": values, "objects": super().contents()}

    def load_contents(self, contents: Any) -> None:
        """Take over what another process has saved."""
        super().load_contents(contents["objects"])
        variables = self._variables()
        shapes = [tuple(each.shape) for each in variables]
        if shapes != [each.shape for each in contents["values"]]:
            raise UsageError(
                "The state that was kept is that of another model: its variables have other "
                "shapes. Give save_to another folder, or go on with the script that wrote it."
            )
        for variable, value in zip(variables, contents["values"], strict=True):
            variable.assign(value)
        self._save_values()

    def random_state(self) -> Any:
        """Return the seeds of layers that draw random numbers."""
        return [_array_of(seed) for seed in self._seeds()]

    def set_random_state(self, random_state: Any) -> None:
        """Have the seeds of the rank that had this number before."""
        for seed, value in zip(self._seeds(), random_state, strict=False):
            seed.assign(value)

    @property
    def _in_step(self) -> bool:
        return is_wrapped(self.optimizer) and averaging_of(self.optimizer).in_step

    def _variables(self) -> list[Any]:
        """Return all variables, with the values that they have in a fit that is under way."""
        if backend_name() == "jax" and hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()
        if hasattr(self.model, "_flatten_layers") and build_optimizer(self.model):
            _build(self.optimizer, self.model)
        found = [*self.model.variables, *getattr(self.optimizer, "variables", ())]
        return list({id(variable): variable for variable in found}.values())

    def _seeds(self) -> list[Any]:
        shared = {id(variable) for variable in self.model.weights}
        return [each for each in self.model.variables if id(each) not in shared]

    def _shared_variables(self) -> list[Any]:
        everything = self._variables()
        if not self.model.weights:
            raise UsageError(
                f"The model {self.model.name!r} is not built yet, so that nobody can take over its "
                "weights. Give its first layer an Input, or call model.build(input_shape), before "
                "the function with @hvd.elastic.run."
            )
        own = {id(seed) for seed in self._seeds()}
        return [variable for variable in everything if id(variable) not in own]

    def _save_values(self) -> None:
        saved: dict[int, tuple[Any, Array]] = {}
        for variable in self._variables():
            value = np.asarray(keras.ops.convert_to_numpy(variable))
            before = self._saved_values.get(id(variable))
            if before is not None and (before[1].shape, before[1].dtype) == (
                value.shape,
                value.dtype,
            ):
                np.copyto(before[1], value)
                saved[id(variable)] = before
            else:
                saved[id(variable)] = variable, np.array(value)
        self._saved_values = saved


def _array_of(variable: Any) -> Array:
    return np.array(keras.ops.convert_to_numpy(variable))


def _build(optimizer: Any, model: Any) -> None:
    if optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Let a training function survive lost workers, and go on when hosts come or go.

    Its first argument is a state. It is called anew in every generation of workers, and goes on
    from where the state says. Under a launcher without elastic flags it is called once.

    Example:
        @hvd.elastic.run
        def train(state):
            data = hvd.shard((x, y), batch_size=32)
            model.fit(data, epochs=10, initial_epoch=state.epoch, callbacks=callbacks)
    """

    @functools.wraps(func)
    def unwrapped(state: Any, *args: Any, **kwargs: Any) -> Any:
        with contextlib.ExitStack() as stack:
            optimizer = getattr(state, "optimizer", None)
            if is_wrapped(optimizer):
                stack.enter_context(averaging_of(optimizer).unwrapping())
            if backend_name() == "tensorflow":
                from farandole.tensorflow.callback import unwrapping

                stack.enter_context(unwrapping())
            return func(state, *args, **kwargs)

    return run_fn(unwrapped, generation.next_generation)


class CommitStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Commit a state after every few batches, and at the end of an epoch.

    Put it behind the callbacks that update the state.
    """

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        """Prepare.

        Args:
            state: What to commit.
            batches_per_commit: How many batches a commit is for.
        """
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit
        self._begins = True

    def on_train_begin(self, logs: Any = None) -> None:
        """Count from here."""
        self.batches_remaining = self.batches_per_commit
        self._begins = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Draw the random numbers that this epoch would have had without a reset."""
        if self._begins and hasattr(self.state, "repeat_random_state"):
            self.state.repeat_random_state()
        self._begins = False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Commit if it is time."""
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self._commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Commit."""
        self._commit()

    def _commit(self) -> None:
        self.batches_remaining = self.batches_per_commit
        self.state.commit()


class UpdateBatchStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Keep in `state.batch` how many batches of the epoch are done: 0 at its end.

    An epoch that goes on after a reset counts from where it was: leave out as many batches.
    """

    def __init__(self, state: Any) -> None:
        """Prepare."""
        super().__init__()
        self.state = state
        self._before = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Count on from what has been done of this epoch."""
        self._before = self.state.batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count a batch."""
        self.state.batch = self._before + batch + 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Begin anew."""
        self.state.batch = 0


class UpdateEpochStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Keep in `state.epoch` how many epochs are done.

    Whether `fit` is told so by `initial_epoch=state.epoch`, or begins at 0 with fewer epochs.
    """

    def __init__(self, state: Any) -> None:
        """Prepare."""
        super().__init__()
        self.state = state
        self._ahead: int | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Expect fit's first epoch."""
        self._ahead = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Learn by how much fit's numbers are behind."""
        if self._ahead is None:
            self._ahead = self.state.epoch - epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Count an epoch."""
        self.state.epoch = (self._ahead or 0) + epoch + 1
