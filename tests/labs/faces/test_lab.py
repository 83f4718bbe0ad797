"""The faces lab as a whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farandole.cli.lab import report_of
from farandole.errors import DataError
from farandole.labs.faces.lab import LAB
from farandole.labs.report import missing_answers
from farandole.labs.run import Ran
from farandole.labs.scripts import published_path
from tests.labs.faces.build import answers, found
from tests.labs.test_report import beside
from tests.labs.trained import here


def test_it_is_a_lab_whose_published_tables_are_there() -> None:
    assert LAB.efforts > 5
    keys = {question.key for question in LAB.questions}
    assert len(keys) == len(LAB.questions)
    assert set(LAB.leading) < keys
    assert all(published_path(name).is_file() for name in LAB.published)


def test_a_folder_that_is_not_there_is_refused() -> None:
    with pytest.raises(DataError, match="there is nothing"):
        LAB.data(here("nowhere"))


def test_the_report_answers_everything_and_draws_published_curves_once() -> None:
    lab = replace(LAB, answer=lambda found: tuple(answers().values()))
    report = report_of(lab, Ran(found=found(), created="2026-11-16T00:00:00+00:00", failed={}))
    assert missing_answers(report) == []
    assert beside(report) is None
    assert len(report.headline) == 3
