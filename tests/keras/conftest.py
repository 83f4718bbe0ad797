"""Keras in the tests' own process: on torch, which is there anyway. Launches for all modules."""

from __future__ import annotations

import os
import sys

import pytest

from tests.keras.checking import Check, Outcomes

# Keras's default is TensorFlow, which takes seconds to import and does not survive a fork.
os.environ.setdefault("KERAS_BACKEND", "torch")
# What else it imports where it is installed takes as long as Keras itself.
_UNUSED = [name for name in ("jax", "pandas", "sklearn") if name not in sys.modules]
sys.modules |= dict.fromkeys(_UNUSED)  # type: ignore[arg-type]
try:
    import keras  # noqa: F401
finally:
    for name in _UNUSED:
        del sys.modules[name]


@pytest.fixture(scope="session")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """What the checks gave of which there is a test in this session."""
    params = [getattr(item, "callspec", None) for item in request.session.items]
    found = [call.params.get("check") for call in params if call is not None]
    wanted = [check for check in found if isinstance(check, Check)]
    return Outcomes(wanted, tmp_path_factory.mktemp("keras"))
