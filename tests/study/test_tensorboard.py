"""Scalars of event files: TensorBoard's own files, and files that are torn or damaged."""

from __future__ import annotations

import importlib.util
import struct
import sys
from pathlib import Path
from types import ModuleType

import pytest

from farandole.study.tensorboard import read_file, read_metrics

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
    return struct.pack("<QI", len(message), 0) + message + bytes(4)


def write(path: Path, *messages: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(map(record, messages)))
    return path


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


def test_names_and_times_of_metrics(tmp_path: Path) -> None:
    write(
        tmp_path / "a.tfevents", event(simple(1.0), wall_time_s=90.0), event(simple(2.0), step=-1)
    )
    (metric,) = read_metrics(tmp_path, begin_unix_s=95.0)
    assert (metric.name, metric.value, metric.step, metric.time_s) == ("loss", 2.0, -1, 5.0)
    assert [m.time_s for m in read_metrics(tmp_path)] == [None, None]


def test_two_folders_with_one_tag_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path / "a.tfevents", event(simple(1.0)), event(simple(4.0), tag="lr"))
    write(tmp_path / "loss_val" / "b.tfevents", event(simple(2.0), wall_time_s=101.0))
    assert [(m.name, m.value) for m in read_metrics(tmp_path)] == [
        ("loss", 1.0),
        ("lr", 4.0),
        ("loss_val/loss", 2.0),
    ]


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
