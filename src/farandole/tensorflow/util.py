"""What programs import from `horovod.tensorflow.util`, though most of it begins with a line."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

__all__ = ["_cache", "_executing_eagerly", "_make_subgraph", "refs_to_vars", "vars_to_refs"]

_cache = functools.cache


def _executing_eagerly() -> bool:
    """Say whether operations run at once, and not in a tf.function."""
    eagerly: bool = tf.executing_eagerly()
    return eagerly


def _make_subgraph(function: Callable[..., Any]) -> Any:
    """Return a function as one of TensorFlow's."""
    return tf.function(function)


def vars_to_refs(vars: Any) -> Any:
    """Return what stands for a variable, or a tuple for a list of them, as a key of a dict."""
    return tuple(map(vars_to_refs, vars)) if isinstance(vars, list) else vars.ref()


def refs_to_vars(refs: Any) -> Any:
    """Return what vars_to_refs was given."""
    return list(map(refs_to_vars, refs)) if isinstance(refs, tuple) else refs.deref()
