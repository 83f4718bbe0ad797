from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from farandole.errors import PeerDiedError
from farandole.launch.startup import describe, note_failure
from farandole.world.board import Board


def caught(work: Callable[[], object]) -> BaseException:
    try:
        work()
    except BaseException as error:
        return error
    raise AssertionError("it did not fail")


def bad_loss() -> None:
    raise ValueError("bad loss\nmore of it")


def test_the_line_of_the_users_own_code_is_named() -> None:
    error = caught(bad_loss)
    line = bad_loss.__code__.co_firstlineno + 1
    assert describe(error, error.__traceback__) == f"ValueError: bad loss (test_startup.py:{line})"


def test_a_librarys_line_is_not() -> None:
    error = caught(lambda: json.loads("{"))
    assert "(test_startup.py:" in describe(error, error.__traceback__)


def test_odd_exceptions() -> None:
    assert describe(KeyboardInterrupt(), None) == "KeyboardInterrupt"
    error = SyntaxError("invalid", ("/a/train.py", 7, 1, "x", 7, 2))
    assert describe(error, None).endswith("(train.py:7)")
    assert len(describe(ValueError("x" * 5000), None)) < 400


@pytest.mark.parametrize("secondary", [True, False])
def test_the_note_says_whether_it_is_a_consequence(
    monkeypatch: pytest.MonkeyPatch, secondary: bool
) -> None:
    error = PeerDiedError("rank 1 is gone", culprit=1) if secondary else RuntimeError("oh")
    with Board.create(2) as board:
        monkeypatch.setenv("FARANDOLE_BOARD", board.path)
        monkeypatch.setenv("FARANDOLE_RANK", "1")
        note_failure(error, None)
        failure = board.failure(1)
        assert failure is not None
        assert failure.secondary is secondary
        assert failure.culprit == (1 if secondary else None)
    # The launcher is gone: nothing to be said, and nothing raised.
    note_failure(error, None)
