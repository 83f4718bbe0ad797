"""What is known of the learning rate."""

from __future__ import annotations

import pytest

from farandole.model.projection.epochs.schedule import judge_rates, schedule_of
from farandole.study.records import Cell, Metric
from tests.model.build import make_launch, make_rank, make_steps

WHOLE = {"purpose": "accuracy", "outcome": "ok"}


@pytest.mark.parametrize(
    ("rates", "kind"),
    [
        ((0.1,), "constant"),
        ((0.01, 0.05, 0.1), "constant"),
        ((0.1, 0.099, 0.095), "constant"),
        ((0.01, 0.1, 0.05), "decaying"),
        ((0.1, 0.05, 0.0), "decaying"),
    ],
)
def test_rates_are_judged(rates: tuple[float, ...], kind: str) -> None:
    assert judge_rates(rates).kind == kind


def test_recorded_rates_count_most() -> None:
    cell = Cell(workers=1, params=(("decay", "constant"),))
    rank = make_rank(0, make_steps(0.1), learning_rates=((0, 0.1), (100, 0.01)))
    found = schedule_of([make_launch(cell, [rank], **WHOLE)])
    assert found.kind == "decaying"
    assert found.detail == "the learning rate fell from 0.1 to 0.01"


def test_a_metric_tells_as_well() -> None:
    metrics = tuple(
        Metric(name="learning_rate", value=rate, epoch=epoch)
        for epoch, rate in enumerate((0.1, 0.05, 0.0), start=1)
    )
    assert schedule_of([make_launch(Cell(workers=1), metrics=metrics, **WHOLE)]).kind == "decaying"


@pytest.mark.parametrize(
    ("params", "kind"),
    [
        ((("decay", "cosine"),), "decaying"),
        ((("decay", "constant"),), "constant"),
        ((("lr", "0.1"),), "unknown"),
    ],
)
def test_a_factor_called_decay_tells_where_nothing_was_recorded(
    params: tuple[tuple[str, str], ...], kind: str
) -> None:
    assert schedule_of([make_launch(Cell(workers=1, params=params), **WHOLE)]).kind == kind


def test_one_run_that_decays_is_enough() -> None:
    still = make_launch(Cell(workers=1, params=(("decay", "constant"),)), **WHOLE)
    falls = make_launch(Cell(workers=1, params=(("decay", "step"),)), **WHOLE)
    assert schedule_of([still, falls]).kind == "decaying"
    assert schedule_of([]).kind == "unknown"


def test_a_launch_that_was_ended_early_has_not_seen_its_schedule() -> None:
    rank = make_rank(0, make_steps(0.1), learning_rates=((0, 0.1),))
    begun = make_launch(Cell(workers=1), [rank])
    assert begun.outcome == "stopped"
    assert schedule_of([begun]).kind == "unknown"
