"""join() while gradients travel as arrays, as Keras's and TensorFlow's do."""

from __future__ import annotations

import numpy as np
import pytest

from farandole.engine import context, names
from farandole.engine.gradients import Gradients, gradients_of
from farandole.transport.reduction import AVERAGE, SUM
from tests.torch.checks import Check, Checks, Ranks, on

pytestmark = pytest.mark.ranks
checks = Checks()
ranks = on((2, "shm"), (3, "shm"), (2, "gloo"))


def join() -> int:
    engine = context.current().engine
    return names.join(engine, gradients_of(engine))


@checks
def check_steps_go_on_with_zeros() -> None:
    engine, size = context.current().engine, context.size()
    reducers = [Gradients(engine, ["a", "b"], how) for how in (AVERAGE, SUM)]
    gradients = [np.full(3, 6.0, np.float32), np.full((1500, 1500), 6.0, np.float32)]
    # Each rank has one step more than the one before it; the first is where buckets are made.
    for step in range(context.rank() + 1):
        for reducer, whole in zip(reducers, (6.0, 6.0 * size), strict=True):
            for found in reducer.reduce(gradients):
                assert found is not None
                expected = whole * (size - step) / size
                assert np.allclose(found, expected), (step, found.flat[0], expected)
    assert join() == size - 1
    # They are all back.
    for reducer, whole in zip(reducers, (6.0, 6.0 * size), strict=True):
        for found in reducer.reduce(gradients):
            assert found is not None
            assert np.allclose(found, whole)
        reducer.close()


@checks.each()
def test_on_all_ranks(ranks: Ranks, check: Check) -> None:
    ranks.run(check)
