"""What jobs, data and memory say: where each rule fires, and where it must not."""

from __future__ import annotations

import pytest

from farandole.model.info.job import JobTime
from farandole.model.info.utilisation import UtilisationRow
from farandole.model.statistics import Estimate
from farandole.model.verdicts.job import (
    contradicting_times,
    data_too_small,
    fixed_cost,
    flat_jobs,
    uneven_memory,
    uneven_utilisation,
)
from farandole.study.records import Cell


def job(
    job_s: float | None, epochs: float | None = None, epoch_s: float | None = None, workers: int = 2
) -> JobTime:
    fixed = None if None in (job_s, epochs, epoch_s) else job_s - epochs * epoch_s  # type: ignore[operator]
    return JobTime(
        cell=Cell(workers=workers),
        label=f"{workers} workers",
        job_s=None if job_s is None else Estimate(value=job_s, low=None, high=None),
        epochs=epochs,
        epoch_s=None if epoch_s is None else Estimate(value=epoch_s, low=None, high=None),
        epoch_measured=epoch_s is not None,
        steps_per_epoch=None,
        startup_s=None,
        between_s=None,
        fixed_s=fixed,
        fixed_share=None if fixed is None or job_s is None else fixed / job_s,
    )


@pytest.mark.parametrize(
    ("found", "fires"),
    [
        (job(100.0, 10.0, 9.0), False),
        (job(100.0, 10.0, 7.0), False),
        (job(100.0, 10.0, 6.9), True),
        (job(319.0, 10.0, 11.0), True),
        (job(100.0), False),
        (job(None, 10.0, 7.0), False),
    ],
)
def test_fixed_cost(found: JobTime, fires: bool) -> None:
    assert (fixed_cost(found) is not None) is fires


@pytest.mark.parametrize(
    ("times", "fires"),
    [
        # The driving lab: 8, 7.5, 8, 8.5 minutes on 2, 4, 4, 8.
        ({2: 480.0, 4: 450.0, 8: 510.0}, True),
        ({1: 456.0, 2: 380.0, 4: 204.0}, False),
        ({1: 100.0, 2: 50.0}, False),
        ({1: 100.0}, False),
        ({}, False),
    ],
)
def test_flat_jobs(times: dict[int, float], fires: bool) -> None:
    found = flat_jobs([job(time_s, workers=workers) for workers, time_s in times.items()])
    assert (found is not None) is fires


def test_flat_jobs_say_how_much_more_data_would_pay() -> None:
    # T(N) = 90 + 10/N: the shared tenth would have to be nine times as large.
    found = flat_jobs([job(90 + 10 / n, workers=n) for n in (1, 2, 4)])
    assert found is not None
    assert "about 9 times the data" in found.sentence


@pytest.mark.parametrize(
    ("samples", "batch", "workers", "fires"),
    [
        (50_000, 128, 2, False),
        (1000, 128, 4, True),
        (1280, 64, 2, False),
        (1279, 64, 2, True),
        (1000, 128, 1, False),
        (None, 128, 4, False),
        (1000, None, 4, False),
    ],
)
def test_data_too_small(samples: int | None, batch: int | None, workers: int, fires: bool) -> None:
    assert (data_too_small(samples, batch, workers, "a cell") is not None) is fires


@pytest.mark.parametrize(
    ("found", "fires"),
    [
        (job(5910.0, 30.0, 209.0), True),
        (job(2594.0, 30.0, 81.0), False),
        (job(100.0, 10.0, 10.0), False),
        (job(5910.0), False),
    ],
)
def test_contradicting_times(found: JobTime, fires: bool) -> None:
    assert (contradicting_times(found) is not None) is fires


def row(*by_rank: tuple[float | None, float | None, float | None]) -> UtilisationRow:
    return UtilisationRow(
        cell=Cell(workers=len(by_rank)),
        label="a cell",
        cpu=None,
        gpu=None,
        memory_bytes=None,
        gpu_memory_bytes=None,
        energy_j=None,
        by_rank=tuple((rank, *figures) for rank, figures in enumerate(by_rank)),
    )


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (row((0.9, None, None), (0.85, None, None)), None),
        (row((0.9, None, None), (0.6, None, None)), "CPU"),
        (row((0.9, 0.9, None), (0.9, 0.5, None)), "GPU"),
        (row((0.9, None, None)), None),
        (row((0.9, None, None), (None, None, None)), None),
        # Both idle: nothing to even out.
        (row((0.04, None, None), (0.01, None, None)), None),
    ],
)
def test_uneven_utilisation(found: UtilisationRow, word: str | None) -> None:
    verdict = uneven_utilisation(found)
    assert (verdict is not None) is (word is not None)
    if verdict is not None and word is not None:
        assert word in verdict.sentence


@pytest.mark.parametrize(
    ("found", "fires"),
    [
        (row((None, None, 2.0e9), (None, None, 2.1e9)), False),
        (row((None, None, 3.0e9), (None, None, 2.0e9)), True),
        # A quarter more, but only of 200 MB.
        (row((None, None, 0.25e9), (None, None, 0.2e9)), False),
        (row((None, None, 3.0e9)), False),
    ],
)
def test_uneven_memory(found: UtilisationRow, fires: bool) -> None:
    assert (uneven_memory(found) is not None) is fires
