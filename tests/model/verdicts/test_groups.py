"""What groups say beside each other."""

from __future__ import annotations

import pytest

from farandole.model.statistics import Estimate
from farandole.model.verdicts.groups import (
    device_rank,
    faster_device_gains_nothing,
    order_reverses,
)


def speed(value: float, spread: float | None = None) -> Estimate:
    if spread is None:
        return Estimate(value=value, low=None, high=None)
    return Estimate(value=value, low=value - spread, high=value + spread)


@pytest.mark.parametrize(
    ("speeds", "fires"),
    [
        # 81 and 80 s an epoch on 4 T4 and 4 V100.
        ({"T4": 1 / 81, "V100": 1 / 80}, True),
        ({"T4": 1 / 81, "V100": 1 / 40}, False),
        ({"NVIDIA A100-SXM4-40GB": 90.0, "Tesla T4": 100.0}, True),
        ({"cpu": 100.0, "Tesla T4": 90.0}, True),
        # Of devices that nobody knows none is the faster one.
        ({"this": 100.0, "that": 100.0}, False),
        ({"T4": 100.0}, False),
        ({}, False),
    ],
)
def test_faster_devices(speeds: dict[str, float], fires: bool) -> None:
    found = faster_device_gains_nothing(
        {name: speed(value) for name, value in speeds.items()}, "4 workers", "epochs/s"
    )
    assert (found is not None) is fires


def test_ranking() -> None:
    assert device_rank("Tesla T4") is not None
    assert device_rank("gt430") is None
    order = [device_rank(name) for name in ("cpu", "K80", "T4", "V100", "A100", "H100")]
    assert None not in order
    assert order == sorted(order, key=lambda place: place or 0)


def test_an_order_that_reverses() -> None:
    # The faces lab: VGG16 is last on CPUs and first on GPUs.
    found = order_reverses(
        {
            "cpu": {"ResNet50": speed(156.33), "InceptionV3": speed(136.51), "VGG16": speed(66.25)},
            "gpu": {
                "ResNet50": speed(508.88),
                "InceptionV3": speed(312.17),
                "VGG16": speed(671.09),
            },
        },
        "model",
        "images/s",
    )
    assert found is not None
    assert found.kind == "order_reverses"
    assert found.sentence == (
        "By model, images/s at cpu: ResNet50 (156.3) > InceptionV3 (136.5) > VGG16 (66.25). "
        "The order reverses at gpu: VGG16 is faster than ResNet50 there."
    )


def test_an_order_that_holds() -> None:
    speeds = {"cpu": {"a": speed(2.0), "b": speed(1.0)}, "gpu": {"a": speed(9.0), "b": speed(8.0)}}
    found = order_reverses(speeds, "model", "samples/s")
    assert found is not None
    assert found.kind == "order"


@pytest.mark.parametrize(
    "there",
    [
        # Reversed by less than the margin, or within the intervals.
        {"a": speed(100.0), "b": speed(101.0)},
        {"a": speed(100.0, 10.0), "b": speed(115.0, 10.0)},
    ],
)
def test_what_is_not_clear_does_not_reverse(there: dict[str, Estimate]) -> None:
    here = {"a": speed(2.0, 0.1), "b": speed(1.0, 0.1)}
    found = order_reverses({"cpu": here, "gpu": there}, "model", "samples/s")
    assert found is not None
    assert found.kind == "order"


def test_one_value_has_no_order() -> None:
    assert order_reverses({"cpu": {"a": speed(1.0)}}, "model", "samples/s") is None
    assert order_reverses({}, "model", "samples/s") is None
