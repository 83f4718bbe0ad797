"""Averaging gradients: whatever a model does, every rank gets the average."""

from __future__ import annotations

import gc
import os
import time
import warnings
import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import farandole.torch as hvd
from farandole.engine.loop import process_loop
from farandole.errors import MismatchError, UsageError
from farandole.transport.shm.buckets import SharedBuckets
from tests.torch.checks import Check, Checks, Ranks, on, raises
from tests.torch.training import (
    batch,
    close,
    expected_gradients,
    gradients,
    same_everywhere,
    small_buckets,
    train_step,
)

checks = Checks()


def mlp(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 2)
    )


def sgd(model: nn.Module, **options: Any) -> Any:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options)


def squares(step: int) -> Any:
    return lambda model, rank: model(batch(rank, step, 4, 6)).square().mean()


def both_sizes_of_buckets() -> Iterator[None]:
    for buckets in (nullcontext, small_buckets):
        with buckets():
            yield


@checks
def check_plain_steps() -> None:
    for _ in both_sizes_of_buckets():
        model = mlp()
        optimizer = sgd(model)
        for step in range(5):
            train_step(model, optimizer, squares(step))


@checks
def check_step_synchronizes_by_itself() -> None:
    for _ in both_sizes_of_buckets():
        model, other = mlp(), mlp()
        optimizer = sgd(model)
        plain = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
        for step in range(4):
            expected = expected_gradients(other, squares(step))
            for name, parameter in other.named_parameters():
                parameter.grad = expected[name]
            plain.step()
            optimizer.zero_grad()
            squares(step)(model, hvd.rank()).backward()
            optimizer.step()
            for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
                assert torch.allclose(mine, theirs, rtol=1e-5, atol=1e-7)
        same_everywhere(model)


