"""What the fruits lab got wrong: its figures against their own inputs."""

from __future__ import annotations

from farandole.labs.fruits.corrections import corrections
from tests.labs.transfer.build import found, nothing


def test_speedups_are_quotients_of_times() -> None:
    first = corrections(found())[0]
    assert first.said == "4 GPUs are 87 % faster than 2, and an epoch takes 75 % less."
    # 319 / 205 is 1.556, 1 - 5 / 11 is 0.545.
    assert "1.56x" in first.right
    assert "55 % less" in first.right
    # 1,000 samples at 100 and at 190 in a second, in whole batches.
    assert "Here an epoch takes " in first.shown_by
    assert "as fast for 2 times the workers" in first.shown_by


def test_ten_epochs_are_a_quarter_to_a_third_of_the_job() -> None:
    second = corrections(found())[1]
    # 50 / 205 and 110 / 319.
    assert "24 % to 34 % of the jobs" in second.right
    assert "10 x 20.0 s are" in second.shown_by
    assert "of the job" in second.shown_by


def test_the_arithmetic_stands_without_any_run() -> None:
    assert "24 % to 34 %" in corrections(nothing())[1].right
    assert "No two epoch times were measured here." in corrections(nothing())[0].shown_by
