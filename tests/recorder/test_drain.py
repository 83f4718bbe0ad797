"""Loading as fast as batches come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from farandole.recorder import drain
from farandole.recorder.drain import rate, samples_per_s


class Source:
    """Batches of 8 that take a second each; starting a pass takes ten."""

    def __init__(self, batches: int, *, passes: int = 1000, start_s: float = 10.0) -> None:
        self._batches, self._passes, self._start_s = batches, passes, start_s
        self.now_s = 0.0
        self.given = 0

    def again(self) -> Iterator[Any]:
        if not self._passes:
            raise RuntimeError("only once")
        self._passes -= 1
        self.now_s += self._start_s
        for _ in range(self._batches):
            self.now_s += 1.0
            self.given += 1
            yield [np.zeros((8, 3)), np.zeros(8)]

    def rate(self, seconds: float) -> float | None:
        return rate(self.again, seconds, clock=lambda: self.now_s)


def test_a_pass_counts_from_its_first_batch_on() -> None:
    source = Source(1000)
    assert source.rate(30.0) == pytest.approx(8.0)
    assert source.given == 20


def test_passes_follow_each_other() -> None:
    source = Source(4)
    # Four batches, three of them behind the first.
    assert source.rate(100.0) == pytest.approx(8.0)
    assert source.given > 8


def test_a_batch_that_is_all_there_is_counts_with_its_start() -> None:
    assert Source(1).rate(50.0) == pytest.approx(8 / 11)


def test_slow_batches_are_waited_for_until_there_are_two() -> None:
    source = Source(1000)
    assert source.rate(0.1) == pytest.approx(8.0)
    assert source.given == 2


def test_what_can_be_had_only_once_counts_as_far_as_it_goes() -> None:
    assert Source(5, passes=1).rate(100.0) == pytest.approx(8.0)
    assert Source(5, passes=0).rate(100.0) is None


def test_nothing_and_what_has_no_size_give_no_figure() -> None:
    assert Source(0).rate(1.0) is None
    assert rate(lambda: iter(["a", "b"]), 1.0) is None


def test_the_loader_that_gave_a_batch_last_is_gone_over_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Iterating:
        def __init__(self, loader: Any) -> None:
            self._left = list(loader.batches)

        def __next__(self) -> Any:
            return self._left.pop()

    class Loader:
        def __init__(self, batch: int) -> None:
            self.batches = [np.zeros((batch, 2))] * 3
            self.passes = 0

        def __iter__(self) -> Iterator[Any]:
            self.passes += 1
            return iter(self.batches)

    monkeypatch.setattr(drain, "_again", None)
    assert samples_per_s(0.01) is None
    drain.follow_torch(SimpleNamespace(_BaseDataLoaderIter=Iterating))
    training, validation = Loader(4), Loader(5)
    iterators = Iterating(training), Iterating(validation)
    next(iterators[1])  # type: ignore[call-overload]
    next(iterators[0])  # type: ignore[call-overload]
    found = samples_per_s(0.01)
    assert found is not None
    assert found > 0
    assert training.passes > 0
    assert validation.passes == 0
