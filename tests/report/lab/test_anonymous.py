"""Answers stay, names go."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from farandole.report.lab import to_json
from farandole.report.lab.anonymous import anonymous
from farandole.report.lab.contents import contents
from farandole.report.lab.page import page
from tests.report.builders import Words
from tests.report.lab.builders import lab

WORDS = Words(
    label="Speedup by workers",
    host="tangram.lab.example.org",
    command=("python", "/home/marie/project/cifar10.py", "--data", "/data/marie/images"),
)


def test_no_host_user_or_path_is_left() -> None:
    report = lab(words=WORDS)
    report = replace(
        report,
        command=(*report.command, "--data", "/home/marie/images"),
        data=replace(report.data, skipped=("/home/marie/images/7.png: not an image",)),
        asked=replace(report.asked, data=Path("/home/marie/images")),
        # Of an imported table nobody knows the machine.
        published={name: replace(info, machine={}) for name, info in report.published.items()},
        notes=("The study speedup has no figures on tangram: see /home/marie/out.txt",),
    )
    found = anonymous(report)
    written = [json.dumps(to_json(found)), page(contents(found), scripts=""), repr(found)]
    for name in ("tangram", "marie", "/home", "0123abc"):
        assert not any(name in text for text in written), name
    assert "7.png: not an image" in written[0]
    assert "cifar10.py" in written[1]


def test_answers_figures_and_titles_are_untouched() -> None:
    report = lab(words=WORDS)
    found = anonymous(report)
    assert found.answered == report.answered
    assert found.published["tiny_speedup"].curves == report.published["tiny_speedup"].curves
    assert found.studies["speedup"].label == "Speedup by workers"
    assert found.title == report.title
