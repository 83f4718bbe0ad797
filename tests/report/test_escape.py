"""Strings of users stay text, whatever they hold."""

from __future__ import annotations

import json
import math
import unicodedata

import pytest

from farandole.report import escape

HOSTILE = [
    "<script>alert(1)</script>",
    "\" onmouseover=alert(1) x='",
    "</script><!--",
    "a\u2028b\u2029c",
    "\x00\x1b[31mred\x07",
    "\u202eevil\u202c",
    "&lt;b&gt;",
    "שלום",
    "\ud800",
]


def test_control_and_turning_characters_are_written_out() -> None:
    assert escape.visible("a\nb\x1b[0m\u202ec\ud800") == "a\\nb\\x1b[0m\\u202ec\\ud800"
    assert escape.visible("שלום 中文 é") == "שלום 中文 é"


def test_every_character_is_written_out_by_its_category() -> None:
    turning = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    for code in range(0x3000):
        character = chr(code)
        dangerous = unicodedata.category(character) in ("Cc", "Zl", "Zp") or character in turning
        assert (escape.visible(character) != character) == dangerous, hex(code)


@pytest.mark.parametrize("text", HOSTILE)
def test_script_json_is_ascii_without_markup_and_reads_back(text: str) -> None:
    written = escape.script_json({"name": text})
    assert written.isascii()
    assert not set(written) & set("<>&")
    assert json.loads(written) == {"name": text}


def test_script_json_has_null_for_what_json_lacks() -> None:
    written = escape.script_json([math.nan, math.inf, {"x": -math.inf}, 1.5])
    assert json.loads(written) == [None, None, {"x": None}, 1.5]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a|b", r"a\|b"),
        ("**b** _i_ `c`", r"\*\*b\*\* \_i\_ \`c\`"),
        ("[x](y) ![z](w)", r"\[x\](y) \!\[z\](w)"),
        ("<img src=x> &amp;", r"\<img src=x\> \&amp;"),
        ("two\nlines", r"two\\nlines"),
    ],
)
def test_markdown(text: str, expected: str) -> None:
    assert escape.markdown(text) == expected


def test_nothing_in_a_block_of_code_ends_it() -> None:
    lines = escape.code_block(["echo ```` x", "second"])
    assert lines[0] == lines[-1] == "`````"
    assert escape.code_block(["plain"])[0] == "```"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("50 % & more_less #1 $x$", r"50 \% \& more\_less \#1 \$x\$"),
        ("\\input{x}", r"\textbackslash{}input\{x\}"),
        ("a^b~c", r"a\textasciicircum{}b\textasciitilde{}c"),
        ("[1] a--b", "{[}1{]} a-{}-{}b"),
        ("<a|b>", r"\textless{}a\textbar{}b\textgreater{}"),
    ],
)
def test_latex(text: str, expected: str) -> None:
    assert escape.latex(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("=1+1", "'=1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-x", "'-x"),
        ("-1.5", "-1.5"),
        ("+2e3", "+2e3"),
        ("plain", "plain"),
    ],
)
def test_csv_has_no_formulas(text: str, expected: str) -> None:
    assert escape.csv_text(text) == expected
