"""Numbers with whichever marks, and times."""

from __future__ import annotations

import math

import pytest

from farandole.study.numerals import (
    Decimal,
    UnreadableError,
    decimal_mark,
    is_missing,
    parse_clock,
    parse_number,
)


@pytest.mark.parametrize(
    ("texts", "separator", "mark"),
    [
        (["1", "x"], ";", "."),
        (["12.5", "1,234"], ";", "."),
        (["12,5", "1.234"], ";", ","),
        (["1,234.5"], ";", "."),
        (["1.234,5"], ";", ","),
        (["1,234,567"], ";", "."),
        (["1.234.567"], ";", ","),
        (["1,234"], ",", "."),
        (["1.234"], ";", "."),
        (["0,982"], ";", ","),
        (["12,5"], ",", ","),
        (["18 280,5"], "\t", ","),
        ([], ",", "."),
    ],
)
def test_the_mark_follows_from_what_can_be_read_in_one_way_only(
    texts: list[str], separator: str, mark: Decimal
) -> None:
    assert decimal_mark(texts, separator=separator) == mark


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["12.5", "12,5"], "'12.5' and '12,5' have different decimal marks"),
        (["1,234"], "may have decimals or thousands"),
    ],
)
def test_what_cannot_be_known_is_not_guessed(texts: list[str], message: str) -> None:
    with pytest.raises(UnreadableError, match=message):
        decimal_mark(texts, separator=";")


@pytest.mark.parametrize(
    ("text", "mark", "value"),
    [
        ("1,234.5", ".", 1234.5),
        ("1.234,5", ",", 1234.5),
        ("1 234.5", ".", 1234.5),
        ("1\u202f234,5", ",", 1234.5),
        ("1'234.5", ".", 1234.5),
        ("46.164 %", ".", 0.46164),
        ("-2e-3", ".", -0.002),
        ("0,5", ",", 0.5),
        (".5", ".", 0.5),
        ("inf", ".", math.inf),
    ],
)
def test_numbers(text: str, mark: Decimal, value: float) -> None:
    assert parse_number(text, mark) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize("text", ["", "x", "1,23", "1,2345", "12:30", "1.2.3", "%", "4 T4"])
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(UnreadableError):
        parse_number(text, ".")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("11:02", 662),
        ("1:38:30", 5910),
        ("0:05", 5),
        ("90:00", 5400),
        ("3:25.5", 205.5),
        ("3:25,5", 205.5),
        ("11", None),
        ("1:2", None),
        ("a:10", None),
    ],
)
def test_times_of_the_clock(text: str, seconds: float | None) -> None:
    assert parse_clock(text) == seconds


@pytest.mark.parametrize("text", ["1:60", "1:60:00", "1:00:61"])
def test_times_that_no_clock_shows(text: str) -> None:
    with pytest.raises(UnreadableError):
        parse_clock(text)


def test_ways_to_leave_a_value_out() -> None:
    assert all(is_missing(text) for text in ("", " ", "-", "\u2013", "N/A", "None", "not measured"))
    assert not any(is_missing(text) for text in ("0", "nan", "-1", "no"))
