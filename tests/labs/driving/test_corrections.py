"""What the driving lab got wrong."""

from __future__ import annotations

from farandole.labs.driving.corrections import corrections
from tests.labs.driving.build import found, nothing


def test_gradients_in_every_step_not_weights_once_an_epoch() -> None:
    first = corrections(found())[0]
    assert "once an epoch" in first.said
    assert "in every step" in first.right
    assert "4.00 kB of gradients in each of 24 steps" in first.shown_by


def test_a_regression_is_judged_beside_a_constant() -> None:
    second = corrections(found())[1]
    assert "means nothing" in second.right
    assert "0.0205 on 1 worker" in second.shown_by
    assert "beside 0.1 of the best constant" in second.shown_by


def test_without_a_run_it_is_said_that_nothing_shows_it() -> None:
    assert all("here" in one.shown_by for one in corrections(nothing()))
