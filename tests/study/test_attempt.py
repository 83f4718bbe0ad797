"""How one launch of a study ended, in words."""

from __future__ import annotations

import pytest

from farandole.launch.supervisor import Verdict
from farandole.study.attempt import launcher_failure, worker_failure

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
        (
            2,
            ("farandole: SLURM refused the job: Invalid account (Batch job submission failed).",),
            "SLURM refused the job: Invalid account (Batch job submission failed)",
        ),
        (None, (), "it failed"),
    ],
)
def test_a_launchers_failure_is_told_by_its_workers_error(
    code: int | None, lines: tuple[str, ...], words: str
) -> None:
    assert launcher_failure(code, lines) == words


def test_a_worker_that_told_of_no_exception_is_explained_by_its_last_line() -> None:
    verdict = Verdict(kind="failed", exit_code=2, rank=1, code=2)
    said = ["usage: train.py", "train.py: error: unrecognized arguments: --bs", ""]
    assert worker_failure(verdict, said) == (
        "rank 1 failed first (exit code 2): train.py: error: unrecognized arguments: --bs"
    )
    assert worker_failure(verdict, []) == "rank 1 failed first (exit code 2)"
