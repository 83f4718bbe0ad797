"""Threads, as scripts and tests for Horovod start them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any


def in_thread(
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Call a function in a thread of its own, and return the thread.

    Args:
        target: What to call.
        args: Its arguments, as a tuple.
        name: The thread's name; Python chooses one when None.
        daemon: Whether the process may end without it.
        silent: Whether an exception in it stays unsaid.

    Raises:
        ValueError: The arguments are not a tuple.
    """
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {args!r}; of one value: (value,)")

    def call() -> None:
        with contextlib.suppress(Exception) if silent else contextlib.nullcontext():
            target(*args)

    thread = threading.Thread(target=call, name=name, daemon=daemon)
    thread.start()
    return thread
