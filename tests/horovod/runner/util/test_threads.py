"""Threads, as scripts for Horovod start them."""

from __future__ import annotations

import threading

import pytest

from farandole.horovod.runner.util.threads import in_thread


def test_a_function_in_a_thread() -> None:
    seen: list[object] = []
    thread = in_thread(lambda *a: seen.extend(a), (1, 2), name="mine", daemon=False)
    thread.join(10)
    assert (seen, thread.name, thread.daemon) == ([1, 2], "mine", False)
    assert in_thread(lambda: None).daemon


def test_arguments_are_a_tuple() -> None:
    with pytest.raises(ValueError, match=r"args must be a tuple.*\(value,\)"):
        in_thread(print, args=[1])  # type: ignore[arg-type]


@pytest.mark.parametrize("silent", [True, False])
def test_an_exception_may_stay_unsaid(silent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: said.append(str(args.exc_value)))

    def fail() -> None:
        raise RuntimeError("loud")

    in_thread(fail, silent=silent).join(10)
    assert said == ([] if silent else ["loud"])
