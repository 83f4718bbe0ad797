"""Links as users write them."""

from __future__ import annotations

import pytest

from farandole.errors import UsageError
from farandole.model.projection.links import default_links, parse_link


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        ("10Gbit", 1.25e9),
        ("25gbit", 3.125e9),
        ("100Gbit", 12.5e9),
        ("40Gbit/s", 5e9),
        ("40Gb/s", 5e9),
        ("40 Gbps", 5e9),
        ("400Mbit", 5e7),
        ("3GB/s", 3e9),
        ("3.5 GB/s", 3.5e9),
        ("1GiB/s", 2**30),
        ("200mbit", 25e6),
    ],
)
def test_rates(text: str, bytes_per_s: float) -> None:
    link = parse_link(text)
    assert link.bytes_per_s == pytest.approx(bytes_per_s)
    assert link.name == text
    assert 0 < link.latency_s < 1e-3


@pytest.mark.parametrize(
    ("text", "latency_s"), [("25Gbit,80us", 80e-6), ("3GB/s, 0.2ms", 2e-4), ("nvlink,900ns", 9e-7)]
)
def test_a_latency_may_follow(text: str, latency_s: float) -> None:
    assert parse_link(text).latency_s == pytest.approx(latency_s)


@pytest.mark.parametrize(
    "spellings",
    [
        ("10Gbit", "10Gbit/s", "10 Gbps", "10Gb/s", "1.25GB/s", "10000Mbit"),
        ("25Gbit", "25Gbps", "3.125GB/s"),
        ("100Gbit", "100Gb/s", "12.5GB/s"),
        ("nvlink", "200GB/s"),
    ],
)
def test_one_rate_has_one_latency_however_it_is_written(spellings: tuple[str, ...]) -> None:
    found = [parse_link(text) for text in spellings]
    assert {link.latency_s for link in found} == {found[0].latency_s}
    assert {round(link.bytes_per_s) for link in found} == {round(found[0].bytes_per_s)}


def test_faster_links_answer_no_later() -> None:
    rates = ("100Mbit", "10Gbit", "25Gbit", "40Gbit", "100Gbit", "400Gbit", "300GB/s")
    latencies = [parse_link(text).latency_s for text in rates]
    assert latencies == sorted(latencies, reverse=True)
    assert latencies[0] > latencies[-1]


def test_nvlink_is_faster_than_any_network() -> None:
    assert parse_link("nvlink").bytes_per_s > parse_link("100Gbit").bytes_per_s


def test_three_are_shown_when_none_was_given() -> None:
    assert [link.name for link in default_links()] == ["10Gbit", "25Gbit", "100Gbit"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("fast", "--link fast is no link. Write 10Gbit"),
        ("", "is no link"),
        ("25", "is no link"),
        ("-5Gbit", "is no link"),
        ("25gb", "bits or bytes"),
        ("0Gbit", "no link moves 0 bytes"),
        ("900TB/s", "no link moves 9e\\+14 bytes"),
        ("11TB/s", "no link moves 1.1e\\+13 bytes"),
        ("25Gbit,fast", "'fast' is no latency"),
        ("25Gbit,", "'' is no latency"),
        ("25Gbit,3s", "no message takes 3 s"),
    ],
)
def test_what_does_not_parse_shows_the_form(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        parse_link(text)
    assert "40Gbit,20us" in str(caught.value)
