from __future__ import annotations

import pytest

from farandole.study.template import fill, names_in

VALUES = {"batch": 64, "workers": 2, "lr": "0.1", "cell_dir": "/a b/{batch}"}


@pytest.mark.parametrize(
    ("part", "filled"),
    [
        ("{batch}", "64"),
        ("--bs={batch}x{workers}", "--bs=64x2"),
        ("{unknown}", "{unknown}"),
        ('{"batch": {batch}, "a": {}}', '{"batch": 64, "a": {}}'),
        ("{ batch }", "{ batch }"),
        ("{batch:03d}", "{batch:03d}"),
        ("{{batch}}", "{64}"),
        ('it\'s a "{lr}"\n$HOME', 'it\'s a "0.1"\n$HOME'),
        ("", ""),
    ],
)
def test_only_known_names_are_replaced(part: str, filled: str) -> None:
    assert fill(["python", part], VALUES) == ("python", filled)


def test_a_value_that_looks_like_a_placeholder_stays() -> None:
    assert fill(["{cell_dir}"], VALUES) == ("/a b/{batch}",)


def test_names() -> None:
    assert names_in(["{batch}", "a{lr}b{x1}", "{1}", "{a b}"]) == {"batch", "lr", "x1"}
