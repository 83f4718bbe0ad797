"""Figures from printed lines: which lines, which rank, which part of the time."""

from __future__ import annotations

import importlib.util
import math
import struct
import sys
from pathlib import Path
from types import ModuleType

import pytest

from farandole.errors import UsageError
from farandole.study.patterns import (
    OutputReader,
    metric_pattern,
    split_tag,
    throughput_pattern,
)
from farandole.study.records import Metric
from farandole.study.tensorboard import _checksum, read_file, read_metrics


def read(reader: OutputReader, *lines: str, rank: int | None = 0) -> OutputReader:
    for number, line in enumerate(lines):
        reader.feed(line, rank=rank, time_s=float(number))
    return reader


def speeds(*values: float) -> list[str]:
    return [f"step 3, img/sec: {value}" for value in values]


def speed_reader() -> OutputReader:
    return OutputReader([throughput_pattern(r"img/sec: ([0-9.]+)")])


@pytest.mark.parametrize(
    ("values", "throughput"),
    [
        ([], None),
        ([10], 10),
        ([10, 20], 15),
        ([1, 20, 30], 25),
        ([1, 2, 30, 40, 50, 60], 45),
        ([1, 2, 30, 40, 50, 60, 70], 50),
        ([0, 0, 30], 30),
    ],
)
def test_throughput_is_the_median_after_the_first_third(
    values: list[float], throughput: float | None
) -> None:
    assert read(speed_reader(), *speeds(*values)).throughput() == throughput


def test_rank_0_speaks_for_all() -> None:
    reader = speed_reader()
    for rank, value in ((1, 99.0), (0, 10.0), (2, 99.0)):
        read(reader, *speeds(value), rank=rank)
    assert reader.throughput() == 10.0


@pytest.mark.parametrize(
    ("line", "rank", "rest"),
    [
        ("[1,3]<stdout>: loss 1", 3, " loss 1"),
        ("[1,0]<stderr>:loss 1", 0, "loss 1"),
        ("[2]<stdout>:loss 1", 2, "loss 1"),
        ("[default1]:loss 1", 1, "loss 1"),
        ("[rank4]:loss 1", 4, "loss 1"),
        (" 5: loss 1", 5, "loss 1"),
        ("loss 1", None, "loss 1"),
        ("[1/10] loss 1", None, "[1/10] loss 1"),
        ("12:30:01 loss 1", None, "12:30:01 loss 1"),
    ],
)
def test_tags_of_launchers(line: str, rank: int | None, rest: str) -> None:
    assert split_tag(line) == (rank, rest)


def test_metrics_keep_time_rank_and_named_groups() -> None:
    reader = OutputReader(
        [
            metric_pattern(r"val_acc=epoch (?P<epoch>[\d.]+).* acc (?P<value>[\d.]+)"),
            metric_pattern(r"loss=step (?P<step>\d+) loss ([\d.]+|nan)"),
        ]
    )
    read(reader, "step 7 loss nan", "epoch 2, acc 0.5")
    loss, accuracy = reader.metrics()
    assert (loss.name, loss.step, loss.time_s, loss.rank) == ("loss", 7, 0.0, 0)
    assert math.isnan(loss.value)
    assert accuracy == Metric(name="val_acc", value=0.5, epoch=2.0, time_s=1.0, rank=0)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("acc 97.3%", 97.3),
        ("acc \x1b[32m0.5\x1b[0m", 0.5),
        ("acc 1,234.5", 1234.5),
        ("acc 1e-3", 1e-3),
        ("acc 0.5.", 0.5),
        ("acc -inf", -math.inf),
    ],
)
def test_numbers_as_scripts_print_them(line: str, value: float) -> None:
    (metric,) = read(OutputReader([metric_pattern(r"acc=acc (\S+)")]), line).metrics()
    assert metric.value == value


def test_what_did_not_work_is_said() -> None:
    reader = OutputReader([throughput_pattern("speed (x)"), metric_pattern(r"acc=acc (\S+)")])
    read(reader, "acc soon")
    assert reader.notes() == (
        "--throughput matched no line of the output.",
        "--metric acc matched 'soon', which is not a number.",
    )
    assert reader.throughput() is None
    assert reader.metrics() == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("acc ([0-9", "is not a regular expression: unterminated character set"),
        ("img/sec: [0-9.]+", "has no group"),
        ("(?:x)", "has no group"),
    ],
)
def test_a_pattern_that_cannot_work_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        throughput_pattern(text)
    with pytest.raises(UsageError, match=message):
        metric_pattern(f"acc={text}")


