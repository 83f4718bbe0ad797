"""How much is recorded for the doctor: FARANDOLE_RECORD, and who follows what with it.

`doctor` is everything, for a short run; `watch` is what costs less than 1 % of a step, for a whole
one. Without it nothing of this is imported. Modules of a theme stand in MODULES and follow torch or
Keras by `install_torch(torch)` and `install_keras(keras)`, whichever they have.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from types import FrameType
from typing import Any, Literal

RECORD = "FARANDOLE_RECORD"
REPLAY = "FARANDOLE_REPLAY"
"""In one worker that stands for so many: its loaders' batches are so many times as large."""
Detail = Literal["", "watch", "doctor"]
MODULES = (
    *("state", "wrappers", "calls", "files", "replay"),
    *("samples", "schedules", "evaluation"),
)
# Steps whose facts every rank tells of, so that they can be compared: the first ones, then some.
_FIRST = frozenset((0, 1, 2, 3, 5, 8))
EVERY = {"doctor": 10, "watch": 100}


def detail() -> Detail:
    """Return how much is asked for."""
    text = os.environ.get(RECORD, "")
    return text if text in ("watch", "doctor") else ""  # type: ignore[return-value]


def sampled(step: int, level: Detail) -> bool:
    """Say whether facts of this step are told: the same steps on every rank."""
    if level == "watch":
        return step in (0, 1, 2, 10) or step % EVERY["watch"] == 0
    return step in _FIRST or step % EVERY["doctor"] == 0


def install() -> None:
    """Follow what scripts import before a framework."""
    from farandole.recorder import evaluation

    evaluation.install()


def install_torch(torch: Any) -> None:
    """Follow torch by all modules that can."""
    _install("install_torch", torch)


def install_keras(keras: Any) -> None:
    """Follow Keras by all modules that can."""
    _install("install_keras", keras)


def _install(function: str, framework: Any) -> None:
    for name in MODULES:
        follow = getattr(import_module(f"farandole.recorder.{name}"), function, None)
        if follow is not None:
            follow(framework)


def call_site(frame: FrameType | None = None) -> str:
    """Return the innermost file:line of the user's own code; empty where there is none.

    The user's is what lies neither in Python's folders nor in Farandole's.
    """
    frame = frame or sys._getframe(1)
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return f"{_short(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and its callers."""
    while frame is not None:
        yield frame
        frame = frame.f_back


@cache
def is_users(file: str) -> bool:
    """Say whether a file of code is the user's own."""
    return not (
        file.startswith(("<", *_library_folders()))
        or "/site-packages/" in file
        or "/dist-packages/" in file
    )


@cache
def _short(file: str) -> str:
    """Name a file as it can be found from where the script runs."""
    absolute, here = os.path.abspath(file), os.path.join(os.getcwd(), "")  # noqa: PTH100,PTH109,PTH118
    return absolute.removeprefix(here)


@cache
def _library_folders() -> tuple[str, ...]:
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100,PTH120
    paths = {ours, *sysconfig.get_paths().values(), os.path.dirname(os.__file__)}  # noqa: PTH120
    paths.discard(sysconfig.get_path("scripts"))
    paths.discard(sysconfig.get_path("data"))
    return tuple(os.path.join(path, "") for path in paths)  # noqa: PTH118
