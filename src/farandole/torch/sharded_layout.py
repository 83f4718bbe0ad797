"""One plan of sharded updates: memory of gradients, weights and state, and one step after another.

Rank r owns the r-th part of every bucket. It adds up everybody's gradients of that part block by
block, and updates each block's weights while the sum is in its cache. A hook copies only those
stretches of a gradient that other ranks fold; `p.grad` stays this rank's own. The state of a block
is its owner's, in memory that the other ranks can read.

Nothing is updated before all ranks are ready and agree.
"""

from __future__ import annotations

import hashlib
import json
import math
import weakref
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import torch

from farandole.engine.buckets import REPLAN, Plan
from farandole.engine.engine import Engine
from farandole.engine.signature import named
from farandole.errors import MismatchError, PeerDiedError, StepsDifferError, UnsupportedError
from farandole.recorder.noise import Norms, squared_norm
from farandole.torch import blocks
from farandole.torch.blocks import Block, BlockOptimizer, cut
from farandole.torch.layout import Faults, Layout, of_another_shape, view_like
from farandole.torch.operations import TYPE_NAMES, buffer_of, view_of
from farandole.transport.reduction import STORAGE, Array, Reduction, fold, small_fold
from farandole.transport.shm.segment import Fabric, SegmentError, round_up
from farandole.transport.shm.weights import SharedWeights

if TYPE_CHECKING:
    from farandole.torch.sharded import Sharding

Memory = Union["SharedWeights", "_Held"]
"""What an engine closes if nobody else does."""

_CHANGED = 8 | REPLAN
"""Flags: a script has changed weights on this rank."""
_STATE = "state"
_GRADIENT = attrgetter("grad")
_ASK = (torch.Tensor.data_ptr, torch.Tensor.stride, torch.Tensor.numel, attrgetter("dtype"))


