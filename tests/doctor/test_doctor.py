"""`farandole doctor` on real launches: mistakes of several themes in one script, and bad input."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.conftest import run_cli

SEVERAL = """
import os

import torch

import farandole.torch as hvd

hvd.init()
torch.set_num_threads(4 * os.cpu_count())
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # farandole: ignore[FD410] small on purpose
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
x = torch.randn(1024, 16, generator=torch.Generator().manual_seed(0))
y = x[:, :4].argmax(1)
part = slice(hvd.rank(), None, hvd.size())
for step in range(12):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x[part]), y[part]).backward()
    optimizer.step()
with torch.no_grad():
    accuracy = (model(x[part]).argmax(1) == y[part]).float().mean().item()
if hvd.rank() == 0:
    print(f"accuracy {accuracy:.3f}")
"""


@pytest.mark.ranks
def test_mistakes_of_several_themes_in_one_launch(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SEVERAL)
    done = run_cli(
        *("doctor", "--json", "--no-replay", "--sarif", "found.sarif", "--", sys.executable),
        *("train.py",),
        cwd=tmp_path,
    )
    assert done.returncode == 1, done.stderr
    said = json.loads(done.stdout)
    found = {one["id"]: one for one in said["findings"]}
    assert {"FD103", "FD401", "FD501"} <= set(found), said
    assert found["FD401"]["where"] == "train.py:24"
    assert found["FD103"]["severity"] == "error"
    assert not {"FD101", "FD104"} & set(found)
    assert {"FD410": "small on purpose"}.items() >= {
        one["id"]: one["reason"] for one in said["ignored"]
    }.items()
    (run,) = json.loads((tmp_path / "found.sarif").read_text())["runs"]
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    for result in run["results"]:
        assert result["ruleId"] in rules
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
        (place,) = result["locations"]
        assert place["physicalLocation"]["artifactLocation"]["uri"] == "train.py"


@pytest.mark.ranks
def test_a_script_that_does_not_train_is_told_what_was_expected(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('hello')\n")
    done = run_cli("doctor", "--", sys.executable, "train.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "A script is expected to train with PyTorch" in done.stderr


@pytest.mark.ranks
def test_a_crash_comes_behind_the_findings_so_far(tmp_path: Path) -> None:
    crash = SEVERAL.replace("    optimizer.step()\n", "    optimizer.step()\n    assert step < 5\n")
    (tmp_path / "train.py").write_text(crash)
    done = run_cli("doctor", "--no-replay", "--", sys.executable, "train.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "FD103 error" in done.stdout
    assert "the script did not end well" in done.stderr
    assert "AssertionError" in done.stderr


@pytest.mark.ranks
def test_a_run_that_is_watched_goes_on_and_tells_of_a_finding_once(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SEVERAL)
    done = run_cli("run", "-np", "2", "--doctor", "--", sys.executable, "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("FD103 error: Weights differ before the first update") == 1
    assert "accuracy" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("-np", "1", "--", "python", "x.py"), "Use -np 2."),
        (("--explain", "FD40"), "Did you mean FD4"),
        (("--select", "drift", "--list"), "Did you mean FD104 (Weights drift apart)?"),
        (("--steps", "5", "--epochs", "1", "--", "python", "x.py"), "Leave one out."),
        ((), "No command was given."),
    ],
)
def test_usage_errors(arguments: tuple[str, ...], text: str, tmp_path: Path) -> None:
    done = run_cli("doctor", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert text in done.stderr
