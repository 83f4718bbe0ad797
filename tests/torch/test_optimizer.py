"""DistributedOptimizer as a wrapper: what it is, what it refuses, what else may hold on to it."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import farandole.torch as hvd
from farandole.errors import NotInitializedError, UsageError
from tests.torch.checks import Check, Checks, Ranks, on, raises
from tests.torch.training import batch, same_everywhere

checks = Checks()


def linear(seed: int = 0) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(6, 2)


def backward(model: nn.Module, step: int = 0) -> torch.Tensor:
    loss = model(batch(hvd.rank(), step, 4, 6)).square().mean()
    loss.backward()
    return loss


def wrapped(model: nn.Module, kind: Any = torch.optim.SGD, **options: Any) -> Any:
    optimizer = kind(model.parameters(), **({"lr": 0.1} | options))
    return hvd.DistributedOptimizer(optimizer, model.named_parameters())


@checks
def check_it_is_an_optimizer_of_the_same_kind() -> None:
    model = linear()
    optimizer = wrapped(model, torch.optim.Adam)
    assert isinstance(optimizer, torch.optim.Adam)
    assert type(optimizer).__name__ == "Adam"
    assert optimizer._parameter_names == {model.weight: "weight", model.bias: "bias"}
    with raises(UsageError, "already"):
        hvd.DistributedOptimizer(optimizer)


@checks
def check_a_step_after_synchronize_warns_exactly_once() -> None:
    model = linear()
    optimizer = wrapped(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(3):
            optimizer.zero_grad()
            backward(model, step)
            optimizer.synchronize()
            optimizer.step()
    assert len(caught) == 1
    assert "optimizer.step() called without optimizer.skip_synchronize()" in str(caught[0].message)
    assert caught[0].filename == __file__
    same_everywhere(model)


@checks
def check_no_warning_with_skip_synchronize_or_without_synchronize() -> None:
    model = linear()
    optimizer = wrapped(model)
    for step in range(3):
        optimizer.zero_grad()
        backward(model, step)
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step()
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()
    same_everywhere(model)


@checks
def check_skip_synchronize_ends_with_an_exception() -> None:
    model = linear()
    optimizer = wrapped(model)
    backward(model)
    optimizer.synchronize()
    with raises(KeyError), optimizer.skip_synchronize():
        raise KeyError("mine")
    optimizer.zero_grad()
    backward(model, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer.step()
    same_everywhere(model)


@checks
def check_zero_grad_between_backward_and_step() -> None:
    model = linear()
    optimizer = wrapped(model)
    for step in range(3):
        optimizer.zero_grad()
        backward(model, step)
        with raises(AssertionError, "zero_grad() was called after loss.backward()"):
            optimizer.zero_grad()
        optimizer.step()
    optimizer.zero_grad()


@checks
def check_names() -> None:
    first, second = linear(), linear()
    both = [*first.parameters(), *second.parameters()]
    plain = torch.optim.SGD(both, lr=0.1)
    with raises(UsageError, "'weight' stands twice"):
        hvd.DistributedOptimizer(plain, chain(first.named_parameters(), second.named_parameters()))
    with raises(UsageError, "leaves out 2 parameter(s)", "[2, 6]"):
        hvd.DistributedOptimizer(plain, first.named_parameters())
    with raises(UsageError, "pairs of a name and a parameter"):
        hvd.DistributedOptimizer(plain, first.parameters())
    for error in (UsageError,):
        assert issubclass(error, ValueError)
    unnamed = hvd.DistributedOptimizer(plain)
    assert list(unnamed._parameter_names.values()) == [f"allreduce.noname.0.{i}" for i in range(4)]


@checks
def check_names_may_cover_more_than_the_optimizer() -> None:
    model = nn.Sequential(linear(), nn.Linear(2, 2))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model[0].parameters(), lr=0.1), model.named_parameters()
    )
    hvd.broadcast_parameters(model.state_dict(), 0)
    for step in range(3):
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()
    same_everywhere(model[0])


@checks
def check_numbers_of_passes() -> None:
    model = linear()
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    for passes in (0, -1):
        with raises(ValueError, f"backward_passes_per_step={passes}"):
            hvd.DistributedOptimizer(plain, backward_passes_per_step=passes)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    with raises(ValueError, "backward_passes_per_step=0"):
        optimizer.set_backward_passes_per_step(0)
    with raises(ValueError, "op=6"):
        hvd.DistributedOptimizer(torch.optim.SGD(linear().parameters(), lr=0.1), op=6)


@checks
def check_horovods_third_argument_is_not_taken_for_another() -> None:
    with raises(UsageError, "compression=2 is no compression"):
        hvd.DistributedOptimizer(torch.optim.SGD(linear().parameters(), lr=0.1), None, 2)


@checks
def check_closures() -> None:
    for kind, options in ((torch.optim.SGD, {"momentum": 0.9}), (torch.optim.LBFGS, {})):
        model = linear()
        optimizer = wrapped(model, kind, **options)
        calls = 0
        for step in range(4):

            def closure(step: int = step, model: Any = model, optimizer: Any = optimizer) -> Any:
                nonlocal calls
                calls += 1
                optimizer.zero_grad()
                loss = backward(model, step)
                # LBFGS decides by the loss how to go on: the ranks must see the same.
                return hvd.allreduce(loss.detach())

            loss = optimizer.step(closure)
            assert torch.isfinite(loss)
            same_everywhere(model)
        assert calls >= 4


@checks
def check_schedulers_made_before_and_after_wrapping() -> None:
    for before in (True, False):
        for make in (
            lambda optimizer: lr_scheduler.StepLR(optimizer, 1, gamma=0.5),
            lambda optimizer: lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10),
            lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer, patience=0),
        ):
            model = linear()
            plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            scheduler = make(plain) if before else None
            optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
            scheduler = scheduler or make(optimizer)
            rates = []
            for step in range(3):
                optimizer.zero_grad()
                backward(model, step)
                optimizer.step()
                plateau = isinstance(scheduler, lr_scheduler.ReduceLROnPlateau)
                # Warnings are errors here: torch's about the order of steps, too.
                scheduler.step(*([1.0] if plateau else []))
                rates.append(optimizer.param_groups[0]["lr"])
            if isinstance(scheduler, lr_scheduler.StepLR):
                assert rates == [0.05, 0.025, 0.0125]
            else:
                assert len(set(rates)) > 1
            same_everywhere(model)


@checks
def check_a_scheduler_before_the_step_is_still_warned_of() -> None:
    for before in (True, False):
        model = linear()
        plain = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduler = lr_scheduler.StepLR(plain, 1) if before else None
        optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
        scheduler = scheduler or lr_scheduler.StepLR(optimizer, 1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            scheduler.step()
        assert any("lr_scheduler.step()" in str(warning.message) for warning in caught)


@checks
def check_hooks_of_the_users_run_once_per_step() -> None:
    for load in (False, True):
        model = linear()
        optimizer = wrapped(model, torch.optim.Adam)
        if load:
            optimizer.load_state_dict(optimizer.state_dict())
        ran = []
        optimizer.register_step_pre_hook(lambda *_, ran=ran: ran.append("before"))
        optimizer.register_step_post_hook(lambda *_, ran=ran: ran.append("after"))
        for step in range(2):
            optimizer.zero_grad()
            backward(model, step)
            optimizer.step()
        assert ran == ["before", "after"] * 2, ran
        same_everywhere(model)


@checks
def check_state_travels_between_wrapped_and_plain() -> None:
    model, other = linear(), linear()
    optimizer = wrapped(model, torch.optim.Adam)
    for step in range(3):
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()
    file = io.BytesIO()
    torch.save([model.state_dict(), optimizer.state_dict()], file)
    file.seek(0)
    weights, state = torch.load(file)
    plain = torch.optim.Adam(other.parameters(), lr=1.0)
    plain.load_state_dict(state)
    other.load_state_dict(weights)
    again = hvd.DistributedOptimizer(plain, other.named_parameters())
    for step in range(3, 6):
        for each, its in ((model, optimizer), (other, again)):
            its.zero_grad()
            backward(each, step)
            its.step()
    assert torch.equal(model.weight, other.weight)
    same_everywhere(model)


@checks
def check_parameter_groups_with_rates_of_their_own() -> None:
    model = linear()
    start = model.bias.detach().clone()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([{"params": [model.weight]}, {"params": [model.bias], "lr": 0.0}], lr=0.1),
        model.named_parameters(),
    )
    for step in range(3):
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()
    assert torch.equal(model.bias, start)
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 1]
    same_everywhere(model)


@checks
def check_no_parameters_to_train() -> None:
    model = linear().requires_grad_(False)
    optimizer = wrapped(model)
    optimizer.step()
    optimizer.zero_grad()
    assert all(p.grad is None for p in model.parameters())


ranks = on((2, "shm"), (3, "shm"))


@pytest.mark.ranks
@checks.each()
def test_on_all_ranks(ranks: Ranks, check: Check) -> None:
    ranks.run(check)


@pytest.fixture
def alone() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


def test_before_init() -> None:
    with pytest.raises(NotInitializedError, match="has not been initialized"):
        hvd.DistributedOptimizer(torch.optim.SGD(linear().parameters(), lr=0.1))


@pytest.mark.usefixtures("alone")
def test_one_worker_trains_as_without() -> None:
    model, other = linear(), linear()
    optimizer = wrapped(model, torch.optim.Adam)
    plain = torch.optim.Adam(other.parameters(), lr=0.1)
    for step in range(4):
        for each, its in ((model, optimizer), (other, plain)):
            its.zero_grad(set_to_none=bool(step % 2))
            backward(each, step)
            its.step()
    assert torch.equal(model.weight, other.weight)
    # Nothing is on its way anywhere: gradients may be dropped.
    backward(model)
    optimizer.zero_grad()
    with pytest.raises(UsageError, match="stands twice"):
        hvd.DistributedOptimizer(
            torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1),
            [*model.named_parameters(), *other.named_parameters()],
        )


@pytest.mark.usefixtures("alone")
def test_horovods_other_arguments() -> None:
    def make(*args: Any, **kwargs: Any) -> Any:
        model = linear()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return hvd.DistributedOptimizer(optimizer, model.named_parameters(), *args, **kwargs)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(hvd.Compression.none, gradient_predivide_factor=1.0)
        make(compression=None)
        make(hvd.Compression.fp16, 2, hvd.Sum, 1.0, 0, 2, True, hvd.global_process_set)
    with pytest.warns(DeprecationWarning, match="use groups="):
        make(num_groups=2)
    with pytest.raises(UsageError, match=r"for op=hvd\.Average only"):
        make(op=hvd.Sum, gradient_predivide_factor=2.0)
    with pytest.raises(UsageError, match="must be above 0"):
        make(gradient_predivide_factor=0.0)
