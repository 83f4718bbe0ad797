"""Scores of projected epochs: what fits see, how errors are listed, what is reached."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean, median

import pytest

from farandole.errors import DataError
from farandole.model.projection import intervals
from farandole.model.projection.backtest.epochs import (
    backtest_epochs,
    ratio_key,
    score_epochs,
    split_rows,
)
from farandole.model.projection.backtest.scores import covered, log_width
from farandole.model.projection.records import EpochRow
from farandole.study.traces import EpochTrace, read_trace
from tests.model.projection.shared_traces import shared_trace

BATCHES = (32, 64, 128, 256, 512)


def workload(*, reached: bool = True) -> list[EpochRow]:
    return [
        EpochRow(global_batch=batch, epochs=8.0 * (1 + batch / 300) + 0.013 * run, reached=reached)
        for batch in BATCHES
        for run in range(3)
    ]


def test_batches_up_to_half_of_the_largest_are_fitted() -> None:
    fitted, held_out = split_rows(workload(), "half")
    assert {row.global_batch for row in fitted} == {32, 64, 128, 256}
    assert {row.global_batch for row in held_out} == {512}
    fitted, held_out = split_rows(workload(), "two_smallest")
    assert {row.global_batch for row in fitted} == {32, 64}
    assert {row.global_batch for row in held_out} == {128, 256, 512}


def test_a_law_is_scored_beside_simpler_ones() -> None:
    found = score_epochs({"a": workload()})
    assert (found.kind, found.rows_fit, found.rows_scored) == ("epochs", 12, 3)
    assert set(found.error) == {"2"}
    assert found.error["2"].n == 1
    # The law itself, and 7 % for what nobody has trained.
    assert found.error["2"].median_abs_pct < 8
    assert found.coverage_90 == 1.0
    at_256, at_512 = (8.0 * (1 + batch / 300) + 0.013 for batch in (256, 512))
    assert found.baselines["constant_epochs"]["2"].bias_pct == pytest.approx(
        100 * (at_256 / at_512 - 1)
    )
    assert found.baselines["constant_steps"]["2"].bias_pct == pytest.approx(
        100 * (2 * at_256 / at_512 - 1)
    )
    assert found.baselines["hyperbola"]["2"].mean_abs_pct < 0.5


def test_fits_never_see_what_is_scored() -> None:
    """Other epochs at the large batches change errors, and nothing that was projected."""
    rows = workload()
    other = [replace(row, epochs=99.0) if row.global_batch > 256 else row for row in rows]
    first, second = score_epochs({"a": rows}), score_epochs({"a": other})
    assert [g.projected for g in first.guesses] == [g.projected for g in second.guesses]
    assert [g.baselines for g in first.guesses] == [g.baselines for g in second.guesses]
    assert first.error != second.error


@pytest.mark.parametrize(
    ("ratio", "key"), [(1.06, "2"), (2.0, "2"), (2.44, "2"), (2.9, "4"), (5.0, "4"), (23.0, "32")]
)
def test_ratios_are_named_by_powers_of_two(ratio: float, key: str) -> None:
    assert ratio_key(ratio) == key


def test_workloads_that_cannot_be_scored_are_said() -> None:
    small = [row for row in workload() if row.global_batch <= 64]
    found = score_epochs({"a": workload(), "b": small, "c": workload(reached=False)})
    assert {guess.group for guess in found.guesses} == {"a"}
    assert [note.split()[0] for note in found.notes] == ["b", "c"]
    with pytest.raises(DataError, match=r"b was left out: .* \(32, 64\)"):
        score_epochs({"b": small})
    with pytest.raises(DataError, match="no workload"):
        score_epochs({})


def test_epochs_are_scored_from_half_and_from_two_batches() -> None:
    rows = [
        EpochRow(global_batch=batch, epochs=10 * (1 + batch / 4000) + run / 10)
        for batch in (256, 512, 1024, 2048, 4096)
        for run in range(3)
    ]
    found = backtest_epochs({"w": rows}, notes=["said"])
    assert found.kind == "epochs"
    assert found.notes[0] == "said"
    assert found.two_smallest is not None
    assert found.two_smallest.rows_fit == 6
    assert found.rows_fit == 12


@pytest.fixture(scope="module")
def public() -> EpochTrace:
    found = read_trace(shared_trace("epochs_mlperf.csv"))
    assert isinstance(found, EpochTrace)
    return found


def test_public_runs_are_met(public: EpochTrace) -> None:
    found = score_epochs(public.groups)
    errors = [abs(guess.projected.value / guess.measured - 1) for guess in found.guesses]
    assert median(errors) <= 0.053
    assert found.coverage_90 is not None
    assert found.coverage_90 >= 0.8
    # Narrower than intervals that look at nothing but the distance.
    flat = fmean(2 * intervals.half_width(guess.projected.ratio) for guess in found.guesses)
    assert fmean(log_width(guess.projected) for guess in found.guesses) < flat


def test_two_batches_of_public_runs_are_covered(public: EpochTrace) -> None:
    found = score_epochs(public.groups, fit_on="two_smallest")
    near = [guess for guess in found.guesses if guess.projected.ratio <= intervals.FARTHEST]
    assert fmean(map(covered, near)) >= 0.65
    assert all(math.isfinite(guess.projected.value) for guess in found.guesses)
