"""Why strong scaling falls off: serial shares and lost seconds, by arithmetic."""

from __future__ import annotations

import pytest

from farandole.labs.faces.why import answer_why, losses
from tests.labs.faces.build import SHARED, found, moves_s, nothing, step_s


def test_what_is_lost_here_is_what_gradients_take() -> None:
    own = {row.model: row for row in losses(found(repeats=1)) if row.source == "here"}
    vgg = own["VGG16"]
    assert vgg.weak_lost_s == pytest.approx(moves_s("vgg16", 2))
    shared_s = step_s("vgg16", 2, SHARED // 2)
    assert vgg.strong_lost_s == pytest.approx(shared_s - step_s("vgg16", 1, SHARED) / 2)
    assert vgg.strong_waited == pytest.approx(moves_s("vgg16", 2) / shared_s, rel=1e-3)
    assert vgg.weak_waited is not None
    assert vgg.strong_waited is not None
    assert vgg.strong_waited > vgg.weak_waited
    assert vgg.gradient_bytes == 160_000_000


def test_the_laws_on_the_labs_cpu_nodes() -> None:
    lab = {row.model: row for row in losses(nothing())}
    for model, strong in (("InceptionV3", 6.8), ("ResNet50", 7.2), ("VGG16", 6.3)):
        fit = lab[model].amdahl
        assert fit is not None
        # Karp and Flatt: (1/S - 1/N) / (1 - 1/N).
        assert fit.serial_fraction.value == pytest.approx((1 / strong - 1 / 8) / (7 / 8))
    weak = lab["VGG16"].gustafson
    assert weak is not None
    assert weak.serial_fraction.value == pytest.approx((8 - 66.25 / 8.82) / 7)


def test_the_labs_steps_lose_alike_in_weak_scaling_whatever_their_gradients() -> None:
    lab = {row.model: row for row in losses(nothing())}
    lost = [lab[model].weak_lost_s for model in ("InceptionV3", "ResNet50", "VGG16")]
    # 8 x 128 images at the speed of eight nodes, less 128 at the speed of one.
    assert lost == pytest.approx([0.903, 0.946, 0.944], abs=5e-4)
    strong = [lab[model].strong_lost_s for model in ("InceptionV3", "ResNet50", "VGG16")]
    assert strong == pytest.approx([0.145, 0.078, 0.490], abs=1e-3)
    assert any("not the network's bandwidth" in said for said in answer_why(nothing()).sentences)


def test_strong_scaling_does_not_fall_off_for_two_of_the_labs_networks() -> None:
    said = " ".join(answer_why(nothing()).sentences)
    assert "InceptionV3 6.80x and 7.04x" not in said
    assert "ResNet50 7.20x and 6.84x" in said


def test_the_first_sentence_has_the_wait_for_gradients() -> None:
    said = answer_why(found()).sentences[0]
    assert "rises from" in said
    # 80 MB beside 0.69 s of a step: InceptionV3 computes least of the three for its gradients.
    assert "InceptionV3 exchanges 80.0 MB" in said
