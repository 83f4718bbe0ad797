"""Steps replayed bucket by bucket, and what is fitted to them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from farandole.model.measured import Measured, measure
from farandole.model.projection.allreduce import AllReduce, Cost, Network
from farandole.model.projection.question import parse_link
from farandole.model.projection.replay import (
    DDP_BUCKETS,
    FARANDOLE_BUCKETS,
    Change,
    Computing,
    ComputingLine,
    Replay,
    computing_of,
    fill_buckets,
    gather_replay,
    input_rate,
    replay,
    residuals_of,
    slowest_s,
)
from farandole.model.projection.steps import StepFit, StepRow, fit_steps
from farandole.study.records import Apart, Cell, GradientTimes, Link, Rank
from tests.model.build import make_launch, make_rank, make_steps, make_study
from tests.model.projection.recorded import LINK, MB, TRUE, trained


def row(workers: int, step_s: float, hosts: int = 1) -> StepRow:
    return StepRow(workers=workers, hosts=hosts, batch=10, step_s=step_s)


def test_training_is_proof_of_what_loaders_can_do() -> None:
    apart = Apart(cell=Cell(workers=2), loaded_alone_per_s=100.0, loaded_together_per_s=80.0)
    found = input_rate([apart], [row(1, 0.05), row(2, 0.08), row(2, 0.1), row(2, 0.01, hosts=2)])
    assert found is not None
    # 10 samples in 0.05 s, and 10 in 0.08 s.
    assert [found.at(n) for n in (1, 2)] == pytest.approx([200.0, 125.0])


def recorded(number: int, workers: int, moves: float, framework: str) -> Rank:
    """A rank whose steps take 1 s: 0.1 for the batch, gradients at 0.4 and 0.6, 0.2 for the rest.

    With several workers gradients arrive at 0.8. `moves`: seconds of backward that went into moving
    buckets, in its middle.
    """
    steps = make_steps(1.0, 40, data_s=0.1, exposed_s=0.2, communication_s=0.2 + moves)
    begins_s = steps.end_s - 1.0
    nothing = np.full(40, np.nan)
    steps = replace(
        steps,
        ready_s=begins_s + 0.6 if workers > 1 else nothing,
        done_s=begins_s + 0.8 if workers > 1 else nothing,
    )
    times = tuple(
        GradientTimes(step=n, bytes=(100, 300), ready_s=(begins_s[n] + 0.4, begins_s[n] + 0.6))
        for n in (0, 10, 14, 18)
    )
    return make_rank(number, steps, buckets=times, framework=framework)


def found(workers: int, moves: float = 0.0, framework: str = "ddp") -> Computing:
    ranks = [recorded(rank, workers, moves, framework) for rank in range(workers)]
    cell = Cell(workers=workers, threads=1, batch=32)
    (measured,), _ = measure(make_study([make_launch(cell, ranks)]))
    computing = computing_of(measured)
    assert computing is not None
    return computing


def test_times_begin_when_the_batch_is_there() -> None:
    one = found(1)
    assert (one.batch, one.per_host, one.sizes) == (32, 1, (100, 300))
    assert one.ready_s == pytest.approx([0.3, 0.5])
    # Nothing is sent: all that follows the last gradient is the update.
    assert (one.data_s, one.end_s, one.update_s) == pytest.approx((0.1, 0.5, 0.4))
    assert one.step_s == pytest.approx(1.0)


def test_what_the_training_thread_moved_itself_is_taken_away() -> None:
    two = found(2, moves=0.1, framework="farandole.torch")
    # A fourth of the bytes had come by then, and a fourth of the moving had been done.
    assert two.ready_s == pytest.approx([0.3 - 0.025, 0.5 - 0.1])
    assert two.end_s == pytest.approx(0.4)
    # DDP's threads move beside backward.
    assert found(2, moves=0.1, framework="ddp").end_s == pytest.approx(0.5)


def line(*points: tuple[int, int, float], apart: Sequence[Apart] = ()) -> ComputingLine:
    """Of (batch, workers on the host, seconds); 0.1 s for the update, 0.01 s of waiting."""
    return ComputingLine(
        measured=tuple(
            Computing(
                batch=batch,
                per_host=per_host,
                sizes=(8, 8),
                ready_s=(seconds / 2, seconds),
                end_s=seconds,
                update_s=0.1,
                data_s=0.01,
            )
            for batch, per_host, seconds in points
        ),
        apart=tuple(apart),
    )


def test_batches_lie_on_a_line() -> None:
    # 0.2 s, and 0.01 s per sample.
    both = line((10, 1, 0.3), (40, 1, 0.6))
    assert both.at(80, 1).end_s == pytest.approx(1.0)
    assert both.at(80, 1).ready_s[0] == pytest.approx(0.5)
    assert both.at(80, 1).update_s == pytest.approx(0.1)
    assert both.at(10, 1).end_s == pytest.approx(0.3)


def test_workers_of_one_host_slow_each_other_down() -> None:
    shared = line((10, 1, 0.4), (10, 2, 0.5), (10, 4, 0.7))
    # Beyond, each further worker costs what the measured ones did: a fourth of one's own time.
    factors = {1: 1.0, 2: 1.25, 4: 1.75, 6: 2.25}
    for workers, factor in factors.items():
        assert shared.at(10, workers).end_s == pytest.approx(0.4 * factor)
    # One count says nothing, and workers do not speed each other up.
    assert line((10, 1, 0.4)).at(10, 8).end_s == pytest.approx(0.4)
    assert line((10, 1, 0.4), (10, 2, 0.3)).at(10, 2).end_s == pytest.approx(0.4)


def test_copies_that_sent_nothing_say_more_than_cells_that_did() -> None:
    copies = Apart(
        cell=Cell(workers=2),
        computing_alone_s=1.0,
        computing_together_s=1.1,
        update_alone_s=1.0,
        update_together_s=1.5,
        loaded_alone_per_s=300.0,
        loaded_together_per_s=150.0,
    )
    points = (10, 1, 0.4), (10, 2, 0.6)
    assert line(*points).at(10, 2).end_s == pytest.approx(0.6)
    assert line(*points).at(10, 2).update_s == pytest.approx(0.1)
    told = line(*points, apart=[copies])
    assert told.at(10, 2).end_s == pytest.approx(0.4 * 1.1)
    assert told.at(10, 2).ready_s[0] == pytest.approx(0.2 * 1.1)
    assert told.at(10, 2).update_s == pytest.approx(0.1 * 1.5)
    assert [told.at(10, n).data_s for n in (2, 3)] == pytest.approx([0.02, 0.03])


@pytest.mark.parametrize(
    # Expected maxima of normal draws: 1/sqrt(pi), and from tables (Harter 1961).
    ("workers", "expected"),
    [(2, 1 / math.sqrt(math.pi)), (4, 1.02938), (10, 1.53875), (100, 2.50759)],
)
@pytest.mark.parametrize("ranks", [2, 4])
def test_the_slowest_of_so_many(workers: int, expected: float, ranks: int) -> None:
    random = np.random.default_rng(1)
    # What all ranks share does not add up.
    computing_s = random.normal(10.0, 1.0, (ranks, 20_000)) + random.normal(10.0, 5.0, 20_000)
    assert slowest_s(residuals_of(computing_s), workers) == pytest.approx(expected, rel=0.03)


def test_a_bucket_goes_when_it_is_full() -> None:
    pieces = [(float(n), MB) for n in range(1, 31)]
    filled = fill_buckets(pieces, 8 * MB)
    assert [(at_s, nbytes // MB) for at_s, nbytes in filled] == [(8, 8), (16, 8), (24, 8), (30, 6)]
    assert fill_buckets(pieces, 8 * MB, MB)[0] == (1.0, MB)


def test_accumulation_and_half_precision_change_what_is_sent() -> None:
    computing = Computing(
        batch=8,
        per_host=1,
        sizes=(400, 600),
        ready_s=(1.0, 3.0),
        end_s=3.5,
        update_s=0.5,
        data_s=0.25,
    )
    four = computing.changed(Change(accumulation=4), 1000.0)
    # Three times a batch was waited for and computed before the pass that sends.
    assert four.ready_s == (3 * 3.75 + 1.0, 3 * 3.75 + 3.0)
    assert four.step_s == pytest.approx(4 * 3.75 + 0.5)
    half = computing.changed(Change(half_precision=True), 1000.0)
    assert half.sizes == (200, 300)
    # 6 bytes are read and written for each number of 4: 0.6 s for the first 400 bytes.
    assert half.ready_s == pytest.approx([1.6, 4.5])
    assert half.step_s == pytest.approx(computing.step_s + 2 * 1.5)
    assert computing.changed(Change(), 1000.0) == computing


def played(transfer_s: float, *ready_s: float, latency_s: float = 0.0, **changes: float) -> float:
    """Replay buckets that take so long each; computing ends with the last one."""
    cost = Cost(latency_s=latency_s, transfer_s=transfer_s)
    buckets = [(at_s, cost) for at_s in ready_s]
    return replay(buckets, computing_s=max(ready_s), **changes)  # type: ignore[arg-type]


def test_buckets_hide_behind_computing_and_each_slows_the_other_down() -> None:
    # Only the last bucket shows when the others hide.
    assert played(0.5, 1, 2, 3, 4) == pytest.approx(4.5)
    # A slow link is never idle after the first bucket.
    assert played(3.0, 1, 2, 3, 4) == pytest.approx(1.0 + 4 * 3.0)
    assert played(6.0, 1, 2, 3, 4, network_speed=2.0) == pytest.approx(1.0 + 4 * 3.0)
    # From 1 on, half a second of each bucket's way costs computing a quarter of a second.
    assert played(0.5, 1, 2, 3, 4, contention=2.0) == pytest.approx(4.0 + 3 * 0.25 + 0.5)
    # A processor that does one thing at a time is as good as no overlap.
    assert played(0.5, 1, 2, 3, 4, contention=1e9) == pytest.approx(4.0 + 2.0)
    # The last bucket goes when nothing is left to compute.
    assert played(0.5, 1, 2, 3, 4, slowdown=2.0) == pytest.approx(4.5)
    # 0.75 of the third's 1.5 has gone by 4: the rest and the fourth are not slowed down.
    assert played(1.5, 3, 4, slowdown=4 / 3) == pytest.approx(4.0 + 0.75 + 1.5)


def test_two_channels_share_the_bytes_and_not_the_latency() -> None:
    assert played(1.0, 1, 1, latency_s=0.5) == pytest.approx(1 + 2 * 1.5)
    assert played(1.0, 1, 1, latency_s=0.5, channels=2) == pytest.approx(1 + 0.5 + 2.0)
    # Of three, the third waits for a channel, and then has half of the link.
    assert played(1.0, 1, 1, 1, channels=2) == pytest.approx(1 + 3.0)


def cells(*counts: int, framework: str = "ddp", transport: str = "gloo") -> Sequence[Measured]:
    launches = []
    for workers in counts:
        ranks = [trained(number, workers, framework) for number in range(workers)]
        cell = Cell(workers=workers, threads=1, batch=32, transport=transport)
        launches.append(make_launch(cell, ranks))
    return measure(make_study(launches))[0]


def gathered(*counts: int, calibration: Link = LINK, **changes: str) -> Replay:
    played = gather_replay(cells(*counts, **changes), calibration)
    assert played is not None
    return played


def test_a_study_of_ddp_on_a_cpu() -> None:
    found = gathered(1, 2, 4)
    assert (found.bucket_bytes, found.channels) == (DDP_BUCKETS, 2)
    assert (found.network.shape, found.network.inside.law) == ("flat", "gloo")
    assert found.network.cost(8, 1, 16 * MB).seconds == pytest.approx(
        TRUE.cost(8, 16 * MB).seconds, rel=0.05
    )
    assert found.memory_bytes_per_s == 8e9
    computing = found.computing.at(32, 1)
    assert computing.sizes == (16 * MB, 16 * MB)
    assert computing.end_s == pytest.approx(0.1, abs=2e-3)
    assert computing.data_s == pytest.approx(0.01)
    # Ranks scatter by a millisecond each.
    assert slowest_s(found.residuals_s, 4) == pytest.approx(1.03e-3, rel=0.2)


def test_a_study_of_farandoles_shared_memory() -> None:
    found = gathered(1, 2, framework="farandole.torch", transport="auto")
    assert (found.bucket_bytes, found.channels) == (FARANDOLE_BUCKETS, 1)
    assert found.network.shape == "hierarchical"
    over_gloo = gathered(1, 2, framework="farandole.torch", transport="gloo")
    assert over_gloo.network.shape == "pairwise"
    one = Link(allreduce=tuple(point for point in LINK.allreduce if point[0] == 2))
    # One count alone: the slowest law is taken, and that is said.
    alone = gathered(1, 2, framework="farandole.torch", transport="auto", calibration=one)
    assert alone.network.inside.law == "bus"
    assert any("with 2 workers only" in said.text for said in alone.assumptions)


def test_one_worker_and_a_link_are_enough() -> None:
    found = gather_replay(cells(1), Link(), link=parse_link("10Gbit"))
    assert found is not None
    one = [StepRow(workers=1, hosts=1, batch=32, step_s=0.15)]
    fit = fit_steps(one, replays=found.forms(), assumptions=found.assumptions)
    assert fit.at(1, 1, 32).value == pytest.approx(0.15, rel=0.03)
    # 32 MiB over 10 Gbit/s take 47 ms at 8 hosts; half of it hides behind the second bucket.
    eight = fit.at(8, 8, 32)
    assert 0.15 < eight.value < 0.22
    assert eight.low < 0.9 * eight.value
    assert any("No steps of several workers" in said.text for said in fit.assumptions)


MEGA = 1_000_000
RING = AllReduce(
    law="ring", setup_s=1e-3, latency_s=1e-3, seconds_per_byte=1 / (50 * MEGA), error=0.02
)
# Half a second at batch 32, gradients of 10 x 1 MEGA evenly over the second half of it.
PLAYED = Replay(
    computing=ComputingLine(
        measured=(
            Computing(
                batch=32,
                per_host=1,
                sizes=(MEGA,) * 10,
                ready_s=tuple(0.25 + 0.025 * (n + 1) for n in range(10)),
                end_s=0.5,
                update_s=0.02,
            ),
        )
    ),
    network=Network(inside=RING),
    bucket_bytes=(1, None),
)


def rows(factors: Sequence[float], *counts: int, overlap: bool = True) -> list[StepRow]:
    """Steps by known factors: slowdown, contention, correction, networks, cost per worker."""
    known = [*factors, *(1.0, 1.0, 1.0, 1.0, 1.0, 1e-6)[len(factors) :]]
    logs = np.log([known])
    return [
        StepRow(
            workers=n,
            hosts=n,
            batch=32,
            step_s=PLAYED.steps_s((n, n, 32), logs, overlap=overlap)[0][0],
        )
        for n in counts
    ]


def fitted(rows: Sequence[StepRow]) -> StepFit:
    return fit_steps(rows, replays=PLAYED.forms())


@pytest.mark.parametrize(
    ("factors", "overlap"),
    [
        ((), True),
        ((1.0, 1.3), True),
        ((1.5,), True),
        ((1.0, 1.0, 1.08), True),
        ((1.0, 1.0, 1.0, 1.0, 1.0, 0.02), True),
        ((), False),
    ],
)
def test_what_few_workers_show_holds_for_many(factors: Sequence[float], overlap: bool) -> None:
    fit = fitted(rows(factors, 1, 2, 4, overlap=overlap))
    for row in rows(factors, 8, 16, overlap=overlap):
        found = fit.at(row.workers, row.hosts, row.batch)
        # As near as `farandole bench live` asks of real ranks.
        near = 0.1 if row.workers == 8 else 0.15
        assert found.value == pytest.approx(row.step_s, rel=near)
        assert found.low < row.step_s < found.high


def test_few_counts_leave_wide_intervals() -> None:
    one, many = (fitted(rows((), *counts)).at(4, 4, 32) for counts in ((1,), (1, 2, 4)))
    assert one.high / one.low > many.high / many.low


def test_what_would_be_if() -> None:
    fit, place = fitted(rows((), 1, 2, 4)), (16, 16, 32)

    def longer_s(**change: object) -> float:
        plain_s = fit.at(*place).value
        return plain_s * (PLAYED.ratio(fit, place, Change(**change)) - 1)  # type: ignore[arg-type]

    assert longer_s() == 0
    # 10 MB take 375 ms at 16 workers, and the latency of ten buckets 310: fewer buckets help here,
    # until one that goes last of all cannot hide any more.
    assert longer_s(bucket_bytes=5 * MEGA) < 0
    assert longer_s(bucket_bytes=10 * MEGA) > longer_s(bucket_bytes=5 * MEGA)
    # Half the bytes, at 12 ms for converting each way.
    assert -0.19 < longer_s(half_precision=True) < 0
    # Two passes take another half second of computing, and send once.
    assert longer_s(accumulation=2) == pytest.approx(0.5, abs=0.03)
