"""The record that comes with this version."""

from __future__ import annotations

from farandole.model.projection.intervals import FARTHEST
from farandole.model.projection.track_record import track_record


def test_distances_follow_each_other_up_to_the_farthest() -> None:
    reaches = track_record().reaches
    assert reaches[0].beyond == 1
    assert [reach.beyond for reach in reaches[1:]] == [reach.up_to for reach in reaches[:-1]]
    assert reaches[-1].up_to == FARTHEST


def test_a_distance_is_looked_up_by_its_upper_end() -> None:
    record = track_record()
    assert record.at(0.5) == record.at(2.0) == record.reaches[0]
    assert record.at(2.1) == record.at(4.0) == record.reaches[1]
    assert record.at(100.0) == record.reaches[-1]


def test_a_sentence_says_how_far_off_it_was() -> None:
    record = track_record()
    reach = record.at(8.0)
    said = record.sentence(8.0)
    assert said.startswith("At 4 to 8 times the measured size")
    assert f"{reach.mean_abs_pct:.0f} % off on average" in said
    assert f"less than {reach.p90_abs_pct:.0f} %" in said
    assert "aws-t4" in said


def test_beyond_the_farthest_nobody_has_checked() -> None:
    assert track_record().sentence(64.0).startswith("Nobody has checked projections to 64 times")
