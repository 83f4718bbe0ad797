"""Sharded updates: the same numbers as the ordinary path, whatever a script does to the weights."""

from __future__ import annotations

import copy
import os
import random
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import farandole.torch as hvd
from farandole.errors import (
    MismatchError,
    PeerDiedError,
    TornWeightsError,
    UnfitError,
    UsageError,
)
from farandole.testing import FakeWorld, Member, Nursery
from farandole.torch import blocks, sharded
from farandole.transport.shm import segment
from farandole.transport.shm import weights as shared_weights
from tests.torch.checks import Check, Checks, Ranks, on, raises
from tests.torch.training import batch, same_everywhere

checks = Checks()
Make = Callable[[Any], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "nesterov": lambda p: torch.optim.SGD(
        p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3
    ),
    "dampened": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3, maximize=True),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True, weight_decay=0.01),
    "fused": lambda p: torch.optim.Adam(p, lr=1e-2, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2, lr_decay=0.1),
    "adadelta": torch.optim.Adadelta,
    "adamax": torch.optim.Adamax,
    "asgd": torch.optim.ASGD,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "rprop": torch.optim.Rprop,
}


def model_of(dtype: torch.dtype = torch.float32, seed: int = 0) -> nn.Sequential:
    """Three layers; their parameters are cut at odd places, by ranks and by blocks."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(6, 41), nn.Tanh(), nn.Linear(41, 33), nn.Tanh(), nn.Linear(33, 2)
    ).to(dtype)


def wrap(model: nn.Module, make: Make, how: bool = True, **options: Any) -> Any:
    blocks.BLOCK_ELEMENTS = 320
    optimizer = make(model.parameters())
    return hvd.DistributedOptimizer(optimizer, model.named_parameters(), sharded=how, **options)


def is_sharded(optimizer: Any) -> bool:
    return optimizer._hvd.sharding is not None


def step(model: nn.Module, optimizer: Any, number: int) -> None:
    dtype = next(model.parameters()).dtype
    optimizer.zero_grad()
    model(batch(hvd.rank(), number, 4, 6).to(dtype)).square().mean().backward()
    optimizer.step()


def equal(first: Any, second: Any) -> bool:
    """Compare states, bit for bit."""
    if isinstance(first, torch.Tensor):
        same_type = isinstance(second, torch.Tensor) and first.dtype == second.dtype
        return same_type and torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(equal(first[k], second[k]) for k in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(equal, first, second))
    return bool(first == second)


class Pair:
    """A model that is trained by sharded updates, and one that goes the ordinary way."""

    def __init__(
        self, make: Make = OPTIMIZERS["adam"], dtype: torch.dtype = torch.float32, **options: Any
    ) -> None:
        self.models = [model_of(dtype), model_of(dtype)]
        self.optimizers = [
            wrap(model, make, how, **options)
            for model, how in zip(self.models, (True, False), strict=True)
        ]

    def step(self, *numbers: int) -> None:
        """Train both."""
        for number in numbers:
            for model, optimizer in zip(self.models, self.optimizers, strict=True):
                step(model, optimizer, number)

    def each(self, change: Callable[[nn.Module, Any], Any]) -> None:
        """Do the same to both."""
        for model, optimizer in zip(self.models, self.optimizers, strict=True):
            change(model, optimizer)

    def check(self, *, still: bool = True) -> None:
        """Fail unless both have the same weights and state."""
        assert is_sharded(self.optimizers[0]) == (still and hvd.size() > 1)
        first, second = (dict(model.named_parameters()) for model in self.models)
        assert equal(first, second), [n for n in first if not torch.equal(first[n], second[n])]
        mine, theirs = (optimizer.state_dict() for optimizer in self.optimizers)
        assert equal(mine, theirs), (mine, theirs)
        same_everywhere(self.models[0])


@checks.of(**OPTIMIZERS)
def check_the_numbers_of_the_ordinary_path(make: Make) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        pair = Pair(make, dtype)
        pair.step(*range(5))
        pair.check()


@checks
def check_the_same_in_blocks_of_any_size_and_many_buckets() -> None:
    nbytes = sharded.Sharding.bucket_bytes
    try:
        for elements, sharded.Sharding.bucket_bytes in ((64, nbytes), (65_536, 64), (100, 2000)):
            pair = Pair(OPTIMIZERS["amsgrad"])
            blocks.BLOCK_ELEMENTS = elements
            pair.step(*range(4))
            pair.check()
    finally:
        sharded.Sharding.bucket_bytes = nbytes


@checks
def check_rank_0_alone_saves_and_all_load() -> None:
    pair = Pair()
    pair.step(0, 1, 2)
    if hvd.rank() == 0:
        saved = [o.state_dict() for o in pair.optimizers]
        assert equal(*saved)
    saved = hvd.broadcast_object(saved[0] if hvd.rank() == 0 else None, 0)
    pair.step(3, 4)
    pair.each(lambda _, optimizer: optimizer.load_state_dict(copy.deepcopy(saved)))
    pair.check()
    pair.step(5, 6)
    pair.check()
    # Into new ones, before their first step.
    other = Pair(OPTIMIZERS["adam"])
    other.each(lambda _, optimizer: optimizer.load_state_dict(copy.deepcopy(saved)))
    other.step(0, 1)
    other.check()


@checks
def check_an_optimizer_that_is_gone_leaves_nothing() -> None:
    model = model_of()
    for _ in range(3):
        optimizer = wrap(model, OPTIMIZERS["adam"])
        step(model, optimizer, 0)
        step(model, optimizer, 1)
        assert is_sharded(optimizer) == (hvd.size() > 1)
        layout = weakref.ref(getattr(optimizer._hvd.reducer, "layout", None) or optimizer)
        del optimizer
        assert layout() is None
    same_everywhere(model)


@checks
def check_state_of_what_is_not_trained_any_longer() -> None:
    pair = Pair()
    pair.step(0, 1)
    saved = copy.deepcopy(pair.optimizers[1].state_dict())
    pair.each(lambda _, optimizer: optimizer.load_state_dict(copy.deepcopy(saved)))
    for number in (2, 3):
        for model, optimizer in zip(pair.models, pair.optimizers, strict=True):
            optimizer.zero_grad()
            # The last layer has no part in it.
            model[:4](batch(hvd.rank(), number, 4, 6)).square().mean().backward()  # type: ignore[index]
            optimizer.step()
        pair.check()


@checks
def check_state_loaded_by_one_rank_is_broadcast_or_refused() -> None:
    pair = Pair()
    pair.step(0, 1)
    saved = copy.deepcopy(pair.optimizers[1].state_dict())
    pair.step(2)
    if hvd.rank() == 0:
        pair.each(lambda _, optimizer: optimizer.load_state_dict(copy.deepcopy(saved)))
    pair.each(lambda _, optimizer: hvd.broadcast_optimizer_state(optimizer, root_rank=0))
    pair.step(3)
    pair.check()
    if hvd.size() > 1:
        if hvd.rank() == 0:
            pair.optimizers[0].load_state_dict(saved)
        with raises(MismatchError, "the optimizer's state of '", "broadcast_optimizer_state"):
            step(pair.models[0], pair.optimizers[0], 4)


@checks
def check_scheduler_groups_frozen_and_added_parameters() -> None:
    models = [model_of(), model_of()]
    optimizers = []
    for model, how in zip(models, (True, False), strict=True):
        model[0].weight.requires_grad_(False)
        groups = [
            {"params": list(model[0].parameters()), "lr": 0.01},
            {"params": list(model[2].parameters()), "weight_decay": 0.1},
        ]
        optimizer = torch.optim.Adam(groups, lr=0.02)
        optimizers.append(hvd.DistributedOptimizer(optimizer, sharded=how))
    schedulers = [torch.optim.lr_scheduler.StepLR(each, 2, gamma=0.3) for each in optimizers]

    def check(*numbers: int) -> None:
        for number in numbers:
            for model, optimizer, scheduler in zip(models, optimizers, schedulers, strict=True):
                step(model, optimizer, number)
                scheduler.step()
        assert equal(models[0].state_dict(), models[1].state_dict())
        assert equal(optimizers[0].state_dict(), optimizers[1].state_dict())
        assert is_sharded(optimizers[0]) == (hvd.size() > 1)

    check(0, 1, 2)
    for model in models:
        model[0].weight.requires_grad_(True)
        model[2].bias.requires_grad_(False)
        model[2].bias.grad = None
    check(3, 4)
    for model, optimizer in zip(models, optimizers, strict=True):
        optimizer.add_param_group({"params": list(model[4].parameters()), "lr": 0.5})
        model[2].bias.requires_grad_(True)
    # A scheduler made before does not know of it.
    schedulers[:] = [torch.optim.lr_scheduler.ConstantLR(each) for each in optimizers]
    check(5, 6)


@checks
def check_several_backward_passes_and_kept_gradients() -> None:
    pair = Pair(OPTIMIZERS["nesterov"], backward_passes_per_step=2)
    for number in range(3):
        for model, optimizer in zip(pair.models, pair.optimizers, strict=True):
            optimizer.zero_grad(set_to_none=number == 1)
            for part in range(2):
                model(batch(hvd.rank(), 2 * number + part, 4, 6)).square().mean().backward()
            optimizer.step()
    pair.check()


@checks
def check_gradients_that_only_some_ranks_have() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second, self.never = (nn.Linear(6, 3) for _ in range(3))

        def forward(self, x: torch.Tensor, number: int) -> torch.Tensor:
            chosen = self.first if (hvd.rank() + number) % 2 else self.second
            return chosen(x)

    models = [Branches(), Branches()]
    optimizers = [wrap(m, OPTIMIZERS["adam"], how) for m, how in zip(models, (1, 0), strict=True)]
    for number in range(5):
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            model(batch(hvd.rank(), number, 4, 6), number).square().mean().backward()
            optimizer.step()
    assert equal(models[0].state_dict(), models[1].state_dict())
    assert equal(optimizers[0].state_dict(), optimizers[1].state_dict())


@checks
def check_clipping_by_the_norm_over_all_ranks() -> None:
    for largest in (0.01, 100.0):
        pair = Pair(OPTIMIZERS["sgd"], torch.float64, max_grad_norm=largest)
        model = model_of(torch.float64)
        other = wrap(model, OPTIMIZERS["sgd"], False)
        for number in range(4):
            pair.step(number)
            other.zero_grad()
            model(batch(hvd.rank(), number, 4, 6).double()).square().mean().backward()
            other.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), largest)
            with other.skip_synchronize():
                other.step()
        for parameters in zip(*(each.parameters() for each in (*pair.models, model)), strict=True):
            # Norms are added up in another order.
            torch.testing.assert_close(parameters[0], parameters[1], rtol=1e-12, atol=1e-14)
            assert torch.equal(parameters[1], parameters[2])
        assert is_sharded(pair.optimizers[0]) == (hvd.size() > 1)
    with raises(UsageError, "max_grad_norm=0"):
        wrap(model_of(), OPTIMIZERS["sgd"], max_grad_norm=0)


@checks
def check_channels_last_and_a_closure() -> None:
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        conv = nn.Sequential(nn.Conv2d(3, 5, 3), nn.Flatten(), nn.Linear(80, 2))
        models.append(conv.to(memory_format=torch.channels_last))
    optimizers = [wrap(m, OPTIMIZERS["adam"], how) for m, how in zip(models, (1, 0), strict=True)]
    for number in range(4):
        for model, optimizer in zip(models, optimizers, strict=True):

            def closure(model: nn.Module = model, number: int = number) -> torch.Tensor:
                model.zero_grad()
                loss = model(batch(hvd.rank(), number, 2, 3, 6, 6)).square().mean()
                loss.backward()
                return loss

            assert optimizer.step(closure).requires_grad
    assert equal(models[0].state_dict(), models[1].state_dict())
    assert equal(optimizers[0].state_dict(), optimizers[1].state_dict())
    assert models[0][0].weight.is_contiguous(memory_format=torch.channels_last)


# What a script may do to weights outside of step(): to each of a pair, alike on all ranks.


def _mul(model: nn.Module, chance: random.Random) -> None:
    with torch.no_grad():
        model[0].weight.mul_(chance.uniform(0.5, 1.5))


def _clamp(model: nn.Module, chance: random.Random) -> None:
    for parameter in model.parameters():
        parameter.data.clamp_(-0.1, 0.1)


def _numpy(model: nn.Module, chance: random.Random) -> None:
    model[2].weight.detach().numpy()[chance.randrange(33), 1:3] = chance.random()


def _load(model: nn.Module, chance: random.Random) -> None:
    model.load_state_dict(model_of(seed=chance.randrange(9)).state_dict())


def _broadcast(model: nn.Module, chance: random.Random) -> None:
    _mul(model, chance)
    hvd.broadcast_parameters(model.state_dict(), root_rank=hvd.size() - 1)


def _swap(model: nn.Module, chance: random.Random) -> None:
    """Evaluate other weights on rank 0 alone, as with an average of weights, and go back."""
    if hvd.rank() == 0:
        kept = {name: value.clone() for name, value in model.state_dict().items()}
        model.load_state_dict(model_of(seed=5).state_dict())
        assert equal(model.state_dict(), model_of(seed=5).state_dict())
        model.load_state_dict(kept)


def _swap_data(model: nn.Module, chance: random.Random) -> None:
    """The same through .data, on all ranks."""
    kept = [parameter.data for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.data = torch.zeros_like(parameter)
    assert not any(parameter.any() for parameter in model.parameters())
    for parameter, data in zip(model.parameters(), kept, strict=True):
        parameter.data = data


def fork() -> int:
    with warnings.catch_warnings():
        # Python's, of threads that a child does not have.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _fork(model: nn.Module, chance: random.Random) -> None:
    """A child changes weights: that is no business of ours."""
    child = fork()
    if child == 0:
        with torch.no_grad():
            model[0].weight.zero_()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def _nothing(model: nn.Module, chance: random.Random) -> None:
    del model, chance


def _data(model: nn.Module, chance: random.Random) -> None:
    model[4].weight.data = model[4].weight.data * 0.9


CHANGES = (_mul, _clamp, _numpy, _load, _broadcast, _swap, _swap_data, _fork, _nothing)


@checks.of(**{f"seed_{seed}": seed for seed in range(6)})
def check_changes_outside_of_step(seed: int) -> None:
    chance = random.Random(seed)
    pair = Pair(OPTIMIZERS["nesterov" if seed % 2 else "adam"])
    moved = False
    for number in range(8):
        for change in chance.sample(CHANGES, 2) if number != 6 or seed else [_data]:
            moved |= change is _data
            draw = chance.random()
            for model in pair.models:
                change(model, random.Random(draw))
        pair.step(number)
        pair.check(still=not moved)


@checks
def check_changes_by_one_rank_are_refused_by_name() -> None:
    if hvd.size() == 1:
        return
    for by in (0, hvd.size() - 1):
        pair = Pair()
        pair.step(0, 1)
        if hvd.rank() == by:
            pair.models[0][2].bias.data[3] += 1
        with raises(MismatchError, "the weights of '2.bias'", "in the same way on every rank"):
            step(pair.models[0], pair.optimizers[0], 2)
        # Nothing was updated: put right, training goes on.
        if hvd.rank() == by:
            pair.models[0][2].bias.data[:] = pair.models[1][2].bias.data
        pair.step(2)
        pair.check()


@checks
def check_weights_and_options_that_differ_between_ranks() -> None:
    if hvd.size() == 1:
        return
    model = model_of(seed=hvd.rank())
    optimizer = wrap(model, OPTIMIZERS["sgd"])
    with raises(MismatchError, "the weights of '0.weight' on rank", "broadcast_parameters"):
        step(model, optimizer, 0)
    pair = Pair()
    pair.step(0, 1)
    pair.optimizers[0].param_groups[0]["lr"] = 0.1 * (1 + hvd.rank())
    with raises(MismatchError, "the optimizer's options", "averaged"):
        step(pair.models[0], pair.optimizers[0], 2)
    pair.optimizers[0].param_groups[0]["lr"] = pair.optimizers[1].param_groups[0]["lr"]
    pair.step(2)
    pair.check()
    with raises(MismatchError, "DistributedOptimizer's sharded"):
        alone = model_of()
        step(alone, wrap(alone, OPTIMIZERS["sgd"], hvd.rank() == 0), 0)


@checks
def check_what_cannot_be_sharded_goes_the_ordinary_way() -> None:
    class Mine(torch.optim.SGD):
        pass

    model = model_of()
    refused = [
        wrap(model, lambda p: Mine(p, lr=0.1)),
        wrap(model, torch.optim.LBFGS),
        wrap(model, OPTIMIZERS["sgd"], compression=hvd.Compression.fp16),
        wrap(model, OPTIMIZERS["sgd"], op=hvd.Adasum),
        wrap(model, lambda p: torch.optim.SGD(p, lr=0.1, differentiable=True)),
    ]
    assert not any(map(is_sharded, refused))
    Mine.elementwise = True  # type: ignore[attr-defined]
    pair = Pair(lambda p: Mine(p, lr=0.1, momentum=0.5))
    pair.step(0, 1, 2)
    pair.check()


@checks
def check_an_optimizer_with_numbers_and_new_tensors_in_its_state() -> None:
    class Mine(torch.optim.Optimizer):
        elementwise = True

        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, {"lr": 0.1})

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        state = self.state[parameter]
                        state["calls"] = state.get("calls", 0) + 1
                        state["mean"] = 0.5 * state.get("mean", 0) + parameter.grad
                        parameter -= group["lr"] / state["calls"] * state["mean"]

    pair = Pair(Mine)
    pair.step(0, 1, 2)
    pair.check()
    assert pair.optimizers[0].state_dict()["state"][0]["calls"] == 3


@checks
def check_momentum_that_begins_later() -> None:
    pair = Pair(OPTIMIZERS["sgd"])
    pair.step(0, 1)
    pair.each(lambda _, optimizer: optimizer.param_groups[0].update(momentum=0.9))
    pair.step(2, 3, 4)
    pair.check()


@checks
def check_a_script_that_synchronizes_goes_on_unsharded() -> None:
    pair = Pair()
    pair.step(0, 1)

    def clipped(model: nn.Module, optimizer: Any) -> None:
        optimizer.zero_grad()
        model(batch(hvd.rank(), 2, 4, 6)).square().mean().backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        with optimizer.skip_synchronize():
            optimizer.step()

    pair.each(clipped)
    pair.check(still=False)
    pair.step(3)
    pair.check(still=False)


@checks
def check_views_of_each_other_and_sparse_gradients() -> None:
    whole = torch.zeros(8)
    parameters = [nn.Parameter(whole[:4]), nn.Parameter(whole[4:])]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1), sharded=True)
    embedding = nn.Embedding(10, 4, sparse=True)
    other = wrap(embedding, OPTIMIZERS["sgd"])
    for _ in range(2):
        sum(p.sum() for p in parameters).backward()
        optimizer.step()
        embedding(torch.tensor([hvd.rank()])).sum().backward()
        other.step()
        optimizer.zero_grad()
        other.zero_grad()
    assert not is_sharded(optimizer)
    assert not is_sharded(other)
    assert torch.allclose(whole, torch.full((8,), -0.2))


@checks
def check_a_gradient_of_another_shape_is_refused() -> None:
    if hvd.size() == 1:
        return
    pair = Pair()
    pair.step(0, 1)
    model, optimizer = pair.models[0], pair.optimizers[0]
    model(batch(hvd.rank(), 2, 4, 6)).sum().backward()
    if hvd.rank() == 0:
        model[2].bias.grad = None
        model[2].bias.grad = torch.zeros(33)
        model[2].bias.grad.data = torch.zeros(7)
    with raises(UnfitError, "'2.bias' on rank 0", "[7]"):
        optimizer.step()
    pair.optimizers[1].zero_grad()
    pair.step(2)
    pair.check()


@checks
def check_a_graph_from_before_an_update_is_refused() -> None:
    pair = Pair()
    pair.step(0, 1)
    model, optimizer = pair.models[0], pair.optimizers[0]
    optimizer.zero_grad()
    loss = model(batch(hvd.rank(), 2, 4, 6)).square().mean()
    loss.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@checks
def check_a_child_sees_the_weights_as_they_were() -> None:
    pair = Pair()
    pair.step(0, 1)
    before = [p.detach().clone() for p in pair.models[0].parameters()]
    ready = os.pipe()
    child = fork()
    if child == 0:
        os.read(ready[0], 1)
        os._exit(0 if all(map(torch.equal, before, pair.models[0].parameters())) else 1)
    pair.step(2, 3)
    os.write(ready[1], b"x")
    assert os.waitpid(child, 0)[1] == 0
    for fd in ready:
        os.close(fd)
    pair.check()


@checks
def check_too_little_memory_for_the_weights() -> None:
    pair = Pair()
    available = segment._available_bytes
    segment._available_bytes = lambda: 100.0

    def plenty(*arguments: Any, **options: Any) -> Any:
        segment._available_bytes = available
        return layout(*arguments, **options)

    layout, sharded.Layout = sharded.Layout, plenty  # type: ignore[misc]
    try:
        pair.step(0)
    finally:
        segment._available_bytes, sharded.Layout = available, layout  # type: ignore[misc]
    pair.step(1)
    pair.check(still=False)


@checks
def check_join_and_skip_synchronize_are_refused() -> None:
    if hvd.size() == 1:
        return
    pair = Pair()
    pair.step(0)
    with raises(UsageError, "hvd.join() does not go together with sharded=True"):
        hvd.join()
    with raises(UsageError, "nothing to skip"), pair.optimizers[0].skip_synchronize():
        pair.optimizers[0].step()


ranks = on((2, "auto"), (3, "auto"))
one_or_four = on((1, "auto"), (4, "auto"))
pytestmark = pytest.mark.ranks


@checks.each()
def test_sharded(ranks: Ranks, check: Check) -> None:
    ranks.run(check)


def test_one_rank_and_four(one_or_four: Ranks) -> None:
    for name in ("sgd", "adam", "adagrad"):
        one_or_four.run(partial(check_the_numbers_of_the_ordinary_path, OPTIMIZERS[name]))
    one_or_four.run(check_rank_0_alone_saves_and_all_load)
    one_or_four.run(partial(check_changes_outside_of_step, 1))
    one_or_four.run(check_clipping_by_the_norm_over_all_ranks)


def test_memory_that_is_written_to_becomes_a_process_s_own(nursery: Nursery) -> None:
    def pages(member: Member) -> None:
        weights = shared_weights.SharedWeights(
            member.rank, 2, member.exchange, [(5000, "float32"), (10, "float64")]
        )
        assert weights.pages() is None
        if member.rank == 0:
            weights.shared[0][...] = 1
        member.exchange(b"")
        assert weights.mine[0].sum() == 5000
        if member.rank == 1:
            weights.mine[0][3000] = 7
            (page,) = weights.pages()  # type: ignore[misc]
            assert page == 3000 * 4 // 4096
            own = weights.pages()
            assert own is not None
            assert weights.written(2900, 3100, own, 0)
            assert not weights.written(3001, 3100, own, 0)
            assert not weights.written(0, 10, own, 1)
        member.exchange(b"")
        assert weights.shared[0][3000] == 1
        assert weights.mine[0][3000] == (7 if member.rank == 1 else 1)
        weights.forget()
        assert weights.mine[0][3000] == 1
        assert weights.pages() is None
        weights.close()

    with FakeWorld(2, nursery=nursery) as world:
        world.run(pages)


def _torn(member: Member) -> None:
    hvd.init()
    pair = Pair()
    pair.step(0, 1)
    model, optimizer = pair.models[0], pair.optimizers[0]
    if member.rank == 1:
        optimizer._hvd.reducer.layout._fabric.reduce = lambda *_: os._exit(3)
    with pytest.raises(PeerDiedError):
        step(model, optimizer, 2)
    for use in (optimizer.state_dict, optimizer.step, optimizer.synchronize):
        with raises(TornWeightsError, "Start again from your last checkpoint"):
            use()


def test_weights_of_a_broken_update_are_torn(nursery: Nursery) -> None:
    with FakeWorld(3, nursery=nursery) as world:
        world.start(_torn)
        world.finish([0, 2])
