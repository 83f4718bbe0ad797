from __future__ import annotations

import gc

import torch

from farandole.recorder.optimizers import Weights


def trained(seed: int, *, steps: int = 2) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    return model, optimizer


def fingerprint(*optimizers: torch.optim.Optimizer) -> str | None:
    weights = Weights()
    for optimizer in optimizers:
        assert not weights.updated(optimizer)
        assert weights.updated(optimizer)
    return weights.fingerprint()


def test_equal_weights_have_equal_fingerprints() -> None:
    one, other = trained(1), trained(1)
    assert fingerprint(one[1]) == fingerprint(other[1]) is not None
    assert fingerprint(one[1]) != fingerprint(trained(2)[1])
    assert fingerprint(one[1]) != fingerprint(one[1], trained(2)[1])


def test_half_precision_and_scalars_have_one() -> None:
    parameter = torch.nn.Parameter(torch.tensor(1.5, dtype=torch.bfloat16))
    assert fingerprint(torch.optim.SGD([parameter], lr=0.1)) is not None


def test_weights_that_are_written_to_later_are_not_compared() -> None:
    model, optimizer = trained(1)
    weights = Weights()
    weights.updated(optimizer)
    model.load_state_dict(trained(2)[0].state_dict())
    assert weights.fingerprint() is None
    assert weights.changed


def test_an_optimizer_that_goes_is_remembered_and_not_kept() -> None:
    weights = Weights()
    model, optimizer = trained(1)
    expected = fingerprint(optimizer)
    weights.updated(optimizer)
    weights.dropped(optimizer)
    del model, optimizer
    gc.collect()
    assert weights.fingerprint() == expected


def test_without_updates_there_is_nothing_to_compare() -> None:
    assert Weights().fingerprint() is None
