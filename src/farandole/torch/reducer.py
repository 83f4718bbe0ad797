"""Averaging gradients while backward runs: hooks, buckets, and what to do when plans change.

In the first step nothing is known about the order in which gradients come: they are reduced by name
once backward is over. Then all ranks lay out buckets in rank 0's order. From there on a gradient's
hook copies it into its bucket and points `p.grad` at it; a full bucket is submitted at once, the
last one in `synchronize`, where it also says whether this rank needs another plan (a layer thawed,
a gradient that has become sparse). If any rank does, the rest of that step goes by name again.
"""

from __future__ import annotations

import json
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import torch

from farandole.engine import marks
from farandole.engine.buckets import REPLAN, BucketSet
from farandole.engine.engine import Engine
from farandole.engine.handle import Handle
from farandole.engine.overlap import OverlapTrial
from farandole.engine.plan import Gradient, make_plan
from farandole.errors import MismatchError, StepsDifferError
from farandole.recorder.noise import SPARSE, norms_of
from farandole.recorder.recorder import current
from farandole.torch import sparse
from farandole.torch.collectives import compress
from farandole.torch.layout import Layout
from farandole.torch.operations import allreduce_operation
from farandole.torch.sending import Sending
from farandole.torch.tensors import TYPE_NAMES
from farandole.transport.reduction import Reduction

# Buckets whose optimizer is gone. Garbage is collected at any moment, also while the loop holds its
# lock, so that they are closed later, when somebody makes new ones.
_dropped: deque[BucketSet] = deque()
_reducers: weakref.WeakSet[GradientReducer] = weakref.WeakSet()
_bytes_per_step: weakref.WeakKeyDictionary[GradientReducer, int] = weakref.WeakKeyDictionary()


