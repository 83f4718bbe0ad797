from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from farandole.recorder.keras_data import Feed
from farandole.recorder.recorder import Recorder, Settings
from tests.recorder.launching import read_rank


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    made = Recorder(Settings(folder=str(tmp_path)), rank=0, size=1, host="here")
    yield made
    made.close()


def batch(first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.arange(first, first + count, dtype=np.float32)[:, None] * np.ones((1, 4), np.float32)
    return x, np.zeros(count, np.int32)


def test_batches_wait_for_their_step(recorder: Recorder) -> None:
    feed = Feed()
    feed.fetched(batch(0, 4), 1.0, 1.5)
    feed.fetched({"image": batch(4, 3)[0]}, None, 2.0)
    found = feed.take(recorder)
    assert [(one.begin_s, one.end_s, one.samples) for one in found] == [(1.0, 1.5, 4), (None, 2, 3)]
    assert feed.take(recorder) == []


def test_what_builds_or_evaluates_a_model_does_not_count(recorder: Recorder) -> None:
    feed = Feed()
    feed.fetched(batch(0, 4), 1.0, 1.5)
    feed.drop()
    feed.fetched(batch(4, 2), 2.0, 2.5)
    feed.set_aside()
    feed.fetched(batch(0, 4), 3.0, 3.5)
    feed.return_to_training()
    assert [one.samples for one in feed.take(recorder)] == [2]
    feed.return_to_training()  # an evaluation before any training


def test_the_first_four_batches_are_looked_at(tmp_path: Path, recorder: Recorder) -> None:
    feed = Feed()
    for n in range(6):
        feed.fetched(batch(2 * n, 2), 0.0, 0.0)
        feed.take(recorder)
    recorder.flush()
    hashes = read_rank(tmp_path / "rank-0.jsonl").setup["sample_hashes"]
    assert len(hashes) == len(set(hashes)) == 8


def test_fewer_batches_are_told_at_the_end(tmp_path: Path, recorder: Recorder) -> None:
    feed = Feed()
    feed.fetched(batch(0, 3), 0.0, 0.0)
    feed.take(recorder)
    recorder.close()
    assert len(read_rank(tmp_path / "rank-0.jsonl").setup["sample_hashes"]) == 3


def test_a_batch_without_a_size(recorder: Recorder) -> None:
    feed = Feed()
    feed.fetched(np.float32(3), 0.0, 0.0)
    assert [one.samples for one in feed.take(recorder)] == [None]
