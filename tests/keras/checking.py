"""Many checks in one launch: starting TensorFlow takes seconds, and each backend needs its own.

A program of checks is a module with functions `check_...`, all run on every rank, one after the
other. What each gave goes into a file per rank; a test reads one outcome of it.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import pytest

BACKENDS = ("torch", "tensorflow", "jax")
_OUTCOMES = "FARANDOLE_TEST_OUTCOMES"


def names_of(program: Path) -> list[str]:
    """Return the checks of a program, without importing it."""
    lines = program.read_text().splitlines()
    return [line[4:].partition("(")[0] for line in lines if line.startswith("def check_")]


def run_checks(module: ModuleType) -> None:
    """Run all checks of a program on this rank, and write down what they gave."""
    import farandole.keras as hvd

    hvd.init()
    outcomes: dict[str, str] = {}
    for name, check in list(vars(module).items()):
        if name.startswith("check_"):
            try:
                check()
                outcomes[name] = ""
            except Exception:
                outcomes[name] = traceback.format_exc()
    folder = Path(os.environ[_OUTCOMES])
    (folder / f"{hvd.rank()}.json").write_text(json.dumps(outcomes))


@cache
def outcomes(
    program: Path, backend: str, size: int, *prefix: str
) -> tuple[str, list[dict[str, str]]]:
    """Launch a program of checks once; return its output and the outcomes of every rank."""
    from tests.conftest import run_cli

    with TemporaryDirectory() as folder:
        done = run_cli(
            *("run", "-np", str(size), "--", *prefix, sys.executable, program),
            env={
                "KERAS_BACKEND": backend,
                "TF_CPP_MIN_LOG_LEVEL": "3",
                _OUTCOMES: folder,
                "PYTHONPATH": str(Path(__file__).parents[2]),
            },
            timeout_s=110.0,
        )
        found = [Path(folder, f"{rank}.json") for rank in range(size)]
        said = [json.loads(file.read_text()) if file.exists() else {} for file in found]
    return f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}", said


def expect(program: Path, check: str, backend: str, size: int, *prefix: str) -> None:
    """Fail with what a rank said if a check did not pass on all of them."""
    pytest.importorskip("keras", reason="needs Keras: pip install 'farandole[keras]'")
    pytest.importorskip(backend, reason=f"needs the backend: pip install 'farandole[{backend}]'")
    output, said = outcomes(program, backend, size, *prefix)
    for rank, outcome in enumerate(said):
        assert check in outcome, f"rank {rank} did not get to {check}: {output}"
        assert not outcome[check], f"rank {rank}: {outcome[check]}"
