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


def test_every_example_has_a_test() -> None:
    tested = Path(__file__).read_text()
    assert [path.name for path in EXAMPLES if path.name not in tested] == []


def test_the_readme_shows_the_example_as_it_is() -> None:
    source = (ROOT / "examples" / "train_digits.py").read_text()
    body = source.split('"""\n', 1)[1].strip()
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert body in [block.strip() for block in blocks]
