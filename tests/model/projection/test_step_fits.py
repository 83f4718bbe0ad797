"""Fits put together."""

from __future__ import annotations

import math

import pytest

from farandole.errors import UsageError
from farandole.model.analyse import analyse
from farandole.model.measured import measure
from farandole.model.projection.asked import Asked
from farandole.model.projection.links import parse_link
from farandole.model.projection.rows import collect
from farandole.model.projection.speeds import Fit
from farandole.model.projection.step_fits import (
    Accumulated,
    Changed,
    Pooled,
    make_fit,
    share_of_replay,
)
from farandole.study.records import Cell, Study
from tests.model.build import make_study, table_launch
from tests.model.projection.known import Ring

LIGHT = Ring(communication_s=0.03)


def fit_of(study: Study, **asked: object) -> Fit:
    basis = collect(study, analyse(study), measure(study)[0])
    return make_fit(study, basis, Asked(workers=(8,), **asked))  # type: ignore[arg-type]


def table(*counts: int) -> Study:
    return make_study(
        [
            table_launch(Cell(workers=n, batch=10, device="gpu"), step_s=LIGHT.at(n, 1, 10).value)
            for n in counts
        ],
        command=(),
    )


def test_passes_but_the_last_have_nothing_to_send() -> None:
    found = Accumulated(one=Ring(), passes=4).at(4, 1, 10)
    assert found.value == pytest.approx(4 * 0.1 + 0.075)
    assert found.high / found.value == pytest.approx(1.1)


def test_fits_that_differ_widen_the_interval() -> None:
    one, other = Ring(), Ring(communication_s=0.3)
    found = Pooled(fits=((one, 0.5), (other, 0.5))).at(4, 1, 10)
    first, second = one.at(4, 1, 10).value, other.at(4, 1, 10).value
    assert found.value == pytest.approx(math.sqrt(first * second))
    apart = math.log(second / first) / 2
    half = math.hypot(math.log(1.1), 1.645 * apart)
    assert found.high == pytest.approx(found.value * math.exp(half))
    assert found.low == pytest.approx(found.value * math.exp(-half))


def test_fits_that_agree_do_not() -> None:
    found = Pooled(fits=((Ring(), 0.3), (Ring(), 0.7))).at(4, 1, 10)
    assert found.high / found.value == pytest.approx(1.1)
    assert Pooled(fits=((Ring(), 0.3), (Ring(), 0.7))).assumptions == ("The ring is known.",)


def test_bounds_of_several_fits_hold_those_of_each() -> None:
    one, other = Ring(), Ring(communication_s=1.0)
    first, second = one.at(100, 1, 10), other.at(100, 1, 10)
    found = Pooled(fits=((one, 0.9), (other, 0.1))).at(100, 1, 10)
    assert found.indicative
    assert first.value < found.value < second.value
    assert (found.low, found.high) == (first.low, second.high)


def test_what_erred_less_counts_more_and_neither_alone() -> None:
    assert share_of_replay(0.1, 0.1) == 0.5
    assert share_of_replay(0.1, None) == 0.5
    assert share_of_replay(0.1, 0.05) == pytest.approx(1 / (1 + math.exp(-1)))
    assert share_of_replay(5.0, 0.0) == 0.8
    assert share_of_replay(0.0, 5.0) == pytest.approx(0.2)


def test_rows_of_a_table_are_fitted_by_forms() -> None:
    found = fit_of(table(1, 2, 4))(None)
    for workers in (1, 2, 4):
        assert found.at(workers, 1, 10).value == pytest.approx(
            LIGHT.at(workers, 1, 10).value, rel=0.1
        )


def test_accumulation_of_a_table() -> None:
    plain = fit_of(table(1, 2, 4))(None)
    found = fit_of(table(1, 2, 4), accumulate=3)(None)
    expected = plain.at(4, 1, 10).value + 2 * plain.at(1, 1, 10).value
    assert found.at(4, 1, 10).value == pytest.approx(expected)


@pytest.mark.parametrize("counts", [(1, 2), (2, 2, 2, 2)])
def test_too_few_rows(counts: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=r"too few to project from: at least 3.*two numbers"):
        fit_of(table(*counts))(parse_link("10Gbit"))


@pytest.mark.parametrize(
    ("asked", "flag"), [({"fp16": True}, "--fp16"), ({"bucket_bytes": 10**6}, "--bucket-size")]
)
def test_what_ifs_need_gradient_times(asked: dict[str, object], flag: str) -> None:
    with pytest.raises(UsageError, match=f"{flag} needs to know when gradients are ready"):
        fit_of(table(1, 2, 4), **asked)(None)


def test_a_change_is_as_much_as_the_replay_says() -> None:
    found = Changed(fit=Ring(), before=Ring(), after=Ring(communication_s=0.02)).at(4, 1, 10)
    assert found.value == pytest.approx(0.175 * 0.115 / 0.175)
    assert found.high / found.value == pytest.approx(1.1)
