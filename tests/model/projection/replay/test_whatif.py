from __future__ import annotations

import pytest

from farandole.model.projection.records import Bucket
from farandole.model.projection.replay.computing import Computing
from farandole.model.projection.replay.whatif import (
    DDP_LAYOUT,
    Layout,
    accumulated,
    halved,
    put_together,
)

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
    filled = put_together(PIECES, Layout(bucket_bytes=8 * MIB))
    assert [bucket.bytes // MIB for bucket in filled] == [8, 8, 8, 6]
    assert [bucket.ready_s for bucket in filled] == [8.0, 16.0, 24.0, 30.0]


def test_ddps_first_bucket_is_small() -> None:
    filled = put_together(PIECES, DDP_LAYOUT)
    assert [bucket.bytes // MIB for bucket in filled] == [1, 25, 4]


def test_no_gradient_is_cut_and_none_is_lost() -> None:
    assert put_together(PIECES, Layout(bucket_bytes=1)) == tuple(PIECES)
    assert put_together([], Layout(bucket_bytes=1)) == ()


def test_accumulation_computes_more_and_sends_as_much() -> None:
    found = accumulated(COMPUTING, 4)
    # Three times a batch was waited for and computed before the pass that sends.
    assert [b.ready_s for b in found.buckets] == [3 * 3.75 + 1.0, 3 * 3.75 + 3.0]
    assert found.end_s == 3 * 3.75 + 3.5
    assert found.step_s == pytest.approx(4 * 3.75 + 0.5)
    assert accumulated(COMPUTING, 1) == COMPUTING


def test_half_precision_sends_half_and_converts_twice() -> None:
    found = halved(COMPUTING, bytes_per_s=1000.0)
    assert [bucket.bytes for bucket in found.buckets] == [200, 300]
    # 6 bytes are read and written for each number of 4: 0.6 s for the first 400 bytes.
    assert [b.ready_s for b in found.buckets] == pytest.approx([1.6, 4.5])
    assert found.step_s == pytest.approx(COMPUTING.step_s + 2 * 1.5)
