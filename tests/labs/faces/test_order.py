"""The order of the networks."""

from __future__ import annotations

from farandole.labs.faces.order import answer_order, order_words, reversals, speeds
from tests.labs.faces.build import found, nothing, rows


def test_settings_are_both_ends_of_every_curve() -> None:
    assert list(speeds(found())) == [
        "here, 1 worker",
        "here, 2 workers",
        "lab, CPU, 1 node",
        "lab, CPU, 8 nodes",
        "lab, GPU, 1 node",
        "lab, GPU, 8 nodes",
    ]


def test_orders_of_the_lab() -> None:
    table = answer_order(nothing()).tables[0]
    orders = {row["setting"]: row["order"] for row in rows(table)}
    assert orders["lab, CPU, 8 nodes"] == "ResNet50 > InceptionV3 > VGG16"
    assert orders["lab, GPU, 1 node"] == "ResNet50 > VGG16 > InceptionV3"
    assert orders["lab, GPU, 8 nodes"] == "VGG16 > ResNet50 > InceptionV3"


def test_where_the_order_reverses_is_said_pair_by_pair() -> None:
    (said,) = (s for s in answer_order(nothing()).sentences if "; it reverses:" in s)
    assert "ResNet50 > InceptionV3 > VGG16 on 1 CPU node" in said
    assert "VGG16 passes InceptionV3 on 1 GPU node and VGG16 passes ResNet50 on 8 GPU nodes" in said


def test_a_difference_below_the_margin_is_no_reversal() -> None:
    one = {"ResNet50": 1.0, "VGG16": 2.0}
    assert reversals(one, {"ResNet50": 1.02, "VGG16": 1.0}) == []
    assert reversals(one, {"ResNet50": 1.1, "VGG16": 1.0}) == [("VGG16", "ResNet50")]
    assert order_words(one) == "VGG16 > ResNet50"


def test_the_order_here_is_that_of_the_formula() -> None:
    said = answer_order(found()).sentences
    assert "InceptionV3 > ResNet50 > VGG16 on 1 worker, and no other" in said[0]
    assert any("InceptionV3 is ahead of ResNet50 here" in sentence for sentence in said)
