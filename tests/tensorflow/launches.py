"""One launch of all checks for each world, and how each check went there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.conftest import keras_on, run_cli

ROOT = Path(__file__).parents[2]
CHECKS = Path(__file__).parent / "checks"
PROGRAMS = Path(__file__).parent / "programs"
ENVIRON = keras_on("tensorflow") | {"TF_CPP_MIN_LOG_LEVEL": "3"}


class Launch:
    """Ranks that ran checks one after the other, until all were done or one failed."""

    def __init__(self, size: int, modules: tuple[str, ...], **env: str) -> None:
        self.size = size
        done = run_cli(
            *("run", "-np", str(size), "--no-tag", PROGRAMS / "run_checks.py", *modules),
            env=ENVIRON | {"PYTHONPATH": str(ROOT)} | env,
            cwd=ROOT,
            timeout_s=300.0,
        )
        self.code, self.errors = done.returncode, done.stderr
        self._lines = done.stdout.splitlines()

    def check(self, name: str) -> None:
        """Fail unless every rank is through with a check."""
        found = sorted(line for line in self._lines if line.endswith(f" {name}"))
        assert found == [f"done {rank} {name}" for rank in range(self.size)], self.errors[-4000:]


def names(module: str) -> list[str]:
    """Return the checks of a module; without importing it, which would import TensorFlow."""
    tree = ast.parse((CHECKS / f"{module}.py").read_text())
    return [
        f"{module}.{item.name}"
        for item in tree.body
        if isinstance(item, ast.FunctionDef) and item.name.startswith("check_")
    ]


def each(module: str) -> pytest.MarkDecorator:
    """Make a test of every check of a module, given to it as `check`."""
    return pytest.mark.parametrize("check", names(module))


@pytest.fixture(scope="session")
def pair() -> Launch:
    """Two ranks, of which one is killed when all is done."""
    return Launch(
        2,
        (
            "callback",
            "collectives",
            "compression",
            "functions",
            "gradients",
            "optimizer",
            "sizes",
            "sparse",
            "sync_batch_norm",
            "tape",
            "tf_keras",
        ),
        CHECK_KILLED="1",
    )


@pytest.fixture(scope="session")
def three() -> Launch:
    """Three ranks, for a long run: what they combine with is the engine's, tested on 2 to 4."""
    return Launch(3, ("collectives", "sync_batch_norm"))


@pytest.fixture(scope="session")
def narrow() -> Launch:
    """Two ranks on one core, with one of TensorFlow's threads each."""
    return Launch(2, ("callback", "gradients", "tape"), CHECK_ONE_THREAD="1")