class Branches(nn.Module):
    """Layers of which a step uses only some."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))

    def forward(self, x: torch.Tensor, used: list[int]) -> torch.Tensor:
        return sum(self.layers[i](x).square().mean() for i in used) + 0 * x.sum()


@checks
def check_gradients_missing_on_some_ranks_or_all() -> None:
    # Layer 0 is used by all, 1 by rank 0, 2 by the last rank, 3 by nobody; in the end by all.
    def used_by(rank: int, step: int) -> list[int]:
        used = [0] + [1] * (rank == 0) + [2] * (rank == hvd.size() - 1)
        if step == 3:
            return [3]
        return used if step % 2 == 0 else used[1:]

    for _ in both_sizes_of_buckets():
        model = Branches()
        optimizer = sgd(model)
        for step in range(6):
            train_step(
                model,
                optimizer,
                lambda model, rank, step=step: model(batch(rank, step, 4, 6), used_by(rank, step)),
            )


@checks
def check_a_rank_without_any_gradient() -> None:
    for _ in both_sizes_of_buckets():
        model = mlp()
        optimizer = sgd(model)
        for step in range(5):
            idle = (step + 1) % hvd.size()
            train_step(
                model,
                optimizer,
                lambda model, rank, step=step, idle=idle: (
                    torch.zeros(()) if rank == idle else squares(step)(model, rank)
                ),
            )


@checks
def check_a_step_without_any_backward() -> None:
    for _ in both_sizes_of_buckets():
        model = mlp()
        optimizer = sgd(model)
        for step in range(4):
            optimizer.zero_grad()
            if step % 2:
                squares(step)(model, hvd.rank()).backward()
            before = [p.clone() for p in model.parameters()]
            optimizer.step()
            moved = any(
                not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)
            )
            assert moved == bool(step % 2)
            if step % 2 == 0:
                assert all(p.grad is None for p in model.parameters())
        same_everywhere(model)


@checks
def check_ranks_that_go_backward_in_different_orders() -> None:
    for _ in both_sizes_of_buckets():
        model = Branches()
        optimizer = sgd(model)
        for step in range(4):
            expected = expected_gradients(
                model, lambda model, rank, step=step: model(batch(rank, step, 4, 6), [0, 1, 2, 3])
            )
            optimizer.zero_grad()
            order = [0, 1, 2, 3] if (hvd.rank() + step) % 2 else [3, 2, 1, 0]
            for layer in order:
                model(batch(hvd.rank(), step, 4, 6), [layer]).backward()
            optimizer.synchronize()
            close(gradients(model), expected)
            with optimizer.skip_synchronize():
                optimizer.step()
        same_everywhere(model)


@checks
def check_all_ways_to_reset_gradients() -> None:
    def by_hand(model: nn.Module, _: Any) -> None:
        for parameter in model.parameters():
            parameter.grad = None

    for reset in (
        lambda model, _: model.zero_grad(),
        lambda model, _: model.zero_grad(set_to_none=False),
        by_hand,
        lambda _, optimizer: optimizer.zero_grad(),
        lambda _, optimizer: optimizer.zero_grad(set_to_none=True),
        lambda _, optimizer: optimizer.zero_grad(set_to_none=False),
        lambda _, optimizer: optimizer.zero_grad(False),
    ):
        for _ in both_sizes_of_buckets():
            model = mlp()
            optimizer = sgd(model)
            for step in range(4):
                expected = expected_gradients(model, squares(step))
                reset(model, optimizer)
                squares(step)(model, hvd.rank()).backward()
                optimizer.synchronize()
                close(gradients(model), expected)
                with optimizer.skip_synchronize():
                    optimizer.step()
            same_everywhere(model)


@checks
def check_gradients_that_are_not_reset_add_up() -> None:
    for _ in both_sizes_of_buckets():
        model = mlp()
        optimizer = sgd(model)
        total = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
        for step in range(4):
            for name, gradient in expected_gradients(model, squares(step)).items():
                total[name] += gradient
            squares(step)(model, hvd.rank()).backward()
            optimizer.synchronize()
            close(gradients(model), total)
            with optimizer.skip_synchronize():
                optimizer.step()


@checks
def check_a_gradient_taken_away_before_synchronize_counts_as_missing() -> None:
    model = mlp()
    optimizer = sgd(model)
    for step in range(3):
        expected = expected_gradients(model, squares(step))
        mine = torch.autograd.grad(squares(step)(model, hvd.rank()), [model[0].weight])[0]
        optimizer.zero_grad()
        squares(step)(model, hvd.rank()).backward()
        if hvd.rank() == 0:
            model[0].weight.grad = None
        share = hvd.broadcast(mine, 0) / hvd.size()
        optimizer.synchronize()
        expected["0.weight"] = expected["0.weight"] - share
        close(gradients(model), expected)


@checks
def check_channels_last() -> None:
    for _ in both_sizes_of_buckets():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3, groups=2), nn.Conv2d(4, 2, 1)
        ).to(memory_format=torch.channels_last)
        optimizer = sgd(model)
        for step in range(4):
            train_step(
                model,
                optimizer,
                lambda model, rank, step=step: (
                    model(batch(rank, step, 2, 3, 8, 8).to(memory_format=torch.channels_last))
                    .square()
                    .mean()
                ),
            )
        assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
        assert model[0].weight.grad.stride() == model[0].weight.stride()


@checks
def check_mixed_types_in_one_model() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.single = nn.Linear(6, 5)
            self.wide = nn.Linear(5, 4, dtype=torch.float64)
            self.again = nn.Linear(4, 3)
            self.scale = nn.Parameter(torch.tensor(1.5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.wide(self.single(x).double())
            return self.again(x.float()) * self.scale

    for _ in both_sizes_of_buckets():
        model = Mixed()
        optimizer = sgd(model)
        for step in range(4):
            train_step(model, optimizer, squares(step))


@checks
def check_bfloat16_gradients_round_once() -> None:
    torch.manual_seed(0)
    model = nn.Linear(6, 3).bfloat16()
    optimizer = sgd(model)
    for step in range(3):
        optimizer.zero_grad()
        model(batch(hvd.rank(), step, 4, 6).bfloat16()).square().mean().backward()
        everyone = hvd.allgather(model.weight.grad.float()[None])
        optimizer.synchronize()
        total = everyone[0]
        for row in everyone[1:]:
            total = total + row
        assert torch.equal(model.weight.grad, (total / hvd.size()).bfloat16())
        with optimizer.skip_synchronize():
            optimizer.step()
    same_everywhere(model)


@checks
def check_sum_instead_of_average() -> None:
    for _ in both_sizes_of_buckets():
        model = mlp()
        optimizer = sgd(model, op=hvd.Sum)
        for step in range(3):
            expected = expected_gradients(model, squares(step))
            optimizer.zero_grad()
            squares(step)(model, hvd.rank()).backward()
            optimizer.synchronize()
            close(gradients(model), {name: g * hvd.size() for name, g in expected.items()})


@checks
def check_several_backward_passes_per_step() -> None:
    for _ in both_sizes_of_buckets():
        model = Branches()
        optimizer = sgd(model, backward_passes_per_step=3)
        for step in range(4):
            # The layers 1 and 2 take part in some of the passes only.
            uses = [[0, 1, 3], [0, 3], [0, 2, 3]]

            def total(model: nn.Module, rank: int, step: int = step, uses: Any = uses) -> Any:
                return sum(
                    model(batch(rank, 10 * step + i, 4, 6), used) for i, used in enumerate(uses)
                )

            expected = expected_gradients(model, total)
            optimizer.zero_grad()
            for i, used in enumerate(uses):
                model(batch(hvd.rank(), 10 * step + i, 4, 6), used).backward()
            optimizer.synchronize()
            close(gradients(model), expected)
            with optimizer.skip_synchronize():
                optimizer.step()
        same_everywhere(model)


@checks
def check_the_number_of_passes_may_change() -> None:
    for _ in both_sizes_of_buckets():
        model = mlp()
        optimizer = sgd(model)
        for passes in (1, 1, 2, 2, 1, 1):
            optimizer.set_backward_passes_per_step(passes)
            expected = expected_gradients(
                model,
                lambda model, rank, n=passes: sum(squares(i)(model, rank) for i in range(n)),
            )
            optimizer.zero_grad()
            for i in range(passes):
                squares(i)(model, hvd.rank()).backward()
            optimizer.synchronize()
            close(gradients(model), expected)
            with optimizer.skip_synchronize():
                optimizer.step()


@checks
def check_one_backward_pass_too_many() -> None:
    for early_steps in (0, 2):
        with small_buckets():
            model = mlp()
            optimizer = sgd(model)
            for step in range(early_steps):
                train_step(model, optimizer, squares(step))
            optimizer.zero_grad()
            squares(0)(model, hvd.rank()).backward()
            with raises(AssertionError, "more than 1 time(s)", "backward_passes_per_step"):
                squares(0)(model, hvd.rank()).backward()
            optimizer.synchronize()


@checks
def check_frozen_and_thawed_layers() -> None:
    for _ in both_sizes_of_buckets():
        model = mlp()
        model[2].requires_grad_(False)
        optimizer = sgd(model)
        frozen = model[2].weight.clone()
        for step in range(10):
            if step == 3:
                assert torch.equal(model[2].weight, frozen)
                model[2].requires_grad_(True)
            if step == 6:
                model[0].requires_grad_(False)
                optimizer.zero_grad()
            if step == 8:
                model[0].requires_grad_(True)
            train_step(model, optimizer, squares(step))
        assert not torch.equal(model[2].weight, frozen)


@checks
def check_a_layer_thawed_on_one_rank_first() -> None:
    for _ in both_sizes_of_buckets():
        for first in (0, hvd.size() - 1):
            model = mlp()
            model[0].requires_grad_(False)
            optimizer = sgd(model)
            for step in range(8):
                if step == (2 if hvd.rank() == first else 5):
                    model[0].requires_grad_(True)
                train_step(model, optimizer, squares(step))


@checks
def check_everything_frozen() -> None:
    model = mlp().requires_grad_(False)
    optimizer = sgd(model)
    for step in range(4):
        if step == 2:
            model[4].requires_grad_(True)
        train_step(model, optimizer, squares(step))


@checks
def check_two_optimizers() -> None:
    for _ in both_sizes_of_buckets():
        torch.manual_seed(0)
        maker, judge = nn.Linear(3, 6), mlp()
        optimizers = [sgd(maker), sgd(judge)]
        for step in range(4):
            # The judge learns first, and the maker learns through a judge that is frozen.
            made = maker(batch(hvd.rank(), step, 4, 3)).detach()
            train_step(
                judge,
                optimizers[1],
                lambda judge, rank, made=made, step=step: (
                    judge(made).square().mean() - judge(batch(rank, step, 4, 6)).mean()
                ),
            )
            judge.requires_grad_(False)
            train_step(
                maker,
                optimizers[0],
                lambda maker, rank, step=step, judge=judge: (
                    -judge(maker(batch(rank, step, 4, 3))).mean()
                ),
            )
            judge.requires_grad_(True)
        same_everywhere(maker)


@checks
def check_two_optimizers_that_see_each_others_backward() -> None:
    for _ in both_sizes_of_buckets():
        torch.manual_seed(0)
        maker, judge = nn.Linear(3, 6), mlp()
        of_maker, of_judge = sgd(maker), sgd(judge)
        for step in range(4):
            expected = expected_gradients(
                maker,
                lambda maker, rank, step=step, judge=judge: judge(
                    maker(batch(rank, step, 4, 3))
                ).mean(),
            )
            of_maker.zero_grad()
            judge(maker(batch(hvd.rank(), step, 4, 3))).mean().backward()
            of_maker.synchronize()
            close(gradients(maker), expected)
            with of_maker.skip_synchronize():
                of_maker.step()
            # The maker's backward pass went through the judge: its gradients are on their way.
            with raises(AssertionError, "zero_grad() was called after loss.backward()"):
                of_judge.zero_grad()
            of_judge.synchronize()
            train_step(judge, of_judge, squares(step))
        same_everywhere(maker)


class Shared(nn.Module):
    """One weight, used outside of a checkpoint and twice in it."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.shared, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2)
        self.reentrant = reentrant
        self.plain = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.shared(self.first(x)).tanh()
        for _ in range(2):
            # autograd.grad, which says what to expect, cannot go through a reentrant checkpoint.
            x = self.block(x) if self.plain else self._checkpointed(x)
        return self.last(self.shared(x))

    def block(self, x: torch.Tensor) -> torch.Tensor:
        return self.shared(self.shared(x).tanh())

    def _checkpointed(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.block, x, use_reentrant=self.reentrant)


