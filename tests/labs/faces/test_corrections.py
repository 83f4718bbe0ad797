"""What the lab got wrong or left unexplained: the arithmetic on its own figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farandole.labs.faces.corrections import baselines, corrections
from farandole.labs.faces.lab import LAB
from farandole.labs.faces.plan import SCALING
from tests.labs.faces.build import SHARED, found, launch, nothing, speed_study
from tests.labs.trained import found_of


def test_the_baselines_that_its_speedups_imply() -> None:
    rows = {row.model: row for row in baselines(nothing())}
    implied = {model: row.implied for model, row in rows.items()}
    assert implied == pytest.approx(
        {"InceptionV3": 47.30, "ResNet50": 63.37, "VGG16": 63.55}, abs=5e-3
    )
    off = {model: row.off for model, row in rows.items()}
    assert off == pytest.approx(
        {"InceptionV3": 0.0653, "ResNet50": -0.0414, "VGG16": -0.0052}, abs=5e-4
    )


def test_one_of_the_two_is_not_more_than_linear_after_all() -> None:
    superlinear = corrections(nothing())[0]
    assert "8.03 times (ResNet50) and 10.56 times (VGG16)" in superlinear.said
    assert "ResNet50's is 7.70x" in superlinear.right
    assert "VGG16's stays 10.5x, 31 % more than linear" in superlinear.right
    assert "83.89 on each of 8" in superlinear.shown_by
    assert "2.59x as long as ResNet50 on a CPU node, and 1.03x on one GPU" in superlinear.shown_by


def test_what_was_measured_here_stands_beside() -> None:
    shown = corrections(found())[0].shown_by
    assert "Here, on 2 workers" in shown
    assert "none of them more than linear" in shown
    # A step is 50 ms and 0.25 s / 1.6 for each image: batch 16 is 1.06 times as fast as batch 4,
    # and 10.51 / 8 are wanted.
    assert "A batch that suits it less alone would not explain it" in shown
    assert "1.06x as fast as the worst, and 1.31x are to be explained" in shown
    assert "No speedup was measured here" in corrections(nothing())[0].shown_by


def test_the_other_corrections_have_their_figures() -> None:
    text = {c.said: f"{c.right} {c.shown_by}" for c in corrections(nothing())}
    assert (
        "47.30" in text["Speedups on 8 GPU nodes: InceptionV3 6.6, ResNet50 8.03 and VGG16 10.56."]
    )
    assert "ResNet50 is ahead" in text["VGG16 is last on CPUs and first on GPUs."]
    falls = text["Strong scaling falls off and weak scaling does not."]
    assert "for InceptionV3 and VGG16, not for ResNet50, and clearly only for VGG16" in falls
    assert "VGG16 7.51 weak, 6.3 strong (-16%)" in falls
    twice = text["4 processes x 7 threads are best."]
    assert "ResNet50 23.34 at 2 x 14" in twice
    assert "8.57 and 8.82 (2.8%)" in twice


def test_runs_here_show_the_right_account_of_each() -> None:
    _, baseline, order, falls, split = (one.shown_by for one in corrections(found()))
    assert "Here every speedup is over one worker of the same study and batch: " in baseline
    assert "Here, on 2 workers on CPU cores: InceptionV3 " in order
    assert "Here, on 2 workers: InceptionV3 1." in falls
    assert "Here: Processes x threads at a global batch of 16: " in split


def test_more_than_linear_here_by_single_launches_is_called_chance() -> None:
    made = speed_study([(2, SHARED, 1)], 1)
    # Repeat 1 of a drift of one takes twice as long: one worker that something held up.
    alone = replace(launch("vgg16", 1, SHARED, repeat=1, drift=1.0), repeat=0)
    shown = corrections(found_of(LAB, {SCALING: replace(made, launches=(alone, *made.launches))}))[
        0
    ].shown_by
    assert "more than linear for VGG16" in shown
    assert "Single launches: until repeats tell, that is chance" in shown
