"""Figures stay, names go."""

from __future__ import annotations

import json
from dataclasses import replace

from farandole.model.analyse import ScalingInfo
from farandole.report.anonymous import anonymous
from farandole.report.study import to_json
from tests.report.builders import Words, comparison, study

WORDS = Words(
    label="tangram run",
    host="tangram.lab.example.org",
    command=("python", "/home/marie/secret-project/train.py", "--data=/data/marie/images"),
    reason="/home/marie/secret-project/train.py: no memory on tangram, ask marie@lab.example.org",
)


def test_no_host_user_path_address_or_commit_is_left() -> None:
    found = anonymous(study(words=WORDS))
    written = json.dumps(to_json(found))
    for name in ("tangram", "marie", "secret-project", "0123abc", "/home", "lab.example"):
        assert name not in written, name
    assert "train.py" in written
    assert "Example CPU" in written


def test_figures_are_untouched() -> None:
    info = study(words=WORDS)
    found = anonymous(info)
    assert isinstance(found, ScalingInfo)
    assert found.curves[0].points[1].speedup == info.curves[0].points[1].speedup
    assert found.answer.interval == info.answer.interval


def test_a_short_host_name_makes_no_holes() -> None:
    info = study()
    found = anonymous(replace(info, machine={**info.machine, "host": "a"}))
    assert isinstance(found, ScalingInfo)
    assert found.answer.headline == info.answer.headline


def test_studies_side_by_side_become_a_and_b() -> None:
    found = anonymous(comparison(("laptop", "cluster")))
    written = json.dumps(to_json(found))
    assert "laptop" not in written
    assert "cluster" not in written
    assert '"study A"' in written
    assert '"study B"' in written


def test_a_label_that_is_a_plain_word_makes_no_holes() -> None:
    info = replace(study(), label="out", notes=("a worker ran out of memory", "out"))
    found = anonymous(info)
    assert isinstance(found, ScalingInfo)
    assert found.label == "study"
    assert found.notes == ("a worker ran out of memory", "study")