@checks
def check_shared_weights_under_checkpointing() -> None:
    for reentrant in (False, True):
        for _ in both_sizes_of_buckets():
            model = Shared(reentrant)
            optimizer = sgd(model)
            for step in range(5):
                model.plain = True
                expected = expected_gradients(model, squares(step))
                model.plain = False
                optimizer.zero_grad()
                squares(step)(model, hvd.rank()).backward()
                optimizer.synchronize()
                close(gradients(model), expected)
                with optimizer.skip_synchronize():
                    optimizer.step()
            same_everywhere(model)


@checks
def check_tied_weights() -> None:
    for _ in both_sizes_of_buckets():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, 2))
        model[2].weight = model[0].weight
        optimizer = sgd(model)
        for step in range(4):
            train_step(model, optimizer, squares(step))


@checks
def check_clipping_while_a_peer_is_slow() -> None:
    for _ in both_sizes_of_buckets():
        model = mlp()
        optimizer = sgd(model)
        for step in range(8):
            expected = expected_gradients(model, squares(step))
            norm = torch.cat([g.flatten() for g in expected.values()]).norm()
            optimizer.zero_grad()
            squares(step)(model, hvd.rank()).backward()
            if hvd.rank() == step % hvd.size():
                time.sleep(0.01)
            optimizer.synchronize()
            clipped = nn.utils.clip_grad_norm_(model.parameters(), norm / 2)
            assert torch.allclose(clipped, norm, rtol=1e-4)
            factor = norm / 2 / (clipped + 1e-6)
            close(gradients(model), {name: g * factor for name, g in expected.items()})
            with optimizer.skip_synchronize():
                optimizer.step()
        same_everywhere(model)


