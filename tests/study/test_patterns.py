"""Figures from printed lines: which lines, which rank, which part of the time."""

from __future__ import annotations

import math

import pytest

from farandole.errors import UsageError
from farandole.study.patterns import (
    OutputReader,
    metric_pattern,
    split_tag,
    throughput_pattern,
)
from farandole.study.records import Metric


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


def test_alternatives_have_a_group_each() -> None:
    reader = OutputReader([metric_pattern(r"acc=accuracy: (\S+)|acc=(\S+)")])
    assert [m.value for m in read(reader, "acc=1", "accuracy: 2").metrics()] == [1.0, 2.0]


def test_what_did_not_work_is_said() -> None:
    reader = OutputReader([throughput_pattern("speed (x)"), metric_pattern(r"acc=acc (\S+)")])
    read(reader, "acc soon")
    assert reader.notes() == (
        "--throughput matched no line of the output.",
        "--metric acc matched 'soon', which is no number.",
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


@pytest.mark.parametrize("text", ["acc ([0-9.]+)", "=([0-9.]+)", ""])
def test_a_metric_needs_a_name(text: str) -> None:
    with pytest.raises(UsageError, match="has no name"):
        metric_pattern(text)
