"""A fleet shared out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farandole.model.projection.fleet import fleet_sentence, job_sizes, share_out
from farandole.model.projection.outlook import Goal, Outlook
from tests.model.projection.known import outlook

GOAL = Goal(kind="epochs", words="for 10 epochs", epochs=10.0)


def job(workers: int) -> Outlook:
    """Amdahl: a tenth of an hour's work is serial."""
    return outlook(workers, 3600 * (0.1 + 0.9 / workers), 1.0)


@pytest.mark.parametrize(
    ("fleet", "sizes"), [(32, [1, 2, 4, 8, 16, 32]), (12, [1, 3, 6, 12]), (7, [1, 7]), (1, [1])]
)
def test_sizes(fleet: int, sizes: list[int]) -> None:
    assert job_sizes(fleet) == sizes


def test_small_jobs_finish_more_and_take_longer() -> None:
    rows = {row.workers: row for row in share_out(32, job)}
    assert rows[4].jobs == 8
    assert rows[4].per_day.value == pytest.approx(8 * 24 / (0.1 + 0.9 / 4))
    assert rows[32].per_day.value == pytest.approx(24 / (0.1 + 0.9 / 32))
    assert rows[4].per_day.low == pytest.approx(rows[4].per_day.value / 1.1)


def test_the_sentence_compares_with_the_largest_measured_size() -> None:
    said = fleet_sentence(share_out(32, job), GOAL, usual=4)
    more = 8 * (0.1 + 0.9 / 32) / (0.1 + 0.9 / 4)
    longer = (0.1 + 0.9 / 4) / (0.1 + 0.9 / 32)
    assert said.startswith(f"8 jobs of 4 workers finish {more:.2f} times as many experiments")
    assert f"{longer:.2f} times as long" in said


def linked(workers: int) -> Outlook:
    """Hosts of 8 workers."""
    return replace(job(workers), link="25Gbit" if workers > 8 else None)


def test_the_link_that_is_taken_is_said() -> None:
    rows = share_out(32, linked)
    assert [row.link for row in rows] == [None] * 4 + ["25Gbit"] * 2
    named = fleet_sentence(rows, GOAL, usual=4)
    assert "as one job of 32 workers on 25Gbit, and each" in named
    assert named.endswith("for 10 epochs.")
    unsaid = fleet_sentence(rows, GOAL, usual=4, links_named=0)
    assert "Nothing says what connects the hosts: 25Gbit is taken" in unsaid
    several = fleet_sentence(rows, GOAL, usual=4, links_named=3)
    assert several.endswith("Of the links that you named, 25Gbit is taken.")
    inside = fleet_sentence(share_out(8, linked), GOAL, usual=4, links_named=0)
    assert "25Gbit" not in inside


def test_a_fleet_of_one() -> None:
    assert "one job of 1 worker for 10 epochs" in fleet_sentence(share_out(1, job), GOAL, usual=4)
