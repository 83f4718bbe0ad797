"""A lab from end to end: real studies, an interruption, and going on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from farandole.study.read import read_study
from tests.conftest import clean_environ
from tests.labs.tiny import SCRIPT

ROOT = Path(__file__).parents[2]


def run_tiny(place: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run `farandole lab tiny` as a user would, in a process that has this lab."""
    return subprocess.run(
        [sys.executable, "-m", "tests.labs.tiny", str(place), "lab", "tiny", *argv],
        env=clean_environ(PYTHONPATH=str(ROOT)),
        cwd=place,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "tiny.py").write_text(SCRIPT)
    return tmp_path


@pytest.mark.ranks
def test_a_lab_in_a_budget_interrupted_and_gone_on_with(place: Path) -> None:
    given = ("--budget", "2m", "--out", "out")
    (place / "interrupt-second").touch()
    done = run_tiny(place, *given)
    assert done.returncode == 130, done.stderr
    assert "TINY='set by the lab' farandole study -np 1 " in done.stderr
    assert "One worker: 100 samples/s" in done.stderr
    assert "tiny, study 2 of 2: two workers (about 4 s; " in done.stderr
    assert done.stderr.endswith("Go on with: farandole lab tiny --budget 2m --out out\n")
    kept = json.loads((place / "out" / "lab.json").read_text())
    assert kept["rates"]["rate"]["samples_per_s"] == pytest.approx(100)
    assert kept["ended"] == {"first": ""}
    assert kept["plan"]["choices"][0]["here"] == "3"
    spent_s = kept["spent_s"]
    assert spent_s > 0

    # Another wish does not touch it.
    done = run_tiny(place, "--quick", "--out", "out")
    assert done.returncode == 2
    assert "holds `farandole lab tiny --budget 2m`" in done.stderr
    assert "you asked for `farandole lab tiny --quick`" in done.stderr

    before = {path: path.stat().st_mtime_ns for path in (place / "out").rglob("launch.json")}
    assert len(before) == 2
    done = run_tiny(place, *given)
    assert done.returncode == 0, done.stderr
    assert "1 of 2 studies have been made already" in done.stderr
    assert "farandole study --resume out/studies/second" in done.stderr
    assert "pilot" not in done.stderr
    assert {path: path.stat().st_mtime_ns for path in before} == before
    # What is left of the budget goes into further runs, and the report tells how many there were.
    assert "tiny, run 2 of each setting, to narrow the intervals: one worker (about " in done.stderr
    assert "of the budget left: further runs would not make" in done.stderr
    second = read_study(place / "out" / "studies" / "second")
    assert [(x.cell.workers, x.repeat) for x in second.launches] == [(1, 0), (2, 0), (1, 1), (2, 1)]
    assert "| runs of each setting, by study | 1 | 2 |" in (place / "out/report.md").read_text()
    assert "The fastest made 200 samples/s." in done.stdout
    assert "out/report.html" in done.stdout
    assert (place / "out" / "report.html").is_file()
    kept = json.loads((place / "out" / "lab.json").read_text())
    assert kept["ended"] == {"first": "", "second": ""}
    assert kept["spent_s"] > spent_s

    # Once more: there is nothing to do but the report.
    (place / "out" / "report.html").unlink()
    done = run_tiny(place, *given)
    assert done.returncode == 0, done.stderr
    assert "All studies have been made already." in done.stderr
    assert "farandole study" not in done.stderr
    assert (place / "out" / "report.html").is_file()


@pytest.mark.ranks
def test_a_study_that_fails_is_told_and_the_others_go_on(place: Path) -> None:
    (place / "break-first").touch()
    done = run_tiny(place, "--quick", "--out", "out", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["schema"] == 1
    told = (place / "out" / "report.md").read_text()
    assert "The study first (one worker) has no figures" in told
    # Mended, it is tried again, and the rest is kept.
    (place / "break-first").unlink()
    done = run_tiny(place, "--quick", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert "study 2 of 2" not in done.stderr
    assert "has no figures" not in (place / "out" / "report.md").read_text()
    assert len(read_study(place / "out" / "studies" / "second").launches) == 2


@pytest.mark.ranks
def test_a_lab_of_which_nothing_works_fails(place: Path) -> None:
    for study in ("first", "second"):
        (place / f"break-{study}").touch()
    done = run_tiny(place, "--quick", "-np", "1", "--out", "out")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("farandole: No study of the lab tiny has figures. The first of them")
