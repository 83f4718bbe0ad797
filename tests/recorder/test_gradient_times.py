from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from farandole.recorder.optimizers import MOST_PIECES, SAMPLED, GradientTimes, scaled_pieces
from farandole.recorder.recorder import Recorder, Settings
from tests.recorder.launching import read_rank


def test_a_launch_of_twenty_steps_is_sampled_a_few_times_and_a_long_one_not_for_ever() -> None:
    sampled = sorted(SAMPLED)
    assert sampled[:3] == [6, 12, 18]
    assert len(sampled) == 32
    # A watched step is told of before the next one is watched.
    assert all(after > before + 1 for before, after in itertools.pairwise(sampled))


def test_pieces_are_in_the_order_in_which_they_came_and_as_large_as_all() -> None:
    pieces = [(10, 3.0), (20, 1.0), (70, 2.0)]
    assert scaled_pieces(pieces, 100) == [(20, 1.0), (70, 2.0), (10, 3.0)]
    # Small ones that nobody looked at were half as much again.
    assert scaled_pieces(pieces, 150) == [(30, 1.0), (105, 2.0), (15, 3.0)]
    assert scaled_pieces([], 100) == []


def train(
    recorder: Recorder, times: GradientTimes, model: Any, steps: int, passes: int = 1
) -> None:
    for _ in range(steps):
        for _ in range(passes):
            model(torch.ones(2, 3)).sum().backward()
        times.step_ends(recorder, list(model.parameters()))
        recorder.step()


@pytest.mark.parametrize("passes", [1, 3])
def test_gradients_are_told_of_in_sampled_steps_only(tmp_path: Path, passes: int) -> None:
    recorder = Recorder(Settings(folder=str(tmp_path)), rank=0, size=1, host="here")
    times = GradientTimes()
    # Of 4 (3 + 1) and 1 (4 + 1) elements; what a frozen layer does not have is not waited for.
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 3).requires_grad_(False), torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)
    )
    train(recorder, times, model, 14, passes)
    recorder.close()
    rank = read_rank(tmp_path / "rank-0.jsonl")
    told = rank.of("buckets")
    assert [line["step"] for line in told] == [6, 12]
    ends_s = rank.steps()["end_s"]
    for line in told:
        assert sum(line["bytes"]) == 4 * (16 + 5)
        # Backward begins at the end: the last layer's are the first.
        assert sum(line["bytes"][:2]) == 4 * 5
        begin_s, end_s = ends_s[line["step"] - 1], ends_s[line["step"]]
        assert begin_s is not None
        assert end_s is not None
        assert begin_s <= line["ready_s"][0]
        assert line["ready_s"] == sorted(line["ready_s"])
        assert line["ready_s"][-1] <= end_s + 1e-6
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())


def test_of_many_parameters_the_largest_are_watched(tmp_path: Path) -> None:
    recorder = Recorder(Settings(folder=str(tmp_path)), rank=0, size=1, host="here")
    model = torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in range(MOST_PIECES + 10)))
    train(recorder, GradientTimes(), model, 7)
    recorder.close()
    (told,) = read_rank(tmp_path / "rank-0.jsonl").of("buckets")
    # Weights of 9, each with its share of what is left out.
    assert len(told["bytes"]) == MOST_PIECES
    assert sum(told["bytes"]) == pytest.approx(4 * 12 * (MOST_PIECES + 10), rel=0.01)


def test_gradients_of_another_kind_are_left_alone(tmp_path: Path) -> None:
    class Sharded(torch.nn.Parameter):
        pass

    recorder = Recorder(Settings(folder=str(tmp_path)), rank=0, size=1, host="here")
    model = torch.nn.Linear(3, 1)
    model.weight = Sharded(model.weight.detach())
    train(recorder, GradientTimes(), model, 8)
    recorder.close()
    assert read_rank(tmp_path / "rank-0.jsonl").of("buckets") == []
