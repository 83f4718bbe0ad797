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
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, TypeVar

import torch

from farandole.engine.bucket_step import Mark, OverlapTrial, check_marks, mark_as_json
from farandole.engine.buckets import REPLAN, BucketSet, Gradient, make_plan
from farandole.engine.engine import Engine
from farandole.errors import MismatchError, StepsDifferError, UnfitError
from farandole.recorder.noise import SPARSE, norms_of
from farandole.recorder.recorder import current
from farandole.torch.by_name import ByName, RankAnswers
from farandole.torch.compression import SendOptions
from farandole.torch.layout import Faults, Layout
from farandole.torch.operations import TYPE_NAMES
from farandole.torch.sharded import Sharding
from farandole.torch.sharded_layout import Memory
from farandole.transport.reduction import Reduction

_T = TypeVar("_T")

# Buckets whose optimizer is gone. Garbage is collected at any moment, also while the loop holds its
# lock, so that they are closed later, when somebody makes new ones.
_dropped: deque[BucketSet | Memory] = deque()
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
        sending: SendOptions | None = None,
        sharding: Sharding | None = None,
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
            sharding: shares the weights, so that each rank updates a part of them.
        """
        self.sharding = sharding
        self.engine, self._how, self.overlap = engine, how, overlap
        self._names, self.parameters = list(names), list(parameters)
        if sharding is not None:
            sharding.names = self._names
        self._passes = passes
        self._sending = sending or SendOptions()
        self._by_name = ByName(engine, self._names, self.parameters, how, self._sending, meeting)
        self.layout: Layout | None = None
        self._norms = norms_of(
            how, engine.rank, engine.size, scaled=scaled, sharded=sharding is not None
        )
        self._plans = 0
        self._order = list(order)
        self._fired = [0] * len(parameters)
        self._expected = [passes] * len(parameters)
        self._nested: set[int] = set()
        self._untold: set[int] = set()
        """Sparse gradients that are sent as dense, which the others do not know yet."""
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
        self._unhooked.update(range(len(self.parameters), len(self.parameters) + len(parameters)))
        self._names += names
        self.parameters += parameters
        self._unplaced += parameters
        self._fired += [0] * len(parameters)
        self._expected += [self._passes] * len(parameters)
        self._hook_all()

    def set_passes(self, passes: int) -> None:
        """Change the number of backward passes per step."""
        self._passes = passes
        self._expected = [passes] * len(self.parameters)

    @property
    def under_way(self) -> bool:
        """Whether gradients have come in since the last synchronize."""
        return any(self._fired)

    def synchronize(self) -> None:
        """Reduce what is left, wait for all, and leave the results in `p.grad`."""
        self.engine.loop.refuse_if_forked()
        recorder = current()
        if recorder is None:
            self._synchronize()
            return
        layout, entered_s = self.layout, time.monotonic()
        self._by_name.nbytes = 0
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
        nbytes = 0 if layout is None else layout.nbytes
        recorder.sent("gradients", nbytes + self._by_name.nbytes)
        if layout is not None and layout is self.layout:
            dtypes = [dtype for _, dtype in layout.plan.shapes]
            self._norms.ended(recorder, layout.buckets.arrays, dtypes)
            if self._by_name.sparse:
                recorder.note(SPARSE)
        else:
            self._norms.ended(recorder)
            _bytes_per_step[self] = self.layout.nbytes if self.layout is not None else 0
            recorder.setup(gradient_bytes_per_step=sum(_bytes_per_step.values()))

    def _synchronize(self) -> None:
        try:
            self._reduce()
        except MismatchError:
            # On all ranks: whoever goes on begins the step anew.
            self.expect_anew()
            raise

    def _reduce(self) -> None:
        if self._sending.as_dense:
            for index in range(len(self.parameters)):
                self._make_dense(index)
        layout = self.layout
        if layout is None:
            self._reduce_by_name(range(len(self.parameters)))
        else:
            if self._unhooked:
                self._hook_all()
            surprises, faults = self._submit_rest(layout)
            left_out = self._wait(layout.finish, self.parameters)
            if surprises:
                # Somebody else's was dense.
                self._by_name.dense.update(i for i in surprises if not self._is_sparse(i))
            if left_out is None:
                if self._by_name.sparse:
                    self._by_name.reduce_sparse(self._by_name.sparse)
            else:
                settled = set(layout.plan.places) - set(left_out)
                still = (i for i in range(len(self.parameters)) if i not in settled)
                self._reduce_by_name(sorted({*still, *filter(self._is_sparse, settled)}), faults)
        for index, dimensions in self._by_name.made_dense.items():
            parameter = self.parameters[index]
            if parameter.grad is not None:
                parameter.grad = parameter.grad.to_sparse(dimensions)
        if self._came_oftener:
            self._came_oftener = False
            self._expected = list(map(max, self._expected, self._fired))
        self.expect_anew()
        if self.overlap.step(time.monotonic()):
            figures = json.dumps(self.overlap.figures()).encode()
            everyone = self._by_name.meet(figures, f"{self._by_name.prefix}.overlap")
            self.overlap.decide([json.loads(answer) for answer in everyone if answer])

    def _submit_rest(self, layout: Layout) -> tuple[list[int], Faults]:
        """Submit the buckets that are not on their way; return the gradients that do not fit.

        First those that the plan does not suit, then those that cannot be used at all.
        """
        told = not self._untold
        if layout.in_place() and told and not self._came_unplaced():
            layout.submit_in_place()
            return [], {}
        faults, surprises = layout.faults(), self._surprises(layout)
        flags = 0 if told and not surprises and not faults else REPLAN
        layout.submit_rest(self.parameters, flags, set(surprises), faults)
        return surprises, faults

    def _came_unplaced(self) -> bool:
        return bool(self._unplaced) and any(p.grad is not None for p in self._unplaced)

    def mark(self, kind: int, number: int) -> None:
        """Say where this rank stands between two steps (see engine.marks)."""
        if self.layout is not None:
            self._wait(self.layout.mark, Mark(kind, number))
            return
        mark = json.dumps(mark_as_json(kind, number)).encode()
        said = self._by_name.meet(mark, self._by_name.meeting)
        check_marks([json.loads(answer).get("mark") for answer in said])

    def _wait(self, wait: Callable[..., _T], *arguments: Any) -> _T:
        """Wait for the others; give up buckets that only some ranks wait for."""
        try:
            return wait(*arguments)
        except StepsDifferError:
            self.give_up()
            self.expect_anew()
            raise

    def give_up(self) -> None:
        """Let go of the buckets; the next step makes new ones."""
        if self.layout is not None:
            self.layout.buckets.close()
            self.layout = None

    def expect_anew(self) -> None:
        """Begin to count the gradients of a step."""
        self._fired = [0] * len(self.parameters)

    def forget(self) -> None:
        """Drop what has come in since the last synchronize, as after a restored checkpoint.

        Unless some of it is on its way: the peers count on this step then.
        """
        if self.layout is None or self.layout.forget():
            self._order.clear()
            self.expect_anew()

    def close(self) -> None:
        """Stop watching."""
        for hook in self._hooked.values():
            hook.remove()
        if self.layout is not None:
            _dropped.append(self.layout.buckets)
            self.layout = None
        if self.sharding is not None:
            _dropped.extend(self.sharding.close())

    def _hook_all(self) -> None:
        for index in [i for i in self._unhooked if self.parameters[i].requires_grad]:
            register: Any = self.parameters[index].register_post_accumulate_grad_hook
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
        self.engine.loop.refuse_if_forked()
        self._fired[index] = fired = self._fired[index] + 1
        if self._sending.as_dense:
            self._make_dense(index)
        if fired < self._expected[index]:
            return
        layout = self.layout
        if fired > self._expected[index]:
            self._came_again(index)
        elif layout is None:
            self._order.append(index)
            if _inside_checkpoint():
                self._nested.add(index)
        elif layout.take(index, parameter):
            if self.overlap.on:
                self.engine.loop.nobody_waits()
            else:
                self.engine.loop.advance()

    def _came_again(self, index: int) -> None:
        """Accept a gradient that is added to once more, or say why that is too late.

        A weight that is used inside and outside of a reentrant checkpoint comes several times in
        one backward pass. After the first step that is expected.
        """
        self._came_oftener = True
        if self.layout is None:
            if index in self._nested or _inside_checkpoint():
                self._nested.add(index)
                return
        elif not self.layout.submitted(index):
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
        for index, parameter in enumerate(self.parameters):
            gradient = parameter.grad
            if gradient is None:
                continue
            if index in layout.plan.places:
                if gradient.is_sparse and index not in self._by_name.dense:
                    surprises.append(index)
            elif index not in self._by_name.sparse or not gradient.is_sparse:
                surprises.append(index)
        return surprises

    def _make_dense(self, index: int) -> None:
        """Let a sparse gradient be sent as a dense one; optimizers get a sparse one back.

        On all ranks, also on those that never have it: they are told when it first comes.
        """
        gradient = self.parameters[index].grad
        if gradient is not None and gradient.is_sparse:
            if index not in self._by_name.made_dense:
                self._by_name.made_dense[index] = gradient.sparse_dim()
                self._untold.add(index)
            self.parameters[index].grad = gradient.to_dense()

    def _is_sparse(self, index: int) -> bool:
        gradient = self.parameters[index].grad
        return gradient is not None and gradient.is_sparse

    def _reduce_by_name(self, indices: Sequence[int], faults: Faults | None = None) -> None:
        """Reduce these gradients one by one, then lay out buckets for the next steps."""
        if self.sharding is not None:
            self._by_name.unsharded = self.sharding.reason(self.parameters)
        try:
            told = self._by_name.reduce(
                indices, self._order, faults or {}, tries_overlap=self.overlap.trying
            )
        except UnfitError:
            # On all ranks: whoever goes on begins anew, without what is left of this step.
            self.give_up()
            self.expect_anew()
            for parameter in self.parameters:
                parameter.grad = None
            raise
        self._untold.clear()
        sparse = "some gradients are sparse" if self._by_name.holds_sparse else ""
        if self.sharding is not None and (reason := told.unsharded or sparse):
            self.sharding.leave(reason, self.parameters, self.engine.rank)
            self.sharding = None
        self._lay_out(told)

    def _lay_out(self, told: RankAnswers) -> None:
        """Make the plan for the next steps, the same on every rank.

        Without one the next step goes by name, too: as long as some have joined, who could not
        make buckets, and where these cannot hold what is sent.
        """
        if not all(said["tries_overlap"] for said in told.ranks):
            # Hosts may have unequally many cores to spare.
            self.overlap.stop()
        trainable = sorted(told.indices("trainable"))
        order = [*told.ranks[0]["order"], *trainable]
        if self.layout is not None:
            order = [*self.layout.plan.places, *order]
            self.layout.buckets.close()
        fitting = set(trainable) - set(self._by_name.sparse)
        wanted = [i for i in dict.fromkeys(order) if i in fitting]
        gradients = [
            Gradient(
                index=index,
                count=self.parameters[index].numel(),
                dtype=TYPE_NAMES[self._sending.sent_as(self.parameters[index])],
                itemsize=self._sending.sent_as(self.parameters[index]).itemsize,
                group=self._sending.groups.get(index),
            )
            for index in (wanted if self._sending.in_buckets and not told.joined else ())
        ]
        while _dropped:
            _dropped.popleft().close()
        self._order.clear()
        self.layout = None
        if gradients:
            self._plans += 1
            name = f"{self._by_name.prefix}.{self._plans}"
            sharding = self.sharding
            size = {} if sharding is None else {"bucket_bytes": sharding.bucket_bytes}
            plan = make_plan(gradients, **size)
            self.layout = (Layout if sharding is None else sharding.lay_out)(
                *(self.engine, name, plan, self.parameters, self._how, self._norms),
                channels_last=told.shared("channels_last"),
            )
            if sharding is not None and sharding.layout is not self.layout:
                self.sharding = None
            self._unplaced = [p for i, p in enumerate(self.parameters) if i not in plan.places]


def reducers_of(engine: Engine) -> list[GradientReducer]:
    """Return those that reduce gradients among an engine's ranks."""
    return [reducer for reducer in _reducers if reducer.engine is engine]


def _inside_checkpoint() -> bool:
    """Say whether this backward pass runs inside that of a reentrant checkpoint."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "torch.utils.checkpoint":
            return True
        frame = frame.f_back
    return False
