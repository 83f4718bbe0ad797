"""Processes x threads."""

from __future__ import annotations

import pytest

from farandole.labs.faces.split import answer_split
from tests.labs.faces.build import PEAK_BYTES, SHARED, found, nothing, rows, step_s


def test_all_splits_of_the_cores_at_one_global_batch() -> None:
    table = answer_split(found(repeats=1)).tables[0]
    own = rows(table, source="here", model="VGG16")
    assert [(row["processes"], row["threads"]) for row in own] == [(1, 2), (2, 1)]
    wanted = [SHARED / step_s("vgg16", 1, SHARED, 2), SHARED / step_s("vgg16", 2, SHARED // 2)]
    assert [row["images_per_s"].value for row in own] == pytest.approx(wanted)
    assert max(row["share"] for row in own) == 1.0
    assert [row["memory_bytes"] for row in own] == [PEAK_BYTES, 2 * PEAK_BYTES]


def test_the_sentence_names_the_better_split_of_each_network() -> None:
    said = answer_split(found()).sentences
    assert f"global batch of {SHARED}" in said[0]
    # 16 images take 2.50 s by 1 x 2 and 2.21 s by 2 x 1.
    assert "VGG16 by 2 x 1 (1.1" in said[0]
    assert any(sentence.startswith("Processes win") for sentence in said)


def test_the_labs_two_figures_for_resnet50_are_held_against_each_other() -> None:
    answered = answer_split(nothing())
    assert any("23.34" in said and "1.6%" in said for said in answered.sentences)
    assert len(rows(answered.tables[0], source="lab, CPU")) == 4
