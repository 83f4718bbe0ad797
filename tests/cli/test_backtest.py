"""`farandole backtest`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from farandole.cli import backtest
from farandole.errors import DataError, UsageError
from tests.conftest import run_cli
from tests.model.projection.clusters import ETHERNET_10, LARGE, RESNET, measure

EPOCHS = "workload,global_batch,run,epochs_to_target\n" + "".join(
    f"net,{batch},{run},{10 * (1 + batch / 2000) + run / 10}\n"
    for batch in (256, 512, 1024, 2048)
    for run in range(3)
)


def parse(*argv: str | Path) -> argparse.Namespace:
    return backtest.COMMAND.parse([*map(str, argv)])


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """A table of steps, on disk."""
    lines = ["cluster,model,nodes,workers,local_batch,step_time_s,sync_time_s"]
    for model, network in (("resnet", RESNET), ("large", LARGE)):
        lines += [
            f"made-up,{model},{row.hosts},{row.workers},{row.batch},{row.step_s:.6g},"
            for row in measure(ETHERNET_10, network, workers=(1, 2, 4, 8, 16))
        ]
    path = tmp_path / "steps.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def epochs(tmp_path: Path) -> Path:
    path = tmp_path / "epochs.csv"
    path.write_text(EPOCHS)
    return path


def test_several_files_of_both_kinds(steps: Path, epochs: Path) -> None:
    ended = run_cli("backtest", steps, epochs, "--json")
    assert ended.returncode == 0, ended.stderr
    first, second = json.loads(ended.stdout)["files"]
    assert (first["file"], first["kind"]) == (str(steps), "steps")
    assert (second["file"], second["kind"]) == (str(epochs), "epochs")
    assert set(first) == {
        "file",
        "kind",
        "rows_fit",
        "rows_scored",
        "error",
        "coverage_90",
        "baselines",
    }
    assert set(first["error"]) == {"8", "16"}
    assert set(first["error"]["8"]) == {"mean_abs_pct", "median_abs_pct", "bias_pct", "n"}
    assert set(first["baselines"]) == {"linear", "line", "amdahl", "pollux"}
    assert set(second) - set(first) == {"two_smallest"}


def test_people_get_a_table(steps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert backtest.main(parse(steps, "--fit-workers", "8")) == 0
    told = capsys.readouterr().out
    assert f"{steps}: steps" in told
    assert "16 " in told
    assert "90 % intervals hold" in told


def test_gradients_are_taken_from_every_flag(
    steps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link = ("--json", "--rows", "--fit-nodes", "1", "--link", "10Gbit")
    told = []
    for flags in (
        ("--gradients", "resnet=100MB,large=1.4GB"),
        ("--gradients", "resnet=100MB", "--gradients", "large=1.4GB"),
        ("--gradients", "large=1.4GB"),
    ):
        assert backtest.main(parse(steps, *link, *flags)) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1] != told[2]


def test_a_track_record_is_written(
    steps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "record.json"
    assert backtest.main(parse(steps, "--write-track-record", out)) == 0
    assert json.loads(out.read_text())["models"] == ["made-up large", "made-up resnet"]
    assert str(out) in capsys.readouterr().out


def test_a_track_record_needs_steps(epochs: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs a table of steps"):
        backtest.main(parse(epochs, "--write-track-record", tmp_path / "record.json"))


def test_a_bad_file_is_one_line(steps: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text(steps.read_text().replace("made-up,resnet,1,1,16,", "made-up,resnet,1,1,16,-"))
    with pytest.raises(DataError, match=r"bad\.csv, line 2: column 'step_time_s'"):
        backtest.main(parse(steps, bad))
    ended = run_cli("backtest", bad)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1
    assert "Traceback" not in ended.stderr