class GradientReducer:
    """Reduces the gradients of one optimizer's parameters."""

    def __init__(
        self,
        engine: Engine,
        names: Sequence[str],
        parameters: Sequence[torch.nn.Parameter],
        how: Reduction,
        passes: int,
        overlap: OverlapTrial,
        *,
        order: Sequence[int] = (),
        meeting: str | None = None,
        scaled: bool = False,
        sending: Sending | None = None,
    ) -> None:
        """Watch the parameters.

        Args:
            engine: reduces.
            names: of the parameters; the same on every rank.
            parameters: in the optimizer's order.
            how: the reduction, on every gradient.
            passes: backward passes whose gradients are summed before they are reduced.
            overlap: says whether buckets are reduced while backward runs.
            order: in which backward is expected to produce the gradients, where the first step
                will not show it.
            meeting: under which name the ranks meet before the first step; by default one of
                their own.
            scaled: whether something that is not known here scales the gradients.
            sending: how gradients travel; by default as they are.
        """
        self.engine, self._how, self._overlap = engine, how, overlap
        self._names, self._parameters = list(names), list(parameters)
        self._prefix = engine.unique_name("gradients", "\n".join(names))
        # By number and not by names: models that differ must meet there to find it out.
        self._meeting = meeting or engine.unique_name("optimizer", "")
        self._passes = passes
        self._sending = sending or Sending()
        self._layout: Layout | None = None
        self._norms = norms_of(how, engine.rank, engine.size, scaled=scaled)
        self._plans = 0
        self._nbytes = 0
        self._order = list(order)
        self._fired = [0] * len(parameters)
        self._expected = [passes] * len(parameters)
        self._nested: set[int] = set()
        self._sparse: list[int] = []
        self._dense: set[int] = set()
        self._hooked: dict[int, Any] = {}
        self._unhooked = set(range(len(parameters)))
        self._unplaced: list[torch.nn.Parameter] = []
        """Those without a place in the layout."""
        self._came_oftener = False
        _reducers.add(self)
        self._hook_all()

    def __del__(self) -> None:
        self.close()

    def add(self, names: Sequence[str], parameters: Sequence[torch.nn.Parameter]) -> None:
        """Watch more parameters; the other ranks do so before they next make a plan."""
        self._unhooked.update(range(len(self._parameters), len(self._parameters) + len(parameters)))
        self._names += names
        self._parameters += parameters
        self._unplaced += parameters
        self._fired += [0] * len(parameters)
        self._expected += [self._passes] * len(parameters)
        self._hook_all()

    def set_passes(self, passes: int) -> None:
        """Change the number of backward passes per step."""
        self._passes = passes
        self._expected = [passes] * len(self._parameters)

    @property
    def under_way(self) -> bool:
        """Whether gradients have come in since the last synchronize."""
        return any(self._fired)

    def synchronize(self) -> None:
        """Reduce what is left, wait for all, and leave the results in `p.grad`."""
        recorder = current()
        if recorder is None:
            self._synchronize()
            self._norms.ended(None)
            return
        layout, entered_s = self._layout, time.monotonic()
        self._nbytes = 0 if layout is None else layout.nbytes
        hidden_s = None if layout is None else layout.moved_s()
        self._synchronize()
        done_s = time.monotonic()
        submitted_s = [entered_s] if layout is None else layout.submitted_s
        # A bucket may lie ready for the whole of backward before somebody moves it: that is no
        # communication, and only who moves it knows for how long.
        recorder.gradients(
            ready_s=max(submitted_s),
            done_s=done_s,
            began_s=min(submitted_s) if hidden_s is None else entered_s - hidden_s,
            exposed_s=done_s - entered_s,
        )
        if layout is not None:
            layout.moved_s()
        recorder.sent("gradients", self._nbytes)
        if layout is not None and layout is self._layout:
            dtypes = [dtype for _, dtype in layout.plan.shapes]
            self._norms.ended(recorder, layout.buckets.arrays, dtypes)
            if self._sparse:
                recorder.note(SPARSE)
        else:
            self._norms.ended(recorder)
            _bytes_per_step[self] = self._layout.nbytes if self._layout is not None else 0
            recorder.setup(gradient_bytes_per_step=sum(_bytes_per_step.values()))

    def _synchronize(self) -> None:
        for parameter in self._parameters if self._sending.as_dense else ():
            self._sending.prepare(parameter)
        layout = self._layout
        if layout is None:
            self._reduce_by_name(range(len(self._parameters)))
        else:
            self._hook_all()
            surprises = self._submit_rest(layout)
            with self._anew_if_steps_differ():
                left_out = layout.finish(self._parameters, self.engine)
            # Somebody else's was dense.
            self._dense.update(i for i in surprises if not self._is_sparse(i))
            if left_out is None:
                self._reduce_sparse(self._sparse)
            else:
                settled = set(layout.plan.places) - set(left_out)
                still = (i for i in range(len(self._parameters)) if i not in settled)
                self._reduce_by_name(sorted({*still, *filter(self._is_sparse, settled)}))
        if self._came_oftener:
            self._came_oftener = False
            self._expected = list(map(max, self._expected, self._fired))
        self._fired = [0] * len(self._parameters)
        if self._overlap.step(time.monotonic()):
            figures = json.dumps(self._overlap.figures()).encode()
            everyone = self._meet(figures, f"{self._prefix}.overlap")
            self._overlap.decide([json.loads(answer) for answer in everyone if answer])

    def _submit_rest(self, layout: Layout) -> list[int]:
        """Submit the buckets that are not on their way; return the gradients that do not fit."""
        if layout.in_place() and all(parameter.grad is None for parameter in self._unplaced):
            layout.submit_in_place()
            return []
        surprises = self._surprises(layout)
        layout.submit_rest(self._parameters, REPLAN if surprises else 0, set(surprises))
        return surprises

    def sit_out(self) -> bool:
        """Take part in the others' steps with zeros, having joined; return whether one is on.

        To be called again and again. Without buckets there is nothing to do: what goes by name
        goes without those who have joined.
        """
        layout = self._layout
        if layout is None:
            return False
        if layout.sit_out(self.engine):
            # The others have given these up, and make new ones when all are back.
            layout.buckets.close()
            self._layout = None
        return layout.sitting_out

    def leave(self) -> None:
        """Prepare to sit out steps: this rank has joined."""
        self._overlap.stop()
        self._fired = [0] * len(self._parameters)
        for parameter in self._parameters:
            # They lie in the buckets, which are the others' now.
            parameter.grad = None

    def mark(self, kind: int, number: int) -> None:
        """Say where this rank stands between two steps (see engine.marks)."""
        if self._layout is not None:
            with self._anew_if_steps_differ():
                self._layout.mark(marks.Mark(kind, number), self.engine)
            return
        said = self._meet(json.dumps(marks.as_json(kind, number)).encode(), self._meeting)
        marks.check([json.loads(answer).get("mark") for answer in said])

    @contextmanager
    def _anew_if_steps_differ(self) -> Iterator[None]:
        """Give up buckets that only some ranks wait for: the next step makes new ones."""
        try:
            yield
        except StepsDifferError:
            if self._layout is not None:
                self._layout.buckets.close()
                self._layout = None
            self._fired = [0] * len(self._parameters)
            raise

    def forget(self) -> None:
        """Drop what has come in since the last synchronize, as after a restored checkpoint.

        Unless some of it is on its way: the peers count on this step then.
        """
        if self._layout is None or self._layout.forget():
            self._order.clear()
            self._fired = [0] * len(self._parameters)

    def close(self) -> None:
        """Stop watching."""
        for hook in self._hooked.values():
            hook.remove()
        if self._layout is not None:
            _dropped.append(self._layout.buckets)
            self._layout = None

    def _hook_all(self) -> None:
        for index in [i for i in self._unhooked if self._parameters[i].requires_grad]:
            register: Any = self._parameters[index].register_post_accumulate_grad_hook
            self._hooked[index] = register(self._on_gradient(index))
            self._unhooked.remove(index)

    def _on_gradient(self, index: int) -> Callable[[torch.Tensor], None]:
        # Parameters outlive their optimizer: they must not keep it.
        weak = weakref.ref(self)

        def hook(parameter: torch.Tensor) -> None:
            reducer = weak()
            if reducer is not None:
                reducer._came(index, parameter)

        return hook

    def _came(self, index: int, parameter: torch.Tensor) -> None:
        self._fired[index] = fired = self._fired[index] + 1
        self._sending.prepare(parameter)
        if fired < self._expected[index]:
            return
        layout = self._layout
        if fired > self._expected[index]:
            self._came_again(index)
        elif layout is None:
            self._order.append(index)
            if _inside_checkpoint():
                self._nested.add(index)
        elif layout.take(index, parameter):
            if self._overlap.on:
                self.engine.loop.nobody_waits()
            else:
                self.engine.loop.advance()

    def _came_again(self, index: int) -> None:
        """Accept a gradient that is added to once more, or say why that is too late.

        A weight that is used inside and outside of a reentrant checkpoint comes several times in
        one backward pass. After the first step that is expected.
        """
        self._came_oftener = True
        if self._layout is None:
            if index in self._nested or _inside_checkpoint():
                self._nested.add(index)
                return
        elif not self._layout.submitted(index):
            return
        raise AssertionError(
            f"The gradient of {self._names[index]!r} was computed more than "
            f"{self._expected[index]} time(s) before optimizer.step() or synchronize(). To add "
            "up several backward passes set backward_passes_per_step."
        )

    def _surprises(self, layout: Layout) -> list[int]:
        """Return the parameters whose gradients the plan does not suit.

        That are those without a place, and those that have one because nobody knew better and
        turn out to be sparse. Once dense somewhere, a gradient is sent as dense.
        """
        surprises = []
        for index, parameter in enumerate(self._parameters):
            gradient = parameter.grad
            if gradient is None:
                continue
            if index in layout.plan.places:
                if gradient.is_sparse and index not in self._dense:
                    surprises.append(index)
            elif index not in self._sparse or not gradient.is_sparse:
                surprises.append(index)
        return surprises

    def _is_sparse(self, index: int) -> bool:
        gradient = self._parameters[index].grad
        return gradient is not None and gradient.is_sparse

    def _reduce_by_name(self, indices: Sequence[int]) -> None:
        """Reduce these gradients one by one, then lay out buckets for the next steps."""
        everyone, joined = self._tell_all(indices)
        present = sorted({index for said in everyone for index in said["dense"] + said["sparse"]})
        dense = {index for said in everyone for index in said["dense"]}
        handles: list[tuple[int, Callable[[], torch.Tensor], Handle]] = []
        for index in present:
            if index in dense:
                gradient = _contiguous(self._parameters[index])
                sent, undo = compress(gradient, self._sending.compressor)
                handles.append((index, partial(undo, sent), self._submit(index, sent)))
        for index, result, handle in handles:
            self.engine.wait(handle)
            parameter, gradient = self._parameters[index], result()
            if parameter.grad is None or parameter.grad is not gradient:
                parameter.grad = gradient.view_as(parameter)
        only_sparse = [index for index in present if index not in dense]
        self._reduce_sparse(only_sparse)
        self._dense |= dense.union(*(said["were_dense"] for said in everyone))
        were_sparse = [index for said in everyone for index in said["were_sparse"]]
        self._sparse = sorted({*were_sparse, *only_sparse} - self._dense)
        self._lay_out(everyone, joined=joined)

    def _tell_all(self, indices: Sequence[int]) -> tuple[list[dict[str, Any]], bool]:
        """Exchange who has which gradients; refuse models that differ.

        Returns what those said who have not joined, and whether there are others.
        """
        mine = [
            [name, list(p.shape), TYPE_NAMES.get(p.dtype, str(p.dtype))]
            for name, p in zip(self._names, self._parameters, strict=True)
        ]
        gradients = [(i, self._parameters[i].grad) for i in indices]
        said = {
            "parameters": mine,
            "order": self._order,
            "trainable": [i for i, p in enumerate(self._parameters) if p.requires_grad],
            "dense": [i for i, g in gradients if g is not None and not g.is_sparse],
            "sparse": [i for i, g in gradients if g is not None and g.is_sparse],
            # Who comes back from join() has missed what the others have learned meanwhile.
            "were_dense": sorted(self._dense),
            "were_sparse": self._sparse,
        }
        answers = self._meet(json.dumps(said).encode(), self._meeting)
        by_rank = {
            rank: json.loads(answer)
            for rank, answer in zip(self.engine.ranks, answers, strict=True)
            if answer
        }
        everyone = list(by_rank.values())
        if any("mark" in answer for answer in everyone):
            marks.check([answer.get("mark") for answer in everyone])
        first = min(by_rank)
        for rank, answer in by_rank.items():
            if answer["parameters"] != everyone[0]["parameters"]:
                raise MismatchError(
                    _difference(everyone[0]["parameters"], first, answer["parameters"], rank)
                )
        return everyone, len(everyone) < len(answers)

    def _meet(self, said: bytes, name: str) -> list[bytes]:
        recorder = current()
        if recorder is not None:
            recorder.sent("control", len(said))
        return self.engine.exchange(said, name, kind="meeting")

    def _submit(self, index: int, gradient: torch.Tensor) -> Handle:
        self._nbytes += gradient.nbytes
        operation = allreduce_operation(gradient, gradient, self._how)
        return self.engine.submit(f"{self._prefix}.{self._names[index]}", operation)

    def _reduce_sparse(self, indices: Sequence[int]) -> None:
        for index in indices:
            name = f"{self._prefix}.{self._names[index]}"
            self._nbytes += sparse.nbytes(self._parameters[index].grad)
            sparse.reduce_gradient(self.engine, name, self._parameters[index], self._how)

    def _lay_out(self, everyone: list[dict[str, Any]], *, joined: bool) -> None:
        """Make the plan for the next steps, the same on every rank.

        Without one the next step goes by name, too: as long as some have joined, who could not
        make buckets, and where these cannot hold what is sent.
        """
        trainable = sorted({index for said in everyone for index in said["trainable"]})
        order = [*everyone[0]["order"], *trainable]
        if self._layout is not None:
            order = [*self._layout.plan.places, *order]
            self._layout.buckets.close()
        wanted = [i for i in dict.fromkeys(order) if i in set(trainable) - set(self._sparse)]
        gradients = [
            Gradient(
                index=index,
                count=self._parameters[index].numel(),
                dtype=TYPE_NAMES[self._sending.sent_as(self._parameters[index])],
                itemsize=self._sending.sent_as(self._parameters[index]).itemsize,
                group=self._sending.groups.get(index),
            )
            for index in (wanted if self._sending.in_buckets and not joined else ())
        ]
        while _dropped:
            _dropped.popleft().close()
        self._order.clear()
        self._layout = None
        if gradients:
            self._plans += 1
            name = f"{self._prefix}.{self._plans}"
            plan = make_plan(gradients)
            self._layout = Layout(self.engine, name, plan, self._parameters, self._how, self._norms)
            self._unplaced = [p for i, p in enumerate(self._parameters) if i not in plan.places]


