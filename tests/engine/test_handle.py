"""Handles: done once, polled falsely once, completed by whoever looks."""

from __future__ import annotations

from farandole.engine.handle import Handle


def test_poll_is_false_the_first_time_even_if_it_is_done() -> None:
    handle = Handle()
    handle.finish(7)
    assert [handle.poll(), handle.poll(), handle.result] == [False, True, 7]


def test_a_failure_counts_as_done() -> None:
    handle, error = Handle(), ValueError("x")
    handle.fail(error)
    assert handle.check()
    assert handle.error is error
