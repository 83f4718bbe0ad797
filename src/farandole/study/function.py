"""A study of a function: how it comes to the workers, launch after launch."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farandole.launch.call import CALL_FD, RESULT_FD

FUNCTION_FILE = "function.pickle"
COMMAND = (sys.executable, "-m", "farandole.launch.call")
"""What each worker runs; behind it stands the function's name, which nobody reads but people."""
Descriptors = Callable[[int], Mapping[str, int]]
"""For a rank, what it inherits, by the variable that tells the number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function as bytes that `farandole.launch.call` understands."""

    data: bytes

    @contextlib.contextmanager
    def descriptors(self, workers: int) -> Iterator[Descriptors]:
        """Open what the workers inherit: the call, and a place for each one's value."""
        with contextlib.ExitStack() as stack:
            call = stack.enter_context(tempfile.TemporaryFile())
            call.write(self.data)
            call.flush()
            results = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(workers)]
            yield lambda rank: {CALL_FD: call.fileno(), RESULT_FD: results[rank].fileno()}

    def keep(self, study: Path) -> None:
        """Keep it in a study's folder, so that the study can be gone on with."""
        temporary = study / f".{FUNCTION_FILE}.{os.getpid()}.tmp"
        temporary.write_bytes(self.data)
        temporary.replace(study / FUNCTION_FILE)


def command_of(fn: Callable[..., Any]) -> tuple[str, ...]:
    """Return the command of a study of this function: by its name no other one extends it."""
    name = getattr(fn, "__qualname__", type(fn).__qualname__)
    return (*COMMAND, f"{getattr(fn, '__module__', '')}.{name}")


def function_name(command: Sequence[str]) -> str | None:
    """Return the name of the function that a command calls; None where it calls none."""
    called = list(command[1:3]) == list(COMMAND[1:])
    return command[3].rpartition(".")[2] if called and len(command) > 3 else None


def kept_function(study: Path) -> Function | None:
    """Return the function of a study; None where it is of a command."""
    path = study / FUNCTION_FILE
    return Function(data=path.read_bytes()) if path.is_file() else None


def call_with_params(fn: Callable[..., Any], names: tuple[str, ...]) -> Any:
    """Call a function with those of a launch's values that it has parameters for."""
    import json

    given = json.loads(os.environ.get("FARANDOLE_PARAMS", "{}"))
    return fn(**{name: given[name] for name in names if name in given})
