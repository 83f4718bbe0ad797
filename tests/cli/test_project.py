"""`farandole project`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from farandole.cli import project, report


def parse(*argv: str) -> argparse.Namespace:
    return project.COMMAND.parse(argv)


def step_s(workers: int, batch: int = 32) -> float:
    return 0.01 * batch + 0.1 * (workers - 1) / workers


TABLE = "workers,device,batch,step_s,dataset_size,epochs,job_s,accuracy,stable_epoch\n" + "".join(
    f"{n},gpu,32,{step_s(n) * wobble},32000,20,{20 * step_s(n) * 1000 / n + 60},0.9,{8 + n}\n"
    for n in (1, 2, 4)
    for wobble in (0.99, 1.0, 1.01)
)


@pytest.fixture
def imported(tmp_path: Path) -> Path:
    """A study made from a table, on disk."""
    from farandole.study.import_table import import_table

    (tmp_path / "table.csv").write_text(TABLE)
    import_table(tmp_path / "table.csv", tmp_path / "study", label="from a table")
    return tmp_path / "study"


@pytest.mark.parametrize("rows", ["1,32,0.1\n2,32,0.12\n", "2,32,0.12\n"])
def test_two_counts_are_answered_and_one_gives_bounds(
    rows: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from farandole.study.import_table import import_table

    (tmp_path / "table.csv").write_text(f"workers,batch,step_s\n{rows}")
    import_table(tmp_path / "table.csv", tmp_path / "study")
    flags = ["-np", "4", "--per-host", "8", "--json"]
    assert project.main(parse(str(tmp_path / "study"), *flags)) == 0
    row = json.loads(capsys.readouterr().out)["rows"][-1]
    assert row["throughput"]["low"] < row["throughput"]["value"] < row["throughput"]["high"]
    assert row["throughput"]["indicative"] == (rows.count("\n") == 1)


def test_a_price_without_the_length_of_an_epoch_is_said_to_be_unused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from farandole.study.import_table import import_table

    (tmp_path / "table.csv").write_text("workers,throughput\n1,320\n2,600\n4,1000\n")
    import_table(tmp_path / "table.csv", tmp_path / "study")
    assert project.main(parse(str(tmp_path / "study"), "-np", "8", "--price", "2.5")) == 0
    assert "--price was not used: a cost needs the length of an epoch" in capsys.readouterr().out


def test_json_alone_writes_nothing(imported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(imported.rglob("*"))
    flags = ["-np", "8,16,128", "--per-host", "4", "--price", "12/host-h", "--json"]
    assert project.main(parse(str(imported), *flags)) == 0
    found = json.loads(capsys.readouterr().out)
    assert sorted(imported.rglob("*")) == before
    assert (found["schema"], found["kind"]) == (1, "farandole-projection")
    measured = [row for row in found["rows"] if row["measured"]]
    assert [row["workers"] for row in measured] == [1, 2, 4]
    links = {row["link"] for row in found["rows"] if row["workers"] == 16}
    assert links == {"10Gbit", "25Gbit", "100Gbit"}
    for row in found["rows"]:
        assert row["time_s"]["low"] <= row["time_s"]["value"] <= row["time_s"]["high"]
        assert row["cost"]["value"] == pytest.approx(
            row["time_s"]["value"] * row["hosts"] * 12 / 3600
        )
        assert row["step_s"]["indicative"] or row["workers"] != 128
    assert found["recommendations"][0]["rule"] == "knee"
    assert found["next"]["command"]
    assert found["track_record"]


def test_the_answer_becomes_part_of_the_report(
    imported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["-np", "8", "--link", "25Gbit", "--offer", "A: 4, nvlink, 12/host-h"]
    assert project.main(parse(str(imported), *flags)) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("8 workers on 25Gbit: ")
    assert said[-1] == f"report: {imported / 'report.html'}"
    assert (imported / "figures" / "projected-time.png").exists()
    assert (imported / "tables" / "projection.csv").exists()
    kept = json.loads((imported / "projection.json").read_text())
    assert kept["asked"] == ["-np", "8", "--link", "25Gbit", "--offer", "A: 4, nvlink, 12/host-h"]
    assert kept["headline"] == said[0]
    # Asked again by `farandole report`, with the same answer.
    (imported / "report.md").unlink()
    assert report.main(report.COMMAND.parse([str(imported), "--figures", "none"])) == 0
    text = (imported / "report.md").read_text()
    assert "## More workers" in text
    assert said[0].split(":")[0] in text


def test_pictures_that_did_not_change_are_not_drawn_again(imported: Path) -> None:
    assert project.main(parse(str(imported), "-np", "8", "--link", "25Gbit")) == 0
    kept, own = (imported / "figures" / f"{name}.png" for name in ("speedup", "projected-time"))
    for picture in (kept, own):
        picture.write_bytes(b"as it was")
    assert project.main(parse(str(imported), "-np", "8", "--link", "25Gbit")) == 0
    assert kept.read_bytes() == own.read_bytes() == b"as it was"
    assert project.main(parse(str(imported), "-np", "16", "--link", "25Gbit")) == 0
    assert kept.read_bytes() == b"as it was" != own.read_bytes()


def test_a_question_that_cannot_be_answered_any_more_leaves_the_report(
    imported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (imported / "projection.json").write_text(json.dumps({"asked": ["-np", "8", "--fp16"]}))
    found = report.load([imported])
    assert "projection.json is not shown: --fp16 needs" in capsys.readouterr().err
    assert getattr(found, "projection", None) is None


@pytest.mark.parametrize(
    "content",
    [
        "no JSON",
        "[]",
        "{}",
        '{"asked": 8}',
        '{"asked": [8]}',
        '{"asked": ["-np", "8", "--of-another-version"]}',
        '{"asked": ["-np"]}',
        '{"asked": ["--help"]}',
    ],
)
def test_a_damaged_question_does_not_end_the_report(
    imported: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (imported / "projection.json").write_text(content)
    found = report.load([imported])
    assert getattr(found, "projection", None) is None
    (line,) = capsys.readouterr().err.splitlines()
    assert "projection.json is not shown: it holds no question that can be asked again" in line


def test_a_bug_is_not_taken_for_a_question_without_an_answer(
    imported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("a bug")

    (imported / "projection.json").write_text(json.dumps({"asked": ["-np", "8"]}))
    monkeypatch.setattr("farandole.model.projection.advice.project", broken)
    with pytest.raises(ValueError, match="a bug"):
        report.load([imported])


def test_the_report_goes_elsewhere(imported: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert project.main(parse(str(imported), "--fleet", "8", "--out", str(out), "--json")) == 0
    assert (out / "report.html").exists()
    assert json.loads((out / "projection.json").read_text())["fleet"]
    assert not (imported / "projection.json").exists()


@pytest.mark.parametrize(
    "flags",
    [
        ["-np", "8,16"],
        ["-np", "8", "--link", "25Gbit", "--link", "3GB/s,20us", "--per-host", "4"],
        ["--offer", "A: 4, nvlink, 12/host-h", "--offer", "B: 32, 8 per host, 100Gbit, speed 1.4"],
        ["--fleet", "32", "--only", "device=V100,model=a b", "--batch", "64", "--fp16"],
        ["-np", "8", "--target", "val_accuracy=0.1", "--deadline", "1h30m", "--accumulate", "4"],
        ["-np", "8", "--price", "2.5", "--budget", "1e-7", "--bucket-size", "0.1MB"],
        ["-np", "8", "--prefer", "money"],
    ],
)
def test_a_question_can_be_asked_again(flags: list[str]) -> None:
    asked = project.read_question(parse("DIR", *flags))
    again = asked.flags()
    assert project.read_question(parse("DIR", *again)) == asked
    assert project.read_question(parse("DIR", *again)).flags() == again


def test_what_is_preferred_decides_the_recommendation(
    imported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = {}
    for prefer in ("time", "balance", "money"):
        assert project.main(parse(str(imported), "-np", "8,16", "--prefer", prefer, "--json")) == 0
        rule = json.loads(capsys.readouterr().out)["recommendations"][0]
        chosen[prefer] = rule["workers"]
    assert chosen["money"] <= chosen["balance"] <= chosen["time"]
    assert chosen["money"] < chosen["time"]
