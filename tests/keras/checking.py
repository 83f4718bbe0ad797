"""Many checks in one launch: starting TensorFlow takes seconds, and each backend needs its own.

A program of checks is a module with functions `check_...`, all run on every rank, one after the
other. What each gave goes into a file per rank; a test reads one outcome of it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import traceback
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import pytest

BACKENDS = ("torch", "tensorflow", "jax")
# A launch with many checks, on a machine that does other things besides.
LAUNCH_S = 280.0
_HANG_S = 60.0
_OUTCOMES = "FARANDOLE_TEST_OUTCOMES"
_ONLY = "FARANDOLE_TEST_ONLY"


def names_of(program: Path) -> list[str]:
    """Return the checks of a program, without importing it."""
    lines = program.read_text().splitlines()
    return [line[4:].partition("(")[0] for line in lines if line.startswith("def check_")]


def run_checks(module: ModuleType) -> None:
    """Run all checks of a program on this rank, and write down what they gave."""
    import farandole.keras as hvd

    hvd.init()
    outcomes: dict[str, str] = {}
    only = os.environ.get(_ONLY, "").split()
    for name, check in list(vars(module).items()):
        if name.startswith("check_") and (not only or name in only):
            # The last line tells where a launch hangs; stacks follow if it does.
            print(name, flush=True)
            faulthandler.dump_traceback_later(_HANG_S, exit=True)
            try:
                check()
                outcomes[name] = ""
            except Exception:
                outcomes[name] = traceback.format_exc()
            faulthandler.cancel_dump_traceback_later()
    folder = Path(os.environ[_OUTCOMES])
    (folder / f"{hvd.rank()}.json").write_text(json.dumps(outcomes))


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A program of checks on a backend."""

    program: Path
    backend: str
    size: int = 2
    only: tuple[str, ...] = ()
    """Which checks to run; all of them by default."""
    prefix: tuple[str, ...] = ()
    """A command that runs the interpreter, such as taskset."""
    env: tuple[tuple[str, str], ...] = ()

    def expect(self, check: str) -> None:
        """Fail with what a rank said if a check did not pass on all of them."""
        for package in ("keras", self.backend):
            # Without importing it: each backend has its own processes.
            if find_spec(package) is None:
                pytest.skip(f"needs {package}: pip install 'farandole[{package}]'")
        output, said = _outcomes(self)
        for rank, outcome in enumerate(said):
            assert check in outcome, f"rank {rank} did not get to {check}: {output}"
            assert not outcome[check], f"rank {rank}: {outcome[check]}"


@cache
def _outcomes(launch: Launch) -> tuple[str, list[dict[str, str]]]:
    """Launch a program of checks, once; return its output and the outcomes of every rank."""
    from tests.conftest import run_cli

    with TemporaryDirectory() as folder:
        done = run_cli(
            *("run", "-np", str(launch.size), "--"),
            *(*launch.prefix, sys.executable, launch.program),
            env={
                "KERAS_BACKEND": launch.backend,
                "TF_CPP_MIN_LOG_LEVEL": "3",
                _OUTCOMES: folder,
                _ONLY: " ".join(launch.only),
                # Most checks compile the same few models.
                "JAX_COMPILATION_CACHE_DIR": str(Path(folder, "jax")),
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
                "PYTHONPATH": str(Path(__file__).parents[2]),
            }
            | dict(launch.env),
            timeout_s=LAUNCH_S,
        )
        found = [Path(folder, f"{rank}.json") for rank in range(launch.size)]
        said = [json.loads(file.read_text()) if file.exists() else {} for file in found]
    return f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}", said
