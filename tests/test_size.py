"""What tools/size.py counts."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(ROOT / "tools"))
    import size

SOURCE = '''"""A module."""

# A comment.
import os  # counts


class Shown:
    """A class."""

    def method(self):
        return """
        a string that is data
        """

    def _hidden(self):
        pass


def function():
    """Two lines
    of documentation."""
    return os.sep
'''


def test_code_has_no_blanks_comments_or_docstrings() -> None:
    # import, class, two methods with four lines of bodies, a function with one.
    assert size.code_lines(SOURCE) == 1 + 1 + 1 + 3 + 2 + 1 + 1


def test_public_names_are_counted_with_their_docstrings() -> None:
    assert size.public_names(ast.parse(SOURCE)) == (3, 2)


def test_the_rooms_of_this_tree_are_measured() -> None:
    room = size.measure("report", ROOT / "src" / "farandole" / "report", ROOT / "tests" / "report")
    templates = list((ROOT / "src" / "farandole" / "report" / "templates").iterdir())
    assert room.files >= len(templates) + 10
    assert room.code < room.lines
    assert room.depth == 2
