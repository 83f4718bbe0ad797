"""What is said when Keras, or the backend that it shall run on, is not there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import clean_environ

# Makes an import fail as if the package were not installed.
_HIDE = """
import sys
class Hide:
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hide())
import farandole.keras
"""


def said(folder: Path, program: str, **environ: str) -> str:
    """Return the last line of a program that fails."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=clean_environ(PYTHONPATH=str(folder), TF_CPP_MIN_LOG_LEVEL="3", **environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("hidden", "backend", "words"),
    [
        ("keras", "torch", "needs Keras, which is not installed: pip install 'farandole[keras,"),
        ("tensorflow", "tensorflow", "KERAS_BACKEND=tensorflow needs tensorflow, which is not"),
        ("jax", "jax", "pip install 'farandole[keras,jax]', or choose another backend by"),
        ("torch", "torch", "pip install 'farandole[keras,torch]'"),
    ],
)
def test_what_is_missing_names_its_extra(
    tmp_path: Path, hidden: str, backend: str, words: str
) -> None:
    text = said(tmp_path, _HIDE.format(hidden={hidden}), KERAS_BACKEND=backend)
    assert text.startswith("farandole.errors.MissingExtraError: ")
    assert words in text


def test_keras_2(tmp_path: Path) -> None:
    (tmp_path / "keras.py").write_text("__version__ = '2.15.0'\n")
    text = said(tmp_path, "import farandole.keras")
    assert "needs Keras 3, and Keras 2.15.0 is installed" in text
    assert "pip install 'keras>=3.5'" in text
