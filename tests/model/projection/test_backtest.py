"""Scores where the truth is known, and the track record."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, median

import pytest

from farandole.errors import DataError
from farandole.model.projection import intervals
from farandole.model.projection.backtest import (
    ScoredRow,
    Split,
    backtest,
    fit_baselines,
    make_record,
    score,
    score_epochs,
    score_steps,
)
from farandole.model.projection.epochs import EpochRow
from farandole.model.projection.intervals import Prediction, Reach, half_width, track_record
from farandole.model.projection.question import parse_link
from farandole.model.projection.steps import StepRow
from farandole.model.projection.tables import EpochTrace, StepTrace, read_trace
from tests.model.projection.clusters import ETHERNET_10, LARGE, RESNET, TINY, measure
from tests.model.projection.shared_traces import shared_trace


def guess(group: str, key: str, measured: float, value: float, law: float = 1.0) -> ScoredRow:
    projected = Prediction(value=value, low=0.9 * value, high=1.1 * value, ratio=2.0)
    return ScoredRow(
        group=group, key=key, measured=measured, projected=projected, baselines={"law": law}
    )


def test_each_group_counts_the_same() -> None:
    found = score(
        "steps",
        [
            guess("a", "8", 1.0, 1.2),
            guess("a", "8", 1.0, 1.0),
            guess("a", "8", 1.0, 1.0),
            guess("a", "8", 1.0, 1.0),
            guess("b", "8", 1.0, 0.5, law=2.0),
        ],
        rows_fit=7,
        notes=["said"],
    )
    figures = found.error["8"]
    assert figures.mean_abs_pct == pytest.approx((5 + 50) / 2)
    assert figures.bias_pct == pytest.approx((5 - 50) / 2)
    assert figures.median_abs_pct == pytest.approx(0)
    assert figures.n == 5
    assert found.baselines["law"]["8"].mean_abs_pct == pytest.approx(50)
    assert found.coverage_90 == pytest.approx(3 / 5)
    assert (found.rows_fit, found.rows_scored, found.notes) == (7, 5, ("said",))


def row(workers: int, hosts: int, batch: int, step_s: float = 1.0) -> StepRow:
    return StepRow(workers=workers, hosts=hosts, batch=batch, step_s=step_s)


def test_linear_scaling_keeps_the_step_of_one_worker() -> None:
    rows = [row(1, 1, batch, 0.1 + 0.02 * batch) for batch in (5, 10, 20)]
    linear = fit_baselines([*rows, row(2, 1, 10, 0.5)])["linear"]
    assert linear(row(64, 16, 15)) == pytest.approx(0.4)


def test_amdahl_is_found_again() -> None:
    fraction = 0.1
    rows = [
        row(n, 1, batch, 0.02 * batch * (1 + fraction * (n - 1)))
        for n in (1, 2, 4)
        for batch in (5, 10)
    ]
    amdahl = fit_baselines(rows)["amdahl"]
    assert amdahl(row(16, 4, 10)) == pytest.approx(0.2 * (1 + fraction * 15), rel=1e-6)


def test_pollux_form_is_found_again() -> None:
    def seconds(workers: int, hosts: int, batch: int) -> float:
        compute = 0.1 + 0.02 * batch
        network = 0.0 if workers == 1 else 0.4 + 0.05 * (workers - 2)
        if hosts == 1 and workers > 1:
            network = 0.1 + 0.01 * (workers - 2)
        return (compute**2 + network**2) ** 0.5

    places = [(1, 1), (2, 1), (3, 1), (4, 1), (2, 2), (3, 2), (4, 2)]
    rows = [
        row(n, hosts, batch, seconds(n, hosts, batch))
        for n, hosts in places
        for batch in (5, 10, 20, 40)
    ]
    pollux = fit_baselines(rows)["pollux"]
    assert pollux(row(16, 4, 20)) == pytest.approx(seconds(16, 4, 20), rel=0.02)
    assert pollux(row(1, 1, 20)) == pytest.approx(0.5, rel=0.02)


GROUPS = {
    ("here", "resnet"): tuple(measure(ETHERNET_10, RESNET, workers=(1, 2, 4, 8, 16))),
    ("here", "tiny"): tuple(measure(ETHERNET_10, TINY, workers=(1, 2, 4, 8, 16))),
}


def test_rows_are_told_apart_by_their_workers() -> None:
    found = score_steps(GROUPS, Split(fit_workers=4), notes=["said"])
    rows = [row for rows in GROUPS.values() for row in rows]
    assert found.rows_fit == sum(row.workers <= 4 for row in rows)
    assert found.rows_scored == sum(row.workers > 4 for row in rows)
    assert list(found.error) == ["8", "16"]
    assert set(found.baselines) == {"linear", "amdahl", "pollux"}
    assert {guess.group for guess in found.rows} == {"resnet", "tiny"}
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
    true, false = score_steps(GROUPS, split), score_steps(wrong, split)
    assert true.rows_scored > 0
    for before, after in zip(true.rows, false.rows, strict=True):
        assert before.measured != after.measured
        assert before.projected == after.projected
        assert before.baselines == after.baselines


def test_a_model_with_too_few_rows_is_left_out_and_named() -> None:
    few = GROUPS["here", "tiny"][:2] + GROUPS["here", "tiny"][-1:]
    found = score_steps({**GROUPS, ("here", "few"): few}, Split())
    assert {guess.group for guess in found.rows} == {"resnet", "tiny"}
    assert (
        "few was left out: it has 2 rows of up to 4 workers to fit and 1 larger" in found.notes[0]
    )


def test_nothing_to_score_is_an_error() -> None:
    with pytest.raises(DataError, match=r"and 0 larger ones to score.*--fit-workers moves"):
        score_steps(GROUPS, Split(fit_workers=64))


def test_public_rows_are_projected_as_well_as_promised() -> None:
    trace = read_trace(shared_trace("steps_aws_t4.csv"))
    assert isinstance(trace, StepTrace)
    found = score_steps(trace.groups, Split())
    for workers, limit in (("8", 10), ("16", 9), ("32", 11), ("64", 16)):
        assert found.error[workers].mean_abs_pct <= limit
        assert found.error[workers].mean_abs_pct < found.baselines["pollux"][workers].mean_abs_pct
    assert found.coverage_90 is not None
    assert 0.8 <= found.coverage_90 <= 0.98
    for group in {guess.group for guess in found.rows}:
        guesses = [guess for guess in found.rows if guess.group == group]
        assert sum(row.covered for row in guesses) >= 0.65 * len(guesses)
    widths = sum(guess.log_width for guess in found.rows)
    assert widths < sum(2 * half_width(guess.projected.ratio) for guess in found.rows)


BATCHES = (32, 64, 128, 256, 512)


def workload(*, reached: bool = True) -> list[EpochRow]:
    return [
        EpochRow(global_batch=batch, epochs=8.0 * (1 + batch / 300) + 0.013 * run, reached=reached)
        for batch in BATCHES
        for run in range(3)
    ]


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


def test_fits_never_see_what_is_scored_epochs() -> None:
    """Other epochs at the large batches change errors, and nothing that was projected."""
    rows = workload()
    other = [replace(row, epochs=99.0) if row.global_batch > 256 else row for row in rows]
    first, second = score_epochs({"a": rows}), score_epochs({"a": other})
    assert [g.projected for g in first.rows] == [g.projected for g in second.rows]
    assert [g.baselines for g in first.rows] == [g.baselines for g in second.rows]
    assert first.error != second.error


def test_workloads_that_cannot_be_scored_are_said() -> None:
    small = [row for row in workload() if row.global_batch <= 64]
    found = score_epochs({"a": workload(), "b": small, "c": workload(reached=False)})
    assert {guess.group for guess in found.rows} == {"a"}
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
    found = backtest(EpochTrace(groups={"w": tuple(rows)}, notes=("said",)), Split())
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
    errors = [abs(guess.projected.value / guess.measured - 1) for guess in found.rows]
    assert median(errors) <= 0.053
    assert found.coverage_90 is not None
    assert found.coverage_90 >= 0.8
    # Narrower than intervals that look at nothing but the distance.
    flat = fmean(2 * intervals.half_width(guess.projected.ratio) for guess in found.rows)
    assert fmean(guess.log_width for guess in found.rows) < flat


GROUPS_RECORD = {
    ("here", name): measure(ETHERNET_10, network, workers=(1, 2, 3, 4, 8, 16), noise=0.05)
    for name, network in (("large", LARGE), ("resnet", RESNET))
}


def test_factors_cover_nine_rows_in_ten_and_never_shrink() -> None:
    content = json.loads(json.dumps(make_record(GROUPS_RECORD)))
    assert content["models"] == ["here large", "here resnet"]
    reaches = [Reach(**reach) for reach in content["reaches"]]
    assert [reach.up_to for reach in reaches] == [2, 4, 8]
    for near, far in pairwise(reaches):
        assert far.fast >= near.fast >= 1
        assert far.slow >= near.slow >= 1
    for reach in reaches:
        assert 0 < reach.median_abs_pct <= reach.p90_abs_pct
        assert 0 <= reach.coverage_left_out <= 1


def test_one_model_is_not_enough() -> None:
    with pytest.raises(DataError, match="1 models have rows to fit"):
        make_record({("here", "large"): GROUPS_RECORD["here", "large"]})


def test_the_shipped_record_is_what_the_command_writes() -> None:
    trace = read_trace(shared_trace("steps_aws_t4.csv"))
    assert isinstance(trace, StepTrace)
    fresh = make_record(trace.groups)
    shipped = track_record()
    assert tuple(fresh["models"]) == shipped.models
    for reach, theirs in zip(fresh["reaches"], shipped.reaches, strict=True):
        ours = Reach(**reach)
        assert (ours.up_to, ours.rows) == (theirs.up_to, theirs.rows)
        assert ours.mean_abs_pct == pytest.approx(theirs.mean_abs_pct, abs=0.1)
        assert ours.fast == pytest.approx(theirs.fast, abs=0.05)
        assert ours.slow == pytest.approx(theirs.slow, abs=0.05)
