"""Errors of operations that run eagerly: ours are TensorFlow's there, too.

Programs for Horovod catch tf.errors.FailedPreconditionError where ranks submit what does not fit
together, and tf.errors.InvalidArgumentError where one rank's arguments are wrong.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from farandole.errors import MismatchError, UnfitError, UsageError


class NoGlobalVariablesError(UsageError, RuntimeError):
    """TensorFlow 2 has no global variables; Horovod raises a RuntimeError."""


def of_tensorflow(error: MismatchError | UsageError) -> Exception:
    """Return an error of the same class and of TensorFlow's, with the same text."""
    together = isinstance(error, MismatchError | UnfitError)
    errors = tf.errors
    theirs = errors.FailedPreconditionError if together else errors.InvalidArgumentError
    kind: Any = type(error)
    both: Exception = _both(kind, theirs)(str(error))
    return both


@functools.cache
def _both(ours: type[Exception], theirs: Any) -> Any:
    def begin(self: Any, message: str) -> None:
        theirs.__init__(self, None, None, message)

    # Its own name: what users read is not to change.
    return type(ours.__name__, (ours, theirs), {"__init__": begin, "__module__": ours.__module__})