class ShardedLayout(Layout):
    """One plan with the memory of its gradients, weights and state."""

    def __init__(
        self,
        sharding: Sharding,
        engine: Engine,
        name: str,
        plan: Plan,
        parameters: Sequence[torch.nn.Parameter],
        how: Reduction,
        norms: Norms,
        *,
        channels_last: Collection[int] = (),
    ) -> None:
        """Allocate; all ranks do so together (see Layout)."""
        self._engine, self._name, self._sharding, self._how = engine, name, sharding, how
        self.weights = weights = SharedWeights(
            engine.rank, engine.size, engine.exchange, plan.shapes, numbers=engine.ranks
        )
        try:
            super().__init__(
                *(engine, name, plan, parameters, how, norms), channels_last=channels_last
            )
        except SegmentError:
            weights.close()
            raise
        self.memory: list[Memory] = [weights]
        """What is closed when these weights are no longer trained."""
        engine.adopt(weights)
        self._fabric = self.buckets.in_one_memory
        assert self._fabric is not None
        # The buckets must not keep their layout.
        update = weakref.WeakMethod(self._update)
        self._fabric.reduce = lambda *arguments: update()(*arguments)  # type: ignore[misc]
        self._flags = 0
        self._submissions: list[tuple[int, Sequence[int] | None]] = []
        self._own: dict[int, Array | None] = {}
        """By parameter: this rank's gradient in the order of memory, None if all of it is in the
        bucket."""
        self._started: set[int] = set()
        """Parameters that have been updated before, and whose state is published."""
        self._disagree = False
        self._squares = 0.0
        """Of my part of the averaged gradients, where they are clipped."""
        self._scale: float | None = None
        """By what clipping multiplies the gradients, once that is known."""
        self._digest: tuple[str, int] = "", 0
        self._read_by_others: list[tuple[dict[str, Any], str, Any]] = []
        """State of my blocks, its key and its place in the memory that others read."""
        self._published: dict[tuple[int, int], dict[str, Any]] = {}
        """State of everybody's blocks, by parameter and begin."""
        self._prepare(parameters, channels_last)

    def _prepare(
        self, parameters: Sequence[torch.nn.Parameter], channels_last: Collection[int]
    ) -> None:
        plan, rank, fabric = self.plan, self._engine.rank, self._fabric
        assert fabric is not None
        self.homes: dict[int, torch.Tensor] = {}
        """Where the weights of each parameter lie, as scripts see them."""
        self._outside: dict[int, list[tuple[slice, torch.Tensor]]] = {}
        """What others fold of each parameter: where in its gradient, and its place."""
        self._blocks: list[Block] = []
        self._mine: list[list[Block]] = [[] for _ in plan.shapes]
        groups = {
            id(p): number
            for number, group in enumerate(self._sharding.optimizer.param_groups)
            for p in group["params"]
        }
        scratch: dict[str, Array] = {}
        for bucket, members in enumerate(plan.members):
            dtype = plan.shapes[bucket][1]
            room = scratch.setdefault(dtype, np.zeros(blocks.BLOCK_ELEMENTS, STORAGE[dtype]))
            shared = self.weights.shared[bucket]
            for index in members:
                at, count = plan.places[index].offset, parameters[index].numel()
                mine = view_of(self.weights.mine[bucket][at : at + count], dtype)
                self.homes[index] = view_like(mine, 0, parameters[index], index in channels_last)
                flat = view_of(fabric.arrays[bucket][at : at + count], dtype)
                begin, end = fabric.chunk(bucket, rank)
                begin, end = max(begin, at) - at, min(end, at + count) - at
                parts = [slice(0, count)] if begin >= end else [slice(0, begin), slice(end, count)]
                self._outside[index] = [(s, flat[s]) for s in parts if s.start < s.stop]
                for block in cut(fabric, bucket, index, at, count, self._engine.size):
                    self._blocks.append(block)
                    if block.rank != rank:
                        continue
                    block.group = groups[id(parameters[index])]
                    where = slice(at + block.begin, at + block.end)
                    block.parameter = torch.nn.Parameter(view_of(shared[where], dtype))
                    block.sources = [data[bucket][where] for data in fabric.data]
                    block.target = block.sources[rank]
                    block.gradient = view_of(block.target, dtype)
                    block.scratch = room[: block.end - block.begin]
                    self._mine[bucket].append(block)
        self.homes = {index: self.homes[index] for index in plan.places}
        own = [block for some in self._mine for block in some]
        self._updates = BlockOptimizer(self._sharding.optimizer, own)
        self._geometry_of_homes = [list(map(ask, self.homes.values())) for ask in _ASK]

    def places_in(self, parameters: Sequence[torch.nn.Parameter]) -> Iterator[torch.nn.Parameter]:
        """Return the parameters of this plan."""
        return (parameters[index] for index in self.homes)

    def fill(self, state: Mapping[torch.nn.Parameter, Mapping[str, Any]]) -> None:
        """Put weights and state in; all ranks do so together, and have the same."""
        parameters = self._parameters
        with torch.no_grad():
            for block in (block for blocks in self._mine for block in blocks):
                parameter = parameters[block.index]
                flat = _flat(parameter, self.homes[block.index])
                block.parameter.copy_(flat[block.begin : block.end])
                values = self._updates.state(block) if state.get(parameter) else {}
                for key, value in state.get(parameter, {}).items():
                    part = isinstance(value, torch.Tensor) and value.shape == parameter.shape
                    if part and value.dim():
                        whole = _flat(value, self.homes[block.index])
                        value = whole[block.begin : block.end].clone()
                    elif isinstance(value, torch.Tensor):
                        value = value.clone()
                    values[key] = value
        # Nobody reads the weights before all are there.
        self._engine.exchange(b"", f"{self._name}.filled")
        for index, home in self.homes.items():
            parameters[index].data = home

    def part(self, parameters: Sequence[torch.nn.Parameter], but: Collection[int] = ()) -> None:
        """Let parameters that lie here have memory of their own, and let go of the rest."""
        for index, home in self.homes.items():
            parameter = parameters[index]
            if index not in but and parameter.data_ptr() == home.data_ptr():
                parameter.data = parameter.data.clone()
        for each in self.memory:
            self._engine.release(each)
            each.close()
        self.memory.clear()

    # A step.

    def take(self, index: int, parameter: torch.Tensor) -> bool:
        """Copy what others need of a gradient; nothing is sent before all have come."""
        gradient = parameter.grad
        if gradient is None or gradient.is_sparse or index not in self.plan.places:
            return False
        if gradient.shape == parameter.shape:
            self._copy(index, gradient)
        return False

    def _copy(self, index: int, gradient: torch.Tensor) -> None:
        home = self._homes[index]
        if gradient.layout != torch.strided or gradient.stride() != home.stride():
            self._write(index, gradient)
            self._own[index] = None
        else:
            flat = gradient.detach().as_strided((gradient.numel(),), (1,))
            for where, place in self._outside[index]:
                place.copy_(flat[where])
            self._own[index] = buffer_of(flat).data
        self._taken[index] = gradient, gradient._version

    def in_place(self) -> bool:
        """Say whether all gradients were copied and stand, and no script has changed weights."""
        self._flags = self._asks()
        taken = list(map(self._taken.get, self.plan.places))
        return (
            self._flags == 0
            and None not in taken
            and all(
                gradient is one[0] and gradient._version == one[1]
                for gradient, one in zip(map(_GRADIENT, self._placed), taken, strict=True)
                if one is not None
            )
        )

    def _asks(self) -> int:
        """Return the flags of a rank whose weights are not what the updates have made them."""
        options = self._sharding.options()
        if options != self._digest[0]:
            self._digest = options, zlib.crc32(options.encode())
        self.weights.words[self._engine.rank][0] = self._digest[1]
        if not self._updates.fits:
            return REPLAN
        if self._sharding.leaving or self._sharding.loaded:
            return REPLAN
        if [list(map(ask, self._placed)) for ask in _ASK] != self._geometry_of_homes:
            moved = next(
                index
                for index, home in self.homes.items()
                if any(ask(self._parameters[index]) != ask(home) for ask in _ASK)
            )
            name = self._sharding.names[moved]
            self._sharding.leave_for(f"the script has given {name!r} other memory")
            return REPLAN
        return _CHANGED if self._changed() else 0

    def _changed(self) -> list[int]:
        """Return the parameters that a script has changed on this rank."""
        pages = self.weights.pages()
        if pages is None:
            self.weights.kept = False
            return []
        found = []
        for index, home in self.homes.items():
            place = self.plan.places[index]
            ends = place.offset, place.offset + home.numel()
            if self.weights.written(*ends, pages, place.bucket):
                found.append(index)
        if not found:
            # Changed and put back, or made for a child.
            self.weights.forget()
        return found

    def faults(self) -> Faults:
        """Find gradients that cannot be used."""
        return {
            index: of_another_shape(gradient, home)
            for index, home in self._homes.items()
            if (gradient := self._parameters[index].grad) is not None
            and gradient.shape != home.shape
        }

    def submit_in_place(self) -> None:
        """Submit all buckets."""
        self._submissions = [(bucket, None) for bucket in range(len(self.plan.members))]
        self._send(0)

    def submit_rest(
        self,
        parameters: Sequence[torch.nn.Parameter],
        flags: int,
        sparse: Collection[int],
        faults: Collection[int] = (),
    ) -> None:
        """Submit all buckets; missing gradients count as zero (see Layout)."""
        self._submissions = []
        for bucket, members in enumerate(self.plan.members):
            present = []
            for position, index in enumerate(members):
                gradient = parameters[index].grad
                if gradient is None or index in faults:
                    self._homes[index].zero_()
                    self._own[index] = None
                    continue
                one = self._taken.get(index)
                if one is None or one[0] is not gradient or one[1] != gradient._version:
                    self._copy(index, gradient)
                if index not in sparse:
                    present.append(position)
            everything = len(present) == len(members)
            self._submissions.append((bucket, None if everything else present))
        # A rank that wants another plan has no use for the agreement on changed weights.
        self._send(REPLAN if REPLAN in (flags, self._flags) else flags | self._flags)

    def _send(self, flags: int) -> None:
        # In every bucket: either all are updated or none.
        for bucket, present in self._submissions:
            self._submit(bucket, present, flags)

    def finish(self, parameters: Sequence[torch.nn.Parameter]) -> tuple[int, ...] | None:
        """Wait for the update.

        Returns:
            None, or all members if a rank wants another plan: nothing was updated then.
        """
        try:
            updated = self._finish()
        except (StepsDifferError, MismatchError):
            # Nobody has begun.
            self._begin_step()
            raise
        except PeerDiedError:
            assert self._fabric is not None
            self._sharding.torn |= self._fabric.begun_by_all(self.step.number)
            raise
        except BaseException:
            # Others go on, without this rank's part.
            self._sharding.torn = True
            raise
        self._begin_step()
        if updated is None:
            return tuple(self.plan.places)
        self._finished(updated)
        return None

    def _finish(self) -> set[int] | None:
        """Wait; return the parameters that were updated."""
        while True:
            present = [self.step.wait(bucket) for bucket in range(len(self.plan.members))]
            asked = [flags for flags in self.step.said if flags & REPLAN]
            if not asked:
                break
            self.step.end()
            if any(flags & _CHANGED != _CHANGED for flags in asked):
                return None
            self._adopt()
            self._send(0)
        if self._disagree:
            self._disagree = False
            self.step.end()
            self._compare_options()
        if self._sharding.max_norm is not None:
            # All have folded their parts. As torch.nn.utils.clip_grad_norm_ has it:
            norm = math.sqrt(sum(square[0] for square in self.weights.squares))
            self._scale = min(self._sharding.max_norm / (norm + 1e-6), 1.0)
            self.step.end()
            self._send(0)
            present = [self.step.wait(bucket) for bucket in range(len(self.plan.members))]
        updated = {index for members in present for index in members or ()}
        if updated - self._started:
            self.publish(updated - self._started)
        self.step.end()
        return updated

    def _begin_step(self) -> None:
        super()._begin_step()
        # Who sets gradients to None gets their memory back.
        self._own.clear()
        self._squares, self._scale = 0.0, None

    def _finished(self, updated: Collection[int]) -> None:
        """Let autograd know that weights have changed."""
        self._sharding.torn, self._sharding.updated = False, True
        if self.weights.kept:
            # Made for a child while others updated them.
            self.weights.forget()
        torch.autograd.graph.increment_version([self._parameters[i] for i in updated])

    def _compare_options(self) -> None:
        compare(
            self._engine,
            f"{self._name}.options",
            {"the optimizer's options": self._sharding.options()},
            "Change them in the same way on every rank, as by a metric that hvd.allreduce has "
            "averaged.",
        )

    def _adopt(self) -> None:
        """Put what scripts have changed into the shared memory, if it is the same on all ranks."""
        changed = self._changed()
        mine = {
            f"the weights of {self._sharding.names[i]!r}": digest_of(self._parameters[i])
            for i in changed
        }
        compare(
            self._engine,
            f"{self._name}.changed",
            mine,
            "A script that changes weights outside of optimizer.step() must change them in the "
            "same way on every rank.",
        )
        for index in changed:
            for block in self._blocks:
                if block.index == index and block.rank == self._engine.rank:
                    flat = _flat(self.homes[index], self.homes[index])
                    with torch.no_grad():
                        block.parameter.copy_(flat[block.begin : block.end])
        self._engine.exchange(b"", f"{self._name}.adopted")
        self.weights.forget()

    def _update(self, bucket: int, how: Reduction, said: list[int], notes: list[Array]) -> None:
        """Fold my part of a bucket, and update its weights; all ranks are ready."""
        if len({word[0] for word in self.weights.words}) > 1:
            self._disagree = True
            return
        some = set(self.plan.members[bucket])
        if not all(len(note) == 0 for note in notes):
            some = set(self.step.noted(bucket, notes))
        rank, dtype = self._engine.rank, self.plan.shapes[bucket][1]
        blocks = [block for block in self._mine[bucket] if block.index in some]
        folding = self._sharding.max_norm is not None and self._scale is None
        if folding:
            for block in blocks:
                fold(self._sources(block, rank), [block.target], dtype, how)
                self._squares += squared_norm(block.target, dtype)
            self.weights.squares[rank][0] = self._squares
            return
        self._sharding.torn = True
        folded = small_fold(dtype, how, self._engine.size)
        options = self._updates.options()
        with torch.no_grad():
            for block in blocks:
                if self._scale is not None:
                    block.gradient.mul_(self._scale)
                    block.scratch[...] = block.target
                elif block.run is None:
                    fold(self._sources(block, rank), [block.target], dtype, how)
                else:
                    folded(self._sources(block, rank), block.scratch)
                if block.run is not None:
                    block.run(**options[block.group])
            self._step([block for block in blocks if block.run is None])

    def _sources(self, block: Block, rank: int) -> list[Array]:
        """Return everybody's gradients of a block, mine from where backward has put them."""
        own = self._own.get(block.index)
        if own is None:
            return block.sources
        sources = [*block.sources]
        sources[rank] = own[block.begin : block.end]
        return sources

    def _step(self, blocks: Sequence[Block]) -> None:
        """Update blocks by the optimizer's own step."""
        if blocks:
            self._updates.step(blocks)
        for state, key, place in self._read_by_others:
            if not isinstance(place, torch.Tensor):
                place[0] = state[key]
            elif state[key] is not place:
                # An optimizer that makes a new tensor in each step.
                place.copy_(state[key])
                state[key] = place

    def update_averaged(self) -> None:
        """Update by the averages in `p.grad`, which every rank has for itself in this step."""
        present = [i for i in self.homes if self._parameters[i].grad is not None]
        late = [b for blocks in self._mine for b in blocks if b.index in set(present)]
        self._sharding.torn = True
        with torch.no_grad():
            for block in late:
                gradient = self._parameters[block.index].grad
                assert gradient is not None
                flat = _flat(gradient, self.homes[block.index])
                block.gradient.copy_(flat[block.begin : block.end])
            self._step(late)
        # Also to wait for the others.
        self.publish(set(present) - self._started)
        self._finished(present)

    # State.

    def publish(self, indices: Collection[int]) -> None:
        """Move the state of my blocks of these parameters to where the others can read it.

        All ranks do so together, and have updated these blocks before.
        """
        table: list[list[Any]] = []
        end, blocks, unfit = 0, {}, ""
        for block in (b for each in self._mine for b in each if b.index in indices):
            blocks[block.index, block.begin] = block
            for key, value in self._updates.state(block).items():
                if value is None:
                    continue
                number = isinstance(value, int | float)
                if not number and not (
                    isinstance(value, torch.Tensor)
                    and (value.dim() == 0 or value.shape == block.parameter.shape)
                ):
                    unfit = key
                    continue
                dtype = type(value).__name__ if number else TYPE_NAMES[value.dtype]
                shape = [] if number else list(value.shape)
                table.append([block.index, block.begin, key, dtype, shape, end])
                end += round_up(8 if number else value.nbytes)
        said = json.dumps([end, table, unfit]).encode()
        answers = self._engine.exchange(said, f"{self._name}.state")
        everyone = [json.loads(answer) for answer in answers]
        if found := [key for *_, key in everyone if key]:
            raise UnsupportedError(
                f"sharded=True: {self._updates.kind.__name__} keeps a state that is not one number "
                f"for each element, {found[0]!r}. Use sharded=False."
            )
        room = max(end for end, *_ in everyone)
        if room:
            self._share_state(room, [table for _, table, _ in everyone], blocks)
        for block in blocks.values():
            self._updates.prepare(block)
        self._started.update(indices)

    def _share_state(
        self,
        room: int,
        tables: Sequence[Sequence[Sequence[Any]]],
        blocks: Mapping[tuple[int, int], Block],
    ) -> None:
        engine = self._engine
        fabric = Fabric.open(
            engine.rank, engine.size, engine.exchange, {_STATE: room}, numbers=engine.ranks
        )
        held = _Held(fabric)
        engine.adopt(held)
        self.memory.append(held)
        for rank, table in enumerate(tables):
            for index, begin, key, dtype, shape, offset in table:
                kind = {"int": "int64", "float": "float64", "bool": "bool"}.get(dtype, dtype)
                count = int(np.prod(shape)) if shape else 1
                array = fabric.array(rank, _STATE, offset, count, STORAGE[kind])
                value: Any = array if dtype != kind or dtype == "bool" else None
                if value is None:
                    value = view_of(array, dtype).view(shape)
                self._published.setdefault((index, begin), {})[key] = value
                if rank != engine.rank:
                    continue
                state = self._updates.state(blocks[index, begin])
                if isinstance(value, torch.Tensor):
                    value.copy_(state[key])
                    state[key] = value
                else:
                    value[0] = state[key]
                self._read_by_others.append((state, key, value))

    def state_of(self, index: int) -> dict[str, Any]:
        """Return the whole state of a parameter: everybody's blocks, read where they are."""
        whole: dict[str, Any] = {}
        home = self.homes[index]
        for block in self._blocks:
            if block.index != index:
                continue
            published = self._published.get((index, block.begin))
            if published is None and block.rank == self._engine.rank:
                published = self._updates.state(block)
            for key, value in (published or {}).items():
                if isinstance(value, np.ndarray):
                    whole[key] = value[0].item()
                elif value is None or value.dim() == 0:
                    whole[key] = None if value is None else value.clone()
                else:
                    if key not in whole:
                        whole[key] = torch.empty_strided(
                            home.shape, home.stride(), dtype=value.dtype
                        )
                    _flat(whole[key], home)[block.begin : block.end] = value
        return whole


