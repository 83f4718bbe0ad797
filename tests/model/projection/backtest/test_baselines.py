"""Simpler laws."""

from __future__ import annotations

import pytest

from farandole.model.projection.backtest.baselines import fit_baselines
from farandole.model.projection.records import StepRow


def row(workers: int, hosts: int, batch: int, step_s: float = 1.0) -> StepRow:
    return StepRow(workers=workers, hosts=hosts, batch=batch, step_s=step_s)


def test_linear_scaling_keeps_the_step_of_one_worker() -> None:
    rows = [row(1, 1, batch, 0.1 + 0.02 * batch) for batch in (5, 10, 20)]
    linear = fit_baselines([*rows, row(2, 1, 10, 0.5)])["linear"]
    assert linear(row(64, 16, 15)) == pytest.approx(0.4)


def test_one_batch_alone_is_taken_as_proportional() -> None:
    linear = fit_baselines([row(1, 1, 10, 0.2), row(2, 1, 10, 0.3)])["linear"]
    assert linear(row(8, 1, 20)) == pytest.approx(0.4)


def test_amdahl_is_found_again() -> None:
    fraction = 0.1
    rows = [
        row(n, 1, batch, 0.02 * batch * (1 + fraction * (n - 1)))
        for n in (1, 2, 4)
        for batch in (5, 10)
    ]
    amdahl = fit_baselines(rows)["amdahl"]
    assert amdahl(row(16, 4, 10)) == pytest.approx(0.2 * (1 + fraction * 15), rel=1e-6)


def test_amdahl_without_a_second_worker_has_no_serial_part() -> None:
    rows = [row(1, 1, batch, 0.02 * batch) for batch in (5, 10, 20)]
    assert fit_baselines(rows)["amdahl"](row(16, 4, 10)) == pytest.approx(0.2)


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
