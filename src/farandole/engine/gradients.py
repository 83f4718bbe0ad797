"""All gradients of a step averaged by one call, in buckets: for Keras and TensorFlow.

They arrive as arrays, all at once. What comes back are views of the buckets, which hold until the
next call: whoever keeps them longer makes copies. The first call lays the buckets out; it is also
where models that differ between ranks are found.
"""

from __future__ import annotations

import json
import math
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from farandole.engine import context
from farandole.engine.arrays import type_name
from farandole.engine.bucket_step import BucketStep, Mark, check_marks, mark_as_json
from farandole.engine.buckets import Gradient, make_plan
from farandole.engine.engine import Engine
from farandole.engine.signature import check_same
from farandole.errors import MismatchError, StepsDifferError, UsageError
from farandole.recorder.noise import norms_of
from farandole.recorder.recorder import current
from farandole.transport.reduction import HALF_TYPES, STORAGE, Array, Reduction, narrow, widen

Spec = tuple[Sequence[int], str]
"""Shape and type of a gradient."""

_all: weakref.WeakSet[Gradients] = weakref.WeakSet()


def spec_of(gradient: Array) -> Spec:
    """Return an array's shape and type."""
    return gradient.shape, type_name(gradient)


def meet(
    engine: Engine, name: str, said: dict[str, Any], *, kind: str = "allgather"
) -> dict[int, dict[str, Any]]:
    """Return what each rank says where training begins, by rank.

    Args:
        engine: of the ranks.
        name: under which they meet.
        said: this rank's own; JSON-able.
        kind: "meeting" where ranks that have joined say nothing.

    Raises:
        StepsDifferError: a rank is not in a step, but between two.
    """
    message = json.dumps(said).encode()
    if (recorder := current()) is not None:
        recorder.sent("control", len(message))
    answers = zip(engine.ranks, engine.exchange(message, name, kind=kind), strict=True)
    everyone = {rank: json.loads(answer) for rank, answer in answers if answer}
    if any("mark" in answer for answer in everyone.values()):
        check_marks([answer.get("mark") for answer in everyone.values()])
    return everyone


