"""CSV files as people save them."""

from __future__ import annotations

import pytest

from farandole.errors import UsageError
from farandole.study.spreadsheet import parse_sheet


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
