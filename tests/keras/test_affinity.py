"""Which cores a worker is left with; what JAX's ranks do with it is in backends/right_answers."""

from __future__ import annotations

import os

import pytest

from farandole.keras.trainer import keep_to_own_cores, share_of
from farandole.world.environment import World


@pytest.mark.parametrize(
    ("allowed", "local_size", "threads", "expected"),
    [
        ({0, 1}, 2, 1, [{0}, {1}]),
        ({7, 3, 5, 1}, 2, 2, [{1, 3}, {5, 7}]),
        # Fewer threads than cores are no reason to leave cores to nobody.
        (range(8), 2, 1, [{0, 1, 2, 3}, {4, 5, 6, 7}]),
        # They do not come out even; there are too few; more threads were asked for; one worker.
        (range(3), 2, 1, [None, None]),
        ({0}, 2, 1, [None, None]),
        (range(4), 2, 4, [None, None]),
        (range(4), 1, 1, [None]),
    ],
)
def test_shares(
    allowed: set[int], local_size: int, threads: int, expected: list[set[int] | None]
) -> None:
    found = [share_of(allowed, rank, local_size, threads) for rank in range(local_size)]
    assert found == expected


def world(**changes: object) -> World:
    place = {"rank": 1, "size": 2, "local_rank": 1, "local_size": 2, "cross_rank": 0}
    return World(**(place | {"cross_size": 1, "source": "farandole", "hostname": "h"} | changes))  # type: ignore[arg-type]


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """A process that may use cores 0 to 3, and what its threads were left with."""
    found: list[set[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, cores: found.append(set(cores)))
    monkeypatch.setenv("PJRT_NPROC", "2")
    return found


def test_all_threads_are_kept_there(left: list[set[int]]) -> None:
    keep_to_own_cores(world())
    assert left
    assert all(cores == {2, 3} for cores in left)


@pytest.mark.parametrize("changes", [{"source": "openmpi"}, {"local_rank": 0, "local_size": 1}])
def test_what_others_have_placed_stays(left: list[set[int]], changes: dict[str, object]) -> None:
    keep_to_own_cores(world(**changes))
    assert not left


def test_more_threads_than_a_share(left: list[set[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PJRT_NPROC", "4")
    keep_to_own_cores(world())
    assert not left
