from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from farandole.recorder.batches import arrays_of, count_samples, full_batch, hash_samples


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


@pytest.mark.parametrize(
    ("batch", "batch_size", "samples"),
    [
        (zeros(32, 3), None, 32),
        ([zeros(32, 3), zeros(32)], 32, 32),
        ([zeros(5, 3), zeros(5)], 32, 5),
        ({"a": {"b": zeros(8, 2)}, "c": zeros(8)}, None, 8),
        (np.zeros((6, 2)), None, 6),
        # Images of a detector stay in a tuple: 4 of them, with 3 channels each.
        (((zeros(3, 9, 9),) * 4, ({"boxes": zeros(2, 4)},) * 4), 4, 4),
        (((zeros(3, 9, 9),) * 2, ({"boxes": zeros(1, 4)}, {"boxes": zeros(9, 4)})), 4, 2),
        ([torch.tensor(1.0), zeros(7, 2)], None, 7),
        (["a", "b"], None, None),
        (None, None, None),
    ],
)
def test_how_many_samples(batch: Any, batch_size: int | None, samples: int | None) -> None:
    assert count_samples(batch, arrays_of(batch), batch_size) == samples
    # The short way gives the same or nothing.
    assert full_batch(batch, batch_size) in (samples, None)


def test_the_short_way() -> None:
    assert full_batch([zeros(4, 2), zeros(4)], 4) == 4
    assert full_batch([zeros(3, 2), zeros(3)], 4) is None
    assert full_batch([], 4) is None


def test_samples_are_told_apart_by_all_their_parts() -> None:
    x = torch.arange(12.0).reshape(4, 3)
    x[3] = x[0]
    y = torch.tensor([0, 1, 2, 7])
    alike = hash_samples([x], 4)
    assert len(set(alike)) == 3
    assert alike[3] == alike[0]
    assert len(set(hash_samples([x, y], 4))) == 4
    assert hash_samples([x.numpy()], 4) == alike


def test_labels_alone_say_nothing() -> None:
    assert hash_samples([torch.arange(4, dtype=torch.int32)], 4) == []


def test_types_that_numpy_does_not_know_are_left_out() -> None:
    assert hash_samples([torch.zeros(4, 8, dtype=torch.bfloat16)], 4) == []


def ticking(step_s: float) -> Callable[[], float]:
    now_s = [0.0]

    def clock() -> float:
        now_s[0] += step_s
        return now_s[0]

    return clock


def test_there_is_a_limit_to_time_and_number() -> None:
    x = torch.arange(400.0).reshape(100, 4)
    assert len(hash_samples([x], 100, most=7)) == 7
    assert len(hash_samples([x], 100, clock=ticking(0.001))) < 5
    assert len(hash_samples([x], 100, clock=ticking(0.0))) == 100