class SlowWord:
    """A word in shared memory whose owner is put to sleep when it has stored it."""

    def __init__(self, word: memoryview) -> None:
        self._word = word

    def __setitem__(self, index: int, value: int) -> None:
        self._word[index] = value
        time.sleep(0.05)

    def __getitem__(self, index: int) -> int:
        return self._word[index]


@checks
def check_results_are_not_touched_before_the_slowest_has_read_them() -> None:
    """One rank stalls after its share is reduced and before it reads the others' shares, while
    these, done with waiting, wipe out their gradients at once."""
    make = SharedBuckets.__init__
    slow = hvd.size() - 1

    def make_slow(self: Any, rank: int, *arguments: Any) -> None:
        make(self, rank, *arguments)
        if rank == slow:
            self._reduced[rank] = [SlowWord(word) for word in self._reduced[rank]]

    SharedBuckets.__init__ = make_slow
    try:
        # Buckets of a size that gives every rank a share.
        model = nn.Linear(64, 64)
        hvd.broadcast_parameters(model.state_dict(), 0)
        optimizer = sgd(model)
        for step in range(4):

            def loss(model: nn.Module, rank: int, step: int = step) -> torch.Tensor:
                return model(batch(rank, step, 2, 64)).square().mean()

            expected = expected_gradients(model, loss)
            optimizer.zero_grad()
            loss(model, hvd.rank()).backward()
            optimizer.synchronize()
            if hvd.rank() == slow:
                close(gradients(model), expected)
            else:
                for parameter in model.parameters():
                    parameter.grad.fill_(float("nan"))
            hvd.barrier()
            if hvd.rank() == slow:
                close(gradients(model), expected)
    finally:
        SharedBuckets.__init__ = make


