"""Accuracy at a fixed number of epochs, by sliding along curves that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from farandole.model.projection.epochs.schedule import Schedule
from farandole.model.projection.epochs.slide import NotProjectable, ReferenceRuns, project_accuracy
from farandole.model.projection.records import Projected
from farandole.model.series import Series

CONSTANT = Schedule(kind="constant", detail="the learning rate stayed at 0.1")


class Law:
    """E(B) = 10 (1 + B / 100), known to 20 %."""

    critical_batch = None
    assumptions = ()

    def at(self, global_batch: int) -> Projected:
        value = 10 * (1 + global_batch / 100)
        ratio = global_batch / 100
        return Projected(value=value, low=value / 1.2, high=value * 1.2, ratio=ratio)


def curve(epoch: float) -> float:
    return 1 - math.exp(-epoch / 5)


def reference(
    global_batch: int = 100, *, seeds: int = 4, epochs: int = 40, spread: float = 0.005
) -> ReferenceRuns:
    rng = np.random.default_rng(global_batch)
    made = []
    for _ in range(seeds):
        off = rng.normal(0, spread)
        at = tuple(float(epoch) for epoch in range(1, epochs + 1))
        values = tuple(curve(epoch) + off for epoch in at)
        made.append(Series(epochs=at, values=values, times_s=(None,) * epochs, by_step=False))
    return ReferenceRuns(global_batch=global_batch, seeds=tuple(made))


def ask(
    references: list[ReferenceRuns],
    *,
    global_batch: int = 300,
    epochs: float = 20.0,
    schedule: Schedule = CONSTANT,
) -> Projected | NotProjectable:
    return project_accuracy(
        references, Law(), global_batch=global_batch, epochs=epochs, schedule=schedule
    )


def test_a_larger_batch_is_as_far_as_fewer_epochs_of_a_smaller_one() -> None:
    found = ask([reference()])
    assert isinstance(found, Projected)
    # (Bc + B_ref) / (Bc + B) = 200 / 400: 20 epochs are worth 10.
    assert found.value == pytest.approx(curve(10), abs=0.01)
    # The epochs are known to 20 %, which the interval holds besides the seeds.
    assert found.low < curve(10 / 1.2)
    assert found.high > curve(10 * 1.2)
    assert found.ratio == 3.0


def test_the_same_batch_is_read_off() -> None:
    found = ask([reference()], global_batch=100)
    assert isinstance(found, Projected)
    assert found.value == pytest.approx(curve(20), abs=0.01)
    assert found.high - found.low < 0.03


def test_seeds_that_differ_more_make_a_wider_interval() -> None:
    near, far = (ask([reference(spread=s)], global_batch=100) for s in (0.001, 0.05))
    assert isinstance(near, Projected)
    assert isinstance(far, Projected)
    assert far.high - far.low > 10 * (near.high - near.low)


def test_the_nearest_batch_that_reaches_far_enough_is_used() -> None:
    off = reference(200, spread=0.0)
    high = ReferenceRuns(
        global_batch=200,
        seeds=tuple(
            Series(epochs=s.epochs, values=(0.5,) * 40, times_s=s.times_s, by_step=False)
            for s in off.seeds
        ),
    )
    found = ask([reference(), high])
    assert isinstance(found, Projected)
    assert found.value == 0.5
    short = ReferenceRuns(
        global_batch=200,
        seeds=tuple(
            Series(epochs=s.epochs[:5], values=(0.5,) * 5, times_s=s.times_s[:5], by_step=False)
            for s in off.seeds
        ),
    )
    found = ask([reference(), short])
    assert isinstance(found, Projected)
    assert found.value == pytest.approx(curve(10), abs=0.01)


def test_a_loss_slides_as_well() -> None:
    up = reference()
    down = ReferenceRuns(
        global_batch=100,
        seeds=tuple(
            Series(
                epochs=s.epochs,
                values=tuple(-value for value in s.values),
                times_s=s.times_s,
                by_step=False,
            )
            for s in up.seeds
        ),
    )
    first, second = ask([up]), ask([down])
    assert isinstance(first, Projected)
    assert isinstance(second, Projected)
    assert (second.value, second.low, second.high) == (-first.value, -first.high, -first.low)


def test_a_share_stays_below_one_and_other_metrics_do_not() -> None:
    at = (1.0, 2.0, 3.0)
    for factor, high in ((1.0, 1.0), (100.0, None)):
        two = tuple(
            Series(epochs=at, values=(factor * value,) * 3, times_s=(None,) * 3, by_step=False)
            for value in (0.9, 0.99)
        )
        runs = ReferenceRuns(global_batch=100, seeds=two)
        found = ask([runs], global_batch=100, epochs=2.0)
        assert isinstance(found, Projected)
        assert found.value == pytest.approx(factor * 0.945)
        # Two seeds: t of one degree of freedom is 6.31 at 90 %, so that half the interval is 0.28.
        assert found.low == pytest.approx(factor * (0.945 - 6.314 * 0.045), rel=1e-3)
        assert found.high == (high or pytest.approx(100 * (0.945 + 6.314 * 0.045), rel=1e-3))


def test_a_decaying_schedule_is_not_projectable() -> None:
    decaying = Schedule(kind="decaying", detail="the learning rate fell from 0.1 to 0.001")
    found = ask([reference()], schedule=decaying)
    assert isinstance(found, NotProjectable)
    assert "Not projectable from this run: the learning rate fell" in found.reason


def test_beyond_a_curve_there_is_no_answer() -> None:
    early = ask([reference()], epochs=1.0)
    assert isinstance(early, NotProjectable)
    assert "more often" in early.reason
    late = ask([reference()], global_batch=10, epochs=39.0)
    assert isinstance(late, NotProjectable)
    assert "Train longer" in late.reason
    nothing = ask([])
    assert isinstance(nothing, NotProjectable)
    assert "farandole.record" in nothing.reason


def moved(runs: ReferenceRuns, factor: float, plus: float = 0.0) -> ReferenceRuns:
    """The same curves of another metric."""
    return ReferenceRuns(
        global_batch=runs.global_batch,
        seeds=tuple(
            Series(
                epochs=s.epochs,
                values=tuple(factor * value + plus for value in s.values),
                times_s=s.times_s,
                by_step=False,
            )
            for s in runs.seeds
        ),
    )


def test_a_side_beyond_a_curve_is_left_open() -> None:
    # 2.1 epochs are worth 1.05, of 0.87 to 1.26: nobody looked before epoch 1.
    early = ask([reference()], epochs=2.1)
    assert isinstance(early, Projected)
    assert early.low == 0.0
    assert early.value == pytest.approx(curve(1.05), abs=0.02)
    assert curve(1.26) < early.high < 0.3
    loss = ask([moved(reference(), -1.0, 1.0)], epochs=2.1)
    assert isinstance(loss, NotProjectable)
    assert "0.88 to 1.3 at 100" in loss.reason
    assert "more often" in loss.reason
    # 24 epochs at batch 50 are worth 32, of 27 to 38: nobody trained beyond 35.
    late = ask([moved(reference(epochs=35), 0.8)], global_batch=50, epochs=24.0)
    assert isinstance(late, Projected)
    assert late.high == 1.0
    assert late.low > 0.7
    percent = ask([moved(reference(epochs=35), 100.0)], global_batch=50, epochs=24.0)
    assert isinstance(percent, NotProjectable)
    assert "Train longer" in percent.reason


def test_a_larger_batch_is_never_worth_more_epochs_nor_fewer_steps() -> None:
    # Known to 20 %, 39 epochs at 101 would be worth up to 46.6 at 100.
    found = ask([moved(reference(), 0.8)], global_batch=101, epochs=39.0)
    assert isinstance(found, Projected)
    assert found.high == pytest.approx(0.8, abs=0.02)
    assert found.low == pytest.approx(0.8, abs=0.02)


def test_a_seed_that_diverged_does_not_count_and_one_seed_has_its_own_noise() -> None:
    runs = reference(seeds=1)
    broken = Series(epochs=(1.0, 2.0), values=(0.1, math.nan), times_s=(None, None), by_step=False)
    found = ask([ReferenceRuns(global_batch=100, seeds=(*runs.seeds, broken))])
    alone = ask([runs])
    assert found == alone
    # The same curve again is no second seed, whose spread would be 0.
    again = ask([ReferenceRuns(global_batch=100, seeds=(*runs.seeds, *runs.seeds))])
    assert again == alone
    assert isinstance(alone, Projected)


def test_far_beyond_the_measured_batches_it_is_indicative() -> None:
    found = ask([reference(epochs=400)], global_batch=1700, epochs=300.0)
    assert isinstance(found, Projected)
    assert found.indicative
