"""Lanes: in order or all at once, results and errors, giving up."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from farandole.engine.handle import Handle
from farandole.engine.loop import Lane
from farandole.errors import CollectiveError


def operation(log: list[str], name: str, waits: int) -> Generator[bool, None, str]:
    for _ in range(waits):
        yield False
    log.append(name)
    return name


def lane(*, in_order: bool) -> Lane:
    return Lane(in_order=in_order, check_peers=lambda: None)


def advanced(lane: Lane, times: int) -> None:
    for _ in range(times):
        lane.advance()


def test_in_order_only_the_oldest_advances() -> None:
    log: list[str] = []
    ordered, handles = lane(in_order=True), [Handle(), Handle()]
    ordered.start(operation(log, "slow", 3), handles[0])
    ordered.start(operation(log, "fast", 0), handles[1])
    ordered.advance()
    assert log == []
    advanced(ordered, 4)
    assert log == ["slow", "fast"]
    assert [handle.result for handle in handles] == ["slow", "fast"]
    assert not ordered.busy


def test_all_at_once_the_fast_one_ends_first() -> None:
    log: list[str] = []
    free = lane(in_order=False)
    free.start(operation(log, "slow", 3), Handle())
    free.start(operation(log, "fast", 0), Handle())
    free.advance()
    assert log == ["fast"]
    advanced(free, 4)
    assert log == ["fast", "slow"]


def test_an_error_is_for_its_own_handles_only() -> None:
    def broken() -> Generator[bool, None, Any]:
        yield False
        raise ValueError("x")

    ordered, good, bad, also_bad = lane(in_order=True), Handle(), Handle(), Handle()
    ordered.start(broken(), bad, also_bad)
    ordered.start(operation([], "good", 0), good)
    advanced(ordered, 3)
    assert isinstance(bad.error, ValueError)
    assert also_bad.error is bad.error
    assert good.result == "good"


def test_giving_up_fails_everything() -> None:
    closed = []

    def endless() -> Generator[bool, None, Any]:
        try:
            while True:
                yield False
        finally:
            closed.append(True)

    free, handles = lane(in_order=False), [Handle(), Handle()]
    for handle in handles:
        free.start(endless(), handle)
    free.advance()
    error = RuntimeError("over")
    free.fail(error)
    assert [handle.error for handle in handles] == [error, error]
    assert closed == [True, True]
    assert not free.busy


def test_an_interrupted_operation_does_not_look_done() -> None:
    def interrupted() -> Generator[bool, None, Any]:
        yield False
        raise KeyboardInterrupt

    ordered, handle = lane(in_order=True), Handle()
    ordered.start(interrupted(), handle)
    ordered.advance()
    with pytest.raises(KeyboardInterrupt):
        ordered.advance()
    ordered.advance()
    assert isinstance(handle.error, CollectiveError)


def test_in_order_those_go_on_together_that_may() -> None:
    log: list[str] = []
    ordered = lane(in_order=True)
    ordered.start(operation(log, "first", 3), Handle(), overlaps=True)
    ordered.start(operation(log, "second", 1), Handle(), overlaps=True)
    ordered.start(operation(log, "alone", 0), Handle())
    ordered.start(operation(log, "last", 0), Handle(), overlaps=True)
    advanced(ordered, 2)
    assert log == ["second"], "neither the one that may not, nor what is behind it"
    advanced(ordered, 3)
    assert log == ["second", "first", "alone", "last"]
