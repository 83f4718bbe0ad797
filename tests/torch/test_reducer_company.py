"""Averaging gradients in company: clipping, scalers, other optimizers, named operations."""

from __future__ import annotations

import gc
import os
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import farandole.torch as hvd
from farandole.engine.bucket_step import BLOCK_STEPS, BLOCKS, WARM_UP_STEPS
from farandole.engine.loop import process_loop
from farandole.errors import MismatchError, UsageError
from farandole.testing import FakeWorld, Member, Nursery
from farandole.transport.shm.buckets import SharedBuckets
from tests.torch.checks import Check, Checks, Ranks, on, raises
from tests.torch.training import (
    Loss,
    backward,
    batch,
    checked_step,
    close,
    expected_gradients,
    gradients,
    in_large_and_small_buckets,
    mlp,
    same_everywhere,
    sgd,
    small_buckets,
    squares,
    train,
    train_step,
)

checks = Checks()


def maker_and_judge() -> tuple[nn.Module, nn.Module]:
    """A model, and another one that takes what it makes."""
    torch.manual_seed(0)
    return nn.Linear(3, 6), mlp()


@checks
@in_large_and_small_buckets
def check_two_optimizers() -> None:
    maker, judge = maker_and_judge()
    of_maker, of_judge = sgd(maker), sgd(judge)

    def of_what_is_made(step: int) -> Loss:
        made = maker(batch(hvd.rank(), step, 4, 3)).detach()
        return lambda judge, rank: (
            judge(made).square().mean() - judge(batch(rank, step, 4, 6)).mean()
        )

    def of_the_judgement(step: int) -> Loss:
        return lambda maker, rank: -judge(maker(batch(rank, step, 4, 3))).mean()

    for step in range(4):
        train_step(judge, of_judge, of_what_is_made(step))
        judge.requires_grad_(False)
        train_step(maker, of_maker, of_the_judgement(step))
        judge.requires_grad_(True)


@checks
@in_large_and_small_buckets
def check_two_optimizers_that_see_each_others_backward() -> None:
    maker, judge = maker_and_judge()
    of_maker, of_judge = sgd(maker), sgd(judge)

    def of_the_judgement(step: int) -> Loss:
        return lambda maker, rank: judge(maker(batch(rank, step, 4, 3))).mean()

    for step in range(4):
        train_step(maker, of_maker, of_the_judgement(step))
        # The maker's backward pass went through the judge: its gradients are on their way.
        with raises(AssertionError, "zero_grad() was called after loss.backward()"):
            of_judge.zero_grad()
        of_judge.synchronize()
        train_step(judge, of_judge, squares(step))


@checks
@in_large_and_small_buckets
def check_clipping_while_a_peer_is_slow() -> None:
    model = mlp()
    optimizer = sgd(model)
    for step in range(8):
        expected = expected_gradients(model, squares(step))
        norm = torch.cat([g.flatten() for g in expected.values()]).norm()
        optimizer.zero_grad()
        backward(model, squares(step))
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

    def make_slow(self: Any, rank: int, *arguments: Any, **options: Any) -> None:
        make(self, rank, *arguments, **options)
        if rank == slow:
            self._reduced[rank] = [SlowWord(word) for word in self._reduced[rank]]

    def loss_of(step: int) -> Loss:
        return lambda model, rank: model(batch(rank, step, 2, 64)).square().mean()

    SharedBuckets.__init__ = make_slow
    try:
        # Buckets of a size that gives every rank a share.
        model = nn.Linear(64, 64)
        hvd.broadcast_parameters(model.state_dict(), 0)
        optimizer = sgd(model)
        for step in range(4):
            expected = expected_gradients(model, loss_of(step))
            optimizer.zero_grad()
            backward(model, loss_of(step))
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


def autocast_squares(step: int) -> Loss:
    """As `squares`, in bfloat16."""

    def loss(model: nn.Module, rank: int) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(batch(rank, step, 4, 6)).float().square().mean()

    return loss


@checks.of(
    sgd=partial(torch.optim.SGD, momentum=0.9),
    adam=torch.optim.Adam,
    fused_adam=partial(torch.optim.Adam, fused=True),
)
@in_large_and_small_buckets
def check_scaler_and_autocast_by_horovods_recipe(make: Callable[..., Any]) -> None:
    model = mlp()
    optimizer = hvd.DistributedOptimizer(
        make(model.parameters(), lr=0.01), model.named_parameters()
    )
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    skipped = 2
    for step in range(5):
        expected = expected_gradients(model, autocast_squares(step))
        before = [p.detach().clone() for p in model.parameters()]
        optimizer.zero_grad()
        value = autocast_squares(step)(model, hvd.rank())
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


