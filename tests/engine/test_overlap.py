"""The trial of overlap, with step times that are made up."""

from __future__ import annotations

import pytest

from farandole.engine.bucket_step import BLOCK_STEPS, BLOCKS, WARM_UP_STEPS, OverlapTrial


def _try_out(trial: OverlapTrial, *, off_s: float, on_s: float) -> int:
    """Feed step times until it wants to decide; return the number of steps that took."""
    now_s = 0.0
    for steps in range(1, 100):
        if trial.step(now_s):
            return steps
        now_s += on_s if trial.on else off_s
    raise AssertionError("it never decided")


@pytest.mark.parametrize(
    ("off_s", "on_s", "chosen"), [(1.0, 0.8, True), (1.0, 1.2, False), (1.0, 0.99, False)]
)
def test_the_faster_way_is_chosen_if_it_gains_enough(
    off_s: float, on_s: float, chosen: bool
) -> None:
    trial = OverlapTrial("auto", spare_cores=True)
    assert _try_out(trial, off_s=off_s, on_s=on_s) == WARM_UP_STEPS + BLOCK_STEPS * BLOCKS
    assert trial.figures() == pytest.approx((off_s, on_s))
    trial.decide([trial.figures(), trial.figures()])
    assert trial.on is chosen
    assert not trial.step(1e9)
    assert trial.on is chosen


def test_the_slowest_rank_decides() -> None:
    trial = OverlapTrial("auto", spare_cores=True)
    _try_out(trial, off_s=1.0, on_s=0.5)
    trial.decide([(1.0, 0.5), (1.0, 1.1)])
    assert not trial.on


@pytest.mark.parametrize(
    ("setting", "spare_cores", "on"),
    [("on", False, True), ("off", True, False), ("auto", False, False)],
)
def test_nothing_is_tried_where_it_is_settled(setting: str, spare_cores: bool, on: bool) -> None:
    trial = OverlapTrial(setting, spare_cores=spare_cores)
    for step in range(100):
        assert not trial.step(float(step))
        assert trial.on is on
