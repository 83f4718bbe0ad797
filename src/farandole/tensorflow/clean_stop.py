"""A clean stop in TensorFlow: out of a tf.function when it has run.

What a callback inside of it raises arrives as an error of TensorFlow's own, from the middle of a
step. So functions that train are marked while they are traced, and whoever calls one leaves behind
it.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import tensorflow as tf

from farandole.engine import context
from farandole.tensorflow.callback import as_written

_MARK = "_farandole_trains"
_installed = False


class _Calls(threading.local):
    """The functions that a thread is in, the outermost first."""

    def __init__(self) -> None:
        self.under_way: list[Any] = []


_calls = _Calls()


def install() -> None:
    """Follow the calls of tf.function's functions; once."""
    global _installed
    if _installed:
        return
    _installed = True
    function: Any = type(tf.function(lambda: None))
    plain = function.__call__

    @functools.wraps(plain)
    def __call__(self: Any, *arguments: Any, **named: Any) -> Any:  # noqa: N807
        under_way = _calls.under_way
        under_way.append(self)
        try:
            result = plain(self, *arguments, **named)
        finally:
            under_way.pop()
        if not under_way and _MARK in self.__dict__ and context.is_initialized():
            context.current().stop_if_asked()
        return result

    function.__call__ = __call__


@as_written
def end_step() -> None:
    """Leave the script if all do so at this step; out of functions that are traced, later.

    Raises:
        StopTraining: All leave.
    """
    if not tf.executing_eagerly():
        for function in _calls.under_way:
            function.__dict__[_MARK] = True
    elif context.is_initialized():
        context.current().stop_if_asked()
