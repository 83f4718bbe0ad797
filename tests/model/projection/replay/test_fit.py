from __future__ import annotations

import math
from dataclasses import replace

import pytest

from farandole.model.projection.records import Bucket, LinkSpeed, StepRow
from farandole.model.projection.replay.allreduce import AllReduce, Network
from farandole.model.projection.replay.computing import Computing, ComputingLine
from farandole.model.projection.replay.fit import ReplayFit, fit_replay
from farandole.model.projection.replay.inputs import Factors, ReplayInputs
from farandole.model.projection.replay.whatif import Change, Layout

MB = 1_000_000
RING = AllReduce(
    law="ring", setup_s=1e-3, latency_s=1e-3, seconds_per_byte=1 / (50 * MB), error=0.02
)


def computing(batch: int = 32, **changes: float) -> Computing:
    """Half a second at batch 32, gradients of 10 x 1 MB evenly over the second half of it."""
    scale = batch / 32
    return Computing(
        batch=batch,
        per_host=1,
        buckets=tuple(
            Bucket(bytes=MB, ready_s=scale * (0.25 + 0.025 * (n + 1))) for n in range(10)
        ),
        end_s=scale * 0.5,
        update_s=changes.get("update_s", 0.02),
    )


INPUTS = ReplayInputs(
    computing=ComputingLine(measured=(computing(),)),
    network=Network(inside=RING),
    layout=Layout(bucket_bytes=1),
)


def rows(truth: Factors, *counts: int, inputs: ReplayInputs = INPUTS) -> list[StepRow]:
    found = []
    for workers in counts:
        step_s = inputs.played(workers, workers, 32, truth).step_s
        step_s *= truth.correction if workers > 1 else 1.0
        found.append(StepRow(workers=workers, hosts=workers, batch=32, step_s=step_s))
    return found


@pytest.mark.parametrize(
    "truth",
    [
        Factors(),
        Factors(contention=1.3),
        Factors(slowdown=1.5),
        Factors(correction=1.08),
        Factors(overlap=False),
    ],
)
def test_what_few_workers_show_holds_for_many(truth: Factors) -> None:
    fit = fit_replay(INPUTS, rows(truth, 1, 2, 4))
    for row in rows(truth, 8, 16):
        found = fit.at(row.workers, row.hosts, row.batch)
        assert found.value == pytest.approx(row.step_s, rel=0.04)
        assert found.low < row.step_s < found.high


def test_the_error_is_that_of_counts_that_were_left_out() -> None:
    true, odd = rows(Factors(), 1, 2, 4), rows(Factors(), 1, 2)
    odd.append(replace(true[2], step_s=1.5 * true[2].step_s))
    good, bad = fit_replay(INPUTS, true).error, fit_replay(INPUTS, odd).error
    assert good == pytest.approx(0.0, abs=1e-3)
    # Two workers do not tell of the half that four take longer.
    assert bad is not None
    assert bad > math.log(1.5) / 2
    assert fit_replay(INPUTS, rows(Factors(), 1)).error is None


def test_one_workers_step_is_its_computing() -> None:
    fit = fit_replay(INPUTS, rows(Factors(correction=1.2), 2, 4))
    found = fit.at(1, 1, 32)
    assert found.value == pytest.approx(0.52)
    # The median of a launch is known to 3 %.
    assert found.high / found.value == pytest.approx(math.exp(1.645 * 0.03))


def test_the_priors_hold_where_nothing_was_measured() -> None:
    fit = fit_replay(INPUTS, [])
    assert fit.factors == Factors()
    assert any("several workers" in sentence for sentence in fit.assumptions)
    one = fit_replay(INPUTS, rows(Factors(), 1))
    many = fit_replay(INPUTS, rows(Factors(), 1, 2, 4))
    assert _width(one, 4) > _width(many, 4)


def _width(fit: ReplayFit, workers: int) -> float:
    found = fit.at(workers, workers, 32)
    return math.log(found.high / found.low)


def test_a_link_on_paper_is_known_less_well_than_a_measured_one() -> None:
    link = LinkSpeed(name="400Mbit", bytes_per_s=50 * MB, latency_s=1e-3)
    paper = ReplayInputs(
        computing=INPUTS.computing,
        network=Network(inside=RING, link=link),
        layout=INPUTS.layout,
    )
    measured = [replace(row, hosts=1) for row in rows(Factors(), 1, 2, 4)]
    on_paper, known = fit_replay(paper, measured), fit_replay(INPUTS, measured)
    assert on_paper.spread(16, 16, 32) > known.spread(16, 16, 32)
    # Within a host the link has no part in it.
    assert on_paper.spread(16, 1, 32) == pytest.approx(known.spread(16, 1, 32))
    assert on_paper.at(8, 1, 32) == known.at(8, 1, 32)


def test_far_away_is_indicative() -> None:
    fit = fit_replay(INPUTS, rows(Factors(), 1, 2, 4))
    assert not fit.at(64, 64, 32).indicative
    far = fit.at(1000, 1000, 32)
    assert far.indicative
    # Bounds: computing alone, and all that is sent after it, in ten messages' rounds and 10 MB.
    assert far.low <= 0.52
    assert far.high >= 0.52 + 10 * 1998e-3 + 0.4 * 0.999
    assert fit.at(8, 8, 32).ratio == 2.0


def test_the_same_rows_give_the_same_interval() -> None:
    measured = rows(Factors(), 1, 2, 4)
    assert fit_replay(INPUTS, measured).at(8, 8, 32) == fit_replay(INPUTS, measured).at(8, 8, 32)


def test_what_would_be_if() -> None:
    fit = fit_replay(INPUTS, rows(Factors(), 1, 2, 4))

    def with_change(change: Change, batch: int = 32) -> float:
        return fit.with_change(change).at(16, 16, batch).value

    plain = fit.at(16, 16, 32)
    assert with_change(Change()) == plain.value
    # 10 MB take 375 ms at 16 workers, and the latency of ten buckets 310: fewer buckets help here,
    # until one that goes last of all cannot hide any more.
    assert with_change(Change(bucket_bytes=5 * MB)) < plain.value
    assert with_change(Change(bucket_bytes=10 * MB)) > with_change(Change(bucket_bytes=5 * MB))
    # Half the bytes, at 12 ms for converting each way.
    assert plain.value - 0.19 < with_change(Change(half_precision=True)) < plain.value
    # Two passes take another half second of computing, and send once.
    assert with_change(Change(accumulation=2)) == pytest.approx(plain.value + 0.5, abs=0.01)
    # Twice the batch computes for twice as long, and hides more.
    assert plain.value < with_change(Change(), batch=64) < plain.value + 0.5
    assert any("batch 32" in sentence for sentence in fit.assumptions)
