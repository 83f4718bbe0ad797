"""Throughput by batch."""

from __future__ import annotations

import pytest

from farandole.labs.faces.batch import answer_batch, batch_gains
from tests.labs.faces.build import SHARED, found, nothing, rows, step_s


def test_throughputs_by_batch_are_those_of_the_formula() -> None:
    own = rows(answer_batch(found(repeats=1)).tables[0], source="here", model="ResNet50")
    assert [row["batch"] for row in own] == [4, SHARED]
    wanted = [batch / step_s("resnet50", 1, batch, 2) for batch in (4, SHARED)]
    assert [row["images_per_s"].value for row in own] == pytest.approx(wanted)
    gain = wanted[1] / wanted[0]
    assert batch_gains(found(repeats=1))["ResNet50"] == pytest.approx(gain)
    assert f"{gain:.2f}x for ResNet50" in answer_batch(found(repeats=1)).sentences[0]


def test_the_labs_gpu_stands_beside() -> None:
    answered = answer_batch(nothing())
    speeds = {row["model"]: row["images_per_s"].value for row in rows(answered.tables[0])}
    assert speeds == {"InceptionV3": 44.4, "ResNet50": 66.11, "VGG16": 63.88}
    assert any("about 8" in said for said in answered.sentences)
    assert batch_gains(nothing()) == {}
