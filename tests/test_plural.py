"""A number with its noun, everywhere by one helper."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import farandole
from farandole.format import plural


@pytest.mark.parametrize(
    ("number", "noun", "words"),
    [
        (1, "worker", "1 worker"),
        (0, "worker", "0 workers"),
        (2, "process", "2 processes"),
        (3, "launch", "3 launches"),
        (1024, "step", "1,024 steps"),
    ],
)
def test_count(number: int, noun: str, words: str) -> None:
    assert plural(number, noun) == words


def test_no_text_has_a_plural_of_its_own() -> None:
    """`{x} workers` is wrong of one worker, and `worker{'s' * ...}` is a second helper."""
    wrong = re.compile(
        r"\{[a-z_.]*(?:workers|size)\} workers\b|(?:worker|host|launch|cell)\{'e?s' \*"
    )
    found = [
        f"{path.name}: {match[0]}"
        for path in Path(farandole.__file__).parent.rglob("*.py")
        # Of several always: MPI and batch norm across workers are not asked for one.
        if path.name not in ("mpi.py", "sync_batch_norm.py", "context.py", "ray.py")
        for match in wrong.finditer(path.read_text())
    ]
    assert found == []
