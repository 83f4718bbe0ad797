"""Arguments of shard: what is refused, and how ranks' differences are named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from farandole.errors import UsageError
from farandole.keras.split import Terms, check, disagreement


def terms(**changes: Any) -> Terms:
    usual: dict[str, Any] = {
        "rank": 0,
        "size": 2,
        "batch_size": None,
        "shuffle": True,
        "seed": 0,
        "remainder": "drop",
        "initial_epoch": 0,
        "steps": None,
    }
    return Terms(**(usual | changes))


@pytest.mark.parametrize(
    "changes",
    [{}, {"batch_size": np.int64(32)}, {"shuffle": 1000}, {"shuffle": False}, {"steps": 1}],
)
def test_what_can_be(changes: dict[str, Any]) -> None:
    check(terms(**changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"remainder": "cut"}, ["'cut'", "drop, pad, keep"]),
        ({"batch_size": 0}, ["batch_size=0", "at least 1"]),
        ({"batch_size": 2.5}, ["batch_size=2.5", "whole number"]),
        ({"batch_size": True}, ["batch_size=True", "whole number"]),
        ({"steps": 0}, ["steps=0"]),
        ({"seed": -1}, ["seed=-1", "at least 0"]),
        ({"initial_epoch": -3}, ["initial_epoch=-3"]),
        ({"shuffle": 0.5}, ["shuffle=0.5"]),
        ({"shuffle": "yes"}, ["shuffle='yes'"]),
    ],
)
def test_what_cannot_be(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UsageError) as error:
        check(terms(**changes))
    assert all(word in str(error.value) for word in words), error.value


def test_orders_have_no_seed_without_shuffling() -> None:
    assert terms(seed=7).order_seed == 7
    assert terms(seed=7, shuffle=False).order_seed is None


def test_differences_name_what_and_who() -> None:
    same = {"samples": 10, "seed": 0}
    assert disagreement([same, dict(same)]) is None
    assert disagreement([same, same, {"samples": 9, "seed": 0}]) == (
        "samples is 10 on rank 0 and 9 on rank 2"
    )
