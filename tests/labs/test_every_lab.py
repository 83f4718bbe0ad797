"""What holds for every lab: its plans, and its answers from recorded runs and from nothing."""

from __future__ import annotations

from typing import Any

import pytest

from farandole.errors import DataError
from farandole.labs.lab import Lab, Rate, lab_names, load_lab
from farandole.report.table import to_csv
from tests.labs.test_items import frozen_report
from tests.labs.trained import asked, estimates, facts, flag, found_of, here

LABS = [load_lab(name) for name in lab_names()]
EVERY = pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.name)
WORKLOADS = (*lab_names(), "resnet18", "small", "inceptionv3", "resnet50", "vgg16")
DATA = facts(60_000, 10_000)


def rates(samples_per_s: float) -> dict[str, Rate]:
    return dict.fromkeys(WORKLOADS, Rate(samples_per_s=samples_per_s, startup_s=8.0))


@EVERY
@pytest.mark.parametrize("train", [300, 10_901, 60_000])
@pytest.mark.parametrize(
    "wanted", [{}, {"workers": (1, 8)}, {"recipes": ("longer", "fixed")}, {"cores": 64}]
)
def test_a_larger_effort_never_takes_less_time(
    lab: Lab, train: int, wanted: dict[str, Any]
) -> None:
    data = facts(train, train // 5)
    found = estimates(lab, data, rates(60.0), **wanted)
    assert found == sorted(found)
    pairs = zip(estimates(lab, data, rates(6.0), **wanted), found, strict=True)
    assert all(slow > fast for slow, fast in pairs)


@EVERY
def test_a_plan_has_what_was_asked_for_and_data_that_are_there(lab: Lab) -> None:
    wanted = asked("budget", workers=(2, 1), recipes=("warmup",), data=here())
    plan = lab.plan(wanted, facts(600, 60), rates(60.0), lab.efforts - 1)
    commands = [*lab.pilot(wanted), *plan.studies]
    assert {flag(one.arguments, "--data") for one in commands} == {str(here())}
    assert all("--data" not in one.arguments for one in lab.pilot(asked("budget")))
    assert {count for one in plan.studies for count in counts(one.options["workers"])} == {1, 2}
    for one in plan.studies:
        samples = flag(one.arguments, "--samples") if "--samples" in one.arguments else ""
        if "--seed" in one.arguments and samples.isdigit():
            assert int(samples) <= 600
            assert int(flag(one.arguments, "--test-samples")) <= 60
    with pytest.raises(DataError, match="there is nothing"):
        lab.data(here("nowhere"))


def counts(workers: Any) -> tuple[int, ...]:
    return workers if isinstance(workers, tuple) else (workers,)


@EVERY
def test_without_studies_every_answer_says_what_is_missing(lab: Lab) -> None:
    nothing = found_of(lab, {})
    answered = lab.answer(nothing)
    assert [one.question for one in answered] == list(lab.questions)
    for one in answered:
        assert all(said.endswith((".", ":", ".py")) and "  " not in said for said in one.sentences)
        assert one.sentences, one.question.key
    for one in lab.corrections(nothing):
        assert all(text.endswith(".") for text in (one.said, one.right, one.shown_by))


@pytest.mark.timeout(300)  # the first one of a lab renders its report
@EVERY
def test_every_question_of_a_recorded_run_has_a_sentence_a_table_and_its_figures(lab: Lab) -> None:
    report = frozen_report(lab.name)
    assert [one.question.key for one in report.answered] == [one.key for one in lab.questions]
    for one in report.answered:
        assert one.sentences, one.question.key
        assert one.tables[0].name == one.question.key
        assert one.tables[0].rows, one.question.key
        for table in (*one.tables, *(figure.table for figure in one.figures)):
            assert len(to_csv(table).splitlines()) == len(table.rows) + 1