@checks
def check_scaler_and_autocast_by_horovods_recipe() -> None:
    for buckets in (nullcontext, small_buckets):
        for kind, options in (
            (torch.optim.SGD, {"momentum": 0.9}),
            (torch.optim.Adam, {}),
            (torch.optim.Adam, {"fused": True}),
        ):
            with buckets():
                model = mlp()
                optimizer = hvd.DistributedOptimizer(
                    kind(model.parameters(), lr=0.01, **options), model.named_parameters()
                )
                scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
                _train_with_scaler(model, optimizer, scaler)


def _train_with_scaler(model: nn.Module, optimizer: Any, scaler: Any) -> None:
    skipped = 2
    for step in range(5):

        def loss(model: nn.Module, rank: int, step: int = step) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return model(batch(rank, step, 4, 6)).float().square().mean()

        expected = expected_gradients(model, loss)
        before = [p.detach().clone() for p in model.parameters()]
        optimizer.zero_grad()
        value = loss(model, hvd.rank())
        if step == skipped and hvd.rank() == 0:
            # An overflow on one rank: all of them must see it and leave the step out.
            value = value * float("inf")
        scaler.scale(value).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        if step != skipped:
            got = gradients(model)
            for name, gradient in expected.items():
                assert torch.allclose(got[name], gradient, rtol=0.05, atol=1e-3)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
        same = [torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)]
        assert all(same) if step == skipped else not any(same), (step, same)
        same_everywhere(model)
    assert scaler.get_scale() == 512.0


@checks
def check_foreach_and_fused_optimizers() -> None:
    for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
        for options in ({"foreach": True}, {"fused": True}, {"foreach": False}):
            model, other = mlp(), mlp()
            optimizer = hvd.DistributedOptimizer(
                kind(model.parameters(), lr=0.01, **options), model.named_parameters()
            )
            plain = kind(other.parameters(), lr=0.01)
            for step in range(3):
                expected = expected_gradients(other, squares(step))
                for name, parameter in other.named_parameters():
                    parameter.grad = expected[name]
                plain.step()
                optimizer.zero_grad()
                squares(step)(model, hvd.rank()).backward()
                optimizer.step()
                for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
                    assert torch.allclose(mine, theirs, rtol=1e-3, atol=1e-5)
            same_everywhere(model)


@checks
def check_compiled_models() -> None:
    for _ in both_sizes_of_buckets():
        model = mlp()
        compiled = torch.compile(model, backend="aot_eager")
        optimizer = sgd(model)
        for step in range(3):
            expected = expected_gradients(model, squares(step))
            optimizer.zero_grad()
            squares(step)(compiled, hvd.rank()).backward()
            optimizer.synchronize()
            close(gradients(model), expected)
            with optimizer.skip_synchronize():
                optimizer.step()
        same_everywhere(model)


@checks
def check_backward_that_keeps_a_graph() -> None:
    for _ in both_sizes_of_buckets():
        model = mlp()
        optimizer = sgd(model)
        for step in range(4):
            expected = expected_gradients(model, squares(step))
            optimizer.zero_grad()
            inputs = list(model.parameters())
            loss = squares(step)(model, hvd.rank())
            with torch.autograd.graph.save_on_cpu():
                torch.autograd.backward(loss, retain_graph=True, inputs=inputs)
            optimizer.synchronize()
            close(gradients(model), expected)
            assert all(not p.grad.requires_grad for p in inputs)
            with optimizer.skip_synchronize():
                optimizer.step()


@checks
def check_gradients_with_a_history_of_their_own() -> None:
    for _ in both_sizes_of_buckets():
        model = mlp()
        optimizer = sgd(model)
        for step in range(4):
            expected = expected_gradients(model, squares(step))
            optimizer.zero_grad()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns of a cycle that keeps memory
                squares(step)(model, hvd.rank()).backward(create_graph=True)
            optimizer.synchronize()
            close(gradients(model), expected)
            with optimizer.skip_synchronize():
                optimizer.step()
        same_everywhere(model)


@checks
def check_overlap_with_backward() -> None:
    for setting in ("on", "off", "auto"):
        hvd.shutdown()
        os.environ["FARANDOLE_OVERLAP"] = setting
        try:
            hvd.init()
        finally:
            del os.environ["FARANDOLE_OVERLAP"]
        with small_buckets():
            model = mlp()
            optimizer = sgd(model)
            # Long enough for "auto" to try both and to decide.
            for step in range(30):
                train_step(model, optimizer, squares(step))


