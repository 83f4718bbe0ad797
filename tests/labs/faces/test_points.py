"""Figures of the networks, here and as published."""

from __future__ import annotations

import pytest

from farandole.labs.faces.plan import BATCH, SCALING
from farandole.labs.faces.points import (
    CPU,
    GPU,
    first,
    last,
    measured,
    published_strong,
    published_weak,
    together,
)
from tests.labs.faces.build import SHARED, found, nothing, step_s


def test_weak_and_strong_points_are_those_of_the_formula() -> None:
    here = found(repeats=1)
    for scaling, batch in (("weak", SHARED), ("strong", SHARED // 2)):
        points = measured(here, scaling)  # type: ignore[arg-type]
        one, two = first(points, "VGG16"), last(points, "VGG16")
        assert one is not None
        assert two is not None
        assert (one.count, one.batch, two.count, two.batch) == (1, SHARED, 2, batch)
        assert two.throughput is not None
        assert two.throughput.value == pytest.approx(2 * batch / step_s("vgg16", 2, batch))
        assert two.speedup is not None
        wanted = 2 * batch / step_s("vgg16", 2, batch) * step_s("vgg16", 1, SHARED) / SHARED
        assert two.speedup.value == pytest.approx(wanted)
        assert two.efficiency is not None
        assert two.efficiency.value == pytest.approx(wanted / 2)


def test_published_points_are_by_nodes() -> None:
    points = published_weak(nothing())
    ends = {(p.source, p.model): p for p in points if p.count == 8}
    assert len(points) == 12
    assert len(ends) == 6
    assert ends[CPU, "VGG16"].speedup is not None
    assert ends[CPU, "VGG16"].speedup.value == pytest.approx(66.25 / 8.82)
    assert ends[GPU, "VGG16"].speedup is not None
    assert ends[GPU, "VGG16"].speedup.value == pytest.approx(671.09 / 63.88)


def test_published_strong_scaling_has_speedups_only() -> None:
    points = published_strong(nothing())
    ends = {p.model: p.speedup.value for p in points if p.count == 8 and p.speedup}
    assert ends == {"InceptionV3": 6.8, "ResNet50": 7.2, "VGG16": 6.3}
    assert all(point.throughput is None for point in points)


def test_studies_taken_together_keep_all_their_cells() -> None:
    info = together(found(), SCALING, BATCH)
    assert info is not None
    assert len(info.cells) == 3 * 5
    assert together(nothing(), SCALING) is None
