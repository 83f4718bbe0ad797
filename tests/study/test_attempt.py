"""How one launch of a study ended, in words."""

from __future__ import annotations

import pytest

from farandole.study.attempt import launcher_failure

_CHILD = (
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    '    raise ValueError("bad loss")',
    "ValueError: bad loss",
    "Traceback (most recent call last):",
    "subprocess.CalledProcessError: Command '['python']' returned non-zero exit status 1.",
)


@pytest.mark.parametrize(
    ("code", "lines", "words"),
    [
        (1, _CHILD, "the command ended with exit code 1: ValueError: bad loss"),
        (
            1,
            ("[rank1]: torch.OutOfMemoryError: too large",),
            "the command ended with exit code 1: [rank1]: torch.OutOfMemoryError: too large",
        ),
        (7, ("all is lost",), "the command ended with exit code 7"),
        (None, (), "it failed"),
    ],
)
def test_a_launchers_failure_is_told_by_its_workers_error(
    code: int | None, lines: tuple[str, ...], words: str
) -> None:
    assert launcher_failure(code, lines) == words
