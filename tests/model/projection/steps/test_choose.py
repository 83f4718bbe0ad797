"""Fits put together."""

from __future__ import annotations

import math

import pytest

from farandole.errors import UsageError
from farandole.model.analyse import analyse
from farandole.model.measured import measure
from farandole.model.projection.asked import Asked
from farandole.model.projection.intervals import floor_sides
from farandole.model.projection.links import parse_link
from farandole.model.projection.rows import Basis, collect
from farandole.model.projection.steps.by_link import Fit
from farandole.model.projection.steps.choose import (
    Accumulated,
    Changed,
    Pooled,
    make_fit,
    share_of_replay,
)
from farandole.study.records import Cell, Study
from tests.model.build import make_launch, make_study, table_launch
from tests.model.projection.known import Ring
from tests.model.projection.replay.recorded import LINK, trained

LIGHT = Ring(communication_s=0.03)


def fit_of(study: Study, *, only: tuple[tuple[str, str], ...] = (), **asked: object) -> Fit:
    basis = collect(study, analyse(study), measure(study)[0], only)
    question = Asked(workers=(8,), only=only, **asked)  # type: ignore[arg-type]
    return make_fit(study, basis, question)


def table(*counts: int, other: tuple[int, ...] = ()) -> Study:
    """Rows of one device, and of another one."""
    return make_study(
        [
            table_launch(Cell(workers=n, batch=10, device=device), step_s=LIGHT.at(n, 1, 10).value)
            for device, all_counts in (("gpu", counts), ("T4", other))
            for n in all_counts
        ],
        command=(),
    )


def basis_of(study: Study, device: str) -> Basis:
    return collect(study, analyse(study), measure(study)[0], (("device", device),))


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


@pytest.mark.parametrize(
    ("counts", "complaint"),
    [
        ((1, 2), r"^2 rows .* too few to project from: at least 3.*two numbers"),
        ((2, 2, 2, 2), r"^All rows .* of 2 workers, .* too few .* two numbers .* a second one"),
    ],
)
def test_too_few_rows(counts: tuple[int, ...], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        fit_of(table(*counts))(parse_link("10Gbit"))


def test_rows_of_another_device_do_not_count() -> None:
    study = table(2, 4, other=(1, 2, 4))
    with pytest.raises(UsageError, match=r"2 rows with a time are too few.*--only"):
        make_fit(study, basis_of(study, "gpu"), Asked(workers=(8,)))(None)
    # Asked for by name, two rows are taken, with intervals as of a plain form.
    found = fit_of(study, only=(("device", "gpu"),))(None)
    assert found.assumptions[0].startswith("Only 2 rows were measured")
    for workers in (8, 32):
        at = found.at(workers, 1, 10)
        fast, slow = floor_sides(workers / 4)
        assert at.low <= at.value * math.exp(-fast) * 1.0001
        assert at.high >= at.value * math.exp(slow) * 0.9999
    three = fit_of(table(1, 2, 4))(None)
    assert not any("rows were measured" in said for said in three.assumptions)


def test_two_launches_that_timed_their_gradients_are_replayed() -> None:
    launches = [
        make_launch(
            Cell(workers=n, threads=1, batch=32, transport="gloo"),
            [trained(number, n, "ddp") for number in range(n)],
        )
        for n in (1, 2)
    ]
    found = fit_of(make_study(launches, link=LINK))(None)
    assert found.forms == (("replay", 1.0),)
    assert found.at(2, 1, 32).value == pytest.approx(0.17, rel=0.05)


def test_steps_across_hosts_are_not_replayed_in_the_memory_of_one() -> None:
    launches = [
        make_launch(
            Cell(workers=n, hosts=hosts, threads=1, batch=32),
            [trained(number, n, "farandole.torch") for number in range(n)],
        )
        for n, hosts in ((1, 1), (2, 1), (2, 2), (4, 2))
    ]
    study = make_study(launches, link=LINK)
    assert not any(name == "replay" for name, _ in fit_of(study)(None).forms)
    within = fit_of(study, only=(("hosts", "1"),))(parse_link("10Gbit"))
    assert any(name == "replay" for name, _ in within.forms)


@pytest.mark.parametrize("alone", [(2,), (2, 2)])
def test_one_count_is_too_few_though_asked_for(alone: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="device=gpu was measured with 2 workers only"):
        fit_of(table(*alone, other=(1, 2, 4)), only=(("device", "gpu"),))(None)


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
