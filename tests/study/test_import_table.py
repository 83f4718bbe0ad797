"""Names of columns, the labs' own tables, and tables that are wrong in many ways."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from farandole.errors import UsageError
from farandole.study.import_table import (
    Decimal,
    UnreadableError,
    decimal_mark,
    import_table,
    is_missing,
    parse_clock,
    parse_number,
    parse_sheet,
    read_table,
    understand,
    unknown_note,
)
from farandole.study.read import read_study
from farandole.study.records import Launch, Metric


@pytest.mark.parametrize(
    ("given", "name", "role", "scale"),
    [
        ("workers", "workers", "count", 1.0),
        ("GPUs", "workers", "count", 1.0),
        ("Nodes", "hosts", "count", 1.0),
        ("batch size", "batch", "count", 1.0),
        ("global_batch", "global_batch", "count", 1.0),
        ("epochs", "epochs", "count", 1.0),
        ("device", "device", "text", 1.0),
        ("Model", "model", "text", 1.0),
        ("run", "run", "repeat", 1.0),
        ("epoch_s", "epoch_s", "time", 1.0),
        ("epoch (s)", "epoch_s", "time", 1.0),
        ("Epoch [min]", "epoch_s", "time", 60.0),
        ("job_min", "job_s", "time", 60.0),
        ("job time", "job_s", "time", None),
        ("Job-Time (hours)", "job_s", "time", 3600.0),
        ("step_ms", "step_s", "time", 1e-3),
        ("step_time_us", "step_s", "time", 1e-6),
        ("throughput", "throughput", "rate", 1.0),
        ("Throughput (images/s)", "throughput", "rate", 1.0),
        ("throughput_per_min", "throughput", "rate", 1 / 60),
        ("images_per_sec", "throughput", "rate", 1.0),
        ("img/s", "throughput", "rate", 1.0),
        ("val. acc.", "val._acc.", "other", 1.0),
        ("epoch", "epoch", "other", 1.0),
        ("epoch_accuracy", "epoch_accuracy", "other", 1.0),
        ("loss", "loss", "other", 1.0),
        ("job_id", "job_id", "other", 1.0),
        ("step_count", "step_count", "other", 1.0),
    ],
)
def test_names(given: str, name: str, role: str, scale: float | None) -> None:
    column = understand(3, given)
    assert (column.index, column.given) == (3, given)
    assert (column.name, column.role) == (name, role)
    assert column.scale == (None if scale is None else pytest.approx(scale))


@pytest.mark.parametrize(
    ("given", "unit"),
    [
        ("epoch_ns", "ns"),
        ("epoch_parsecs", "parsecs"),
        ("job_days", "days"),
        ("step_time_fortnights", "fortnights"),
        ("throughput_mb_s", "mb_s"),
        ("throughput (GB/s)", "gb/s"),
    ],
)
def test_a_unit_that_is_not_known_is_refused_by_the_columns_name(given: str, unit: str) -> None:
    with pytest.raises(UsageError) as caught:
        understand(0, given)
    assert f"Column {given!r}: {unit!r} is not a known unit. Use " in str(caught.value)


@pytest.mark.parametrize(
    "given", ["time", "Time (s)", "total_s", "runtime [min]", "wall", "latency_ms", "seconds"]
)
def test_a_time_of_nobody_knows_what_is_told_how_to_be_called(given: str) -> None:
    said = unknown_note(understand(0, given))
    assert said.startswith(f"Column {given!r} is unknown, so it became a metric.")
    assert said.endswith("call it job_s, epoch_s or step_s.")


FRUITS = """\
run,workers,device,job time,epoch (s),epochs,stable_epochs,train_acc,val_acc
fruits,1,T4,11:02,20,10,,,
fruits,2,T4,5:19,11,10,,,0.9563
fruits,4,T4,3:25,5,10,,,0.9219
caltech,2,T4,1:38:30,209,30,15,0.8610,0.6888
caltech,4,T4,43:14,81,30,19,0.8678,0.6760
caltech,4,V100,41:42,80,30,20,0.8713,0.6861
caltech,8,V100,23:07,44,30,25,0.8636,0.6719
"""
FACES = """\
model;hosts;device;scaling;throughput (images/s)
InceptionV3;1;CPU;weak;19,4
InceptionV3;8;CPU;weak;136,51
ResNet50;1;CPU;weak;22,84
ResNet50;8;CPU;weak;156,33
VGG16;1;CPU;weak;8,82
VGG16;8;CPU;weak;66,25
InceptionV3;8;GPU;weak;312,17
ResNet50;8;GPU;weak;508,88
VGG16;8;GPU;weak;671,09
"""
CIFAR10 = """\
workers,device,batch,epoch_s
1,K80,32,46.355837
1,K80,128,18.280495
1,K80,512,5.201220
1,K80,2048,out of memory
1,K80,32,62.661095
2,K80,32,44.222406
4,K80,32,28.341740
4,K80,512,3.616366
"""


def launches(text: str) -> tuple[Launch, ...]:
    return read_table(text.encode(), name="t.csv").launches


def test_fruits_and_caltech() -> None:
    found = launches(FRUITS)
    assert [launch.figures["job_s"] for launch in found] == [662, 319, 205, 5910, 2594, 2502, 1387]
    assert [launch.figures["epoch_s"] for launch in found] == [20, 11, 5, 209, 81, 80, 44]
    assert [launch.cell.params for launch in found] == 3 * [(("run", "fruits"),)] + 4 * [
        (("run", "caltech"),)
    ]
    assert [launch.cell.device for launch in found[-3:]] == ["T4", "V100", "V100"]
    assert found[0].metrics == ()
    assert Metric(name="val_acc", value=0.6719, epoch=30) in found[-1].metrics
    assert Metric(name="stable_epochs", value=25.0, epoch=30) in found[-1].metrics


def test_faces_with_semicolons_and_decimal_commas() -> None:
    imported = read_table(FACES.encode("utf-8-sig"), name="t.csv")
    assert [launch.figures["throughput"] for launch in imported.launches] == [
        19.4, 136.51, 22.84, 156.33, 8.82, 66.25, 312.17, 508.88, 671.09,
    ]  # fmt: skip
    assert [launch.cell.workers for launch in imported.launches[:2]] == [1, 8]
    assert [launch.cell.hosts for launch in imported.launches[:2]] == [1, 8]
    assert imported.launches[0].cell.params == (("model", "InceptionV3"), ("scaling", "weak"))
    assert "each host counts as one worker" in " ".join(imported.notes)


def test_cifar10_with_a_cell_that_did_not_fit_and_a_repeat() -> None:
    found = launches(CIFAR10)
    assert [launch.outcome for launch in found[2:5]] == ["ok", "out_of_memory", "ok"]
    assert found[3].figures == {}
    assert (found[4].cell, found[4].repeat) == (found[0].cell, 1)
    assert [launch.id for launch in found[:2]] == ["0001-w1-b32-r0", "0002-w1-b128-r0"]
    assert found[4].id == "0005-w1-b32-r1"
    # The golden figure of issue and lab: 62.661095/44.222406.
    ratio = found[4].figures["epoch_s"] / found[5].figures["epoch_s"]
    assert round(ratio, 5) == 1.41695


@pytest.mark.parametrize("text", [FRUITS, FACES, CIFAR10])
def test_a_lab_becomes_a_study(tmp_path: Path, text: str) -> None:
    (tmp_path / "lab table.csv").write_text(text)
    study, imported = import_table(tmp_path / "lab table.csv", tmp_path / "out")
    found = read_study(tmp_path / "out")
    assert found.launches == study.launches == imported.launches
    assert {launch.purpose for launch in found.launches} == {"imported"}
    assert (found.label, found.complete, found.machine) == ("lab table", True, {})
    assert found.spec["imported"]["file"] == "lab table.csv"
    assert found.created == study.created


def test_places_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.csv cannot be read \(No such file"):
        import_table(tmp_path / "none.csv", tmp_path / "out")
    (tmp_path / "t.csv").write_text(CIFAR10)
    with pytest.raises(UsageError, match="is not empty"):
        import_table(tmp_path / "t.csv", tmp_path)


def test_what_was_made_of_columns_is_said() -> None:
    imported = read_table(
        b"workers,run,colour,wattage,epoch_s\n1,1,red,20,3\n1,2,red,21,3\n", name="t.csv"
    )
    assert imported.columns == {
        "workers": "workers",
        "run": "run",
        "colour": "factor colour",
        "wattage": "metric wattage",
        "epoch_s": "epoch_s",
    }
    assert imported.notes == (
        "Column 'run' was read as the number of the repeat.",
        "Column 'colour' has text, so it became a factor.",
        "Column 'wattage' is unknown, so it became a metric.",
    )
    assert [launch.repeat for launch in imported.launches] == [0, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.csv is empty"),
        ("workers,epoch_s\n", "a header and no rows"),
        ("batch,epoch_s\n1,2\n", "does not say how many workers (it has batch, epoch_s)"),
        ("workers,hosts,epoch_s\n1,1,2\n,,2\n", "line 3: neither workers nor hosts is given"),
        ("workers,epoch_s\n0,2\n", "line 2: column 'workers' is '0', but must be a whole number"),
        ("workers,epoch_s\n1e20,2\n", "column 'workers' is '1e20', but must be at most 1,000,000,"),
        ("workers,epoch_s\n-1,2\n", "column 'workers' is '-1'"),
        ("workers,epoch_s\n1.5,2\n", "column 'workers' is '1.5'"),
        ("workers,epoch_s\ntwo,2\n", "column 'workers' is 'two'"),
        ("workers,epoch_s\n4 T4,2\n", "column 'workers' is '4 T4'"),
        ("workers,batch,epoch_s\n1,0,2\n", "column 'batch' is '0'"),
        ("workers,hosts,epoch_s\n2,4,2\n", "4 hosts for 2 workers"),
        ("workers,epoch_s\n1,0\n", "column 'epoch_s' is '0', but must be above 0"),
        ("workers,epoch_s\n1,-3\n", "column 'epoch_s' is '-3', but must be above 0"),
        ("workers,epoch_s\n1,inf\n", "column 'epoch_s' is 'inf', but must be above 0"),
        ("workers,epoch_s\n1,soon\n", "column 'epoch_s' has 'soon', which is not a number"),
        ("workers,job_s\n1,1:75\n", "column 'job_s' has '1:75', which is not a number"),
        ("workers,job time\n1,75\n", "column 'job time' has no unit for '75'. Call it job_s"),
        ("workers,job_h\n1,1:30\n", "column 'job_h': write '1:30' as h:mm:ss"),
        ("workers,epoch_ns\n1,2\n", "Column 'epoch_ns': 'ns' is not a known unit"),
        ("workers,workers,epoch_s\n1,1,2\n", "columns 'workers' and 'workers' are both workers"),
        ("workers,epoch_s,epoch_min\n1,2,3\n", "'epoch_s' and 'epoch_min' are both epoch_s"),
        ("workers,,epoch_s\n1,7,2\n", "column 2 has no name"),
        ("workers,acc\n1,0.5\n2,good\n", "column 'acc' has numbers and 'good'"),
        ("workers,global_batch,epoch_s\n3,128,2\n", "3 workers do not divide a global batch"),
        ("workers,batch,global_batch,epoch_s\n2,32,32,2\n", "is a global batch of 64, not 32"),
        ("workers,model\n1,a\n", "has no figures"),
        ("workers;epoch_s\n1;1,234\n", "'1,234' may have decimals or thousands"),
        ("workers;epoch_s\n1;12.5\n2;12,5\n", "'12.5' and '12,5' have different decimal marks"),
        ("workers,epoch_s\n1,1,234\n", "3 values for 2 columns"),
    ],
)
def test_what_is_not_clear_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_table(text.encode(), name="t.csv")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_long_table_becomes_one_file(tmp_path: Path) -> None:
    rows = "".join(f"{2 ** (n % 3)},{n},{1 + n / 7:.3f},0.{n}\n" for n in range(1001))
    (tmp_path / "long.csv").write_text(f"workers,seed,epoch_s,val_accuracy\n{rows}")
    study, _ = import_table(tmp_path / "long.csv", tmp_path / "out")
    assert len(study.launches) == 1001
    assert read_study(tmp_path / "out").launches == study.launches
    assert list((tmp_path / "out" / "launches").iterdir()) == []
    with (tmp_path / "out" / "launches.jsonl").open("a") as file:
        file.write("{")
    with pytest.raises(UsageError, match=r"launches\.jsonl is damaged"):
        read_study(tmp_path / "out")


@pytest.mark.parametrize(
    "content",
    [
        b"a,b\n1,x\n",
        b"\xef\xbb\xbfa,b\n1,x\n",
        b"a;b\r\n1;x\r\n",
        b"a\tb\r1\tx",
        b'"a","b"\n"1","x"\n',
        b"# from the lab\n\na , b\n\n 1 , x \n,\n",
        b"a,b\n1,x,\n",
    ],
)
def test_one_table_in_many_spellings(content: bytes) -> None:
    sheet = parse_sheet(content, name="t.csv")
    assert sheet.columns == ("a", "b")
    assert [row.values for row in sheet.rows] == [("1", "x")]


def test_separators_and_ends_of_lines_in_quotes_are_text() -> None:
    sheet = parse_sheet(b'a,"b;c;d"\n"1,5","two\nlines ""x"""\n', name="t.csv")
    assert sheet.columns == ("a", "b;c;d")
    assert [row.values for row in sheet.rows] == [("1,5", 'two\nlines "x"')]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\n \n# x\n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"# workers,epoch_s\n1,62.6\n2,44.2\n", "first line, '1,62.6', has no letters.*without #"),
        ("a,b\n1,x\n".encode("utf-16"), "not a CSV file in UTF-8"),
        (b"PK\x03\x04\0\0", "not a CSV file in UTF-8"),
        (b"a,b\n1,caf\xe9\n", "line 2: not UTF-8"),
        (b'a,b\n1,"x\n', "not a table"),
    ],
)
def test_what_is_no_table_is_one_line(content: bytes, message: str) -> None:
    with pytest.raises(UsageError, match=f"t.csv.*{message}"):
        parse_sheet(content, name="t.csv")