needs_tensorboard = pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed"
)
# What TensorBoard's packages say about themselves on import is not our concern.
quietly = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def varint(number: int) -> bytes:
    out = b""
    number %= 1 << 64
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number: int, content: bytes | int | float) -> bytes:
    """Encode one field: an int as a varint, a float as a double, bytes with their length."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    if isinstance(content, float):
        return varint(number << 3 | 1) + struct.pack("<d", content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def simple(value: float) -> bytes:
    return varint(2 << 3 | 5) + struct.pack("<f", value)


def event(value: bytes, *, tag: str = "loss", step: int = 1, wall_time_s: float = 100.0) -> bytes:
    summary = field(1, field(1, tag.encode()) + value)
    return field(1, wall_time_s) + field(2, step) + field(5, summary)


def record(message: bytes) -> bytes:
    length = struct.pack("<Q", len(message))
    checksums = [struct.pack("<I", _checksum(part)) for part in (length, message)]
    return length + checksums[0] + message + checksums[1]


def write(path: Path, *messages: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(map(record, messages)))
    return path


def test_a_damaged_record_is_left_out(tmp_path: Path) -> None:
    messages = [event(simple(value), step=step) for step, value in enumerate((1.0, 2.0, 3.0))]
    path = write(tmp_path / "x.tfevents", *messages)
    whole = bytearray(path.read_bytes())
    whole[len(record(messages[0])) + 12 + len(messages[1]) - 1] ^= 1
    path.write_bytes(whole)
    assert [scalar.value for scalar in read_file(path)] == [1.0, 3.0]


def test_a_torn_last_record_is_ignored_wherever_it_is_torn(tmp_path: Path) -> None:
    path = write(
        tmp_path / "events.out.tfevents.1", event(simple(0.5)), event(simple(0.25), step=2)
    )
    whole = path.read_bytes()
    first = len(record(event(simple(0.5))))
    for length in range(first, len(whole)):
        path.write_bytes(whole[:length])
        assert [scalar.value for scalar in read_file(path)] == [0.5]
    path.write_bytes(whole)
    assert [scalar.value for scalar in read_file(path)] == [0.5, 0.25]


@pytest.mark.parametrize(
    ("tensor", "value"),
    [
        (field(1, 1) + field(5, struct.pack("<f", 0.5)), 0.5),
        (field(1, 1) + varint(5 << 3 | 5) + struct.pack("<f", 0.5), 0.5),
        (field(1, 1) + field(4, struct.pack("<f", 0.75)), 0.75),
        (field(1, 2) + field(6, struct.pack("<d", 1e-9)), 1e-9),
        (field(1, 3) + field(7, 7), 7.0),
        (field(1, 9) + field(10, -7), -7.0),
        (field(1, 9) + field(4, struct.pack("<q", -7)), -7.0),
        (field(1, 10) + field(11, 1), 1.0),
        # 0x3800 is 0.5 in half precision.
        (field(1, 19) + field(13, 0x3800), 0.5),
        (field(1, 1), 0.0),
        # A string, a vector, a matrix of a histogram: no scalars.
        (field(1, 7) + field(8, b"text"), None),
        (field(1, 1) + field(4, struct.pack("<2f", 1, 2)), None),
        (field(1, 1) + field(2, field(2, field(1, 3))) + field(4, bytes(12)), None),
    ],
)
def test_tensors_with_one_number_are_scalars(
    tensor: bytes, value: float | None, tmp_path: Path
) -> None:
    path = write(tmp_path / "x.tfevents", event(field(8, tensor)))
    assert [scalar.value for scalar in read_file(path)] == ([] if value is None else [value])


def test_other_plugins_tensors_are_no_scalars(tmp_path: Path) -> None:
    tensor = field(8, field(1, 1) + field(5, struct.pack("<f", 0.5)))
    # SummaryMetadata.plugin_data.plugin_name, with the first value of the tag only.
    pr_curves = field(9, field(1, field(1, b"pr_curves")))
    path = write(tmp_path / "x.tfevents", event(tensor + pr_curves), event(tensor, step=2))
    assert list(read_file(path)) == []


@needs_tensorboard
@quietly
def test_files_that_torch_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # TensorBoard's own word for doing without TensorFlow, which takes seconds to import.
    monkeypatch.setitem(sys.modules, "tensorboard.compat.notf", ModuleType("notf"))
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        for step in range(300):
            writer.add_scalar("loss/train", 1 / (step + 1), step)
        writer.add_scalar("val accuracy", 0.75, 2**40, walltime=12345.5)
        writer.add_scalar("new", 0.125, 7, new_style=True)
        writer.add_scalar("precise", 1e-300, 7, new_style=True, double_precision=True)
        writer.add_text("config", "lr = 0.1")
        writer.add_histogram("weights", __import__("numpy").arange(1000.0), 1)
        writer.add_scalars("both", {"train": 1.0, "val": 2.0}, 5)
    metrics = read_metrics(tmp_path)
    train = [metric for metric in metrics if metric.name == "loss/train"]
    assert [metric.step for metric in train] == list(range(300))
    assert [metric.value for metric in train] == pytest.approx([1 / (s + 1) for s in range(300)])
    rest = {m.name: (m.value, m.step) for m in metrics if m.name != "loss/train"}
    assert rest == {
        "val accuracy": (0.75, 2**40),
        "new": (0.125, 7),
        "precise": (1e-300, 7),
        "both_train/both": (1.0, 5),
        "both_val/both": (2.0, 5),
    }
