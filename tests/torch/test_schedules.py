"""Schedulers by recipe, on plain and wrapped optimizers."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import farandole.torch as hvd
from farandole.errors import UsageError
from farandole.recipes import RECIPES, Recipe, recipe

STEPS, EPOCHS = 4, 6


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    hvd.init()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
    hvd.shutdown()


def optimizer_of(*rates: float, wrapped: bool = False) -> torch.optim.Optimizer:
    groups = [{"params": nn.Linear(2, 1).parameters(), "lr": rate} for rate in rates]
    optimizer = torch.optim.SGD(groups, lr=1.0, momentum=0.9)
    return hvd.DistributedOptimizer(optimizer) if wrapped else optimizer


def train(optimizer: Any, scheduler: Any, steps: int) -> list[list[float]]:
    """Take steps; return the rates that each was taken with."""
    seen = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = sum(p.sum() for group in optimizer.param_groups for p in group["params"])
        loss.backward()
        seen.append([float(group["lr"]) for group in optimizer.param_groups])
        optimizer.step()
        scheduler.step()
    return seen


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("decay", ["constant", "cosine", "step"])
@pytest.mark.parametrize("name", RECIPES)
def test_every_step_has_the_recipes_rate(name: str, decay: str, wrapped: bool) -> None:
    optimizer = optimizer_of(0.1, 0.02, wrapped=wrapped)
    scheduler = hvd.RecipeScheduler(
        optimizer, name, steps_per_epoch=STEPS, epochs=EPOCHS, workers=8, decay=decay
    )
    seen = train(optimizer, scheduler, STEPS * EPOCHS)
    for step, (first, second) in enumerate(seen):
        expected = recipe(name).rate(0.1, 8, step / STEPS, EPOCHS, decay=decay)
        assert first == pytest.approx(expected, rel=1e-12)
        assert second == pytest.approx(first / 5, rel=1e-12)


def test_workers_are_those_there_are() -> None:
    optimizer = optimizer_of(0.1)
    scheduler = hvd.RecipeScheduler(optimizer, "linear", steps_per_epoch=STEPS, epochs=EPOCHS)
    assert scheduler.get_last_lr() == [0.1]
    assert scheduler.describe() == "linear: learning rate 0.1 x 1 = 0.1"


def test_an_optimizer_that_is_wrapped_afterwards() -> None:
    optimizer = optimizer_of(0.1)
    scheduler = hvd.RecipeScheduler(
        optimizer, "warmup", steps_per_epoch=STEPS, epochs=EPOCHS, workers=2
    )
    wrapped = hvd.DistributedOptimizer(optimizer)
    # torch's own schedulers speak to the optimizer that they were given, too.
    assert wrapped is optimizer or wrapped.param_groups[0] is optimizer.param_groups[0]
    seen = train(wrapped, scheduler, STEPS * EPOCHS) if wrapped is optimizer else []
    assert not seen or seen[-1] == [pytest.approx(0.2)]


@pytest.mark.parametrize("lr", [0.1, torch.tensor(0.1)])
@pytest.mark.parametrize("done", [0, 1, 7])
def test_a_state_goes_through_a_safe_file(done: int, lr: float | torch.Tensor) -> None:
    def made() -> tuple[Any, Any]:
        rate = lr.clone() if isinstance(lr, torch.Tensor) else lr
        optimizer = torch.optim.Adam(nn.Linear(2, 1).parameters(), lr=rate, foreach=False)
        return optimizer, hvd.RecipeScheduler(
            optimizer, "warmup", steps_per_epoch=STEPS, epochs=EPOCHS, workers=4, decay="cosine"
        )

    optimizer, scheduler = made()
    expected = train(optimizer, scheduler, STEPS * EPOCHS)
    optimizer, scheduler = made()
    train(optimizer, scheduler, done)
    file = io.BytesIO()
    torch.save({"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    optimizer, scheduler = made()
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    assert train(optimizer, scheduler, STEPS * EPOCHS - done) == expected[done:]


def test_a_state_of_other_workers() -> None:
    optimizer = optimizer_of(0.1)
    scheduler = hvd.RecipeScheduler(optimizer, "warmup", steps_per_epoch=8, epochs=10, workers=2)
    train(optimizer, scheduler, 20)
    state = scheduler.state_dict()
    # Twice the workers: half the steps per epoch; training is where it was, at 2.5 epochs.
    optimizer = optimizer_of(0.1)
    scheduler = hvd.RecipeScheduler(optimizer, "warmup", steps_per_epoch=4, epochs=10, workers=4)
    scheduler.load_state_dict(state)
    assert scheduler.get_last_lr() == [pytest.approx(0.1 * (1 + 3 / 2))]
    assert optimizer.param_groups[0]["lr"] == scheduler.get_last_lr()[0]


def test_a_recipe_of_ones_own() -> None:
    own = Recipe(name="own", scaled=True, warmup_epochs=1.0)
    optimizer = optimizer_of(0.1)
    scheduler = hvd.RecipeScheduler(optimizer, own, steps_per_epoch=2, epochs=4, workers=3)
    assert train(optimizer, scheduler, 3) == [[pytest.approx(rate)] for rate in (0.1, 0.2, 0.3)]


def test_what_makes_no_sense() -> None:
    optimizer = optimizer_of(0.1)
    with pytest.raises(UsageError, match="There is no recipe 'none'"):
        hvd.RecipeScheduler(optimizer, "none", steps_per_epoch=1, epochs=1)
    with pytest.raises(UsageError, match="There is no decay 'none'"):
        hvd.RecipeScheduler(optimizer, "fixed", steps_per_epoch=1, epochs=1, decay="none")
    for bad in ({"steps_per_epoch": 0, "epochs": 1}, {"steps_per_epoch": 1, "epochs": 0}):
        with pytest.raises(UsageError, match="=0: it must be 1 or more"):
            hvd.RecipeScheduler(optimizer, "fixed", **bad)
