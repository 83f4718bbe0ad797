"""Whatever a script does to gradients, every rank gets the average, or an error that says why."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import farandole.torch as hvd
from farandole.errors import UnfitError
from tests.torch.checks import Check, Checks, Ranks, on
from tests.torch.training import (
    Gradients,
    backward,
    close,
    gradients,
    same_everywhere,
    small_buckets,
    squares,
    train,
)

CHANGED, OTHER = "2.weight", "0.weight"

checks = Checks()


def squares_of_layers() -> nn.Sequential:
    """A model with two layers of one shape, whose gradients can be swapped and transposed."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2))


@dataclass(frozen=True)
class Change:
    """What a script does to a gradient."""

    do: Callable[[nn.Parameter, nn.Parameter], Any]
    """Does it, to the first of two parameters or to both."""
    effect: Callable[[Any, Any], tuple[Any, Any]] = lambda g, h: (3 * g, h)
    """What becomes of two gradients by it."""
    found: bool | None = True
    """Whether it is found out after the gradient was sent; None: it may be refused before."""
    fits: bool = True
    """Whether what comes of it can be a gradient."""


def swap_gradients(p: nn.Parameter, q: nn.Parameter) -> None:
    p.grad, q.grad = q.grad, p.grad


def swap_tensors(p: nn.Parameter, q: nn.Parameter) -> None:
    # Torch refuses it for a tensor that anybody else has, too.
    with suppress(RuntimeError):
        torch.utils.swap_tensors(p.grad, p.grad.clone())


def swap_parameters(p: nn.Parameter, q: nn.Parameter) -> None:
    fresh = nn.Parameter(p.detach().clone())
    fresh.grad = p.grad.clone()
    with suppress(RuntimeError):
        torch.utils.swap_tensors(p, fresh)


def set_grad(p: nn.Parameter, q: nn.Parameter) -> None:
    p.grad = 3 * p.grad


def drop(p: nn.Parameter, q: nn.Parameter) -> None:
    p.grad = None


def clone(p: nn.Parameter, q: nn.Parameter) -> None:
    p.grad = p.grad.clone()


def share(p: nn.Parameter, q: nn.Parameter) -> None:
    p.grad = q.grad


def set_data(make: Callable[[torch.Tensor], torch.Tensor], p: nn.Parameter, _: Any) -> None:
    p.grad.data = make(p.grad.data)


def same(g: Any, h: Any) -> tuple[Any, Any]:
    return g, h


CHANGES = {
    "data": Change(partial(set_data, lambda g: 3 * g)),
    "data_of_another_type": Change(partial(set_data, lambda g: g.double()), same),
    "data_transposed": Change(partial(set_data, torch.t), lambda g, h: (g.t(), h)),
    "data_of_another_shape": Change(partial(set_data, lambda _: torch.ones(5)), fits=False),
    "set_": Change(lambda p, _: p.grad.set_(3 * p.grad)),
    "resize_": Change(lambda p, _: p.grad.resize_(1, 6), fits=False),
    "t_": Change(lambda p, _: p.grad.t_(), lambda g, h: (g.t(), h)),
    "swap_tensors": Change(swap_tensors, same, found=None),
    "swap_parameters": Change(swap_parameters, same, found=None),
    "swap_gradients": Change(swap_gradients, lambda g, h: (h, g)),
    "share": Change(share, lambda _, h: (h, h)),
    "replace": Change(set_grad),
    "clone": Change(clone, same),
    "none": Change(drop, lambda _, h: (None, h)),
    "in_place": Change(lambda p, _: p.grad.mul_(3)),
    "data_in_place": Change(lambda p, _: p.grad.data.mul_(3), found=False),
}
OF_BOTH = ("swap_gradients", "share")
"""Changes for which both gradients must be there."""
MOMENTS = (
    *("before_backward", "hook_before", "hook_after", "before_synchronize"),
    *("after_synchronize", "after_step"),
)


