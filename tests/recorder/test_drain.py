"""Loading as fast as batches come."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from farandole.recorder import contention
from farandole.recorder.contention import loading_rate, samples_per_s


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

    def loading_rate(self, seconds: float) -> float | None:
        return loading_rate(self.again, seconds, clock=lambda: self.now_s)


def test_a_pass_counts_from_its_first_batch_on() -> None:
    source = Source(1000)
    assert source.loading_rate(30.0) == pytest.approx(8.0)
    assert source.given == 20


def test_passes_follow_each_other() -> None:
    source = Source(4)
    # Four batches, three of them behind the first.
    assert source.loading_rate(100.0) == pytest.approx(8.0)
    assert source.given > 8


def test_a_batch_that_is_all_there_is_counts_with_its_start() -> None:
    assert Source(1).loading_rate(50.0) == pytest.approx(8 / 11)


def test_slow_batches_are_waited_for_until_there_are_two() -> None:
    source = Source(1000)
    assert source.loading_rate(0.1) == pytest.approx(8.0)
    assert source.given == 2


def test_what_can_be_had_only_once_counts_as_far_as_it_goes() -> None:
    assert Source(5, passes=1).loading_rate(100.0) == pytest.approx(8.0)
    assert Source(5, passes=0).loading_rate(100.0) is None


def test_nothing_and_what_has_no_size_give_no_figure() -> None:
    assert Source(0).loading_rate(1.0) is None
    assert loading_rate(lambda: iter(["a", "b"]), 1.0) is None


class Iterating:
    """What a DataLoader's iterator is."""

    def __init__(self, loader: Any) -> None:
        self._left = list(loader.batches)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if not self._left:
            raise StopIteration
        return self._left.pop()


class Loader:
    """A DataLoader; `within`: one that another one gives its batches to."""

    def __init__(self, batch: int, within: type[Loader] | None = None) -> None:
        self.batches = [np.zeros((batch, 2))] * 3
        self.passes = 0
        self._within = within

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        return iter(Iterating(self)) if self._within is None else iter(self._within(1))


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    init, fetch = Iterating.__init__, Iterating.__next__
    monkeypatch.setattr(contention, "_again", None)
    monkeypatch.setattr(contention, "_keras_feeds", False)
    contention.follow_torch_loaders(SimpleNamespace(_BaseDataLoaderIter=Iterating))
    yield
    Iterating.__init__, Iterating.__next__ = init, fetch  # type: ignore[method-assign]


@pytest.mark.usefixtures("followed")
def test_the_loader_that_gave_a_batch_last_is_gone_over_again() -> None:
    assert samples_per_s(0.01) is None
    training, validation = Loader(4), Loader(5)
    iterators = Iterating(training), Iterating(validation)
    next(iterators[1])
    next(iterators[0])
    found = samples_per_s(0.01)
    assert found is not None
    assert found > 0
    assert training.passes > 0
    assert validation.passes == 0


@pytest.mark.usefixtures("followed")
def test_a_loader_within_does_not_take_the_place_of_the_source() -> None:
    source = Loader(4, within=Loader)
    next(Iterating(source))
    for _ in range(2):
        before = source.passes
        assert samples_per_s(0.01) is not None
        assert source.passes > before


@pytest.mark.usefixtures("followed")
def test_keras_goes_over_its_data_by_loaders_that_are_good_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contention, "_keras_feeds", True)
    loader = Loader(4)
    next(Iterating(loader))
    assert samples_per_s(0.01) is None
    assert loader.passes == 0
