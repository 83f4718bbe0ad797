"""Sharded updates: each rank updates its part of the weights, which a host has once.

Here is what may be sharded, what an optimizer shares from plan to plan, and how it goes back to the
ordinary way. `sharded_layout` has one plan and its steps, `blocks` what is updated at once, and
transport.shm.weights the memory that all ranks of a host read.
"""

from __future__ import annotations

import sys
import weakref
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from farandole.engine.buckets import Plan
from farandole.engine.engine import Engine
from farandole.errors import TornWeightsError
from farandole.recorder.noise import Norms
from farandole.recorder.recorder import current
from farandole.torch.layout import Layout, in_channels_last
from farandole.torch.sharded_layout import Memory, ShardedLayout, compare, digest_of
from farandole.transport.reduction import Reduction
from farandole.transport.shm.segment import SegmentError
from farandole.transport.shm.weights import supported
from farandole.world.generations import membership

ELEMENTWISE = frozenset(
    {
        torch.optim.Adadelta,
        torch.optim.Adagrad,
        torch.optim.Adam,
        torch.optim.AdamW,
        torch.optim.Adamax,
        torch.optim.ASGD,
        torch.optim.NAdam,
        torch.optim.RAdam,
        torch.optim.RMSprop,
        torch.optim.Rprop,
        torch.optim.SGD,
    }
)
"""Optimizers that treat each element by itself. Others say so by `elementwise = True`."""
BUCKET_BYTES = sys.maxsize
"""One bucket for each type: each rank owns one stretch of it."""

_SHARED = (
    "Updates were sharded: the workers of a host share one copy of the weights, so that comparing "
    "their weights says nothing."
)


class Sharding:
    """What one optimizer shares with the other ranks, from plan to plan."""

    def __init__(self, optimizer: torch.optim.Optimizer, max_norm: float | None = None) -> None:
        self._optimizer = weakref.ref(optimizer)
        self.max_norm = max_norm
        """To what norm averaged gradients are clipped."""
        self.names: list[str] = []
        """Of the parameters."""
        self.layout: ShardedLayout | None = None
        self.torn = False
        """Whether an update was broken off: some weights are new and others old."""
        self.updated = False
        """Whether this step's update is done."""
        self._reason = ""
        self.loaded = False
        """Whether the optimizer was given another state than the blocks have."""

    bucket_bytes = BUCKET_BYTES
    """How large buckets are."""

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """What is sharded; it holds on to this."""
        optimizer = self._optimizer()
        assert optimizer is not None
        return optimizer

    def check_whole(self) -> None:
        """Raise TornWeightsError if an update was broken off."""
        if self.torn:
            raise TornWeightsError(
                "An update of sharded weights was broken off, because a worker ended or this one "
                "was interrupted: some weights are new and others old. Start again from your last "
                "checkpoint."
            )

    def leave_for(self, reason: str) -> None:
        """Go on without sharding from the next step on, for a reason."""
        self._reason = self._reason or reason

    @property
    def leaving(self) -> bool:
        """Whether this rank wants to go on without sharding."""
        return bool(self._reason)

    def reason(self, parameters: Sequence[torch.nn.Parameter]) -> str:
        """Return why these parameters cannot be sharded; empty if they can."""
        if self._reason:
            return self._reason
        homes = {} if self.layout is None else self.layout.homes
        for index, parameter in enumerate(parameters):
            if index not in homes and (why := _unfit(parameter)):
                return f"{self.names[index]!r} {why}"
        return ""

    def state_of(self, index: int, parameter: torch.nn.Parameter) -> dict[str, Any]:
        """Return the whole state of a parameter."""
        own = self.optimizer.state.get(parameter)
        if own or self.loaded or self.layout is None or index not in self.layout.homes:
            return own or {}
        return self.layout.state_of(index)

    def whole_state(self, parameters: Sequence[torch.nn.Parameter]) -> Any:
        """Return the state of all parameters as the optimizer itself would have it."""
        whole: Any = defaultdict(dict)
        for index, parameter in enumerate(parameters):
            if state := self.state_of(index, parameter):
                whole[parameter] = state
        return whole

    def lay_out(
        self,
        engine: Engine,
        name: str,
        plan: Plan,
        parameters: Sequence[torch.nn.Parameter],
        how: Reduction,
        norms: Norms,
        *,
        channels_last: Collection[int] = (),
    ) -> Layout:
        """Share the weights of a plan; all ranks do so together.

        Raises:
            MismatchError: on all ranks: weights, state or options differ between them.
        """
        made = (engine, name, plan, parameters, how, norms)
        state = self.whole_state(parameters)
        self._compare(engine, name, {i: parameters[i] for i in sorted(plan.places)}, state)
        try:
            layout = ShardedLayout(self, *made, channels_last=channels_last)
        except SegmentError as error:
            reason = f"there is not enough shared memory ({str(error).rstrip('.')})"
            self.leave(reason, parameters, engine.rank)
            return Layout(*made, channels_last=channels_last)
        layout.fill(state)
        layout.publish([i for i in plan.places if state.get(parameters[i])])
        old, self.layout = self.layout, layout
        for parameter in layout.places_in(parameters):
            self.optimizer.state.pop(parameter, None)
        if old is not None:
            old.part(parameters, but=layout.homes)
            for index, parameter in enumerate(parameters):
                if index not in layout.homes and state.get(parameter):
                    self.optimizer.state[parameter] = state[parameter]
        self.loaded = False
        recorder = current()
        if recorder is not None:
            recorder.note(_SHARED)
        return layout

    def leave(self, reason: str, parameters: Sequence[torch.nn.Parameter], rank: int) -> None:
        """Give every rank all weights and all state for itself; all ranks do so together."""
        self.optimizer.state = self.whole_state(parameters)
        if self.layout is not None:
            self.layout.part(parameters)
            self.layout = None
        if rank == 0:
            say(reason)

    def close(self) -> list[Memory]:
        """Let go of the layout; return what holds its memory, to be closed."""
        layout, self.layout = self.layout, None
        return [] if layout is None else layout.memory

    def update_averaged(self) -> None:
        """Update by the averages in `p.grad`, which every rank has for itself in this step."""
        assert self.layout is not None
        self.layout.update_averaged()

    def options(self) -> str:
        """Return the optimizer's options, which must be the same on every rank."""
        defaults = self.optimizer.defaults
        return repr(
            [
                [(key, _plain(group.get(key))) for key in defaults]
                for group in self.optimizer.param_groups
            ]
        )

    def _compare(
        self,
        engine: Engine,
        name: str,
        placed: Mapping[int, torch.nn.Parameter],
        state: Mapping[torch.nn.Parameter, Mapping[str, Any]],
    ) -> None:
        """Raise MismatchError unless all ranks have the same weights, state and options."""
        mine = {"the optimizer's options": self.options()}
        for index, parameter in placed.items():
            mine[f"the weights of {self.names[index]!r}"] = digest_of(parameter)
            values = state.get(parameter, {})
            mine[f"the optimizer's state of {self.names[index]!r}"] = " ".join(
                f"{key} {digest_of(value) if isinstance(value, torch.Tensor) else value!r}"
                for key, value in sorted(values.items())
            )
        compare(
            engine,
            f"{name}.compare",
            mine,
            "Call hvd.broadcast_parameters(model.state_dict(), root_rank=0) and "
            "hvd.broadcast_optimizer_state(optimizer, root_rank=0) before training.",
        )