def average(model: nn.Module, step: int, change: Change | None) -> Gradients:
    """The average of what all ranks computed, and this one changed."""
    names = [name for name, _ in model.named_parameters()]
    loss = squares(step)(model, hvd.rank())
    mine = dict(zip(names, torch.autograd.grad(loss, list(model.parameters())), strict=True))
    if change is not None:
        mine[CHANGED], mine[OTHER] = change.effect(mine[CHANGED], mine[OTHER])
    everyone = hvd.allgather_object(mine)
    return {
        name: None
        if all(each[name] is None for each in everyone)
        else sum(each[name] for each in everyone if each[name] is not None) / hvd.size()
        for name in names
    }


def check_change(kind: str, moment: str, *, everywhere: bool, small: bool) -> None:
    """Take steps, in one of which a gradient is changed at a moment, here or on all ranks."""
    change, model = CHANGES[kind], squares_of_layers()
    parameters = dict(model.named_parameters())
    p, q = parameters[CHANGED], parameters[OTHER]
    mine = everywhere or hvd.rank() == 0
    due = False

    def act(at: str) -> None:
        if due and mine and at == moment:
            with torch.no_grad():
                change.do(p, q)

    p.register_post_accumulate_grad_hook(lambda _: act("hook_before"))
    # Without momentum, in which what one rank changes after synchronize() would live on.
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    train(model, optimizer, range(2), squares)
    p.register_post_accumulate_grad_hook(lambda _: act("hook_after"))
    optimizer.zero_grad(set_to_none=False)
    due = True
    act("before_backward")
    counts = moment not in ("before_backward", "after_synchronize", "after_step")
    expected = average(model, 2, change if mine and counts else None)
    backward(model, squares(2))
    act("before_synchronize")
    error = ""
    try:
        optimizer.synchronize()
    except UnfitError as problem:
        error = str(problem)
    # With small buckets it is on its way by then.
    sent = small and moment in ("hook_after", "before_synchronize")
    must_fail = counts and (not change.fits or (sent and change.found is True))
    may_fail = must_fail or (sent and change.found is None)
    assert hvd.allgather_object(error) == [error] * hvd.size()
    if error:
        assert may_fail, error
        assert repr(CHANGED) in error or (kind in OF_BOTH and repr(OTHER) in error), error
        assert "\n" not in error
    else:
        assert not must_fail
        if not sent or change.found is None:
            close(gradients(model), expected)
    act("after_synchronize")
    if change.fits and not error:
        with optimizer.skip_synchronize():
            optimizer.step()
    act("after_step")
    due = False
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for step, to_none in ((3, not change.fits or kind == "share"), (4, True), (5, False)):
        optimizer.zero_grad(set_to_none=to_none)
        expected = average(model, step, None)
        backward(model, squares(step))
        optimizer.synchronize()
        close(gradients(model), expected)
        with optimizer.skip_synchronize():
            optimizer.step()
        same_everywhere(model)


def sensible(kind: str, moment: str) -> bool:
    """Say whether a script could get that far."""
    if kind in OF_BOTH and moment.startswith("hook"):
        return False
    if kind == "share" and moment == "before_backward":
        return False  # backward would add both up
    # Backward itself would refuse what it cannot add to.
    return CHANGES[kind].fits or moment != "before_backward"


@checks.of(
    **{
        f"{kind}_{moment}": (kind, moment)
        for kind in CHANGES
        for moment in MOMENTS
        if sensible(kind, moment)
    }
)
def check_changes(case: tuple[str, str]) -> None:
    # Torch remarks on what it adds to a transposed gradient.
    warnings.filterwarnings("ignore", "grad and param do not obey")
    for everywhere in (True, False):
        for small in (False, True):
            with small_buckets() if small else nullcontext():
                check_change(*case, everywhere=everywhere, small=small)


ranks = on((2, "auto"))


@pytest.mark.ranks
@checks.each()
def test_every_rank_gets_the_average_or_an_error(ranks: Ranks, check: Check) -> None:
    ranks.run(check)
