"""--stall-warning and --stall-shutdown."""

from __future__ import annotations

import argparse
import os

import pytest

from farandole.cli.flags import add_stall_flags, tell_workers
from farandole.errors import UsageError


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_stall_flags(parser)
    return parser.parse_args(arguments)


def test_workers_hear_what_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARANDOLE_STALL_WARNING", "7")
    monkeypatch.setenv("FARANDOLE_STALL_SHUTDOWN", "")
    tell_workers(parsed("--stall_shutdown", "90"))
    assert os.environ["FARANDOLE_STALL_WARNING"] == "7"
    assert os.environ["FARANDOLE_STALL_SHUTDOWN"] == "90"
    tell_workers(parsed("--stall-warning", "5"))
    assert os.environ["FARANDOLE_STALL_WARNING"] == "5"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--stall-warning", "soon"), "--stall-warning soon: give a number of seconds"),
        (
            ("--stall-warning", "9", "--stall-shutdown", "5"),
            "--stall-shutdown 5 would end the job before --stall-warning 9 reports why",
        ),
    ],
)
def test_what_cannot_be(flags: tuple[str, ...], words: str) -> None:
    before = dict(os.environ)
    with pytest.raises(UsageError, match=words):
        tell_workers(parsed(*flags))
    assert dict(os.environ) == before
