"""Sentences of a lab's report."""

from __future__ import annotations

from dataclasses import replace

from farandole.report.lab.words import study_commands
from tests.report.lab.builders import lab


def test_what_was_left_of_a_budget_is_no_part_of_a_studys_command() -> None:
    report = lab()
    limited = {
        name: replace(info, spec={**info.spec, "time_limit_s": 31.0, "repeats": 5})
        for name, info in report.studies.items()
    }
    for (line,) in study_commands(replace(report, studies=limited)).values():
        assert "--repeats 5" in line
        assert "--time-limit" not in line


def test_variables_that_a_script_needs_are_part_of_its_command() -> None:
    report = lab()
    studies = tuple(
        replace(one, environ=(("KERAS_BACKEND", "torch"),)) for one in report.plan.studies
    )
    found = study_commands(replace(report, plan=replace(report.plan, studies=studies)))
    assert found
    for (line,) in found.values():
        assert line.startswith("KERAS_BACKEND=torch farandole study ")
