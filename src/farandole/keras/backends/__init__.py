"""Keras's backends, each with its own way from gradients to the engine and back."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from farandole.errors import UsageError
from farandole.keras.backend import backend_name

if TYPE_CHECKING:
    from farandole.keras.averaging import Backend

_NAMES = ("torch", "tensorflow", "jax")


@cache
def current() -> Backend:
    """Return the backend that Keras runs on."""
    name = backend_name()
    if name not in _NAMES:
        raise UsageError(
            f"Keras runs on the backend {name!r}, which does not train. Choose one of "
            f"{', '.join(_NAMES)} by KERAS_BACKEND."
        )
    backend: Backend = import_module(f"farandole.keras.backends.{name}").BACKEND
    return backend
