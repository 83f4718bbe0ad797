"""Factors and figures of the track record."""

from __future__ import annotations

import json

import pytest

from farandole.errors import DataError
from farandole.model.projection import track_record
from farandole.model.projection.backtest.make_record import make_record
from farandole.model.projection.track_record import parse
from farandole.study.traces import StepTrace, read_trace
from tests.model.projection.clusters import ETHERNET_10, LARGE, RESNET, measure
from tests.model.projection.shared_traces import shared_trace

GROUPS = {
    ("here", name): measure(ETHERNET_10, network, workers=(1, 2, 3, 4, 8, 16), noise=0.05)
    for name, network in (("large", LARGE), ("resnet", RESNET))
}


def test_factors_cover_nine_rows_in_ten_and_never_shrink() -> None:
    content = json.loads(json.dumps(make_record(GROUPS)))
    record = parse(content)
    assert record.models == ("here large", "here resnet")
    assert [reach.up_to for reach in record.reaches] == [2, 4, 8]
    for near, far in zip(record.reaches, record.reaches[1:], strict=False):
        assert far.fast >= near.fast >= 1
        assert far.slow >= near.slow >= 1
    for reach in record.reaches:
        assert 0 < reach.median_abs_pct <= reach.p90_abs_pct
        assert 0 <= reach.coverage_left_out <= 1


def test_no_measurement_is_in_the_record() -> None:
    text = json.dumps(make_record(GROUPS))
    assert not any(repr(row.step_s)[:8] in text for rows in GROUPS.values() for row in rows)


def test_one_model_is_not_enough() -> None:
    with pytest.raises(DataError, match="1 models have rows to fit"):
        make_record({("here", "large"): GROUPS["here", "large"]})


def test_the_shipped_record_is_what_the_command_writes() -> None:
    trace = read_trace(shared_trace("steps_aws_t4.csv"))
    assert isinstance(trace, StepTrace)
    fresh = parse(json.loads(json.dumps(make_record(trace.groups))))
    shipped = track_record.track_record()
    assert fresh.models == shipped.models
    for ours, theirs in zip(fresh.reaches, shipped.reaches, strict=True):
        assert (ours.up_to, ours.rows) == (theirs.up_to, theirs.rows)
        assert ours.mean_abs_pct == pytest.approx(theirs.mean_abs_pct, abs=0.1)
        assert ours.fast == pytest.approx(theirs.fast, abs=0.05)
        assert ours.slow == pytest.approx(theirs.slow, abs=0.05)
