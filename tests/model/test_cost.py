"""Money."""

from __future__ import annotations

import pytest

from farandole.errors import UsageError
from farandole.model.cost import price
from farandole.model.jobs import time_job
from farandole.model.measured import measure
from farandole.study.records import Cell
from tests.model.build import make_study, table_launch, timed_launch


def test_workers_times_price_times_hours() -> None:
    launch = table_launch(Cell(workers=4, batch=8), job_s=1800.0, epoch_s=360.0, throughput=1000.0)
    cells, _ = measure(make_study([launch]))
    found = price(cells[0], time_job(cells[0], {}), None, 2.5)
    assert found is not None
    assert found.job == pytest.approx(5.0)
    assert found.per_epoch == pytest.approx(1.0)
    # A million samples take 1,000 s.
    assert found.per_million_samples == pytest.approx(4 * 2.5 * 1000 / 3600)
    assert found.to_target is None


def test_nothing_to_price_without_a_time() -> None:
    cells, _ = measure(make_study([table_launch(Cell(workers=4), {"loss": 3.0})]))
    assert price(cells[0], None, None, 2.5) is None


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan")])
def test_a_price_that_is_none_is_refused(wrong: float) -> None:
    cells, _ = measure(make_study([timed_launch(Cell(workers=1, batch=8), 0.1)]))
    with pytest.raises(UsageError, match="--price"):
        price(cells[0], None, None, wrong)
