"""`farandole report`."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np
import pytest

from farandole.cli import report
from farandole.errors import UsageError
from tests.conftest import run_cli


def parse(*argv: str) -> argparse.Namespace:
    return report.COMMAND.parse(argv)


TABLE = """\
workers,batch,throughput
1,32,100.0
1,32,101.0
1,32,99.0
2,32,190.0
2,32,192.0
2,32,188.0
"""


@pytest.fixture
def imported(tmp_path: Path) -> Path:
    """A study made from a table, on disk."""
    from farandole.study.import_table import import_table

    (tmp_path / "table.csv").write_text(TABLE)
    import_table(tmp_path / "table.csv", tmp_path / "study", label="from a table")
    return tmp_path / "study"


def test_a_target_of_a_study_without_metrics_is_not_passed_over(imported: Path) -> None:
    with pytest.raises(UsageError, match=r"--target acc=1: this study recorded no metric"):
        report.main(parse(str(imported), "--target", "acc=1"))


def test_the_report_of_a_study(imported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main(parse(str(imported), "--figures", "svg", "--tables", "csv,tex")) == 0
    said = capsys.readouterr().out.splitlines()
    expected = math.exp(np.log([190, 192, 188]).mean() - np.log([100, 101, 99]).mean())
    assert f"{expected:.2f}x faster" in said[0]
    assert said[-1] == f"report: {imported / 'report.html'}"
    assert (imported / "figures" / "scaling.svg").exists()
    assert (imported / "tables" / "cells.tex").exists()


@pytest.mark.parametrize("command", [["report"], ["project", "-np", "4"]])
def test_a_damaged_link_is_one_line_and_no_more(imported: Path, command: list[str]) -> None:
    (imported / "link.json").write_text("[" * 100_000)
    done = run_cli(*command, imported)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        f"farandole: {imported / 'link.json'} is damaged (its lists or objects are nested too "
        "deeply). Remove it, and --resume measures the link again. The study is read without it."
    ]


def test_json_alone_writes_nothing(imported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(imported.rglob("*"))
    assert report.main(parse(str(imported), "--json", "--price", "2.5")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["answer"]["workers"] == 2
    assert found["answer"]["accuracy"] == "not_measured"
    assert found["studies"][0]["label"] == "from a table"
    assert found["studies"][0]["costs"]
    assert sorted(imported.rglob("*")) == before


def test_json_with_a_folder_writes_there(imported: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert report.main(parse(str(imported), "--json", "--out", str(out), "--figures", "none")) == 0
    assert (out / "report.html").exists()
    assert not (out / "figures" / "scaling.png").exists()
    assert not (imported / "report.html").exists()


def test_several_studies_get_a_folder_of_their_own(
    imported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert report.main(parse(str(imported), str(imported), "--figures", "none")) == 0
    text = (tmp_path / "farandole-report" / "report.html").read_text()
    assert "from a table (2)" in text
    assert not (imported / "report.html").exists()
