"""Serial fractions, from speedups that the laws themselves give."""

from __future__ import annotations

import pytest

from farandole.model.laws import (
    amdahl_fraction,
    fit_amdahl,
    fit_gustafson,
    gustafson_fraction,
)
from farandole.model.statistics import Estimate


def _exactly(value: float) -> Estimate:
    return Estimate(value=value, low=None, high=None)


@pytest.mark.parametrize("serial", [0.0, 0.05, 0.3, 1.0])
def test_the_laws_find_their_own_fraction(serial: float) -> None:
    workers = [2.0, 4.0, 8.0]
    amdahl = [1 / (serial + (1 - serial) / number) for number in workers]
    gustafson = [number - serial * (number - 1) for number in workers]
    assert amdahl_fraction(workers, amdahl) == pytest.approx(serial)
    assert gustafson_fraction(workers, gustafson) == pytest.approx(serial)


def test_one_point_is_karp_and_flatts_metric() -> None:
    # (1/S - 1/N) / (1 - 1/N) of 6.8x on 8: Karp and Flatt 1990.
    expected = (1 / 6.8 - 1 / 8) / (1 - 1 / 8)
    assert amdahl_fraction([8.0], [6.8]) == pytest.approx(expected)


def test_amdahls_sentence_names_the_limit() -> None:
    found = fit_amdahl([1.0, 4.0], [_exactly(1.0), _exactly(1 / (0.05 + 0.95 / 4))])
    assert found is not None
    assert found.limit == pytest.approx(20.0)
    assert found.sentence == (
        "5.0% of the work does not get shorter with more workers: by Amdahl's law no number of "
        "them gives more than 20x."
    )


def test_gustafsons_sentence_names_what_a_worker_adds() -> None:
    found = fit_gustafson([1.0, 8.0], [_exactly(1.0), _exactly(8 - 0.1 * 7)])
    assert found is not None
    assert "each further worker adds 0.90 of a worker" in found.sentence
    assert found.limit is None


@pytest.mark.parametrize("fit", [fit_amdahl, fit_gustafson])
def test_more_than_linear_and_no_gain_are_said(fit: object) -> None:
    assert callable(fit)
    assert "no serial part" in fit([8.0], [_exactly(10.56)]).sentence
    flat = fit([8.0], [_exactly(0.9)]).sentence
    assert "nothing" in flat
    assert fit([1.0], [_exactly(1.0)]) is None


def test_the_interval_turns_round() -> None:
    speedup = Estimate(value=3.0, low=2.8, high=3.2)
    found = fit_amdahl([4.0], [speedup])
    assert found is not None
    fraction = found.serial_fraction
    assert fraction.low == pytest.approx(amdahl_fraction([4.0], [3.2]))
    assert fraction.high == pytest.approx(amdahl_fraction([4.0], [2.8]))
    assert fraction.low is not None
    assert fraction.high is not None
    assert fraction.low < fraction.value < fraction.high
