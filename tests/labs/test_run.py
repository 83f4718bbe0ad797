"""Running a lab: the commands of its studies, its state on disk, and real labs from end to end."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from farandole.errors import UsageError
from farandole.labs.lab import DataFacts, Rate, examples_path
from farandole.labs.run import (
    FILE,
    State,
    begin,
    import_published,
    is_complete,
    read_state,
    write_state,
)
from farandole.study.read import read_study
from tests.conftest import clean_environ
from tests.labs.tiny import SCRIPT, tiny
from tests.labs.trained import asked

ONE = tiny(script="train_digits.py").pilot(asked())[0]


def test_the_command_of_a_study(tmp_path: Path) -> None:
    script = examples_path("train_digits.py")
    line = ONE.shell_line(tmp_path, time_limit="83s", out="my out", label=ONE.title, no_report=True)
    variables, _, command = line.partition(" farandole ")
    assert variables == "TINY='set by the lab'"
    words = shlex.split(command)
    ends = ["--out", "my out", "--label", ONE.title, "--no-report", "--", str(script), ".", "rate"]
    assert words[:3] == ["study", "-np", "1"]
    assert words[-len(ends) :] == ends
    assert words[words.index("--time-limit") + 1] == "83s"
    # An example of a checkout is named as its reader finds it.
    assert ONE.command(script.parent.parent)[0] == f"{script.parent.name}/train_digits.py"
    # A study that was begun needs its folder only.
    line = ONE.shell_line(tmp_path, resume="out", time_limit="1m")
    assert line.endswith("farandole study --time-limit 1m --resume out")


def test_published_figures_are_imported_once(tmp_path: Path) -> None:
    path = tmp_path / "driving"
    import_published("driving", path)
    assert is_complete(path)
    assert [launch.cell.workers for launch in read_study(path).launches] == [2, 4, 4, 8]
    head, before = path / "study.json", (path / "study.json").stat().st_mtime_ns
    import_published("driving", path)
    assert head.stat().st_mtime_ns == before
    # One of an earlier version's table is made anew.
    head.write_text(head.read_text().replace('"sha256": "', '"sha256": "0'))
    import_published("driving", path)
    assert head.stat().st_mtime_ns > before


DATA = DataFacts(source="none", train=1000, test=100, sample="nothing")
STATE = State(
    lab="tiny",
    asked=asked(data=Path("/some data"), workers=(1, 2), recipes=("warmup",), weights="none"),
    created="2026-01-01T00:00:00+00:00",
    rates={"rate": Rate(samples_per_s=100.0, startup_s=1.5)},
    plan=tiny().plan(asked(), DATA, {}, 2),
    ended={"first": "", "second": "broken"},
    spent_s=12.5,
)


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    write_state(tmp_path, STATE)
    kept = read_state(tmp_path)
    assert kept is not None
    assert kept.plan is not None
    assert STATE.plan is not None
    assert kept.plan.to_json() == STATE.plan.to_json()
    assert replace(kept, plan=None) == replace(STATE, plan=None)
    content = json.loads((tmp_path / FILE).read_text())
    assert (content["schema"], content["kind"]) == (1, "farandole-lab")
    # A lab that was begun before weights could be asked for.
    del content["asked"]["weights"]
    (tmp_path / FILE).write_text(json.dumps(content))
    kept = read_state(tmp_path)
    assert kept is not None
    assert kept.asked == replace(STATE.asked, weights=None)


def test_a_new_place_keeps_nothing(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None
    assert read_state(tmp_path / "new") is None


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "not what `farandole lab` wrote"),
        ("[]", "not what `farandole lab` wrote"),
        ('{"schema": 1, "kind": "farandole-lab"}', "not what `farandole lab` wrote"),
        ('{"schema": 2, "kind": "farandole-lab"}', "later version"),
    ],
)
def test_a_file_that_is_not_ours(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(UsageError, match=says):
        read_state(tmp_path)


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(UsageError, match=r"holds no lab \(it has thesis.tex\)"):
        read_state(tmp_path)
    with pytest.raises(UsageError, match="is a file"):
        read_state(tmp_path / "thesis.tex")


@pytest.mark.parametrize(
    ("changes", "theirs"),
    [
        ({"data": None}, "farandole lab tiny --quick -np 1,2 --recipe warmup"),
        ({"size": "full"}, "farandole lab tiny --full --data '/some data'"),
        ({"size": "budget", "budget_s": 900.0}, "farandole lab tiny --budget 15m"),
        ({"workers": (1, 4)}, "-np 1,4"),
        ({"recipes": ()}, "-np 1,2 --weights none`"),
        ({"weights": None}, "--recipe warmup`"),
    ],
)
def test_another_wish_is_refused_with_both(
    changes: dict[str, object], theirs: str, tmp_path: Path
) -> None:
    write_state(tmp_path, STATE)
    with pytest.raises(UsageError) as refused:
        begin(tiny(), replace(STATE.asked, **changes), DATA, tmp_path)
    ours = "farandole lab tiny --quick --data '/some data' -np 1,2 --recipe warmup --weights none"
    assert f"{tmp_path} holds `{ours}`" in str(refused.value)
    assert theirs in str(refused.value)


def test_another_lab_is_refused(tmp_path: Path) -> None:
    write_state(tmp_path, replace(STATE, lab="mnist"))
    with pytest.raises(UsageError, match=r"holds `farandole lab mnist .*for `farandole lab tiny "):
        begin(tiny(), STATE.asked, DATA, tmp_path)


def test_the_same_goes_on_whatever_the_cores(tmp_path: Path) -> None:
    write_state(tmp_path, STATE)
    assert begin(tiny(), replace(STATE.asked, cores=64), DATA, tmp_path).ended == STATE.ended


def test_before_there_is_a_plan_another_budget_is_welcome(tmp_path: Path) -> None:
    short = replace(STATE.asked, size="budget", budget_s=60.0)
    longer = replace(short, budget_s=600.0)
    write_state(tmp_path, replace(STATE, asked=short, plan=None))
    found = begin(tiny(), longer, DATA, tmp_path)
    assert (found.rates, found.asked, found.spent_s) == (STATE.rates, longer, 0.0)
    write_state(tmp_path, replace(STATE, asked=short))
    with pytest.raises(UsageError, match=r"--budget 1m .*--budget 10m"):
        begin(tiny(), longer, DATA, tmp_path)


ROOT = Path(__file__).parents[2]


def run_tiny(place: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run `farandole lab tiny` as a user would, in a process that has this lab."""
    return subprocess.run(
        [sys.executable, "-m", "tests.labs.tiny", str(place), "lab", "tiny", *argv],
        env=clean_environ(PYTHONPATH=f"{ROOT}:{ROOT / 'src'}"),
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
    assert done.stderr.endswith("Continue with: farandole lab tiny --budget 2m --out out\n")
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
    assert "--resume out/studies/second" in done.stderr
    assert "pilot" not in done.stderr
    assert {path: path.stat().st_mtime_ns for path in before} == before
    # What is left of the budget goes into further runs, and the report tells how many there were.
    assert "tiny, run 2 of each setting, to narrow the intervals: one worker (about " in done.stderr
    assert "of the budget left: further runs would not make" in done.stderr
    second = read_study(place / "out" / "studies" / "second")
    assert [(x.cell.workers, x.repeat) for x in second.launches] == [(1, 0), (2, 0), (2, 1), (1, 1)]
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
