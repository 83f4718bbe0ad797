"""Strings of users as text in each format: HTML, script data, Markdown, LaTeX, CSV, terminals.

Labels, commands, parameter names, metric names and output lines come from outside; every one of
them goes through here before it is put into a document.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

# Would turn the text around them: embeddings, overrides and isolates of bidirectional text.
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~!&$@])")
# `--` is a dash and `<<` a guillemet in LaTeX fonts; `[` after `\\` would be taken as a length.
_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "`": r"\textasciigrave{}",
    "[": "{[}",
    "]": "{]}",
    "-": "-{}",
}
# A spreadsheet would run a cell that begins so.
_FORMULA = ("=", "+", "-", "@")


def visible(text: object) -> str:
    """Return one line of text in which control characters are written out, not in force."""
    text = str(text)
    # Printable is narrower than what is let through below, and true of nearly every cell of a
    # table; a large study has a hundred thousand of them.
    return text if text.isprintable() else "".join(_written(character) for character in text)


def script_json(value: Any) -> str:
    """Return JSON that neither ends a script element nor breaks a line of JavaScript."""
    # ASCII only: U+2028 and U+2029 are line ends to older JavaScript.
    text = json.dumps(plain(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def plain(value: Any) -> Any:
    """Return dataclasses, mappings and tuples as what strict JSON has: None for NaN."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def markdown(text: object) -> str:
    """Return text for a paragraph or a table's cell of GitHub's Markdown."""
    return _MARKDOWN.sub(r"\\\1", visible(text))


def code_block(lines: list[str]) -> list[str]:
    """Return lines as a fenced block of Markdown that nothing in them can end."""
    shown = [visible(line) for line in lines]
    longest = max((len(run) for line in shown for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, *shown, fence]


def latex(text: object) -> str:
    """Return text for a paragraph or a table's cell of LaTeX."""
    return "".join(_LATEX.get(character, character) for character in visible(text))


def csv_text(text: object) -> str:
    """Return text for a cell of CSV that no spreadsheet takes for a formula."""
    shown = visible(text)
    if not shown.startswith(_FORMULA) or _is_number(shown):
        return shown
    return "'" + shown


def _written(character: str) -> str:
    # Cc: control; Cs: half a surrogate pair, which UTF-8 cannot write; Zl, Zp: line separators.
    if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or character in _TURNING:
        return character.encode("unicode_escape", "surrogatepass").decode("ascii")
    return character


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
