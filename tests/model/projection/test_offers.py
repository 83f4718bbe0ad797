"""Offers, as users write them."""

from __future__ import annotations

import pytest

from farandole.errors import UsageError
from farandole.model.projection.links import parse_link
from farandole.model.projection.offers import check_names, parse_offer


def test_the_offers_of_the_manual() -> None:
    small = parse_offer("A: 4, nvlink, 12/host-h")
    assert (small.name, small.workers, small.per_host, small.speed) == ("A", 4, None, 1.0)
    assert small.link == parse_link("nvlink")
    assert small.price is not None
    assert (small.price.amount, small.price.per) == (12.0, "host")
    large = parse_offer("B: 32, 8 per host, 100Gbit, 98/host-h, speed 1.4")
    assert (large.workers, large.per_host, large.speed) == (32, 8, 1.4)
    assert large.link == parse_link("100Gbit")


def test_parts_come_in_any_order() -> None:
    assert parse_offer("big one: speed 2, 25Gbit, 4 per node, 16 workers").workers == 16


def test_a_latency_belongs_to_its_link() -> None:
    assert parse_offer("A: 8, 4 per host, 40Gbit, 12us").link == parse_link("40Gbit,12us")


def test_an_offer_of_workers_alone() -> None:
    bare = parse_offer("A: 8")
    assert (bare.link, bare.price, bare.per_host) == (None, None, None)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("4, nvlink", "it has no name before a colon"),
        (": 4", "it has no name before a colon"),
        ("A: nvlink", "it does not say how many workers"),
        ("A:", "it does not say how many workers"),
        ("A: 4, 8", "it says its number of workers twice"),
        ("A: 4, 12/host-h, 3/worker-h", "it says its price twice"),
        ("A: 4, 10Gbit, nvlink", "it says its link twice"),
        ("A: 4, fast", "'fast' is none of its parts"),
        ("A: 4, speed 0", "'speed 0' is no speed above 0"),
        ("A: 4, 0/host-h", "'0/host-h' is no price per hour above 0"),
        ("A: 0", "workers are counted from 1 up"),
        ("A: 4, 0 per host", "workers are counted from 1 up"),
        ("A: 4 10Gbit", "none of its parts"),
    ],
)
def test_what_does_not_parse_shows_the_form(line: str, why: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_offer(line)
    assert why in str(error.value)
    assert "'B: 32, 8 per host, 100Gbit, 98/host-h, speed 1.4'" in str(error.value)


def test_names_differ() -> None:
    with pytest.raises(UsageError, match="Two offers are called A"):
        check_names((parse_offer("A: 4"), parse_offer("A: 8")))
