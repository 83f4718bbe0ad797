"""Fit small rows, score large ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farandole.errors import DataError
from farandole.model.projection.backtest.scores import covered, log_width
from farandole.model.projection.backtest.steps import Split, backtest_steps
from farandole.model.projection.intervals import half_width
from farandole.model.projection.links import parse_link
from farandole.model.projection.records import StepRow
from farandole.study.traces import StepTrace, read_trace
from tests.model.projection.clusters import ETHERNET_10, RESNET, TINY, measure
from tests.model.projection.shared_traces import shared_trace

GROUPS = {
    ("here", "resnet"): tuple(measure(ETHERNET_10, RESNET, workers=(1, 2, 4, 8, 16))),
    ("here", "tiny"): tuple(measure(ETHERNET_10, TINY, workers=(1, 2, 4, 8, 16))),
}


def test_rows_are_told_apart_by_their_workers() -> None:
    found = backtest_steps(GROUPS, Split(fit_workers=4), notes=["said"])
    rows = [row for rows in GROUPS.values() for row in rows]
    assert found.rows_fit == sum(row.workers <= 4 for row in rows)
    assert found.rows_scored == sum(row.workers > 4 for row in rows)
    assert list(found.error) == ["8", "16"]
    assert set(found.baselines) == {"linear", "amdahl", "pollux"}
    assert {guess.group for guess in found.guesses} == {"resnet", "tiny"}
    assert found.notes == ("said",)
    assert found.error["16"].mean_abs_pct < found.baselines["pollux"]["16"].mean_abs_pct


@pytest.mark.parametrize(
    "split",
    [
        Split(fit_workers=4),
        Split(fit_workers=8),
        Split(fit_workers=4, fit_hosts=1, link=parse_link("10Gbit")),
    ],
    ids=["4 workers", "8 workers", "one host"],
)
def test_fits_never_see_what_is_scored(split: Split) -> None:
    """Falsify all that fits may not see: what they say must not change by a bit."""

    def falsified(row: StepRow) -> StepRow:
        return row if split.fitted(row) else replace(row, step_s=7 * row.step_s + 1, sync_s=0.5)

    wrong = {key: tuple(map(falsified, rows)) for key, rows in GROUPS.items()}
    assert wrong != GROUPS
    true, false = backtest_steps(GROUPS, split), backtest_steps(wrong, split)
    assert true.rows_scored > 0
    for before, after in zip(true.guesses, false.guesses, strict=True):
        assert before.measured != after.measured
        assert before.projected == after.projected
        assert before.baselines == after.baselines


@pytest.mark.parametrize("split", [Split(), Split(fit_workers=8), Split(fit_hosts=1)])
def test_no_row_is_fitted_and_scored(split: Split) -> None:
    rows = [row for rows in GROUPS.values() for row in rows]
    assert not any(split.fitted(row) and split.scored(row) for row in rows)


def test_one_host_sees_no_network() -> None:
    split = Split(fit_hosts=1, link=parse_link("10Gbit"), gradient_bytes={"resnet": 10**8})
    found = backtest_steps(GROUPS, split)
    rows = [row for rows in GROUPS.values() for row in rows]
    assert found.rows_fit == sum(row.workers <= 4 and row.hosts == 1 for row in rows)
    assert found.rows_scored == sum(row.workers > 4 for row in rows)


def test_models_of_several_clusters_keep_both_names() -> None:
    groups = {("a", "m"): GROUPS["here", "tiny"], ("b", "m"): GROUPS["here", "tiny"]}
    found = backtest_steps(groups, Split())
    assert {guess.group for guess in found.guesses} == {"a m", "b m"}


def test_a_model_with_too_few_rows_is_left_out_and_named() -> None:
    few = GROUPS["here", "tiny"][:2] + GROUPS["here", "tiny"][-1:]
    found = backtest_steps({**GROUPS, ("here", "few"): few}, Split())
    assert {guess.group for guess in found.guesses} == {"resnet", "tiny"}
    assert (
        "few was left out: it has 2 rows of up to 4 workers to fit and 1 larger" in found.notes[0]
    )


def test_nothing_to_score_is_an_error() -> None:
    with pytest.raises(DataError, match=r"and 0 larger ones to score.*--fit-workers moves"):
        backtest_steps(GROUPS, Split(fit_workers=64))


def test_public_rows_are_projected_as_well_as_promised() -> None:
    trace = read_trace(shared_trace("steps_aws_t4.csv"))
    assert isinstance(trace, StepTrace)
    found = backtest_steps(trace.groups, Split())
    for workers, limit in (("8", 10), ("16", 9), ("32", 11), ("64", 16)):
        assert found.error[workers].mean_abs_pct <= limit
        assert found.error[workers].mean_abs_pct < found.baselines["pollux"][workers].mean_abs_pct
    assert found.coverage_90 is not None
    assert 0.8 <= found.coverage_90 <= 0.98
    for group in {guess.group for guess in found.guesses}:
        guesses = [guess for guess in found.guesses if guess.group == group]
        assert sum(map(covered, guesses)) >= 0.65 * len(guesses)
    widths = sum(log_width(guess.projected) for guess in found.guesses)
    assert widths < sum(2 * half_width(guess.projected.ratio) for guess in found.guesses)
