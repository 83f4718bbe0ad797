"""Many checks in one launch: starting TensorFlow takes seconds, and each backend needs its own.

A program of checks is a module with functions `check_...`, which run on every rank. A world has one
launch for the checks of all programs that a session of tests wants there; what each gave goes into
a file per rank, and a test reads one outcome of it.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.conftest import keras_on, run_cli

# A launch with many checks, on a machine that does other things besides.
LAUNCH_S = 400.0
LAUNCHES = [pytest.mark.ranks, pytest.mark.timeout(LAUNCH_S + 20)]
"""Marks of a module whose tests read outcomes: the first of them launches."""
_ROOT = Path(__file__).parents[1]
# The first collective of all is one of TensorFlow's checks; models that are still there, of
# Keras's. Nobody trains on after a clean stop, and the rank that is killed is nobody's after that.
_FIRST = ("tensorflow.checks.callback", "keras.backends.right_answers")
_LAST = (
    *("keras.backends.clean_stop", "tensorflow.checks.clean_stop"),
    "tensorflow.checks.killed",
)


@dataclass(frozen=True, kw_only=True)
class World:
    """Ranks with a backend."""

    backend: str
    size: int = 2
    narrow: bool = False
    """All ranks on one core, and one thread for all of TensorFlow's operations."""
    datasets: bool = False
    """With TensorFlow beside the backend, for its datasets."""

    def __str__(self) -> str:
        return f"{self.backend}-{'narrow' if self.narrow else self.size}"


TORCH = World(backend="torch")
TENSORFLOW = World(backend="tensorflow")
JAX = World(backend="jax")
THREE = World(backend="torch", size=3)
NARROW_TENSORFLOW = World(backend="tensorflow", narrow=True)
NARROW_JAX = World(backend="jax", narrow=True)


@dataclass(frozen=True, kw_only=True)
class Check:
    """A function of a program of checks, to be run in a world."""

    program: str
    name: str
    world: World

    def __str__(self) -> str:
        return f"{self.program.rpartition('.')[2]}.{self.name}-{self.world}"


@dataclass(frozen=True, kw_only=True)
class Launched:
    """What became of a launch."""

    code: int
    output: str
    said: list[dict[str, str]]
    """By rank: what each check gave, nothing if it passed."""


class Outcomes:
    """What the checks of a session gave; each world is launched when it is first asked for."""

    def __init__(self, wanted: Sequence[Check], folder: Path) -> None:
        self._wanted = sorted(wanted, key=lambda check: _turn(check.program))
        self._folder = folder
        self._launched: dict[World, Launched] = {}

    def expect(self, check: Check) -> None:
        """Fail with what a rank said if a check did not pass on all of them."""
        found = self.of(check.world)
        name = f"{check.program}:{check.name}"
        for rank, outcome in enumerate(found.said):
            assert name in outcome, f"rank {rank} did not get to {name}: {found.output}"
            assert not outcome[name], f"rank {rank}: {outcome[name]}"

    def of(self, world: World) -> Launched:
        """Return a world's launch."""
        for package in ("keras", world.backend):
            # Without importing it: each backend has its own processes.
            if find_spec(package) is None:
                pytest.skip(f"needs {package}: pip install 'farandole[{package}]'")
        if world.narrow and shutil.which("taskset") is None:
            pytest.skip("needs taskset (Debian's util-linux)")
        if world not in self._launched:
            self._launched[world] = self._launch(world)
        return self._launched[world]

    def _launch(self, world: World) -> Launched:
        """Run all checks that are wanted in a world."""
        checks: dict[str, list[str]] = {}
        for check in self._wanted:
            if check.world == world:
                checks.setdefault(check.program, []).append(check.name)
        prefix = ("taskset", "-c", "0") if world.narrow else ()
        with TemporaryDirectory() as folder:
            done = run_cli(
                *("run", "-np", str(world.size), "--"),
                # As a module: beside its file there are folders named keras and tensorflow.
                *(*prefix, sys.executable, "-m", "tests.run_checks", folder),
                *(f"{program}:{','.join(names)}" for program, names in checks.items()),
                env=keras_on(world.backend, *(["tensorflow"] if world.datasets else []))
                | {
                    "TF_CPP_MIN_LOG_LEVEL": "3",
                    # Most checks compile the same few models, in all worlds.
                    "JAX_COMPILATION_CACHE_DIR": str(self._folder / "jax"),
                    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
                    "HOROVOD_DYNAMIC_PROCESS_SETS": "1",
                    "PYTHONPATH": str(_ROOT),
                }
                | ({"TF_NUM_INTEROP_THREADS": "1"} if world.narrow else {}),
                cwd=_ROOT,
                timeout_s=LAUNCH_S,
            )
            found = [Path(folder, f"{rank}.json") for rank in range(world.size)]
            said = [json.loads(file.read_text()) if file.exists() else {} for file in found]
        output = f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return Launched(code=done.returncode, output=output, said=said)


def names_of(program: str) -> list[str]:
    """Return the checks of a program, without importing it."""
    lines = Path(_ROOT, "tests", *program.split(".")).with_suffix(".py").read_text().splitlines()
    return [line[4:].partition("(")[0] for line in lines if line.startswith("def check_")]


def each(
    programs: str | Sequence[str],
    *worlds: World,
    only: Sequence[str] = (),
    but: Sequence[str] = (),
) -> pytest.MarkDecorator:
    """Make a test of every check of a program or several, or of some checks, in each world.

    It is given as `check`.
    """
    checks = [
        Check(program=program, name=name, world=world)
        for program in ([programs] if isinstance(programs, str) else programs)
        for world in worlds
        for name in only or names_of(program)
        if name not in but
    ]
    return pytest.mark.parametrize("check", checks, ids=str)


def _turn(program: str) -> tuple[int, str]:
    """Return what programs of one launch are sorted by."""
    if program in _LAST:
        return (len(_FIRST) + 1 + _LAST.index(program), program)
    return (_FIRST.index(program) if program in _FIRST else len(_FIRST), program)
