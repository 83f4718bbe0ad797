"""CSV files as people save them, numbers with whichever marks, and times."""

from __future__ import annotations

import math

import pytest

from farandole.errors import UsageError
from farandole.study.import_table import (
    Decimal,
    UnreadableError,
    decimal_mark,
    is_missing,
    parse_clock,
    parse_number,
    parse_sheet,
)


@pytest.mark.parametrize(
    "content",
    [
        b"a,b\n1,x\n",
        b"\xef\xbb\xbfa,b\n1,x\n",
        b"a;b\r\n1;x\r\n",
        b"a\tb\r1\tx",
        b'"a","b"\n"1","x"\n',
        b"# from the lab\n\na , b\n\n 1 , x \n,\n",
        b"a,b\n1,x,\n",
    ],
)
def test_one_table_in_many_spellings(content: bytes) -> None:
    sheet = parse_sheet(content, name="t.csv")
    assert sheet.columns == ("a", "b")
    assert [row.values for row in sheet.rows] == [("1", "x")]


def test_separators_and_ends_of_lines_in_quotes_are_text() -> None:
    sheet = parse_sheet(b'a,"b;c;d"\n"1,5","two\nlines ""x"""\n', name="t.csv")
    assert sheet.columns == ("a", "b;c;d")
    assert [row.values for row in sheet.rows] == [("1,5", 'two\nlines "x"')]


def test_rows_that_end_early_lack_values_and_know_their_line() -> None:
    sheet = parse_sheet(b"a,b\n\n1\n", name="t.csv")
    assert [(row.line, row.values) for row in sheet.rows] == [(3, ("1", ""))]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n \n# x\n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"a,b\n", "has a header and no rows"),
        (b"# workers,epoch_s\n1,62.6\n2,44.2\n", "first line, '1,62.6', has no letters.*without #"),
        (b"a,b\n1,234,5\n", "line 2: 3 values for 2 columns"),
        ("a,b\n1,x\n".encode("utf-16"), "not a CSV file in UTF-8"),
        (b"PK\x03\x04\0\0", "not a CSV file in UTF-8"),
        (b"a,b\n1,caf\xe9\n", "line 2: not UTF-8"),
        (b'a,b\n1,"x\n', "not a table"),
    ],
)
def test_what_is_no_table_is_one_line(content: bytes, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        parse_sheet(content, name="t.csv")
    assert "\n" not in str(caught.value)
    assert "t.csv" in str(caught.value)


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
