"""`farandole study`: its plan, its lines, and one clear line for what cannot be done."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from farandole.cli.main import main
from farandole.cli.study import with_folder
from farandole.study.records import Study
from tests.conftest import run_cli
from tests.study import scripts

QUICK = ["--repeats", "1", "--no-epoch", "--no-today", "--keep-busy", "--no-report"]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return scripts.write(tmp_path, scripts.PRINTS)


def test_lines_to_copy_name_the_folder() -> None:
    lines = [
        "Read launches/0001-w1-r0/output.txt, fix the cause, and continue with "
        "farandole study --resume DIR.",
        "DIR and launches are words, too.",
    ]
    assert with_folder(lines, "my study") == [
        "Read my study/launches/0001-w1-r0/output.txt, fix the cause, and continue with "
        "farandole study --resume 'my study'.",
        "DIR and launches are words, too.",
    ]


@pytest.mark.ranks
def test_a_study_from_the_shell(script: str, tmp_path: Path) -> None:
    flags = ["-np", "1,2", "--threads", "1", *QUICK, "--throughput", scripts.THROUGHPUT]
    flags += ["--time_limit", "5m"]
    done = run_cli("study", *flags, "-L", "batch=4", "--", script, "--bs={batch}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "[1/2] 1 worker, batch 4, repeat 1: done in" in done.stderr
    assert "[2/2] 2 workers, batch 4, repeat 1: done in" in done.stderr
    assert "Writing to study-my train-1" in done.stderr
    study = Study.load(tmp_path / "study-my train-1")
    assert [launch.figures["throughput"] for launch in study.launches] == [100.0, 200.0]
    assert study.command == (script, "--bs={batch}")


@pytest.mark.ranks
def test_it_ends_with_an_answer_and_a_report(script: str, tmp_path: Path) -> None:
    flags = ["-np", "1,2", *QUICK[:-1], "--throughput", scripts.THROUGHPUT, "--out", "my study"]
    flags += ["--metric", "f1=f1 is (.*)"]
    done = run_cli("study", *flags, "--", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("--metric f1 matched no line of the output.") == 1
    assert done.stdout.endswith("report: my study/report.html\n")
    assert (tmp_path / "my study" / "report.html").is_file()
    # What was projected from it is asked again by each report; these rows cannot answer it.
    (tmp_path / "my study" / "projection.json").write_text('{"asked": ["-np", "8", "--fp16"]}')
    done = run_cli("study", "--resume", "my study", "--keep-busy", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "projection.json is not shown: " in done.stderr
    assert list(json.loads(done.stdout)["answer"])[:3] == ["workers", "speedup", "interval"]


@pytest.mark.ranks
def test_a_study_of_which_nothing_works_fails(script: str, tmp_path: Path) -> None:
    # One process with all cores is for comparison only.
    Path(script).write_text(
        "import os\nif os.environ['OMP_NUM_THREADS'] == '1': raise ValueError('no')"
    )
    flags = ["-np", "1", "--threads", "1", *QUICK, "--out", "out"]
    flags.remove("--no-today")
    done = run_cli("study", *flags, "--", script, cwd=tmp_path)
    assert done.returncode == 1
    assert "1 worker, repeat 1: failed in" in done.stderr
    assert "ValueError: no" in done.stderr


def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    script: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", "-np", "1,2", "--dry-run", "-L", "batch=8,16", script, "{batch}"]) == 0
    output = capsys.readouterr()
    assert "5 cells:" in output.out
    assert "2 workers, batch 16" in output.out
    assert "worker-hours, a guess" in output.out
    assert "Weak scaling" in output.err
    assert "--time-limit" not in output.out
    limited = ["--time-limit", "50s", "--no-epoch"]
    assert main(["study", "-np", "1,2", "--dry-run", *limited, "--no-today", script]) == 0
    # A launch is guessed to take 20 s; of the second round's two there is no room for both.
    assert "--time-limit 50 s has room for about 2 of 6 launches." in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["my train.py"]


@pytest.mark.parametrize(
    ("flags", "says"), [([], True), (["--horovod-alias", "off"], False)], ids=["on", "off"]
)
def test_who_answers_horovod(
    flags: list[str], says: bool, script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(script).write_text("import horovod.torch as hvd")
    assert main(["study", "-np", "1,2", *flags, "--dry-run", script]) == 0
    assert ("`import horovod` resolves to Farandole\n" in capsys.readouterr().err) is says


def test_a_foreign_folder_is_refused_before_a_word_of_writing_to_it(
    script: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for flags in ([], ["--dry-run"]):
        assert main(["study", "-np", "1", *flags, "--out", str(tmp_path), "--", script]) == 2
        output = capsys.readouterr()
        assert output.err.startswith(f"farandole: --out {tmp_path} is not empty.")
        assert output.out == ""


def test_a_table_becomes_a_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "figures.csv"
    table.write_text("workers,batch,epoch_s\n1,32,62.7\n2,32,44.2\n")
    out = tmp_path / "out"
    assert (
        main(
            ["study", "--no-report", "import", str(table), "--out", str(out), "--label", "cluster"]
        )
        == 0
    )
    study = Study.load(out)
    assert study.label == "cluster"
    assert [launch.cell.workers for launch in study.launches] == [1, 2]
    assert main(["study", "--resume", str(out)]) == 2
    assert "no plan to resume" in capsys.readouterr().err


def test_secrets_are_not_kept(script: str, tmp_path: Path) -> None:
    Path(script).write_text("raise SystemExit(3)\n")
    flags = ["-np", "1", *QUICK, "--out", "out"]
    done = run_cli("study", *flags, "--", script, "--api-key", "hush", cwd=tmp_path)
    assert done.returncode == 1
    kept = [path.read_text() for path in (tmp_path / "out").rglob("*.json")]
    assert len(kept) >= 2
    assert not any("hush" in text for text in kept)
    assert json.loads((tmp_path / "out" / "study.json").read_text())["command"][-1] == "***"
    done = run_cli("study", "--resume", "out", "--keep-busy", cwd=tmp_path)
    assert done.returncode == 2
    assert "secrets, which are not stored" in done.stderr


def test_the_package_can_be_called_and_costs_nothing() -> None:
    code = (
        "import sys, farandole; assert callable(farandole.study); import farandole.study.records;"
        "assert callable(farandole.study); assert farandole.study.records.Study is farandole.Study"
    )
    done = run_cli("--version", env={"PYTHONPROFILEIMPORTTIME": ""})
    assert done.returncode == 0
    assert os.spawnl(os.P_WAIT, sys.executable, sys.executable, "-c", code) == 0
