from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from farandole.model.measured import measure
from farandole.model.projection.records import Bucket
from farandole.model.projection.replay.computing import Computing, ComputingLine, computing_of
from farandole.study.records import Apart, Cell, GradientTimes, Rank
from tests.model.build import make_launch, make_rank, make_steps, make_study


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


def test_waiting_for_gradients_is_no_computing() -> None:
    two = found(2)
    assert two is not None
    assert two.end_s == pytest.approx(0.5)
    assert two.update_s == pytest.approx(0.2)
    assert two.per_host == 2


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


def test_without_times_of_gradients_nothing_is_known() -> None:
    cell = Cell(workers=1, threads=1, batch=32)
    (measured,), _ = measure(make_study([make_launch(cell, [make_rank(0, make_steps(1.0))])]))
    assert computing_of(measured) is None


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


def test_one_batch_is_taken_as_proportional() -> None:
    one = line((10, 1, 0.3))
    assert one.at(20, 1).end_s == pytest.approx(0.6)
    assert one.at(20, 1).update_s == pytest.approx(0.1)
    assert one.batches == (10,)


def test_a_larger_batch_that_was_faster_makes_no_line_that_falls() -> None:
    assert line((10, 1, 0.5), (40, 1, 0.4)).at(1000, 1).end_s == pytest.approx(0.45)


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


def test_cells_say_what_copies_do_not() -> None:
    found = replace(line((10, 1, 0.4), (10, 2, 0.6), (10, 4, 0.8)), apart=APART)
    assert found.slowed_down(2) == pytest.approx(1.1)
    assert found.slowed_down(4) == pytest.approx(2.0)


def test_one_worker_alone_is_known_where_only_several_were_measured() -> None:
    found = replace(line((10, 2, 0.44)), apart=APART)
    assert found.at(10, 2).end_s == pytest.approx(0.44)
    assert found.at(10, 1).end_s == pytest.approx(0.4)
    assert found.at(10, 1).update_s == pytest.approx(0.1 / 1.5)
