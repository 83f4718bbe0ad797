"""Times by workers and device."""

from __future__ import annotations

import pytest

from farandole.labs.caltech.kind import KIND as CALTECH
from farandole.labs.fruits.kind import KIND as FRUITS
from farandole.labs.transfer.times import answer_times, timed
from tests.labs.trained import speed
from tests.labs.transfer.build import found


def test_this_machine_beside_both_devices_of_the_lab() -> None:
    rows = {row[:3]: row for row in answer_times(found("caltech"), CALTECH).tables[0].rows}
    assert [key[1:] for key in rows if key[0] == "the lab"] == [
        *(("T4", 2), ("T4", 4), ("V100", 4), ("V100", 8))
    ]
    # Over the fewest workers of the same device: 209 / 81, 80 / 44.
    assert rows["the lab", "T4", 4][6] == pytest.approx(209 / 81)
    assert rows["the lab", "V100", 8][6] == pytest.approx(80 / 44)
    assert rows["here", "CPU", 2][6] == pytest.approx(speed(2) / speed(1), rel=0.05)


def test_more_workers_than_cores_have_no_time_and_are_said_to_have_none() -> None:
    answered = answer_times(found(), FRUITS)
    here = {row[2]: row for row in answered.tables[0].rows if row[0] == "here"}
    assert here[4][3] is None
    assert here[2][3] is not None
    assert any("4 workers share 2 cores" in sentence for sentence in answered.sentences)


def test_a_contradiction_in_the_labs_table_is_no_fixed_cost() -> None:
    rows = {(row.device, row.workers): row for row in timed(found("caltech"), CALTECH)}
    # 30 x 209 s is more than the job.
    assert rows["T4", 2].fixed_share is None
    assert rows["T4", 4].fixed_share == pytest.approx(1 - 30 * 81 / 2594)


def test_the_faster_device_that_gains_nothing_is_named() -> None:
    said = answer_times(found("caltech"), CALTECH).sentences
    assert any("V100 gains nothing over T4" in sentence for sentence in said)


def test_both_axes_are_logarithmic_as_the_caption_says() -> None:
    for figure in answer_times(found(), FRUITS).figures:
        assert "On logarithmic axes" in figure.caption
        encoding = figure.spec["layer"][0]["encoding"]
        assert [encoding[axis]["scale"]["type"] for axis in "xy"] == ["log", "log"]
