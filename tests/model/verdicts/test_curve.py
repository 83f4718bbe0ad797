"""What a curve says: where each rule fires, and where it must not."""

from __future__ import annotations

import pytest

from farandole.model.curves import draw_curves
from farandole.model.info.curve import Curve
from farandole.model.measured import measure
from farandole.model.statistics import Estimate
from farandole.model.verdicts.curve import (
    interval,
    leaves_linear,
    more_than_linear,
    no_gain,
    single_launches,
    too_noisy,
)
from farandole.study.records import Cell
from tests.model.build import make_study, repeated


def curve_of(*times: list[float]) -> Curve:
    """Step times at 1, 2, 4, ... workers, one per launch; batch per worker fixed."""
    launches = [
        launch
        for power, step_times in enumerate(times)
        for launch in repeated(Cell(workers=2**power, batch=8), step_times)
    ]
    return draw_curves(measure(make_study(launches))[0])[0]


@pytest.mark.parametrize(
    ("curve", "workers"),
    [
        (curve_of([0.10], [0.10], [0.10]), None),
        (curve_of([0.10], [0.105], [0.15]), 4),
        (curve_of([0.10], [0.15], [0.15]), 2),
        # 0.89 on average, but the interval reaches above 0.9.
        (curve_of([0.10, 0.101, 0.099], [0.112, 0.118, 0.107]), None),
        (curve_of([0.10, 0.1001, 0.0999], [0.125, 0.1251, 0.1249]), 2),
    ],
)
def test_leaving_linear(curve: Curve, workers: int | None) -> None:
    found = leaves_linear(curve)
    assert (found.evidence["workers"] if found else None) == workers


def test_leaving_linear_names_the_last_good_count() -> None:
    found = leaves_linear(curve_of([0.10], [0.105], [0.15]))
    assert found is not None
    assert found.sentence == (
        "The curve leaves linear at 4 workers: efficiency 67%, after 95% with 2 (weak scaling)."
    )
    assert found.action.startswith("Up to 2 ")


@pytest.mark.parametrize(
    ("curve", "severity"),
    [
        (curve_of([0.10], [0.10]), None),
        (curve_of([0.10], [0.11]), None),
        (curve_of([0.10], [0.08]), "warn"),
        (curve_of([0.10], [0.098]), "note"),
        # More on average, not clearly.
        (curve_of([0.10, 0.12, 0.09], [0.09, 0.10, 0.11]), None),
        (curve_of([0.10, 0.101, 0.099], [0.08, 0.081, 0.079]), "warn"),
    ],
)
def test_more_than_linear(curve: Curve, severity: str | None) -> None:
    found = more_than_linear(curve)
    assert (found.severity if found else None) == severity


@pytest.mark.parametrize(
    ("few", "many", "fires"),
    [
        ([100.0, 100.1, 99.9, 100.2, 99.8], [100.5, 100.4, 100.6, 100.3, 100.7], True),
        ([100.0, 100.1, 99.9, 100.2, 99.8], [110.5, 110.4, 110.6, 110.3, 110.7], False),
        # Too few launches to claim it.
        ([100.0, 100.1, 99.9], [100.5, 100.4, 100.6], False),
        ([100.0], [100.0], False),
    ],
)
def test_no_gain(few: list[float], many: list[float], fires: bool) -> None:
    assert (no_gain(few, many, "1 worker", "2 workers") is not None) is fires


@pytest.mark.parametrize(
    ("curve", "fires"),
    [
        (curve_of([0.10, 0.13, 0.09], [0.11, 0.15, 0.10]), True),
        (curve_of([0.10, 0.101, 0.099], [0.11, 0.111, 0.109]), False),
        # Between 0.95 and 1.08 nobody knows whether it pays.
        (curve_of([0.10, 0.102, 0.098], [0.196, 0.206, 0.191]), True),
        (curve_of([0.10], [0.11]), False),
    ],
)
def test_too_noisy(curve: Curve, fires: bool) -> None:
    found = too_noisy(curve)
    assert (found is not None) is fires
    if found is not None:
        assert "--repeats 6" in found.action


def test_noise_that_leaves_the_direction_clear_says_so() -> None:
    slower = too_noisy(curve_of([0.10, 0.12, 0.09], [0.5, 0.6, 0.45]))
    assert slower is not None
    assert slower.sentence.startswith("Too noisy to quote: 2 workers are slower, but")
    undecided = too_noisy(curve_of([0.10, 0.13, 0.09], [0.2, 0.3, 0.15]))
    assert undecided is not None
    assert undecided.sentence.startswith("Too noisy to tell: ")


def test_single_launches_are_said_once() -> None:
    single = curve_of([0.10], [0.11])
    found = single_launches([single, single])
    assert found is not None
    assert "--repeats 5" in found.action
    imported = single_launches([single], imported=True)
    assert imported is not None
    assert "rows" in imported.action
    assert single_launches([single, curve_of([0.1, 0.101], [0.11, 0.111])]) is None
    assert single_launches([curve_of([0.1])]) is None
    assert single_launches([]) is None


def test_intervals_in_words() -> None:
    assert interval(Estimate(value=1.83, low=1.79, high=1.87)) == " (1.79 to 1.87)"
    assert interval(Estimate(value=1.83, low=None, high=None)) == ""
