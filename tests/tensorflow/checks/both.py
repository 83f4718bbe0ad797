"""What checks share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

import farandole.tensorflow as hvd


def both(work: Callable[..., Any], *inputs: Any) -> list[Any]:
    """Return what a function gives eagerly and as a tf.function."""
    return [work(*inputs), tf.function(work)(*inputs)]


def everyone(value: Callable[[int], Any]) -> list[Any]:
    """Return what each rank has."""
    return [np.asarray(value(rank)) for rank in range(hvd.size())]


def same(found: Any, expected: Any, rtol: float = 1e-6) -> None:
    """Compare values and types."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    np.testing.assert_allclose(
        found.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=1e-7
    )


def alike(value: Any) -> None:
    """Check that a value is the same on every rank, bit for bit."""
    mine = np.asarray(value).tobytes()
    assert hvd.allgather_object(mine) == [mine] * hvd.size()


@contextmanager
def raises(kind: Any, *words: str) -> Iterator[None]:
    """Expect an error of this kind whose message has all these words."""
    try:
        yield
    except kind as error:
        text = str(error)
        missing = [word for word in words if word not in text]
        assert not missing, f"{missing} not in: {text}"
    else:
        raise AssertionError(f"no {kind} was raised")
