"""Whole programs: three that were written for Horovod, and the one that the documentation shows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import keras_on, run_cli

PROGRAMS = Path(__file__).parent / "programs"
DOCS = Path(__file__).parents[2] / "docs"

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where each program has a folder of its own."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="module")
def launched(folder: Path) -> subprocess.CompletedProcess[str]:
    """All of them, in one launch."""
    text = (DOCS / "how-to" / "tensorflow.md").read_text()
    example = folder / "train.py"
    example.write_text(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0])
    programs = {
        "loop": PROGRAMS / "custom_loop.py",
        "fit": PROGRAMS / "fit.py",
        "example": example,
        # The last one: what is left stays left.
        "stopped": PROGRAMS / "stopped.py",
    }
    arguments: list[Path] = []
    for name, program in programs.items():
        (folder / name).mkdir()
        arguments += [program, folder / name]
    runner = PROGRAMS / "run_programs.py"
    return run_cli(
        *("run", "-np", "2", "--no-tag", runner, *arguments),
        env=keras_on("tensorflow") | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        timeout_s=220.0,
    )


@pytest.fixture(scope="module")
def output(launched: subprocess.CompletedProcess[str]) -> str:
    """What they said."""
    assert launched.returncode == 0, launched.stderr
    return launched.stdout


def test_a_loop_for_horovod_runs_as_it_is(folder: Path, output: str) -> None:
    losses = [float(value) for value in re.findall(r"Loss: (\d+\.\d+)", output)]
    assert len(losses) == 4, "only rank 0 prints, every ten steps"
    # Its weights are not seeded: how much it learns in so few steps differs.
    assert losses[-1] < losses[0]
    ranks = sorted(re.findall(r"rank (\d) mean (\S+) spread (\S+)", output))
    assert [rank for rank, _, _ in ranks] == ["0", "1"]
    assert ranks[0][1] == ranks[1][1]
    assert {spread for _, _, spread in ranks} == {"0.0"}, "the weights are the same"
    assert sorted(path.name for path in (folder / "loop").iterdir()) == [
        "checkpoint",
        "ckpt-1.data-00000-of-00001",
        "ckpt-1.index",
    ]


def test_a_fit_for_horovod_runs_as_it_is(folder: Path, output: str) -> None:
    ranks = sorted(re.findall(r"rank (\d) spread (\S+) losses (.*)", output))
    assert [rank for rank, _, _ in ranks] == ["0", "1"]
    assert {spread for _, spread, _ in ranks} == {"0.0"}, "the weights are the same"
    assert ranks[0][2] == ranks[1][2], "metrics are averaged"
    losses = [float(loss) for loss in ranks[0][2].split()]
    assert len(losses) == 3
    assert losses[-1] < losses[0]
    assert sorted(path.name for path in (folder / "fit").iterdir()) == [
        f"checkpoint-{epoch}.keras" for epoch in (1, 2, 3)
    ]


def test_the_example_of_the_documentation(folder: Path, output: str) -> None:
    losses = [float(value) for value in re.findall(r"\bloss (\d+\.\d+)", output)]
    assert len(losses) == 3, "only rank 0 prints, once per epoch"
    assert losses[-1] < losses[0]
    assert [path.name for path in (folder / "example").iterdir()] == ["model.keras"]


def test_a_program_saves_when_it_is_asked_to_stop(
    folder: Path, launched: subprocess.CompletedProcess[str], output: str
) -> None:
    ranks = sorted(re.findall(r"rank (\d) left after (\d+) with (\S+)", output))
    assert [rank for rank, _, _ in ranks] == ["0", "1"]
    assert ranks[0][1:] == ranks[1][1:], "both left after the same update"
    assert int(ranks[0][1]) > 20
    assert "farandole: stopped cleanly on SIGUSR1" in launched.stderr
    assert (folder / "stopped" / "ckpt-1.index").exists()