@checks.of(on="on", off="off", auto="auto")
def check_overlap_with_backward(setting: str) -> None:
    hvd.shutdown()
    os.environ["FARANDOLE_OVERLAP"] = setting
    try:
        hvd.init()
    finally:
        del os.environ["FARANDOLE_OVERLAP"]
    with small_buckets():
        model = mlp()
        # Long enough for "auto" to try both and to decide.
        train(model, sgd(model), range(30))
    # The next check begins without the setting.
    hvd.shutdown()


@checks
def check_named_operations_amid_training() -> None:
    with small_buckets():
        model = mlp()
        optimizer = sgd(model)
        for step in range(5):
            with checked_step(model, optimizer, squares(step)):
                early = hvd.allreduce_async(torch.ones(50_000), name="early", op=hvd.Sum)
                loss = backward(model, squares(step))
                assert torch.isfinite(hvd.allreduce(loss.detach(), name="loss"))
            assert hvd.synchronize(early)[0] == hvd.size()


@checks
def check_an_optimizer_that_is_dropped_takes_its_memory_along() -> None:
    gc.collect()
    lanes = len(process_loop()._lanes)
    dropped = []
    for _ in range(3):
        model = mlp()
        optimizer = sgd(model)
        train(model, optimizer, range(2))
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
    train(model, optimizer, range(2))
    hvd.shutdown()
    hvd.init()
    optimizer.zero_grad()
    backward(model, squares(0))
    with raises(UsageError, "shutdown()", "DistributedOptimizer"):
        optimizer.step()
    model = mlp()
    train(model, sgd(model), range(2))


ranks = on((2, "shm"), (3, "shm"), (2, "gloo"))


@pytest.mark.ranks
@checks.each()
def test_on_all_ranks(ranks: Ranks, check: Check) -> None:
    ranks.run(check)


def steps_on_unequal_cores(member: Member, pinned: int) -> bool:
    """Train on past the steps in which overlap is tried; one rank may have no core to spare."""
    if member.rank == pinned:
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    hvd.init()
    model = mlp()
    train(model, sgd(model), range(WARM_UP_STEPS + BLOCK_STEPS * BLOCKS + 2))
    hvd.shutdown()
    return True


@pytest.mark.ranks
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: all ranks have the same")
@pytest.mark.parametrize(
    ("size", "per_host", "pinned"), [(2, 1, 1), (3, 2, -1)], ids=["cores", "hosts"]
)
def test_ranks_with_unequally_many_cores_to_spare_train_on(
    nursery: Nursery, size: int, per_host: int, pinned: int
) -> None:
    with FakeWorld(size, per_host=per_host, nursery=nursery) as world:
        assert world.run(steps_on_unequal_cores, pinned) == [True] * size


def train_with(member: Member, options: list[dict[str, Any]]) -> str:
    hvd.init()
    model = mlp()
    try:
        train(model, sgd(model, **options[member.rank]))
    except MismatchError as error:
        return str(error)
    finally:
        hvd.shutdown()
    return ""


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("one", "other", "named"),
    [
        ({"groups": 2}, {}, "groups"),
        ({"compression": hvd.Compression.fp16}, {}, "compression"),
        ({"op": hvd.Sum}, {}, "op"),
    ],
)
def test_ranks_that_wrap_their_optimizers_differently_are_told(
    nursery: Nursery, one: dict[str, Any], other: dict[str, Any], named: str
) -> None:
    with FakeWorld(2, nursery=nursery) as world:
        for said in world.run(train_with, [one, other]):
            assert f"DistributedOptimizer's {named}: rank 0: " in said
            assert "; rank 1: " in said


@pytest.mark.ranks
def test_ranks_whose_models_lie_differently_in_memory_get_the_average(nursery: Nursery) -> None:
    with FakeWorld(2, nursery=nursery) as world:
        assert world.run(channels_last_on_one_rank) == [True, True]


def channels_last_on_one_rank(member: Member) -> bool:
    hvd.init()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 2), nn.Flatten(), nn.Linear(36, 2))
    if member.rank == 0:
        model.to(memory_format=torch.channels_last)
    train(model, sgd(model), loss_of=lambda step: partial(image_loss, step))
    hvd.shutdown()
    return True


def image_loss(step: int, model: nn.Module, rank: int) -> torch.Tensor:
    return model(batch(rank, step, 2, 3, 4, 4)).square().mean()
