"""Every example runs, and the README shows the one that it says it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import run_cli

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def losses(output: str) -> list[float]:
    return [float(value) for value in re.findall(r"loss (\d+\.\d+)", output)]


@pytest.mark.ranks
@pytest.mark.parametrize("num_workers", [1, 2])
def test_train_digits(num_workers: int) -> None:
    script = ROOT / "examples" / "train_digits.py"
    done = run_cli("run", "-np", str(num_workers), script, timeout_s=100)
    assert done.returncode == 0, done.stderr
    found = losses(done.stdout)
    assert len(found) == 5, "only rank 0 prints, once per epoch"
    assert found[-1] < found[0]
    assert f"over {num_workers} workers" in done.stdout


@pytest.mark.ranks
def test_train_ddp() -> None:
    done = run_cli("run", "-np", "2", ROOT / "examples" / "train_ddp.py", "64", timeout_s=100)
    assert done.returncode == 0, done.stderr
    found = losses(done.stdout)
    assert len(found) == 5, "only rank 0 prints, once per epoch"
    assert found[-1] < found[0]
    assert "over 2 workers" in done.stdout


@pytest.mark.ranks
def test_keras_digits() -> None:
    script = ROOT / "examples" / "keras_digits.py"
    environ = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = run_cli("run", "-np", "2", script, env=environ, timeout_s=110)
    assert done.returncode == 0, done.stderr
    assert "[1]<stdout>" not in done.stdout, "only rank 0 shows progress"
    accuracy, workers = re.findall(r"accuracy (\S+) over (\d+) workers", done.stdout)[0]
    assert float(accuracy) > 0.9
    assert workers == "2"


def test_every_example_has_a_test() -> None:
    tested = Path(__file__).read_text()
    assert [path.name for path in EXAMPLES if path.name not in tested] == []


@pytest.mark.parametrize(
    ("page", "example"), [("README.md", "train_digits.py"), ("docs/keras.md", "keras_digits.py")]
)
def test_pages_show_the_examples_as_they_are(page: str, example: str) -> None:
    source = (ROOT / "examples" / example).read_text()
    body = source.split('"""\n', 1)[1].strip()
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert body in [block.strip() for block in blocks]
