"""Whole programs: one that was written for Horovod, and the one that the documentation shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import run_cli

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(240)]


def test_a_loop_for_horovod_runs_as_it_is(tmp_path: Path) -> None:
    script = Path(__file__).parent / "programs" / "custom_loop.py"
    done = run_cli("run", "-np", "2", "--no-tag", script, tmp_path, timeout_s=220.0)
    assert done.returncode == 0, done.stderr
    losses = [float(value) for value in re.findall(r"Loss: (\d+\.\d+)", done.stdout)]
    assert len(losses) == 4, "only rank 0 prints, every ten steps"
    # Its weights are not seeded: how much it learns in so few steps differs.
    assert losses[-1] < losses[0]
    ranks = sorted(re.findall(r"rank (\d) mean (\S+) spread (\S+)", done.stdout))
    assert [rank for rank, _, _ in ranks] == ["0", "1"]
    assert ranks[0][1] == ranks[1][1]
    assert {spread for _, _, spread in ranks} == {"0.0"}, "the weights are the same"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint",
        "ckpt-1.data-00000-of-00001",
        "ckpt-1.index",
    ]


def test_a_fit_for_horovod_runs_as_it_is(tmp_path: Path) -> None:
    script = Path(__file__).parent / "programs" / "fit.py"
    done = run_cli("run", "-np", "2", "--no-tag", script, tmp_path, timeout_s=220.0)
    assert done.returncode == 0, done.stderr
    ranks = sorted(re.findall(r"rank (\d) spread (\S+) losses (.*)", done.stdout))
    assert [rank for rank, _, _ in ranks] == ["0", "1"]
    assert {spread for _, spread, _ in ranks} == {"0.0"}, "the weights are the same"
    assert ranks[0][2] == ranks[1][2], "metrics are averaged"
    losses = [float(loss) for loss in ranks[0][2].split()]
    assert len(losses) == 3
    assert losses[-1] < losses[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"checkpoint-{epoch}.keras" for epoch in (1, 2, 3)
    ]


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "tensorflow.md").read_text()
    example = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    script = tmp_path / "train.py"
    script.write_text(example)
    done = run_cli("run", "-np", "2", "--no-tag", script, cwd=tmp_path, timeout_s=220.0)
    assert done.returncode == 0, done.stderr
    losses = [float(value) for value in re.findall(r"loss (\d+\.\d+)", done.stdout)]
    assert len(losses) == 3, "only rank 0 prints, once per epoch"
    assert losses[-1] < losses[0]
