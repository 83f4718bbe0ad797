from __future__ import annotations

import json

import pytest

from farandole.recorder.steps import Metrics


def test_a_figure_is_taken_once_with_the_time_since_the_start() -> None:
    metrics = Metrics(100.0)
    metrics.add("loss", 0.5, 3, 1.0, 101.25)
    (line,) = metrics.take_settled(final=False)
    assert json.loads(line) == {
        "kind": "metric",
        "name": "loss",
        "value": 0.5,
        "step": 3,
        "epoch": 1.0,
        "time_s": 1.25,
    }
    assert metrics.take_settled(final=True) == []


def test_a_device_is_asked_until_it_knows() -> None:
    known: list[float] = []
    metrics = Metrics(0.0)
    metrics.add("loss", lambda: known[0] if known else None, 1, None, 1.0)
    metrics.add("accuracy", 0.9, 1, None, 1.0)
    (line,) = metrics.take_settled(final=False)
    assert json.loads(line)["name"] == "accuracy"
    known.append(0.25)
    (line,) = metrics.take_settled(final=False)
    assert json.loads(line)["value"] == pytest.approx(0.25)


def test_what_a_device_does_not_know_in_the_end_is_dropped() -> None:
    metrics = Metrics(0.0)
    metrics.add("loss", lambda: None, 1, None, 1.0)
    assert metrics.take_settled(final=True) == []
    assert metrics.take_settled(final=True) == []
