"""Weak and strong scaling: figures, words, and what is not measured."""

from __future__ import annotations

import pytest

from tests.labs.faces.build import SHARED, answers, rows, step_s


def test_measured_projected_and_published_figures_stand_in_one_table() -> None:
    table = answers()["weak"].tables[0]
    assert {row["source"] for row in rows(table)} >= {"here", "lab, CPU", "lab, GPU"}
    (two,) = rows(table, source="here", model="ResNet50", count=2)
    # Repeats differ by a percent, and their geometric mean stands for them.
    wanted = 2 * SHARED / step_s("resnet50", 2, SHARED)
    assert two["images_per_s"].value == pytest.approx(wanted, rel=0.01)
    assert two["speedup"].low < two["speedup"].value < two["speedup"].high


def test_the_first_sentence_has_all_networks() -> None:
    for key in ("weak", "strong"):
        said = answers()[key].sentences[0]
        assert "2 workers against one" in said
        assert all(name in said for name in ("InceptionV3", "ResNet50", "VGG16"))


def test_strong_scaling_is_worse_than_weak_here() -> None:
    weak = rows(answers()["weak"].tables[0], source="here", count=2)
    strong = rows(answers()["strong"].tables[0], source="here", count=2)
    for one, other in zip(weak, strong, strict=True):
        assert one["speedup"].value > other["speedup"].value


def test_projections_lie_beyond_what_was_measured_and_have_intervals() -> None:
    for answered in (answers()["weak"], answers()["strong"]):
        ahead = rows(answered.tables[0], source="projected")
        assert {row["count"] for row in ahead} == {4, 8}
        assert len(ahead) == 6
        assert all(row["speedup"].low < row["speedup"].value for row in ahead)
        assert any("Projected, not measured" in said for said in answered.sentences)


def test_published_figures_keep_their_digits() -> None:
    table = answers(repeats=0)["weak"].tables[0]
    (gpu,) = rows(table, source="lab, GPU", model="ResNet50", count=8)
    assert gpu["images_per_s"].value == 508.88
    column = next(column for column in table.columns if column.key == "images_per_s")
    assert column.show(gpu["images_per_s"].value) == "508.88"


def test_figures_have_all_networks_with_what_is_not_measured_hollow() -> None:
    drawn = {figure.name: figure for figure in answers()["weak"].figures}
    assert set(drawn) == {
        "weak-throughput",
        "weak-lab-throughput",
        "weak-speedup",
        "weak-gpu-speedup",
    }
    names = {row[0] for row in drawn["weak-speedup"].table.rows}
    assert {"VGG16, here", "VGG16, lab, CPU"} <= names