@pytest.mark.parametrize(
    ("texts", "separator", "mark"),
    [
        (["1", "x"], ";", "."),
        (["12.5", "1,234"], ";", "."),
        (["12,5", "1.234"], ";", ","),
        (["1,234.5"], ";", "."),
        (["1.234,5"], ";", ","),
        (["1,234,567"], ";", "."),
        (["1.234.567"], ";", ","),
        (["1,234"], ",", "."),
        (["1.234"], ";", "."),
        (["0,982"], ";", ","),
        (["12,5"], ",", ","),
        (["18 280,5"], "\t", ","),
        ([], ",", "."),
    ],
)
def test_the_mark_follows_from_what_can_be_read_in_one_way_only(
    texts: list[str], separator: str, mark: Decimal
) -> None:
    assert decimal_mark(texts, separator=separator) == mark


@pytest.mark.parametrize(
    ("text", "mark", "value"),
    [
        ("1,234.5", ".", 1234.5),
        ("1.234,5", ",", 1234.5),
        ("1 234.5", ".", 1234.5),
        ("1\u202f234,5", ",", 1234.5),
        ("1'234.5", ".", 1234.5),
        ("46.164 %", ".", 0.46164),
        ("-2e-3", ".", -0.002),
        ("0,5", ",", 0.5),
        (".5", ".", 0.5),
        ("inf", ".", math.inf),
    ],
)
def test_numbers(text: str, mark: Decimal, value: float) -> None:
    assert parse_number(text, mark) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize("text", ["", "x", "1,23", "1,2345", "12:30", "1.2.3", "%", "4 T4"])
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(UnreadableError):
        parse_number(text, ".")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("11:02", 662),
        ("1:38:30", 5910),
        ("0:05", 5),
        ("90:00", 5400),
        ("3:25.5", 205.5),
        ("3:25,5", 205.5),
        ("11", None),
        ("1:2", None),
        ("a:10", None),
    ],
)
def test_times_of_the_clock(text: str, seconds: float | None) -> None:
    assert parse_clock(text) == seconds


def test_ways_to_leave_a_value_out() -> None:
    assert all(is_missing(text) for text in ("", " ", "-", "\u2013", "N/A", "None", "not measured"))
    assert not any(is_missing(text) for text in ("0", "nan", "-1", "no"))