def refusal(engine: Engine, optimizer: torch.optim.Optimizer, *, compressed: bool) -> str:
    """Return why an optimizer cannot be sharded among these ranks; empty if it can."""
    kind = type(optimizer)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if membership() is not None:
        return "weights that workers share are lost with one of them, and this run is elastic"
    if engine.transport.eager is None:
        return "the workers do not all share one host's memory"
    if kind not in ELEMENTWISE and not getattr(kind, "elementwise", False):
        known = ", ".join(sorted(each.__name__ for each in ELEMENTWISE))
        return (
            f"{kind.__name__} is not known to treat each element by itself, as {known} do (set "
            f"{kind.__name__}.elementwise = True if it does)"
        )
    if any(p.device.type != "cpu" for p in parameters):
        return "parameters on a GPU cannot be shared between processes"
    if any(group.get("differentiable") for group in optimizer.param_groups):
        return "differentiable=True needs each update's history"
    if compressed:
        return "compression= changes gradients on their way"
    if not supported():
        return "this system does not tell which memory a script has changed (/proc/self/pagemap)"
    return ""


def say(reason: str) -> None:
    """Say once that updates are not sharded, and why."""
    sys.stderr.write(f"farandole: sharded=True: {reason}. Each worker updates all weights.\n")


def _plain(value: Any) -> Any:
    """Return an option as `repr` shows it alike on every rank."""
    return value.tolist() if isinstance(value, torch.Tensor) else value


def _unfit(parameter: torch.nn.Parameter) -> str:
    """Return why a parameter cannot lie in shared memory; empty if it can."""
    if not parameter.requires_grad:
        return ""
    if type(parameter.data) is not torch.Tensor or parameter.layout != torch.strided:
        return "is no plain tensor"
    if parameter.device.type != "cpu":
        return f"is on {parameter.device}"
    if not parameter.is_contiguous() and not in_channels_last(parameter):
        return "does not lie in memory in one piece"
    storage = parameter.untyped_storage()
    if storage.nbytes() != parameter.nbytes or _users(storage) > 1:
        return "shares its memory with another tensor"
    return ""


def _users(storage: torch.UntypedStorage) -> int:
    """Return how many tensors use a storage."""
    count = getattr(torch._C, "_storage_Use_Count", None)
    # One of them is the Python object that was asked for here.
    return 1 if count is None else int(count(storage._cdata)) - 1
