"""What lies between a Keras optimizer and the engine: how gradients are combined, and with whom."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from farandole.engine import context, marks
from farandole.engine.engine import Engine
from farandole.engine.gradients import Gradients, Spec
from farandole.engine.process_sets import ProcessSet
from farandole.errors import UsageError
from farandole.recorder.ending import StopLaunch, ended
from farandole.recorder.noise import PartNorms
from farandole.recorder.recorder import current
from farandole.transport.reduction import Array, Reduction


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The gradients of one batch, in the order of the optimizer's variables on every worker."""

    variables: list[Any]
    """All of the optimizer's, whether or not they take part this time; without those that are left
    to each worker, unless several batches are summed."""
    gradients: list[Any]
    """None for those that this worker does not have."""
    wanted: frozenset[int]
    """The variables, by their place, that are to be updated."""
    local: int = 0
    """How many of the variables, the last ones, are left to each worker: they are summed only."""

    @property
    def shared(self) -> int:
        """How many of the variables, the first ones, are combined."""
        return len(self.variables) - self.local

    @property
    def names(self) -> list[str]:
        """What errors call the variables.

        Not their paths: Keras counts up names of layers, so that equal models may differ in them.
        """
        return [f"{i} ({_path_of(v).rpartition('/')[2]})" for i, v in enumerate(self.variables)]

    @property
    def specs(self) -> list[Spec]:
        """Shape and type of each."""
        return [
            (tuple(map(int, variable.shape)), _type_of(variable)) for variable in self.variables
        ]


class Backend(Protocol):
    """One of Keras's backends: how its gradients reach the engine and come back."""

    def combine(self, averaging: Averaging, batch: Batch) -> list[Any] | None:
        """Return gradients combined over all workers; None for those that no worker has.

        The whole is None while more batches are to be summed first.
        """

    def apply(
        self, averaging: Averaging, batch: Batch, update: Callable[[list[Any]], None]
    ) -> None:
        """Combine gradients, and call `update` with them when it is time for it."""

    def end_step(self, averaging: Averaging, gradients: Sequence[Any]) -> None:
        """Leave the script if all do so at this step; from a compiled one, when it has run.

        Args:
            averaging: has counted the step.
            gradients: tell whether it is being compiled.

        Raises:
            StopTraining: All leave.
        """


class Marking(Protocol):
    """Whatever moves gradients also carries marks (engine.marks)."""

    def mark(self, kind: int, number: int) -> None:
        """Say where this rank stands between two steps."""