def reducers_of(engine: Engine) -> list[GradientReducer]:
    """Return those that reduce gradients among an engine's ranks."""
    return [reducer for reducer in _reducers if reducer.engine is engine]


def _contiguous(parameter: torch.nn.Parameter) -> torch.Tensor:
    """Return a contiguous gradient to be reduced in place: its own, if that will do."""
    gradient = parameter.grad
    if gradient is None:
        return torch.zeros_like(parameter, memory_format=torch.contiguous_format).detach()
    if gradient.requires_grad:
        gradient = gradient.detach()
    return (gradient.to_dense() if gradient.is_sparse else gradient).contiguous()


def _inside_checkpoint() -> bool:
    """Say whether this backward pass runs inside that of a reentrant checkpoint."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "torch.utils.checkpoint":
            return True
        frame = frame.f_back
    return False


def _difference(mine: list[Any], first: int, theirs: list[Any], rank: int) -> str:
    for one, other in zip(mine, theirs, strict=False):
        if one != other:
            return (
                "The ranks train different models: parameter "
                f"{one[0]!r} is {one[2]}{one[1]} on rank {first}, and rank {rank} has "
                f"{other[0]!r}, {other[2]}{other[1]}, in its place."
            )
    return (
        f"The ranks train different models: rank {first} has {len(mine)} parameters, rank {rank} "
        f"has {len(theirs)}."
    )
