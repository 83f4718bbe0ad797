"""From which size on workers pay, and the check on smaller data sets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farandole.labs.driving.lab import LAB
from farandole.labs.driving.size import answer_size
from farandole.model.pays import Speed, size_that_pays
from tests.labs.driving.build import SIZES, found, nothing, studies
from tests.labs.trained import found_of, speed


def test_the_size_follows_from_fixed_time_and_speed() -> None:
    one, two, four = answer_size(found()).tables[0].rows
    assert four[1:5] == (None,) * 4
    assert (one[0], two[0]) == (1, 2)
    assert two[2] == pytest.approx(speed(2))
    expected = size_that_pays(
        Speed(workers=1, fixed_s=one[1], samples_per_s=speed(1)),
        Speed(workers=2, fixed_s=two[1], samples_per_s=speed(2)),
        epochs=3,
        batch=32,
    )
    assert two[3:7] == (expected.even, expected.time, expected.steps, expected.samples)
    # 20 steps at a global batch of 64.
    assert two[6] == 1280


def test_computed_times_are_near_those_of_launches() -> None:
    check = answer_size(found()).tables[1]
    assert {(row[1], row[2]) for row in check.rows} == {(n, size) for n in (1, 2) for size in SIZES}
    for row in check.rows:
        # The last batch of an epoch is smaller; a launch made by hand takes a whole step for it.
        assert row[4] == pytest.approx(row[3].value, rel=0.1)


def test_assumptions_are_said_and_so_is_a_lack_of_figures() -> None:
    assert any(said.startswith("Assumed") for said in answer_size(found()).sentences)
    assert "two numbers of workers" in answer_size(nothing()).sentences[0]


def test_on_a_busy_machine_steps_alone_are_told() -> None:
    made = studies(seeds=1)
    launches = tuple(
        replace(launch, busy=True, foreign_share=0.9) for launch in made["workers"].launches
    )
    made["workers"] = replace(made["workers"], launches=launches)
    answered = answer_size(found_of(LAB, made))
    assert [row[5] for row in answered.tables[0].rows] == [640, 1280, 2560]
    assert all(row[1:5] == (None,) * 4 for row in answered.tables[0].rows)
    assert "1,280 on 2 workers" in answered.sentences[1]
