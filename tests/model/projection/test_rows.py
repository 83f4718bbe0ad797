"""What a projection stands on, from launches and from tables."""

from __future__ import annotations

import pytest

from farandole.errors import UsageError
from farandole.model.analyse import analyse
from farandole.model.measured import measure
from farandole.model.projection.rows import Basis, collect
from farandole.study.records import Cell, Launch, Study
from tests.model.build import (
    make_launch,
    make_rank,
    make_steps,
    make_study,
    table_launch,
    timed_launch,
)


def basis_of(study: Study, *only: tuple[str, str]) -> Basis:
    return collect(study, analyse(study), measure(study)[0], only)


def gpu(workers: int, batch: int | None = 32, **changes: object) -> Cell:
    return Cell(workers=workers, batch=batch, device="V100", **changes)  # type: ignore[arg-type]


def test_steps_of_launches() -> None:
    study = make_study(
        timed_launch(Cell(workers=n, batch=16, threads=2), s) for n, s in ((1, 0.1), (2, 0.12))
    )
    found = basis_of(study)
    assert [(row.workers, row.batch, round(row.step_s, 6)) for row in found.rows] == [
        (1, 16, 0.1),
        (2, 16, 0.12),
    ]
    assert found.steps_known
    # 8 cores, 2 threads each.
    assert found.host_size == 4
    assert not found.crosses_hosts
    assert found.unit == "samples/s"


def test_epochs_of_a_table_with_a_size() -> None:
    study = make_study(
        table_launch(gpu(n), epoch_s=seconds, dataset_size=3200)
        for n, seconds in ((1, 100.0), (2, 60.0), (4, 40.0))
    )
    found = basis_of(study)
    # 100 steps of one worker, 50 of two, 25 of four.
    assert [row.step_s for row in found.rows] == pytest.approx([1.0, 1.2, 1.6])
    assert found.steps_known
    assert found.throughput(1.6, 128) == pytest.approx(80.0)
    assert found.host_size == 4


def test_epochs_of_a_table_without_a_size_are_free_of_scale() -> None:
    study = make_study(
        table_launch(gpu(n), epoch_s=seconds) for n, seconds in ((2, 60.0), (4, 40.0), (8, 30.0))
    )
    found = basis_of(study)
    assert not found.steps_known
    assert any("only epochs" in said for said in found.assumptions)
    steps = found.steps_per_epoch(8 * 32)
    assert steps is not None
    # Whatever the scale, an epoch is as long as it was.
    assert found.rows[-1].step_s * steps == pytest.approx(30.0)
    assert found.unit == "epochs/s"
    assert found.throughput(found.rows[-1].step_s, 8 * 32) == pytest.approx(1 / 30)


def test_times_of_jobs_are_of_their_epochs() -> None:
    study = make_study(
        table_launch(gpu(n), job_s=seconds, epochs=10, dataset_size=3200)
        for n, seconds in ((1, 1000.0), (2, 600.0), (4, 400.0))
    )
    found = basis_of(study)
    assert [row.step_s for row in found.rows] == pytest.approx([1.0, 1.2, 1.6])
    assert any("whole jobs" in said for said in found.assumptions)


def test_throughput_alone_gives_steps_and_no_epochs() -> None:
    study = make_study(
        table_launch(gpu(n), throughput=rate) for n, rate in ((1, 320.0), (2, 600.0), (4, 1000.0))
    )
    found = basis_of(study)
    assert [row.step_s for row in found.rows] == pytest.approx([0.1, 64 / 600, 0.128])
    assert found.steps_per_epoch(32) is None


def test_throughput_and_epoch_times_tell_how_many_samples_an_epoch_has() -> None:
    study = make_study(
        table_launch(gpu(n), throughput=rate, epoch_s=seconds)
        for n, rate, seconds in ((1, 320.0, 10.0), (2, 600.0, 5.3), (4, 1000.0, 3.2))
    )
    found = basis_of(study)
    assert [row.step_s for row in found.rows] == pytest.approx([0.1, 64 / 600, 0.128])
    # 3,200, 3,180 and 3,200 samples.
    assert found.steps_per_epoch(32) == pytest.approx(100.0)
    assert found.unit == "samples/s"
    assert any("3,200 samples" in said for said in found.assumptions)


def test_times_and_throughput_in_contradictory_units_are_refused() -> None:
    study = make_study(
        table_launch(gpu(n), throughput=rate, step_s=seconds)
        for n, rate, seconds in ((1, 160.0, 2e-4), (2, 300.0, 0.213), (4, 540.0, 0.237))
    )
    complaint = r"1 worker of batch 32 .* train 160,000 samples a second, but the table says 160\. "
    with pytest.raises(UsageError, match=complaint + "Correct the units"):
        basis_of(study)


def test_other_batches_of_the_same_group_count_too() -> None:
    study = make_study(
        table_launch(gpu(n, batch), step_s=0.01 * batch + 0.1 * (n - 1))
        for n in (1, 2)
        for batch in (16, 32)
    )
    found = basis_of(study)
    assert {row.batch for row in found.rows} == {16, 32}
    assert len(found.rows) == 4


