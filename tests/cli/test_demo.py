"""`farandole demo`, with and without real workers."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
from pathlib import Path

import pytest

from farandole.cli import demo
from farandole.errors import MissingExtraError
from farandole.study.read import read_study
from tests.conftest import run_cli


def parse(*argv: str) -> argparse.Namespace:
    return demo.COMMAND.parse(argv)


def test_what_is_missing_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"needs torch and scikit-learn.*\[torch,demo\]"):
        demo.main(parse())


@pytest.mark.ranks
def test_the_demo_from_end_to_end(tmp_path: Path) -> None:
    out = tmp_path / "digits"
    # The python on PATH is another one, as in a virtual environment that was not activated.
    other = tmp_path / "bin" / "python"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    done = run_cli(
        *("demo", "--seeds", "1", "--epochs", "3", "--json", "--out", str(out)),
        env={"PATH": f"{other.parent}{os.pathsep}{os.environ['PATH']}"},
        timeout_s=170,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["answer"]["void"] is None
    study = read_study(out)
    assert [launch.cell.workers for launch in study.launches] == [1, 2]
    accuracies = [
        [m.value for m in launch.ranks[0].metrics if m.name == "val_accuracy"]
        for launch in study.launches
    ]
    # Ten classes: far above chance after three epochs.
    assert [len(each) for each in accuracies] == [3, 3]
    assert min(each[-1] for each in accuracies) > 0.3
    assert (out / "report.html").stat().st_size > 100_000
    # Which figures there are depends on how busy the machine was; accuracy does not.
    assert any((out / "figures").glob("*.png"))