@checks
def check_named_operations_amid_training() -> None:
    with small_buckets():
        model = mlp()
        optimizer = sgd(model)
        for step in range(5):
            expected = expected_gradients(model, squares(step))
            optimizer.zero_grad()
            early = hvd.allreduce_async(torch.ones(50_000), name="early", op=hvd.Sum)
            loss = squares(step)(model, hvd.rank())
            loss.backward()
            mean = hvd.allreduce(loss.detach(), name="loss")
            assert torch.isfinite(mean)
            optimizer.synchronize()
            close(gradients(model), expected)
            assert hvd.synchronize(early)[0] == hvd.size()
            with optimizer.skip_synchronize():
                optimizer.step()


@checks
def check_models_that_differ() -> None:
    first = hvd.rank() == 0
    for make, *words in (
        (lambda: nn.Linear(6, 2 if first else 3), "'weight'", "float32[2, 6]", "float32[3, 6]"),
        (lambda: nn.Linear(6, 2).to(torch.float32 if first else torch.float64), "float64[2, 6]"),
        (lambda: nn.Linear(6, 2, bias=first), "rank 0 has 2 parameters", "has 1"),
        (
            lambda: nn.Sequential(nn.Linear(6, 2)) if first else nn.Linear(6, 2),
            "'0.weight'",
            "'weight'",
        ),
    ):
        model = make()
        optimizer = sgd(model)
        model(torch.ones(4, 6, dtype=next(model.parameters()).dtype)).sum().backward()
        with raises(MismatchError, "rank 0", *words):
            optimizer.step()
    model = mlp()
    optimizer = sgd(model)
    for step in range(3):
        train_step(model, optimizer, squares(step))


@checks
def check_parameters_added_later() -> None:
    for _ in both_sizes_of_buckets():
        model = mlp()
        model[0].requires_grad_(False)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([*model[2].parameters(), *model[4].parameters()], lr=0.1),
            model.named_parameters(),
        )
        for step in range(6):
            if step == 3:
                model[0].requires_grad_(True)
                optimizer.add_param_group({"params": model[0].parameters(), "lr": 0.01})
            train_step(model, optimizer, squares(step))


@checks
def check_a_state_loaded_between_backward_and_step() -> None:
    model = mlp()
    optimizer = sgd(model)
    for step in range(3):
        train_step(model, optimizer, squares(step))
    squares(0)(model, hvd.rank()).backward()
    optimizer.load_state_dict(optimizer.state_dict())
    for step in range(3):
        train_step(model, optimizer, squares(step))
    # Where buckets are on their way already, they cannot be taken back, and that is said.
    with small_buckets():
        model = mlp()
        optimizer = sgd(model)
        train_step(model, optimizer, squares(0))
        optimizer.zero_grad()
        squares(0)(model, hvd.rank()).backward()
        optimizer.load_state_dict(optimizer.state_dict())
        with raises(AssertionError, "zero_grad()"):
            optimizer.zero_grad()
        optimizer.step()
        train_step(model, optimizer, squares(1))


@checks
def check_an_optimizer_that_is_dropped_takes_its_memory_along() -> None:
    gc.collect()
    lanes = len(process_loop()._lanes)
    dropped = []
    for _ in range(3):
        model = mlp()
        optimizer = sgd(model)
        for step in range(2):
            train_step(model, optimizer, squares(step))
        dropped.append(weakref.ref(model[0].weight))
        del model, optimizer
        gc.collect()
    assert all(ref() is None for ref in dropped)
    # The last one's may wait for the next to come.
    assert len(process_loop()._lanes) <= lanes + 1


@checks
def check_an_optimizer_from_before_shutdown() -> None:
    model = mlp()
    optimizer = sgd(model)
    for step in range(2):
        train_step(model, optimizer, squares(step))
    hvd.shutdown()
    hvd.init()
    optimizer.zero_grad()
    squares(0)(model, hvd.rank()).backward()
    with raises(UsageError, "shutdown()", "DistributedOptimizer"):
        optimizer.step()
    model = mlp()
    optimizer = sgd(model)
    for step in range(2):
        train_step(model, optimizer, squares(step))


ranks = on((2, "shm"), (3, "shm"), (2, "gloo"))


@pytest.mark.ranks
@checks.each()
def test_on_all_ranks(ranks: Ranks, check: Check) -> None:
    ranks.run(check)