class _Held:
    """State of everybody's blocks."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric

    def waiting(self) -> dict[str, None]:
        """Return nothing: nobody waits for memory."""
        return {}

    def close(self) -> None:
        """Leave; tensors that still point into the memory keep it."""
        self._fabric.close()


def compare(engine: Engine, name: str, mine: Mapping[str, str], advice: str) -> None:
    """Raise MismatchError on all ranks unless all say the same of everything."""
    answers = engine.exchange(json.dumps(mine).encode(), name)
    everyone = dict(zip(engine.ranks, map(json.loads, answers), strict=True))
    for what in dict.fromkeys(key for said in everyone.values() for key in said):
        who: dict[str, list[int]] = {}
        for rank, said in everyone.items():
            who.setdefault(said.get(what, ""), []).append(rank)
        if len(who) > 1:
            first, *others = who.values()
            there = ", ".join(named(ranks) for ranks in others)
            raise MismatchError(
                f"sharded=True: {what} on {there} differ from those on {named(first)}, but all "
                f"ranks of a host share one copy. {advice}"
            )


def _flat(tensor: torch.Tensor, home: torch.Tensor) -> torch.Tensor:
    """Return a tensor's elements in the order in which `home` has them in memory."""
    if tensor.stride() != home.stride():
        tensor = torch.empty_strided(home.shape, home.stride(), dtype=tensor.dtype).copy_(
            tensor.detach()
        )
    return tensor.detach().as_strided((tensor.numel(),), (1,))


def digest_of(tensor: torch.Tensor) -> str:
    """Return a short text that tells values apart."""
    values = buffer_of(tensor.detach().contiguous().reshape(-1)).data
    return hashlib.blake2b(values.view(np.uint8), digest_size=8).hexdigest()
