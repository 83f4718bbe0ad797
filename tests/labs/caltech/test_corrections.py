"""What the caltech lab got wrong: its figures against each other."""

from __future__ import annotations

from farandole.labs.caltech.corrections import corrections
from tests.labs.transfer.build import found, nothing


def test_an_epoch_or_the_job_is_off() -> None:
    first = corrections(found("caltech"))[0]
    assert "2.58x for twice the workers" in first.right
    # 30 x 209 is 6270 s, the job took 5910 s: 197 s an epoch at the most.
    assert "1:44:30" in first.shown_by
    assert "1:38:30" in first.shown_by
    assert "at most 197 s an epoch" in first.shown_by
    assert "Here an epoch takes " in first.shown_by


def test_equal_times_on_unequal_devices_are_not_bound_by_computing() -> None:
    second = corrections(found("caltech"))[1]
    assert "not bound by computing, likely by its input" in second.right
    assert "81 and 80 s an epoch" in second.shown_by


def test_the_arithmetic_stands_without_any_run() -> None:
    first, second, *_ = corrections(nothing("caltech"))
    assert "2.58x" in first.right
    assert "No step was measured here." in second.shown_by
