"""Adasum's coefficients against its definition, without a process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from farandole.engine.operations import coefficients

Array = np.ndarray[Any, Any]


def pair(a: Array, b: Array) -> Array:
    """The definition, in vectors."""
    dot = a @ b
    combined: Array = (1 - dot / (2 * a @ a)) * a + (1 - dot / (2 * b @ b)) * b
    return combined


def tree(vectors: Sequence[Array]) -> Array:
    """Neighbours first; of a number that is no power of two, the rest comes last."""
    if len(vectors) == 1:
        return vectors[0]
    half = max(2**i for i in range(10) if 2**i < len(vectors))
    return pair(tree(vectors[:half]), tree(vectors[half:]))


def combined(vectors: Sequence[Array]) -> Array:
    stacked = np.stack(vectors)
    result: Array = coefficients(stacked @ stacked.T) @ stacked
    return result


@pytest.mark.parametrize("count", range(1, 10))
def test_any_number_of_vectors_follows_the_definition(count: int) -> None:
    vectors = list(np.random.default_rng(count).standard_normal((count, 50)) + 0.3)
    assert np.allclose(combined(vectors), tree(vectors), rtol=1e-12)


def test_equal_vectors_are_averaged_and_orthogonal_ones_added() -> None:
    one = np.array([3.0, 4.0, 0.0, 0.0])
    assert np.allclose(combined([one] * 4), one)
    basis = list(np.eye(4) * 2)
    assert np.allclose(combined(basis), [2, 2, 2, 2])


def test_a_vector_of_zeros_changes_nothing() -> None:
    one, zero = np.array([1.0, 2.0]), np.zeros(2)
    for vectors in ([one, zero], [zero, one], [zero, zero, one]):
        assert np.allclose(combined(vectors), one)
    assert not combined([zero, zero]).any()


def test_what_is_not_a_number_shows() -> None:
    assert np.isnan(combined([np.array([np.nan, 1.0]), np.ones(2)])).any()
    with np.errstate(all="ignore"):
        assert not np.isfinite(combined([np.array([np.inf, 1.0]), np.ones(2)])).all()