def test_strong_scaling_shares_the_batch() -> None:
    study = make_study(
        [table_launch(gpu(n, 64 // n), step_s=0.1 / n) for n in (1, 2, 4)],
        spec={"scaling": "strong"},
    )
    found = basis_of(study)
    assert found.scaling == "strong"
    assert [found.batch_of(n) for n in (1, 2, 16)] == [64, 32, 4]
    assert any("global batch stays 64" in said for said in found.assumptions)


def test_hosts_that_were_measured() -> None:
    study = make_study(
        table_launch(gpu(n, hosts=hosts), step_s=0.1 * hosts)
        for n, hosts in ((1, 1), (4, 1), (8, 2))
    )
    found = basis_of(study)
    assert found.crosses_hosts
    assert found.host_size == 4
    # Hosts may grow along a curve: those of one are taken from it.
    within = basis_of(study, ("hosts", "1"))
    assert within.workers == (1, 4)
    assert [point.workers for point in within.curve.points] == [1, 4]
    with pytest.raises(UsageError, match="hosts=2 was measured with 8 workers only"):
        basis_of(study, ("hosts", "2"))


def devices() -> list[Launch]:
    return [
        table_launch(Cell(workers=n, batch=32, device=device), step_s=0.1 * n)
        for device in ("T4", "V100")
        for n in (1, 2, 4)
    ]


def test_only_some_cells() -> None:
    study = make_study(devices())
    assert basis_of(study).device == "T4"
    found = basis_of(study, ("device", "v100"))
    assert found.device == "V100"
    assert len(found.rows) == 3


def test_cells_that_are_not_there() -> None:
    with pytest.raises(UsageError, match=r"No curve.*device=A100\. There, device is T4 or V100"):
        basis_of(make_study(devices()), ("device", "A100"))
    with pytest.raises(UsageError, match="It has no factor model; choose from batch, device"):
        basis_of(make_study(devices()), ("model", "vgg"))


def test_cells_of_one_count_are_told_from_cells_that_are_not_there() -> None:
    lone = table_launch(Cell(workers=4, batch=32, device="P100"), step_s=0.1)
    with pytest.raises(UsageError) as error:
        basis_of(make_study([*devices(), lone]), ("device", "P100"))
    assert str(error.value) == (
        "device=P100 was measured with 4 workers only, and what more would give shows from two "
        "numbers of workers on. Measure a second one, or name cells that have two: "
        "--only device=T4 or --only device=V100."
    )


def test_cells_that_differ_in_workers_and_batch_make_no_curve() -> None:
    apart = [
        table_launch(Cell(workers=n, batch=batch, device="P100"), step_s=0.1)
        for n, batch in ((1, 32), (4, 16))
    ]
    with pytest.raises(UsageError, match="device=P100 was measured with 1 and 4 workers, but with"):
        basis_of(make_study([*devices(), *apart]), ("device", "P100"))


def test_workers_that_did_not_train_together_are_nothing_to_stand_on() -> None:
    apart = [make_rank(n, make_steps(0.1), weights=f"of {n}") for n in range(2)]
    study = make_study(
        [
            timed_launch(Cell(workers=1, batch=16), 0.1),
            make_launch(Cell(workers=2, batch=16), apart),
        ]
    )
    with pytest.raises(UsageError, match=r"nothing to project from.*different weights"):
        basis_of(study)


def test_no_time_at_all() -> None:
    study = make_study(table_launch(gpu(n), {"accuracy": 0.9}) for n in (1, 2))
    with pytest.raises(UsageError, match="There is nothing to project from"):
        basis_of(study)


def test_the_time_beside_epochs() -> None:
    study = make_study(
        table_launch(gpu(n), job_s=10 * seconds + fixed, epochs=10, epoch_s=seconds)
        for n, seconds, fixed in ((1, 100.0, 30.0), (2, 60.0, 50.0), (4, 40.0, -20.0))
    )
    found = basis_of(study)
    assert [found.beside_of(n).once_s for n in (1, 2)] == pytest.approx([30.0, 50.0])
    # A job that is shorter than its epochs is a slip of the table; the most that is known counts.
    assert [found.beside_of(n).once_s for n in (4, 64)] == pytest.approx([50.0, 50.0])


def test_what_lies_between_epochs_is_counted_per_epoch() -> None:
    # Starts at 98 s; epochs of 10 s begin at 103 and 117; ends 40 s after the start.
    epochs = ((103.0, 113.0), (117.0, 127.0))
    launches = [
        make_launch(
            Cell(workers=n, batch=16, threads=1),
            [make_rank(r, make_steps(0.1, samples=16), epochs=epochs) for r in range(n)],
            outcome="ok",
            wall_s=40.0,
        )
        for n in (1, 2)
    ]
    found = basis_of(make_study(launches))
    for workers in (2, 8):
        assert found.beside_of(workers).once_s == pytest.approx(5.0)
        assert found.beside_of(workers).per_epoch_s == pytest.approx((40 - 5 - 20) / 2)
