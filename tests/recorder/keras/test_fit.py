from __future__ import annotations

import pytest

from farandole.recorder.keras import _Fit
from farandole.recorder.keras_data import Batch


class Model:
    """Anything that can be referred to weakly."""


def waits(*found_s: float) -> list[float]:
    """Return what a fit makes of batches that were there so long after their steps began."""
    model = Model()
    fit = _Fit(model, 0, None)
    told = []
    for number, seconds in enumerate(found_s):
        fit.batch_begin_s = 100.0 + number
        batch = Batch(begin_s=None, end_s=fit.batch_begin_s + seconds, samples=1)
        told.append(batch.end_s - fit.asked_s(batch))
    return told


def test_calling_a_step_is_no_waiting() -> None:
    # The second step had its batch at once: its 0.2 ms are the call's.
    assert waits(0.0003, 0.0002, 0.0052) == pytest.approx([0.0, 0.0, 0.005], abs=1e-9)


def test_data_that_are_always_late_are_waited_for() -> None:
    assert waits(0.008, 0.009) == pytest.approx([0.0075, 0.0085], abs=1e-9)
