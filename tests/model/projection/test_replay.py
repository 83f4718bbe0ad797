"""Steps replayed bucket by bucket, and what is fitted to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from farandole.model.measured import Measured, measure
from farandole.model.projection.allreduce import AllReduce, Cost, Network
from farandole.model.projection.question import parse_link
from farandole.model.projection.replay import (
    DDP_LAYOUT,
    FARANDOLE_LAYOUT,
    Bucket,
    Change,
    Computing,
    ComputingLine,
    Factors,
    Layout,
    ReplayFit,
    ReplayInputs,
    computing_of,
    fill_buckets,
    fit_replay,
    input_rate,
    replay,
    replay_inputs,
    residuals_of,
    slowest_s,
)
from farandole.model.projection.steps import StepRow
from farandole.study.records import Apart, Cell, GradientTimes, Link, Rank
from tests.model.build import make_launch, make_rank, make_steps, make_study
from tests.model.projection.recorded import LINK, MB, TRUE, trained


def apart(workers: int, alone: float | None, together: float | None) -> Apart:
    return Apart(
        cell=Cell(workers=workers), loaded_alone_per_s=alone, loaded_together_per_s=together
    )


def row(workers: int, step_s: float, hosts: int = 1) -> StepRow:
    return StepRow(workers=workers, hosts=hosts, batch=10, step_s=step_s)


def test_training_is_proof_of_what_loaders_can_do() -> None:
    rows = [row(1, 0.05), row(2, 0.08), row(2, 0.1), row(2, 0.01, hosts=2)]
    found = input_rate([apart(2, 100.0, 80.0)], rows)
    assert found is not None
    # 10 samples in 0.05 s, and 10 in 0.08 s.
    assert [found.at(n) for n in (1, 2)] == pytest.approx([200.0, 125.0])


def recorded(number: int, *, workers: int, moves: float = 0.0, framework: str = "ddp") -> Rank:
    """A rank whose steps take 1 s: 0.1 for the batch, gradients at 0.4 and 0.6, 0.2 for the rest.

    With several workers gradients arrive at 0.8. `moves`: seconds of backward that went into moving
    buckets, in its middle.
    """
    steps = make_steps(1.0, 40, data_s=0.1, exposed_s=0.2, communication_s=0.2 + moves)
    begins_s = steps.end_s - 1.0
    several = workers > 1
    nothing = np.full(40, np.nan)
    steps = replace(
        steps,
        ready_s=begins_s + 0.6 if several else nothing,
        done_s=begins_s + 0.8 if several else nothing,
    )
    times = tuple(
        GradientTimes(step=n, bytes=(100, 300), ready_s=(begins_s[n] + 0.4, begins_s[n] + 0.6))
        for n in (0, 10, 14, 18)
    )
    return make_rank(number, steps, buckets=times, framework=framework)


def found(workers: int, **changes: object) -> Computing | None:
    ranks = [recorded(rank, workers=workers, **changes) for rank in range(workers)]  # type: ignore[arg-type]
    cell = Cell(workers=workers, threads=1, batch=32)
    (measured,), _ = measure(make_study([make_launch(cell, ranks)]))
    return computing_of(measured)


def test_times_begin_when_the_batch_is_there() -> None:
    one = found(1)
    assert one is not None
    assert (one.batch, one.per_host) == (32, 1)
    assert [b.bytes for b in one.buckets] == [100, 300]
    assert [b.ready_s for b in one.buckets] == pytest.approx([0.3, 0.5])
    assert one.data_s == pytest.approx(0.1)
    assert one.end_s == pytest.approx(0.5)
    # Nothing is sent: all that follows the last gradient is the update.
    assert one.update_s == pytest.approx(0.4)
    assert one.step_s == pytest.approx(1.0)


def test_what_the_training_thread_moved_itself_is_taken_away() -> None:
    two = found(2, moves=0.1, framework="farandole.torch")
    assert two is not None
    # A fourth of the bytes had come by then, and a fourth of the moving had been done.
    assert [b.ready_s for b in two.buckets] == pytest.approx([0.3 - 0.025, 0.5 - 0.1])
    assert two.end_s == pytest.approx(0.4)
    # DDP's threads move beside backward.
    beside = found(2, moves=0.1, framework="ddp")
    assert beside is not None
    assert beside.end_s == pytest.approx(0.5)


def line(*points: tuple[int, int, float]) -> ComputingLine:
    """Of (batch, workers on the host, seconds)."""
    return ComputingLine(
        measured=tuple(
            Computing(
                batch=batch,
                per_host=per_host,
                buckets=(
                    Bucket(bytes=8, ready_s=seconds / 2),
                    Bucket(bytes=8, ready_s=seconds),
                ),
                end_s=seconds,
                update_s=0.1,
            )
            for batch, per_host, seconds in points
        )
    )


def test_batches_lie_on_a_line() -> None:
    # 0.2 s, and 0.01 s per sample.
    both = line((10, 1, 0.3), (40, 1, 0.6))
    assert both.at(80, 1).end_s == pytest.approx(1.0)
    assert both.at(80, 1).buckets[0].ready_s == pytest.approx(0.5)
    assert both.at(80, 1).update_s == pytest.approx(0.1)
    assert both.at(10, 1).end_s == pytest.approx(0.3)


def test_workers_of_one_host_slow_each_other_down() -> None:
    shared = line((10, 1, 0.4), (10, 2, 0.5), (10, 4, 0.7))
    assert shared.slowed_down(1) == 1.0
    assert shared.at(10, 2).end_s == pytest.approx(0.5)
    assert shared.at(10, 4).end_s == pytest.approx(0.7)
    # Beyond, each further worker costs what the measured ones did: a fourth of one's own time.
    assert shared.slowed_down(6) == pytest.approx(1.75 + 2 * 0.25)
    assert line((10, 1, 0.4)).slowed_down(8) == 1.0
    # Workers do not speed each other up.
    assert line((10, 1, 0.4), (10, 2, 0.3)).slowed_down(2) == 1.0


APART = (
    Apart(
        cell=Cell(workers=2),
        computing_alone_s=1.0,
        computing_together_s=1.1,
        update_alone_s=1.0,
        update_together_s=1.5,
        loaded_alone_per_s=300.0,
        loaded_together_per_s=150.0,
    ),
)


def test_copies_that_sent_nothing_say_more_than_cells_that_did() -> None:
    cells = line((10, 1, 0.4), (10, 2, 0.6))
    apart = replace(cells, apart=APART)
    assert cells.at(10, 2).end_s == pytest.approx(0.6)
    assert apart.at(10, 2).end_s == pytest.approx(0.4 * 1.1)
    assert apart.at(10, 2).buckets[0].ready_s == pytest.approx(0.2 * 1.1)
    # The update and loading have factors of their own; cells say nothing of these.
    assert apart.at(10, 2).update_s == pytest.approx(0.1 * 1.5)
    assert cells.at(10, 2).update_s == pytest.approx(0.1)
    waiting = replace(apart, measured=tuple(replace(m, data_s=0.01) for m in cells.measured))
    assert waiting.at(10, 2).data_s == pytest.approx(0.02)
    assert waiting.at(10, 3).data_s == pytest.approx(0.03)


@pytest.mark.parametrize(
    # Expected maxima of normal draws: 1/sqrt(pi), and from tables (Harter 1961).
    ("workers", "expected"),
    [(2, 1 / math.sqrt(math.pi)), (4, 1.02938), (10, 1.53875), (100, 2.50759)],
)
@pytest.mark.parametrize("ranks", [2, 4])
def test_the_slowest_of_so_many(workers: int, expected: float, ranks: int) -> None:
    residuals_s = residuals_of(np.random.default_rng(1).normal(10.0, 1.0, (ranks, 20_000)))
    assert slowest_s(residuals_s, workers) == pytest.approx(expected, rel=0.03)


def test_what_all_ranks_share_does_not_add_up() -> None:
    shared = np.random.default_rng(3).normal(10.0, 5.0, 2000)
    own = np.random.default_rng(4).normal(0.0, 0.1, (2, 2000))
    found = slowest_s(residuals_of(shared + own), 2)
    assert found == pytest.approx(0.1 / math.sqrt(math.pi), rel=0.1)


MIB = 1 << 20
PIECES = [Bucket(bytes=MIB, ready_s=float(n)) for n in range(1, 31)]
COMPUTING = Computing(
    batch=8,
    per_host=1,
    buckets=(Bucket(bytes=400, ready_s=1.0), Bucket(bytes=600, ready_s=3.0)),
    end_s=3.5,
    update_s=0.5,
    data_s=0.25,
)


def test_a_bucket_goes_when_it_is_full() -> None:
    filled = fill_buckets(PIECES, Layout(bucket_bytes=8 * MIB))
    assert [bucket.bytes // MIB for bucket in filled] == [8, 8, 8, 6]
    assert [bucket.ready_s for bucket in filled] == [8.0, 16.0, 24.0, 30.0]


def test_accumulation_computes_more_and_sends_as_much() -> None:
    found = COMPUTING.accumulated(4)
    # Three times a batch was waited for and computed before the pass that sends.
    assert [b.ready_s for b in found.buckets] == [3 * 3.75 + 1.0, 3 * 3.75 + 3.0]
    assert found.end_s == 3 * 3.75 + 3.5
    assert found.step_s == pytest.approx(4 * 3.75 + 0.5)
    assert COMPUTING.accumulated(1) == COMPUTING


def test_half_precision_sends_half_and_converts_twice() -> None:
    found = COMPUTING.in_half_precision(1000.0)
    assert [bucket.bytes for bucket in found.buckets] == [200, 300]
    # 6 bytes are read and written for each number of 4: 0.6 s for the first 400 bytes.
    assert [b.ready_s for b in found.buckets] == pytest.approx([1.6, 4.5])
    assert found.step_s == pytest.approx(COMPUTING.step_s + 2 * 1.5)


# Gradients come after 1, 2, 3 and 4 seconds.
BUCKETS = [Bucket(bytes=100, ready_s=float(n)) for n in (1, 2, 3, 4)]


def taking(transfer_s: float, latency_s: float = 0.0) -> Callable[[int], Cost]:
    """Each bucket of 100 bytes takes so long."""
    return lambda nbytes: Cost(latency_s=latency_s, transfer_s=transfer_s * nbytes / 100)


def test_only_the_last_bucket_shows_when_the_others_hide() -> None:
    found = replay(BUCKETS, taking(0.5), update_s=0.25)
    assert found.step_s == pytest.approx(4.5 + 0.25)
    assert found.exposed_s == pytest.approx(0.5)


def test_a_slow_link_is_never_idle_after_the_first_bucket() -> None:
    found = replay(BUCKETS, taking(3.0))
    assert found.step_s == pytest.approx(1.0 + 4 * 3.0)
    assert found.exposed_s == pytest.approx(9.0)


def test_communication_slows_computing_down() -> None:
    # From 1 on, half a second of each bucket's way costs computing a quarter of a second.
    found = replay(BUCKETS, taking(0.5), contention=2.0)
    assert found.step_s == pytest.approx(4.0 + 3 * 0.25 + 0.5)
    # A processor that does one thing at a time is as good as no overlap.
    assert replay(BUCKETS, taking(0.5), contention=1e9).exposed_s == pytest.approx(2.0)


def test_computing_slows_communication_down_while_it_lasts() -> None:
    # The last bucket goes when nothing is left to compute.
    assert replay(BUCKETS, taking(0.5), slowdown=2.0).exposed_s == pytest.approx(0.5)
    # 0.75 of the third's 1.5 has gone by 4: the rest and the fourth are not slowed down.
    found = replay(BUCKETS[2:], taking(1.5), slowdown=4 / 3)
    assert found.step_s == pytest.approx(4.0 + 0.75 + 1.5)


def test_two_channels_share_the_bytes_and_not_the_latency() -> None:
    together = [Bucket(bytes=100, ready_s=1.0)] * 2
    assert replay(together, taking(1.0, 0.5)).step_s == pytest.approx(1 + 2 * 1.5)
    assert replay(together, taking(1.0, 0.5), channels=2).step_s == pytest.approx(1 + 0.5 + 2.0)
    # Of three, the third waits for a channel, and then has half of the link.
    three = [*together, Bucket(bytes=100, ready_s=1.0)]
    assert replay(three, taking(1.0), channels=2).step_s == pytest.approx(1 + 3.0)


def cells(
    *counts: int, framework: str = "ddp", transport: str = "gloo", recorded: bool = True
) -> Sequence[Measured]:
    launches = []
    for workers in counts:
        ranks = [trained(number, workers, framework) for number in range(workers)]
        if not recorded:
            ranks = [replace(rank, buckets=()) for rank in ranks]
        cell = Cell(workers=workers, threads=1, batch=32, transport=transport)
        launches.append(make_launch(cell, ranks))
    found, _ = measure(make_study(launches))
    return found


def inputs(*counts: int, link: Link = LINK, **changes: object) -> ReplayInputs:
    found = replay_inputs(cells(*counts, **changes), link)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_a_study_of_ddp_on_a_cpu() -> None:
    found = inputs(1, 2, 4)
    assert found.layout == DDP_LAYOUT
    assert found.channels == 2
    assert found.network.shape == "flat"
    assert found.network.inside.law == "gloo"
    assert found.network.cost(8, 1, 16 * MB).seconds == pytest.approx(
        TRUE.cost(8, 16 * MB).seconds, rel=0.05
    )
    assert found.memory_bytes_per_s == 8e9
    computing = found.computing.at(32, 1)
    assert [bucket.bytes for bucket in computing.buckets] == [16 * MB, 16 * MB]
    assert computing.end_s == pytest.approx(0.1, abs=2e-3)
    assert computing.data_s == pytest.approx(0.01)
    # Ranks scatter by a millisecond each.
    assert slowest_s(found.residuals_s, 4) == pytest.approx(1.03e-3, rel=0.2)
    assert found.assumptions == ()


def test_a_study_of_farandoles_shared_memory() -> None:
    found = inputs(1, 2, framework="farandole.torch", transport="auto")
    assert (found.layout, found.channels) == (FARANDOLE_LAYOUT, 1)
    assert found.network.shape == "hierarchical"
    over_gloo = inputs(1, 2, framework="farandole.torch", transport="gloo")
    assert over_gloo.network.shape == "pairwise"
    one = Link(allreduce=tuple(point for point in LINK.allreduce if point[0] == 2))
    # One count alone: the slowest law is taken, and that is said.
    alone = inputs(1, 2, framework="farandole.torch", transport="auto", link=one)
    assert alone.network.inside.law == "bus"
    assert any("with 2 workers only" in sentence for sentence in alone.assumptions)


def test_one_worker_and_a_link_are_enough() -> None:
    found = replay_inputs(cells(1), Link(), link=parse_link("10Gbit"))
    assert found is not None
    fit = fit_replay(found, [StepRow(workers=1, hosts=1, batch=32, step_s=0.15)])
    assert fit.at(1, 1, 32).value == pytest.approx(0.15, rel=0.02)
    # 32 MiB over 10 Gbit/s take 47 ms at 8 hosts; half of it hides behind the second bucket.
    eight = fit.at(8, 8, 32)
    assert 0.16 < eight.value < 0.21
    assert eight.low < 0.8 * eight.value
    assert len(fit.assumptions) >= 3


MEGA = 1_000_000
RING = AllReduce(
    law="ring", setup_s=1e-3, latency_s=1e-3, seconds_per_byte=1 / (50 * MEGA), error=0.02
)


def computing(batch: int = 32, **changes: float) -> Computing:
    """Half a second at batch 32, gradients of 10 x 1 MEGA evenly over the second half of it."""
    scale = batch / 32
    return Computing(
        batch=batch,
        per_host=1,
        buckets=tuple(
            Bucket(bytes=MEGA, ready_s=scale * (0.25 + 0.025 * (n + 1))) for n in range(10)
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
        step_s = inputs.replay(workers, workers, 32, truth).step_s
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


def test_what_would_be_if() -> None:
    fit = fit_replay(INPUTS, rows(Factors(), 1, 2, 4))

    def with_change(change: Change, batch: int = 32) -> float:
        return fit.with_change(change).at(16, 16, batch).value

    plain = fit.at(16, 16, 32)
    assert with_change(Change()) == plain.value
    # 10 MB take 375 ms at 16 workers, and the latency of ten buckets 310: fewer buckets help here,
    # until one that goes last of all cannot hide any more.
    assert with_change(Change(bucket_bytes=5 * MEGA)) < plain.value
    assert with_change(Change(bucket_bytes=10 * MEGA)) > with_change(Change(bucket_bytes=5 * MEGA))
    # Half the bytes, at 12 ms for converting each way.
    assert plain.value - 0.19 < with_change(Change(half_precision=True)) < plain.value
    # Two passes take another half second of computing, and send once.
    assert with_change(Change(accumulation=2)) == pytest.approx(plain.value + 0.5, abs=0.01)
    # Twice the batch computes for twice as long, and hides more.
    assert plain.value < with_change(Change(), batch=64) < plain.value + 0.5
    assert any("batch 32" in sentence for sentence in fit.assumptions)
