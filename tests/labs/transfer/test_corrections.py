"""What both labs on transfer learning got wrong."""

from __future__ import annotations

from farandole.labs.fruits.kind import KIND
from farandole.labs.transfer.corrections import shared_corrections
from tests.labs.transfer.build import found, nothing


def test_gradients_are_averaged_and_steps_get_fewer() -> None:
    first = shared_corrections(found(), KIND)[0]
    assert "averaging weights loses precision" in first.said
    # 1000 samples: 32 steps of 32 in each of 14 epochs, on 4 workers 8 of 128.
    assert "448 steps of 32 samples on 1 worker" in first.shown_by
    assert "112 steps of 128 samples on 4 workers" in first.shown_by
    assert "one and the same fingerprint" in first.shown_by
    assert "Averaging alone: 2 workers with 16 samples each" in first.shown_by


def test_the_missing_wrapper_is_shown_both_ways() -> None:
    second = shared_corrections(found(), KIND)[1]
    assert "4.00 kB of gradients" in second.shown_by
    assert "nothing was averaged" in second.shown_by


def test_the_rates_are_shown_by_runs() -> None:
    third = shared_corrections(found(), KIND)[2]
    assert "0.1 x 2 = 0.2" in third.shown_by
    assert shared_corrections(nothing(), KIND)[2].shown_by.endswith("was not tried here.")