class Gradients:
    """Reduces the gradients of one optimizer's variables, step by step."""

    def __init__(
        self,
        engine: Engine,
        names: Sequence[str],
        how: Reduction,
        *,
        wire: str | None = None,
        meeting: str | None = None,
        scaled: bool = False,
    ) -> None:
        """Begin; all ranks do so in the same order.

        Args:
            engine: reduces.
            names: of the variables; the same on every rank.
            how: the reduction, on every gradient.
            wire: "float16" or "bfloat16" to send floating-point gradients in that precision.
            meeting: under which name the ranks meet before the first step; by default one of
                their own.
            scaled: whether something that is not known here scales the gradients.
        """
        self._engine, self._names, self._how, self._wire = engine, list(names), how, wire
        self._prefix = engine.unique_name("gradients", "\n".join(names))
        # By number and not by names: models that differ must meet there to find it out.
        self._meeting = meeting or engine.unique_name("optimizer", "")
        self._present: frozenset[int] = frozenset()
        self._agreed = False
        self._step: BucketStep | None = None
        self._places: dict[int, _Slot] = {}
        self._nbytes = 0
        self._norms = norms_of(how, engine.rank, engine.size, scaled=scaled)
        _all.add(self)

    @property
    def engine(self) -> Engine:
        """What reduces."""
        return self._engine

    def reduce(self, gradients: Sequence[Array | None]) -> list[Array | None]:
        """Combine a step's gradients over all ranks.

        Args:
            gradients: in the order of the names. One that this rank does not have counts as zero
                where another rank has it.

        Returns:
            The results in the same order; None for those that no rank has. They may be views
            that hold until the next call.

        Raises:
            MismatchError: the ranks' gradients differ in number, names, shapes or types.
            StepsDifferError: a rank is not in a step, but at the end of its epoch.
        """
        self._engine.loop.refuse_if_forked()
        if not self._agreed:
            self.prepare([None if each is None else spec_of(each) for each in gradients])
        step = self._step
        if step is None:
            return [None] * len(gradients)
        began_s = time.monotonic()
        for bucket, members in enumerate(step.plan.members):
            self._submit(step, bucket, [gradients[i] for i in members])
        ready_s = time.monotonic()
        present: set[int] = set()
        with self._anew_if_steps_differ():
            for bucket in range(len(step.plan.members)):
                present.update(step.wait(bucket) or ())
        step.end()
        self._record(step, began_s, ready_s)
        return [
            self._places[index].result() if index in present else None
            for index in range(len(gradients))
        ]

    def prepare(self, specs: Sequence[Spec | None]) -> frozenset[int]:
        """Agree with all ranks on what there is, and make buckets for it: once.

        Args:
            specs: of the gradients that this rank has, in the order of the names.

        Returns:
            Which gradients any rank has.
        """
        if self._agreed:
            return self._present
        mine = [None if spec is None else [list(spec[0]), spec[1]] for spec in specs]
        options = {"op": str(self._how), "compression": self._wire}
        said = {"names": self._names, "gradients": mine, "options": options}
        everyone = meet(self._engine, self._meeting, said)
        check_same({r: each["options"] for r, each in everyone.items()}, "DistributedOptimizer's")
        agreed = _agree([*everyone.values()])
        found = {index: what for index, what in enumerate(agreed) if what is not None}
        sent = {index: self._sent_as(dtype) for index, (_, dtype) in found.items()}
        self._agreed = True
        plan = make_plan(
            [
                Gradient(
                    index=index,
                    count=math.prod(shape),
                    dtype=sent[index],
                    itemsize=STORAGE[sent[index]].itemsize,
                )
                for index, (shape, _) in found.items()
            ]
        )
        self._present = frozenset(found)
        if not found:
            return self._present
        self._step = BucketStep(self._engine, self._prefix, plan, self._how)
        for index, place in plan.places.items():
            shape, dtype = found[index]
            flat = self._step.buckets.arrays[place.bucket]
            stretch = flat[place.offset : place.offset + math.prod(shape)]
            self._places[index] = _Slot(stretch, tuple(shape), dtype, sent[index])
        self._nbytes = sum(slot.flat.nbytes for slot in self._places.values())
        recorder = current()
        if recorder is not None:
            recorder.setup(gradient_bytes_per_step=self._nbytes)
        return self._present

    def mark(self, kind: int, number: int) -> None:
        """Say where this rank stands between two steps, and check that all say the same.

        Args:
            kind: of engine.marks.
            number: of the epoch, of steps or of epochs.

        Raises:
            StepsDifferError: another rank stands elsewhere.
        """
        if self._step is None:
            meet(self._engine, self._meeting, mark_as_json(kind, number))
            return
        with self._anew_if_steps_differ():
            self._step.mark(Mark(kind, number))

    def sit_out(self) -> bool:
        """Bring zeros to a step of the others, if one has begun: this rank has joined.

        To be called again and again.

        Returns:
            Whether a step is on.
        """
        step = self._step
        if step is None:
            return False
        replanned = step.sit_out()
        if replanned:
            # The others are between steps, and give these up.
            self.close()
        elif replanned is not None:
            context.current().count_step()
        return step.sitting_out

    def come_back(self) -> None:
        """Leave out a step's number: all ranks have joined."""
        if self._step is not None:
            self._step.skip()

    def close(self) -> None:
        """Let go of the buckets."""
        if self._step is not None:
            self._step.close()
        self._agreed, self._step = False, None
        self._places = {}

    @contextmanager
    def _anew_if_steps_differ(self) -> Iterator[None]:
        """Give up buckets that only some ranks wait for: the next step makes new ones."""
        try:
            yield
        except StepsDifferError:
            self.close()
            raise

    def _sent_as(self, dtype: str) -> str:
        compressible = dtype in ("float32", "float64") and self._wire is not None
        return self._wire if compressible and self._wire is not None else dtype

    def _submit(self, step: BucketStep, bucket: int, gradients: list[Array | None]) -> None:
        for index, gradient in zip(step.plan.members[bucket], gradients, strict=True):
            self._places[index].write(gradient, self._names[index])
        if self._norms.due and current() is not None:
            self._square(step, bucket, gradients)
        present = [position for position, gradient in enumerate(gradients) if gradient is not None]
        step.submit(bucket, None if len(present) == len(gradients) else present)

    def _square(self, step: BucketStep, bucket: int, gradients: Sequence[Array | None]) -> None:
        dtype = step.plan.shapes[bucket][1]
        if dtype == self._wire:
            # In the bucket they are rounded.
            given = [each for each in gradients if each is not None]
            flat = [np.ascontiguousarray(each, np.float32).reshape(-1) for each in given]
            self._norms.before(bucket, flat, "float32")
        else:
            self._norms.before(bucket, [step.buckets.arrays[bucket]], dtype)

    def _record(self, step: BucketStep, began_s: float, ready_s: float) -> None:
        recorder = current()
        if recorder is not None:
            done_s = time.monotonic()
            recorder.gradients(
                ready_s=ready_s, done_s=done_s, began_s=began_s, exposed_s=done_s - began_s
            )
            recorder.sent("gradients", self._nbytes)
        dtypes = [dtype for _, dtype in step.plan.shapes]
        self._norms.ended(recorder, step.buckets.arrays, dtypes)


