"""The learning rate: told when it has changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from farandole.recorder.optimizers import Rates, torch_rate
from farandole.recorder.recorder import Recorder, Settings
from farandole.study.read import read_rank


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    made = Recorder(Settings(folder=str(tmp_path)), rank=0, size=1, host="here")
    yield made
    made.close()


def told(recorder: Recorder, folder: Path) -> tuple[tuple[int, float], ...]:
    recorder.flush()
    rank = read_rank(folder / "rank-0.jsonl")
    assert rank is not None
    return rank.learning_rates


def test_what_has_hardly_changed_is_not_told(recorder: Recorder, tmp_path: Path) -> None:
    rates = Rates()
    for step, rate in enumerate([0.1, 0.1, 0.0995, 0.0989, 0.0989, None, 0.1, 0.0, 0.0, 0.001]):
        rates.held(recorder, step, rate)
    # 0.0995 is within 1 % of 0.1; 0.0989 is not.
    assert told(recorder, tmp_path) == ((0, 0.1), (3, 0.0989), (6, 0.1), (7, 0.0), (9, 0.001))


def test_a_schedule_of_torch_is_seen_to_decay(recorder: Recorder, tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
    rates = Rates()
    for step in range(7):
        optimizer.step()
        rates.held(recorder, step, torch_rate(optimizer))
        schedule.step()
    assert told(recorder, tmp_path) == ((0, 0.5), (3, 0.25), (6, 0.125))


def test_of_several_groups_the_largest_counts() -> None:
    groups = [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": lr} for lr in (0.01, 0.2)]
    assert torch_rate(torch.optim.SGD(groups)) == 0.2
    tensor = torch.optim.Adam([torch.nn.Parameter(torch.ones(1))], lr=torch.tensor(0.25))
    assert torch_rate(tensor) == 0.25
