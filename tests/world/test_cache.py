"""The user's folder for what can be made again."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole.world.machine import cache_folder


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HOME": "/home/a"}, Path("/home/a/.cache/farandole")),
        ({"HOME": "/home/a", "XDG_CACHE_HOME": "/fast"}, Path("/fast/farandole")),
        ({"HOME": "/home/a", "XDG_CACHE_HOME": "fast"}, Path("/home/a/.cache/farandole")),
        ({"XDG_CACHE_HOME": "", "HOME": ""}, None),
        ({}, None),
    ],
)
def test_where_it_is(environ: dict[str, str], folder: Path | None) -> None:
    assert cache_folder(environ) == folder
