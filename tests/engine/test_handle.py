"""Handles: done once, polled falsely once, completed by whoever looks."""

from __future__ import annotations

import weakref

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


def test_a_probe_completes_it() -> None:
    answers = iter([False, True])
    handle = Handle()
    handle.complete_by(lambda: next(answers))
    assert [handle.check(), handle.check()] == [False, True]


def test_a_delegated_handle_is_not_probed() -> None:
    handle = Handle()
    handle.complete_by(lambda: True)
    handle.delegate()
    assert not handle.check()


def test_a_finished_handle_lets_go_of_its_operation() -> None:
    class Operation:
        def probe(self) -> bool:
            return False

    operation = Operation()
    gone = weakref.ref(operation)
    handle = Handle()
    handle.complete_by(operation.probe)
    del operation
    assert gone() is not None
    handle.finish()
    assert gone() is None
