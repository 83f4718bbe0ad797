"""A study of a function: how it comes to the workers, launch after launch."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farandole.launch.call import CALL_FD, RESULT_FD

FUNCTION_FILE = "function.pickle"
COMMAND = (sys.executable, "-m", "farandole.launch.call")
"""What each worker runs."""
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


def kept_function(study: Path) -> Function | None:
    """Return the function of a study; None where it is of a command."""
    path = study / FUNCTION_FILE
    return Function(data=path.read_bytes()) if path.is_file() else None


def call_with_params(fn: Callable[..., Any], names: tuple[str, ...]) -> Any:
    """Call a function with those of a launch's values that it has parameters for."""
    import json

    given = json.loads(os.environ.get("FARANDOLE_PARAMS", "{}"))
    return fn(**{name: given[name] for name in names if name in given})