def gradients_of(engine: Engine) -> list[Gradients]:
    """Return what reduces gradients among an engine's ranks."""
    return [each for each in _all if each.engine is engine]


class _Slot:
    """Where one gradient lies, how it is written there and read."""

    __slots__ = ("_dtype", "_half", "_shape", "flat")

    def __init__(self, flat: Array, shape: tuple[int, ...], dtype: str, sent: str) -> None:
        self.flat, self._shape, self._dtype = flat, shape, dtype
        self._half = sent if sent in HALF_TYPES else None

    def write(self, gradient: Array | None, name: str) -> None:
        if gradient is None:
            self.flat[...] = 0
            return
        if gradient.shape != self._shape or gradient.dtype.name != self._dtype:
            raise UsageError(
                f"The gradient of {name!r} was {self._dtype}{list(self._shape)} in the first step "
                f"and is {gradient.dtype.name}{list(gradient.shape)} now. Make the optimizer anew."
            )
        if self._half is None:
            np.copyto(self.flat.reshape(self._shape), gradient)
        elif self._dtype == self._half:
            np.copyto(self.flat, np.ascontiguousarray(gradient).reshape(-1).view(np.uint16))
        else:
            wide = np.ascontiguousarray(gradient, np.float32).reshape(-1)
            narrow(wide, self.flat, self._half)

    def result(self) -> Array:
        if self._half is None:
            return self.flat.reshape(self._shape)
        if self._dtype == self._half:
            return self.flat.view(_half_type(self._half)).reshape(self._shape)
        wide: Array = widen(self.flat, self._half).reshape(self._shape)
        return wide.astype(self._dtype, copy=False)


def _half_type(name: str) -> np.dtype[Any]:
    if name == "float16":
        return np.dtype(np.float16)
    from ml_dtypes import bfloat16  # TensorFlow and JAX bring it

    half: np.dtype[Any] = np.dtype(bfloat16)
    return half


def _agree(everyone: Sequence[dict[str, Any]]) -> list[Any]:
    """Return shape and type of each gradient, None where no rank has it; all ranks alike."""
    agreed: list[Any] = [None] * len(everyone[0]["names"])
    for rank, said in enumerate(everyone):
        if said["names"] != everyone[0]["names"]:
            raise MismatchError(
                f"The ranks train different models: rank 0 has {len(agreed)} variables "
                f"({_first_names(everyone[0]['names'], said['names'])}), rank {rank} has "
                f"{len(said['names'])} ({_first_names(said['names'], everyone[0]['names'])}). "
                "Build the same model on every rank."
            )
        for index, what in enumerate(said["gradients"]):
            if what is None:
                continue
            if agreed[index] is not None and agreed[index] != what:
                raise MismatchError(
                    f"The gradients of {said['names'][index]!r} differ: "
                    f"{agreed[index][1]}{agreed[index][0]} on another rank, {what[1]}{what[0]} on "
                    f"rank {rank}. Build the same model on every rank."
                )
            agreed[index] = what
    return agreed


def _first_names(mine: Sequence[str], other: Sequence[str]) -> str:
    own = [name for name in mine if name not in set(other)]
    return ", ".join((own or list(mine))[:2]) or "none"
