"""The lab's larger counts, projected, or why they are not."""

from __future__ import annotations

import pytest

from farandole.labs.faces.lab import LAB
from farandole.labs.faces.plan import SCALING
from farandole.labs.faces.projected import LAB_COUNTS, projected
from farandole.labs.faces.scaling import answer_weak
from farandole.model.info.curve import Scaling
from farandole.study.records import Cell
from tests.labs.faces.build import SHARED, found, nothing, step_s
from tests.labs.trained import found_of
from tests.model.build import make_study, timed_launch


@pytest.mark.parametrize("scaling", ["weak", "strong"])
def test_counts_beyond_the_measured_ones_are_projected(scaling: Scaling) -> None:
    ahead = projected(found(), scaling)
    assert {point.count for point in ahead.points} == set(LAB_COUNTS) - {1, 2}
    assert ahead.why_not == ()


def test_a_projection_that_cannot_be_made_says_why() -> None:
    # One network, one launch of each count, no gradient times: two rows are too few.
    study = make_study(
        timed_launch(
            Cell(workers=workers, threads=1, batch=SHARED, params=(("model", "vgg16"),)),
            step_s("vgg16", workers, SHARED),
        )
        for workers in (1, 2)
    )
    few = found_of(LAB, {SCALING: study})
    ahead = projected(few, "weak")
    assert ahead.points == ()
    (said,) = ahead.why_not
    assert said.startswith("Not projected: VGG16. 2 rows")
    assert "too few to project from" in said
    assert said in answer_weak(few).sentences


def test_without_a_study_there_is_nothing_to_say() -> None:
    ahead = projected(nothing(), "weak")
    assert (ahead.points, ahead.why_not) == ((), ())