class Averaging:
    """How one optimizer's gradients are combined."""

    def __init__(
        self,
        *,
        how: Reduction,
        wire: str | None,
        passes: int,
        average_passes: bool,
        scale_local: bool,
        process_set: ProcessSet | None = None,
    ) -> None:
        """Begin.

        Args:
            how: the reduction.
            wire: the type in which gradients travel; None for their own.
            passes: batches whose gradients are summed before they are combined.
            average_passes: whether that sum is divided by their number.
            scale_local: whether gradients of local variables are divided by the number of workers.
            process_set: the workers that train together; one that is not among them trains alone.
        """
        self.how, self.wire, self.passes = how, wire, passes
        self.local_layers: tuple[Any, ...] = ()
        self.mover: Marking | None = None
        """What moves the gradients; made in the first step."""
        self.failure: BaseException | None = None
        """What a callback raised inside of a backend that would wrap it."""
        self.scaled = False
        """Whether gradients come scaled, by a LossScaleOptimizer."""
        self.batches = 0
        """Whose gradients have come in."""
        self.context = context.current()
        alone = process_set is not None and process_set.included() is False
        self.engine: Engine | None = None if alone else context.engine_of(process_set)
        """Of the workers that train together; None for one that trains alone."""
        self._average_passes, self._scale_local = average_passes, scale_local
        self._local: list[Any] = []
        self.paused = False
        """Whether the optimizer's own code is at work on gradients that are combined."""
        self.left_behind = False
        """Whether a step is under way that is left behind its end, and not from within."""
        self._sums: list[Array | None] = []
        self._summed = 0
        # With several workers their gradients tell more than those of batches.
        by_passes = self.size == 1 and passes > 1
        self._norms = PartNorms(passes, averaged=average_passes) if by_passes else None
        self._updates = 0
        self._taking_part: frozenset[int] | None = None
        # By number and not by names: models that differ must meet there to find it out.
        self.meeting = "" if self.engine is None else self.engine.unique_name("optimizer", "")

    @property
    def size(self) -> int:
        """Number of workers that train together."""
        return 1 if self.engine is None else self.engine.size

    @property
    def idle(self) -> bool:
        """Whether gradients are applied as they are: one worker, or combined already."""
        return self.paused or (self.size == 1 and self.passes == 1)

    @property
    def backend(self) -> Backend:
        """The backend that Keras runs on."""
        from farandole.keras.backends import current

        return current()

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Let the optimizer's own code call `apply` without combining once more."""
        self.paused = True
        try:
            yield
        finally:
            self.paused = False

    def register_local(self, variable: Any) -> None:
        """Leave a variable's gradient to each worker (Horovod's register_local_var)."""
        self._local.append(variable)

    def is_local(self, variables: Sequence[Any]) -> list[bool]:
        """Say which variables are left to each worker."""
        local = {id(variable) for variable in self._local}
        for layer in self.local_layers:
            local |= {id(variable) for variable in layer.trainable_variables}
        return [id(variable) in local for variable in variables]

    def scale(self, gradient: Any) -> Any:
        """Return a local variable's gradient as it is applied."""
        return gradient / self.size if self._scale_local and gradient is not None else gradient

    def begin(self) -> None:
        """Count another batch, or raise what speaks against it."""
        self.batches += 1
        if ended():
            raise StopLaunch
        if self.context is not context.current():
            raise UsageError(
                "This optimizer was wrapped before shutdown() and init(), among workers that have "
                "parted since. Make the optimizer anew and call DistributedOptimizer again."
            )

    def reduce(self, batch: Batch, arrays: Sequence[Array | None]) -> list[Array | None] | None:
        """Combine a batch's gradients, given as arrays; None while more are to be summed first.

        The results may be views that hold until the next call.
        """
        self.begin()
        total = self._summed_up(arrays) if self.passes > 1 else list(arrays)
        if total is None:
            return None
        self.note_update()
        if self.size > 1:
            combined = self._gradients(batch).reduce(total[: batch.shared])
            total = [*combined, *total[batch.shared :]]
        self.context.count_step()
        return total

    def reduce_inside(
        self, batch: Batch, arrays: Sequence[Array | None]
    ) -> list[Array | None] | None:
        """Like reduce, in a callback of a backend: `unwrapping` raises what it raised."""
        try:
            return self.reduce(batch, arrays)
        except BaseException as error:
            self.failure = error
            raise

    @contextmanager
    def unwrapping(self) -> Iterator[None]:
        """Raise what a callback raised as it was, and not as the backend puts it."""
        # What a step of the program's own has raised since is no matter of this.
        self.failure = None
        try:
            yield
        except Exception as error:
            failure, self.failure = self.failure, None
            if failure is None:
                raise
            raise failure from error

    def mark(self, kind: int, number: int) -> None:
        """Say where this rank stands between two steps; all must stand at the same point.

        Raises:
            StepsDifferError: another rank stands elsewhere.
        """
        if self.size == 1 or ended():
            return
        if self.mover is not None:
            self.mover.mark(kind, number)
            return
        answers = self._meet(marks.as_json(kind, number))
        marks.check([answer.get("mark") for answer in answers])

    def note_update(self) -> None:
        """Count an update, and let the launcher know how far training is."""
        self._updates += 1
        self.context.note_step(self._updates)

    def agree(self, batch: Batch) -> frozenset[int]:
        """Return which of the variables take part on any worker: asked in the first step only.

        For compiled steps, which must know what comes back before it does.
        """
        if self._taking_part is None:
            given = batch.gradients[: batch.shared]
            mine = [i for i, gradient in enumerate(given) if gradient is not None]
            said = self._meet({"mine": mine})
            if any("mark" in answer for answer in said):
                marks.check([answer.get("mark") for answer in said])
            self._taking_part = frozenset(i for answer in said for i in answer["mine"])
        return self._taking_part

    def _meet(self, said: dict[str, Any]) -> list[dict[str, Any]]:
        """Return what everybody says who trains together."""
        if self.engine is None:
            return [said]
        answers = self.engine.exchange(json.dumps(said).encode(), self.meeting)
        return [json.loads(answer) for answer in answers]

    def _gradients(self, batch: Batch) -> Gradients:
        if self.mover is None:
            assert self.engine is not None
            self.mover = reducer = Gradients(
                self.engine,
                batch.names[: batch.shared],
                self.how,
                wire=self.wire,
                meeting=self.meeting,
                scaled=self.scaled,
            )
            # A place for every variable: which of them take part may change from step to step.
            reducer.prepare(batch.specs[: batch.shared])
        assert isinstance(self.mover, Gradients)
        return self.mover

    def _summed_up(self, arrays: Sequence[Array | None]) -> list[Array | None] | None:
        if self._norms is not None and self._norms.due and current() is not None:
            self._norms.part(arrays)
        if self._summed == 0:
            self._sums = [None if array is None else np.array(array) for array in arrays]
        else:
            for index, array in enumerate(arrays):
                total = self._sums[index]
                if array is not None:
                    self._sums[index] = np.array(array) if total is None else total + array
        self._summed += 1
        if self._summed < self.passes:
            return None
        self._summed = 0
        sums, self._sums = self._sums, []
        if self._average_passes:
            sums = [None if total is None else total / self.passes for total in sums]
        if self._norms is not None:
            self._norms.ended(None if self.scaled else current(), sums)
        return sums


def _path_of(variable: Any) -> str:
    # A variable of TensorFlow's own, which Keras's optimizers take there, has a name only.
    path: str = getattr(variable, "path", None) or variable.name
    return path


def _type_of(variable: Any) -> str:
    return str(getattr(variable.dtype, "name", variable.dtype))
