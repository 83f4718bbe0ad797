"""The examples are where labs look for them, in a checkout and in what is installed."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import tomllib

from farandole.labs.scripts import examples_path, published_path

ROOT = Path(__file__).parents[2]


def test_a_checkout_has_one_copy_of_the_examples() -> None:
    for path in (ROOT / "examples").glob("*.py"):
        assert examples_path(path.name) == path.resolve()


def test_every_example_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["farandole.labs"]
    files = [path for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".sbatch")]
    shipped = [f"examples/{path.name}" for path in files]
    assert len(shipped) > 3
    left_out = [name for name in shipped if not any(fnmatch(name, pattern) for pattern in patterns)]
    assert left_out == []


def test_published_figures_are_found() -> None:
    assert "456.14687" in published_path("mnist").read_text()
