"""Questions, as users write them."""

from __future__ import annotations

import pytest

from farandole.errors import UsageError
from farandole.model.projection.question import (
    Cluster,
    parse_link,
    parse_offer,
    parse_only,
    parse_price,
)


@pytest.mark.parametrize(
    ("rate", "spellings"),
    [
        (1.25e9, ("10Gbit", "10Gbit/s", "10 Gbps", "10Gb/s", "1.25GB/s", "10000Mbit")),
        (3.125e9, ("25gbit", "25Gbps", "3.125GB/s")),
        (12.5e9, ("100Gbit", "100Gb/s", "12.5GB/s")),
        (2e11, ("nvlink", "200GB/s")),
        (5e7, ("400Mbit", "400mbit")),
        (2**30, ("1GiB/s",)),
    ],
)
def test_one_rate_has_one_latency_however_it_is_written(
    rate: float, spellings: tuple[str, ...]
) -> None:
    found = [parse_link(text) for text in spellings]
    assert [link.bytes_per_s for link in found] == pytest.approx([rate] * len(found))
    assert {link.latency_s for link in found} == {found[0].latency_s}
    assert 0 < found[0].latency_s < 1e-3
    assert found[0].name == spellings[0]


@pytest.mark.parametrize(
    ("text", "latency_s"), [("25Gbit,80us", 80e-6), ("3GB/s, 0.2ms", 2e-4), ("nvlink,900ns", 9e-7)]
)
def test_a_latency_may_follow(text: str, latency_s: float) -> None:
    assert parse_link(text).latency_s == pytest.approx(latency_s)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("fast", "--link fast is no link. Write 10Gbit"),
        ("", "is no link"),
        ("25", "is no link"),
        ("-5Gbit", "is no link"),
        ("25gb", "bits or bytes"),
        ("0Gbit", "no link moves 0 bytes"),
        ("11TB/s", "no link moves 1.1e\\+13 bytes"),
        ("25Gbit,fast", "'fast' is no latency"),
        ("25Gbit,", "'' is no latency"),
        ("25Gbit,3s", "no message takes 3 s"),
    ],
)
def test_a_wrong_link_shows_the_form(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        parse_link(text)
    assert "40Gbit,20us" in str(caught.value)


def test_the_offers_of_the_manual() -> None:
    small = parse_offer("A: 4, nvlink, 12/host-h")
    assert (small.name, small.workers, small.per_host, small.speed) == ("A", 4, None, 1.0)
    assert small.link == parse_link("nvlink")
    assert small.price == parse_price("12/host-h")
    # Parts come in any order, and a latency belongs to its link.
    large = parse_offer("big one: speed 1.4, 40Gbit, 12us, 8 per node, 32 workers")
    assert (large.name, large.workers, large.per_host, large.speed) == ("big one", 32, 8, 1.4)
    assert large.link == parse_link("40Gbit,12us")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("4, nvlink", "it has no name before a colon"),
        (": 4", "it has no name before a colon"),
        ("A: nvlink", "it does not say how many workers"),
        ("A: 4, 8", "it says its number of workers twice"),
        ("A: 4, 12/host-h, 3/worker-h", "it says its price twice"),
        ("A: 4, fast", "'fast' is none of its parts"),
        ("A: 4, speed 0", "'speed 0' is no speed above 0"),
        ("A: 4, 0/host-h", "'0/host-h' is no price per hour above 0"),
        ("A: 0", "workers are counted from 1 up"),
        ("A: 4, 0 per host", "workers are counted from 1 up"),
    ],
)
def test_a_wrong_offer_shows_the_form(line: str, why: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_offer(line)
    assert why in str(error.value)
    assert "'B: 32, 8 per host, 100Gbit, 98/host-h, speed 1.4'" in str(error.value)


@pytest.mark.parametrize(
    ("text", "amount", "per"),
    [
        ("2.5", 2.5, "worker"),
        ("$2.5", 2.5, "worker"),
        ("3 per gpu-hour", 3.0, "worker"),
        ("12 / node / h", 12.0, "host"),
        ("98 per host hour", 98.0, "host"),
    ],
)
def test_prices(text: str, amount: float, per: str) -> None:
    found = parse_price(text)
    assert (found.amount, found.per) == (amount, per)


@pytest.mark.parametrize("text", ["", "free", "0", "-1", "nan", "inf", "2.5/fortnight", "1.2.3"])
def test_what_is_no_price(text: str) -> None:
    with pytest.raises(UsageError, match=r"is no price per hour above 0\. Write --price 2\.5"):
        parse_price(text)
    with pytest.raises(UsageError, match=r"does not say for how long\. Write 12/host-h"):
        parse_price("12/host")


def test_factors_to_stand_on() -> None:
    found = parse_only(["device=V100,model=vgg", "batch=32"])
    assert found == (("device", "V100"), ("model", "vgg"), ("batch", "32"))
    with pytest.raises(UsageError, match="--only V100 is not NAME=VALUE"):
        parse_only(["V100"])


@pytest.mark.parametrize(
    ("workers", "price", "stated", "an_hour"),
    [
        (6, "2.5", True, 20.0),  # two hosts of four
        (2, "2.5", True, 10.0),  # one whole host
        (2, "2.5", False, 5.0),  # nobody said how large a host is
        (6, "2.5", False, 20.0),
        (6, "12/host-h", False, 24.0),
        (2, "12/host-h", True, 12.0),
    ],
)
def test_whole_hosts_are_billed(workers: int, price: str, stated: bool, an_hour: float) -> None:
    cluster = Cluster(workers=workers, per_host=4, price=parse_price(price), whole_hosts=stated)
    assert cluster.cost_per_s is not None
    assert 3600 * cluster.cost_per_s == pytest.approx(an_hour)
