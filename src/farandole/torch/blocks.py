"""The blocks of weights that a rank updates, and the optimizer that updates them.

It is a copy of the script's, with blocks for parameters: its own step() makes the state of each
block. From then on torch's function of the optimizer is called for one block after another, which
gives the same numbers while a block is in the cache.
"""

from __future__ import annotations

import inspect
import sys
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import torch

from farandole.torch.operations import TYPE_NAMES, view_of
from farandole.transport.reduction import Array

# What a block's gradient, weights and temporaries take stays in a core's own cache.
BLOCK_ELEMENTS = 65_536
_SWITCHES = ("momentum", "amsgrad", "centered", "foreach", "fused", "capturable")
"""Options that decide which state there is: another value needs blocks made anew."""

# What torch's functions call the state of its optimizers.
_STATE_KEYS = {
    "exp_avgs": "exp_avg",
    "exp_avg_sqs": "exp_avg_sq",
    "max_exp_avg_sqs": "max_exp_avg_sq",
    "square_avgs": "square_avg",
    "grad_avgs": "grad_avg",
    "momentum_buffer_list": "momentum_buffer",
    "state_sums": "sum",
    "state_steps": "step",
}
_FAST = frozenset(
    {
        torch.optim.Adagrad,
        torch.optim.Adam,
        torch.optim.AdamW,
        torch.optim.RMSprop,
        torch.optim.SGD,
    }
)
"""Those whose functions are called for each block; others step once for all blocks."""


class Block:
    """A stretch of a parameter that one rank updates at once."""

    __slots__ = (
        "begin",
        "end",
        "gradient",
        "group",
        "index",
        "parameter",
        "rank",
        "run",
        "scratch",
        "sources",
        "target",
    )

    def __init__(self, rank: int, index: int, begin: int, end: int) -> None:
        self.rank = rank
        """Whose it is."""
        self.index = index
        """The parameter's."""
        self.begin, self.end = begin, end
        """Elements of the parameter, in the order of memory."""
        self.group = 0
        # Of mine only:
        self.parameter: torch.nn.Parameter
        """The weights, for the optimizer that updates blocks."""
        self.sources: list[Array]
        """Everybody's gradients in the bucket."""
        self.target: Array
        """Where the folded gradient goes if it must last: my own place in the bucket."""
        self.gradient: torch.Tensor
        """The same as a tensor."""
        self.scratch: Array
        """Where it goes else."""
        self.run: Callable[..., None] | None = None
        """Updates the block by the gradient in `scratch`; None: by the optimizer's own step."""


class BlockOptimizer:
    """Updates blocks as a script's optimizer would update whole parameters."""

    def __init__(self, outer: torch.optim.Optimizer, blocks: Sequence[Block]) -> None:
        """Begin without state; `outer` is the script's, which is derived from its own class."""
        self._outer = weakref.ref(outer)
        kind: type[torch.optim.Optimizer] = type(outer).__mro__[1]
        self._inner = inner = object.__new__(kind)
        inner.__dict__.update(
            {k: v for k, v in outer.__dict__.items() if k not in ("_hvd", "step")}
        )
        hooks = [key for key in inner.__dict__ if key.endswith("_hooks")]
        inner.__dict__.update({key: OrderedDict() for key in hooks})
        inner.state = defaultdict(dict)
        inner.param_groups = [
            {**group, "params": [block.parameter for block in blocks if block.group == number]}
            for number, group in enumerate(outer.param_groups)
        ]
        self.kind: Any = kind
        """The script's optimizer's own class."""
        # Without the hooks that torch puts around it, which the script's own step() calls.
        self._step: Callable[[Any], Any] = inspect.unwrap(
            kind.step, stop=lambda step: not hasattr(step, "hooked")
        )
        self._switches = self._switched()

    @property
    def fits(self) -> bool:
        """Whether the script's options still ask for the state that the blocks have."""
        return self._switched() == self._switches

    def state(self, block: Block) -> dict[str, Any]:
        """Return the state of a block."""
        state: dict[str, Any] = self._inner.state[block.parameter]
        return state

    def step(self, blocks: Sequence[Block]) -> None:
        """Update blocks by the optimizer's own step and the gradients in the bucket."""
        for inner, outer in zip(self._inner.param_groups, self._groups(), strict=True):
            inner.update({key: value for key, value in outer.items() if key != "params"})
        for block in blocks:
            block.parameter.grad = block.gradient
        self._step(self._inner)
        for block in blocks:
            block.parameter.grad = None

    def options(self) -> list[dict[str, Any]]:
        """Return the options of each group, as torch's function takes them."""
        return [_options_of(self.kind, group) for group in self._groups()]

    def prepare(self, block: Block) -> None:
        """Let torch's function update a block that has its state, where it has such a function."""
        if self.kind not in _FAST or block.parameter.is_complex():
            return
        function, names = _function_of(self.kind)
        state = self.state(block)
        tensors: dict[str, list[Any]] = {
            names[0]: [block.parameter.detach()],
            names[1]: [view_of(block.scratch, TYPE_NAMES[block.parameter.dtype])],
        }
        for name, key in _STATE_KEYS.items():
            if name in names:
                # SGD without momentum has a list of none.
                none: list[Any] = [None] if name == "momentum_buffer_list" else []
                tensors[name] = [state[key]] if state.get(key) is not None else none
        block.run = partial(function, **tensors)

    def _groups(self) -> list[dict[str, Any]]:
        """Return the script's groups; their options may have changed."""
        outer = self._outer()
        assert outer is not None
        return outer.param_groups

    def _switched(self) -> list[list[bool]]:
        return [[bool(group.get(key)) for key in _SWITCHES] for group in self._groups()]


def cut(fabric: Any, bucket: int, index: int, at: int, count: int, size: int) -> Iterator[Block]:
    """Cut a parameter into everybody's blocks."""
    for rank in range(size):
        begin, end = fabric.chunk(bucket, rank)
        begin, end = max(begin - at, 0), min(end - at, count)
        for start in range(begin, end, BLOCK_ELEMENTS):
            yield Block(rank, index, start, min(start + BLOCK_ELEMENTS, end))


@lru_cache
def _function_of(kind: Any) -> tuple[Callable[..., None], list[str]]:
    """Return torch's function of an optimizer, and its arguments' names."""
    function = getattr(sys.modules[kind.__module__], kind.__name__.lower())
    return function, list(inspect.signature(function).parameters)


def _options_of(kind: Any, group: Mapping[str, Any]) -> dict[str, Any]:
    """Return a group's options as torch's function of this optimizer takes them."""
    if kind not in _FAST:
        return {}
    known = {key: value for key, value in group.items() if key != "params"}
    if "betas" in group:
        known["beta1"], known["beta2"] = group["betas"]
    if group.get("foreach") is None and group.get("fused") is None:
        # What the function finds out for itself on a CPU, in every call.
        known |= {"foreach": False, "fused": False}
    return {name: known[name] for name in _function_of(kind)[1] if name in known}
