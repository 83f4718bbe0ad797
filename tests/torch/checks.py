"""Checks that run on every rank of one launch, each of which is a test of its own.

Importing torch takes seconds, so a module's checks share a launch. A check is a function of its
module that runs on all ranks at once, asserts what it likes, and may return plain data for the test
process. Ranks meet between checks by way of files, not by the code under test: a check that fails
on one rank does not hide those after it, unless it left the other ranks hanging.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import farandole
from farandole.errors import WorkerFailedError

# A check that hangs ends its launch after this, with the stacks of all threads.
HANG_S = 40.0
# What the others get to arrive after a rank has ended a check; less, so that the slow one is named.
MEET_S = 30.0


class Checks:
    """The checks of a module, in the order in which they were written."""

    def __init__(self) -> None:
        self._functions: list[Callable[[], Any]] = []

    def __call__(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """Add a function (a decorator)."""
        self._functions.append(function)
        return function

    @property
    def names(self) -> list[str]:
        """What to parametrize a test with."""
        return [function.__name__ for function in self._functions]

    def launch(self, np: int, **options: Any) -> Outcomes:
        """Run all of them on `np` ranks; options are those of farandole.run."""
        module = self._functions[0].__module__
        with TemporaryDirectory() as folder:
            error = ""
            try:
                farandole.run(_worker, (module, self.names, folder), np=np, **options)
            except WorkerFailedError as failure:
                error = str(failure)
            said = [_read(_said_by(folder, rank)) for rank in range(np)]
        return Outcomes(said, error)


class Outcomes:
    """What each rank said about each check."""

    def __init__(self, said: Sequence[dict[str, Any]], error: str) -> None:
        self._said = said
        self._error = error

    def values(self, name: str) -> list[Any]:
        """Return what a check returned on each rank; fail if it failed on any."""
        __tracebackhide__ = True
        failures = []
        for rank, said in enumerate(self._said):
            if name not in said:
                failures.append(f"rank {rank} did not finish it.\n{self._error}")
            elif not said[name]["passed"]:
                failures.append(f"rank {rank}: {said[name]['value']}")
        assert not failures, "\n".join(failures)
        return [said[name]["value"] for said in self._said]


@contextmanager
def raises(kind: type[BaseException], *words: str) -> Iterator[None]:
    """Expect an error of this kind whose message, of one line, has all these words."""
    try:
        yield
    except kind as error:
        text = str(error)
        missing = [word for word in words if word not in text]
        assert not missing, f"{missing} not in: {text}"
        assert "\n" not in text, text
    else:
        raise AssertionError(f"no {kind.__name__} was raised")


def _worker(module: str, names: Sequence[str], folder: str) -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    functions = importlib.import_module(module)
    for number, name in enumerate(names, 1):
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                value, passed = getattr(functions, name)(), True
        except Exception:
            value, passed = traceback.format_exc(), False
        with _said_by(folder, rank).open("a") as file:
            file.write(json.dumps({"name": name, "passed": passed, "value": value}) + "\n")
        _meet(folder, size, number, name)
    faulthandler.cancel_dump_traceback_later()


def _meet(folder: str, size: int, number: int, name: str) -> None:
    deadline = time.monotonic() + MEET_S
    for rank in range(size):
        path = _said_by(folder, rank)
        while not path.exists() or path.read_text().count("\n") < number:
            if time.monotonic() > deadline:
                sys.exit(f"rank {rank} does not come out of {name}")
            time.sleep(0.002)


def _said_by(folder: str, rank: int) -> Path:
    return Path(folder, f"rank{rank}.jsonl")


def _read(path: Path) -> dict[str, Any]:
    lines = path.read_text().splitlines() if path.exists() else []
    return {said["name"]: said for said in map(json.loads, lines)}
