"""How long a rank pauses: recorded, not slept."""

from __future__ import annotations

import pytest

from farandole.engine import loop
from farandole.engine.loop import Backoff


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr(loop.time, "sleep", slept.append)
    return slept


def until_long(backoff: Backoff) -> int:
    looks = 1
    while not backoff.pause():
        looks += 1
    return looks


def test_near_peers_are_looked_for_before_any_sleep(pauses: list[float]) -> None:
    backoff = Backoff()
    for _ in range(loop.SPINS + loop.YIELDS - 1):
        assert not backoff.pause()
    assert pauses == []
    until_long(backoff)
    assert pauses[0] == loop.SHORTEST_SLEEP_S
    assert pauses == sorted(pauses)
    backoff.reset()
    pauses.clear()
    until_long(backoff)
    assert pauses[0] == loop.SHORTEST_SLEEP_S


def test_distant_ones_are_slept_for_soon(pauses: list[float]) -> None:
    looks = until_long(Backoff(distant=True))
    assert looks - len(pauses) < 10
    assert pauses[0] == loop.DISTANT_SLEEP_S
    assert max(pauses) <= loop.DISTANT_LONGEST_SLEEP_S


def test_the_next_wait_for_distant_ones_begins_where_the_last_was(pauses: list[float]) -> None:
    backoff = Backoff(distant=True)
    until_long(backoff)
    backoff.reset()
    pauses.clear()
    until_long(backoff)
    assert pauses[0] == loop.DISTANT_LONGEST_SLEEP_S / 4
    for _ in range(10):
        backoff.reset()
    pauses.clear()
    until_long(backoff)
    assert pauses[0] == loop.DISTANT_SLEEP_S, "what is fast is looked for often again"
