from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from farandole.recorder.batches import Loaders
from farandole.recorder.recorder import Recorder, Settings
from tests.recorder.launching import Recorded, read_rank

DATA = list(range(100))


class Passing:
    """What is needed here of a DataLoader's iterator."""

    def __init__(self, dataset: Any, num_batches: int) -> None:
        self._dataset, self._num_batches = dataset, num_batches
        self._index_sampler = SimpleNamespace(batch_size=4)

    def __len__(self) -> int:
        return self._num_batches


class Script:
    """A script that fetches, updates and ends passes; a second goes by with each."""

    def __init__(self, tmp_path: Path) -> None:
        self._path = tmp_path / "rank-0.jsonl"
        self.recorder = Recorder(Settings(folder=str(tmp_path)), rank=0, size=1, host="here")
        self.loaders = Loaders()
        self._now_s = 0.0

    def iterator(self, dataset: Any = DATA, num_batches: int = 25) -> Any:
        return Passing(dataset, num_batches)

    def fetch(self, iterator: Any, samples: int = 4) -> None:
        batch = np.random.default_rng(int(self._now_s)).random((samples, 3))
        self._now_s += 1
        self.loaders.fetched(iterator, batch, self._now_s - 1, self._now_s, self.recorder)

    def update(self) -> None:
        self.loaders.settle(self.recorder)
        self.recorder.step()

    def end(self, iterator: Any) -> None:
        self._now_s += 1
        self.loaders.ended(iterator, self._now_s, self.recorder)

    def recorded(self) -> Recorded:
        self.recorder.close()
        return read_rank(self._path)


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    made = Script(tmp_path)
    yield made
    made.recorder.close()


def test_a_pass_is_an_epoch(script: Script) -> None:
    for _ in range(2):
        one = script.iterator()
        for _ in range(3):
            script.fetch(one)
            script.update()
        script.end(one)
    found = script.recorded()
    assert [(e["begin_s"], e["end_s"]) for e in found.of("epoch")] == [(0.0, 4.0), (4.0, 8.0)]
    assert found.steps()["samples"] == [4.0] * 6
    assert found.steps()["data_s"] == [1.0] * 6
    assert (found.setup["dataset_size"], found.setup["batch_seen"]) == (100, 4)
    # Of the first four batches.
    assert len(found.setup["sample_hashes"]) == len(set(found.setup["sample_hashes"])) == 16


def test_accumulated_batches_belong_to_one_step(script: Script) -> None:
    one = script.iterator()
    for samples in (4, 4, 3):
        script.fetch(one, samples)
    script.update()
    assert script.recorded().steps()["samples"] == [11.0]


def test_a_pass_without_updates_is_not_training(script: Script) -> None:
    validation, training = script.iterator(), script.iterator()
    for _ in range(5):
        script.fetch(validation)
    script.end(validation)
    script.fetch(training, 2)
    script.update()
    found = script.recorded()
    assert found.of("epoch") == []
    assert found.steps()["samples"] == [2.0]
    assert found.setup["batch_seen"] == 2
    assert len(found.setup["sample_hashes"]) == 2


def test_two_loaders_may_feed_one_step(script: Script) -> None:
    labelled, unlabelled = script.iterator(), script.iterator(DATA * 2)
    script.fetch(labelled, 3)
    script.fetch(unlabelled, 4)
    script.update()
    assert script.recorded().steps()["samples"] == [7.0]


def test_a_pass_that_is_left_ends_where_the_next_begins(script: Script) -> None:
    for _ in range(3):
        one = script.iterator()
        for _ in range(2):
            script.fetch(one)
            script.update()
    assert len(script.recorded().of("epoch")) == 2


def test_an_iterator_per_batch_makes_no_epochs(script: Script) -> None:
    for _ in range(5):
        script.fetch(script.iterator())
        script.update()
    assert script.recorded().of("epoch") == []


def test_a_batch_that_was_fetched_ahead_is_not_lost(script: Script) -> None:
    for _ in range(2):
        one = script.iterator()
        script.fetch(one)
        script.fetch(one)
        script.update()
        script.end(one)
        script.update()
    found = script.recorded()
    assert len(found.of("epoch")) == 2
    assert found.steps()["samples"] == [8.0, 0.0, 8.0, 0.0]


def test_a_loader_without_a_length(script: Script) -> None:
    script.fetch(script.iterator(iter(())))
    script.update()
    assert script.recorded().setup["dataset_size"] is None


@pytest.mark.parametrize(("num_batches", "epochs"), [(3, 2), (4, 1)])
def test_the_last_pass_counts_if_it_gave_all_batches(
    script: Script, num_batches: int, epochs: int
) -> None:
    for _ in range(2):
        one = script.iterator(num_batches=num_batches)
        for _ in range(3):
            script.fetch(one)
            script.update()
    assert len(script.recorded().of("epoch")) == epochs
