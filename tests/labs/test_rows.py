"""Rows of studies made by hand, the questions that several labs ask of them, and claims."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from farandole.labs import rows
from farandole.labs.mnist import LAB
from farandole.labs.questions import AVERAGING, answer, compare_recipes
from farandole.labs.rows import Row, check_claim, setting_rows
from farandole.model.statistics import Estimate
from farandole.report.table import tabulate
from farandole.study.records import Cell
from tests.labs.mnist_studies import LOST, found, studies
from tests.labs.trained import facts, found_of, training_study
from tests.model.build import make_launch, make_rank, make_steps, trained_launch

KEEPING = compare_recipes("keeping_accuracy", "How is accuracy kept?")
ONE = Cell(workers=1, threads=1, batch=32)


def test_all_samples_are_those_of_the_data() -> None:
    study = training_study((1,), ("fixed",), {}, batch=10, samples=50)
    argv = tuple("0" if part in ("50", "200") else part for part in study.launches[0].argv)
    every = replace(study, launches=(replace(study.launches[0], argv=argv),))
    (one,) = setting_rows(found_of(LAB, {"workers": every}, data=facts(1234, 99)), "workers")
    assert (one.samples, one.test_samples) == (1234, 99)
    assert setting_rows(found_of(LAB, {}), "workers") == []


def test_the_formula_has_fractions_and_whole_steps_do_not() -> None:
    two = next(one for one in setting_rows(found(), "workers") if one.workers == 2)
    assert two.steps == pytest.approx(3 * 1000 / 256)
    assert (two.whole_steps, two.rate) == (3 * 4, pytest.approx(0.002))


def test_a_mean_over_seeds_leaves_out_what_diverged() -> None:
    ends = enumerate([0.6, 0.8, math.nan])
    launches = [trained_launch(ONE, seed, [0.2, end]) for seed, end in ends]
    mean = rows.final_mean(launches, "val_accuracy")
    assert mean is not None
    assert mean.value == pytest.approx(0.7)
    assert rows.final_mean(launches, "other") is None


def test_steps_and_parameters_of_launches() -> None:
    ranks = [make_rank(number, make_steps(0.1, 12)) for number in range(2)]
    argv = ("python", "x.py", "--norm", "sync", "--test-samples", "360", "--last")
    launches = [
        make_launch(ONE, ranks, outcome="ok", argv=argv),
        make_launch(ONE, outcome="failed"),
    ]
    assert (rows.steps_made(launches), rows.steps_made([])) == (12, None)
    # A folder of before scripts' parameters were recorded has them in its commands.
    assert launches[0].params == {"norm": "sync", "test_samples": 360, "last": True}
    told = replace(launches[0], ranks=(replace(ranks[0], params={"norm": "local", "lr": 0.1}),))
    assert told.params == {"norm": "local", "test_samples": 360, "last": True, "lr": 0.1}


def test_words() -> None:
    once = Estimate(value=0.0123, low=None, high=None)
    sure = Estimate(value=-0.012, low=-0.02, high=0.001)
    assert rows.points(sure) == "-1.20 points (-2.00 to +0.10)"
    assert rows.points(once) == "+1.23 points (one seed: no interval)"


def test_how_many_times_as_fast_where_both_times_are_known() -> None:
    one, two = (Row(job_s=rows.estimate(value)) for value in (10.0, 4.0))
    assert rows.faster(two, one, "job_s") == 2.5
    assert rows.faster(two, Row(), "job_s") is None
    assert rows.faster(Row(), one, "job_s") is None


def test_limits_of_a_study() -> None:
    void = "4 workers share 2 cores: their times are void, their results count."
    assert rows.limits(found(), "workers") == [void]
    assert rows.limits(found(), "no such study") == []
    made = studies(seeds=1)
    first, *rest = made["workers"].launches
    busy = replace(first, busy=True, foreign_share=0.4, steal_share=0.02)
    made["workers"] = replace(made["workers"], launches=(busy, *rest))
    once = found_of(LAB, made)
    assert rows.limits(once, "workers") == [void, "One run per setting: differences may be noise."]
    # What others took is said once, at the top of the report.
    said = "Busy machine: other programs took up to 42 % of the cores during 1 of "
    assert rows.busy_sentence(once).startswith(said)
    assert rows.busy_sentence(found()) == ""


def test_why_a_figure_is_not_there() -> None:
    shown = tabulate(
        "t",
        "",
        [
            Row(source=rows.LAB),
            Row(source=rows.HERE),
            Row(source=rows.HERE, busy=True),
            Row(source=rows.HERE, void_for_speed="more ranks than cores"),
            Row(source=rows.HERE, not_applicable=("speedup",)),
        ],
        (rows.column("speedup", "speedup"),),
        absent=rows.absent,
    )
    words = ["not published", "not measured", "busy", "not applicable", "not applicable"]
    assert [row[0] for row in shown.texts()] == words


def test_recipes_are_compared_by_seeds() -> None:
    answered = answer(KEEPING, found())
    by_setting = {row[:2]: row for row in answered.tables[0].rows}
    lost = by_setting["fixed", 4][7]
    # The seeds' luck is the same in all settings, so that nothing of it is left in a difference.
    assert (lost.value, lost.low, lost.high) == pytest.approx((-3 * LOST,) * 3)
    assert by_setting["warmup", 4][7].value == pytest.approx(0.0)
    assert by_setting["linear", 1][7].value == 0.0
    assert [by_setting[name, 4][3] for name in ("fixed", "warmup")] == pytest.approx([0.001, 0.004])
    assert by_setting["longer", 4][4] == 2 * by_setting["linear", 4][4]
    # 200 test samples cannot resolve three points.
    assert answered.sentences[0].startswith("4 workers lose no accuracy that these runs can show: ")
    assert "fixed -3.00 points" in answered.sentences[0]


def test_a_loss_is_claimed_where_interval_and_test_samples_show_it() -> None:
    score = {"val_accuracy": lambda workers, recipe, seed: 0.9 - 0.1 * (workers - 1) + seed / 1000}
    made = {"workers": training_study((1, 4), ("linear",), score, batch=128)}
    (base, four) = rows.compared(setting_rows(found_of(LAB, made), "workers"))
    assert (base.verdict, four.verdict) == ("", "loses")
    said = answer(KEEPING, found_of(LAB, made)).sentences[0]
    assert said.startswith("4 workers lose accuracy with recipe linear: linear -30.00 points")


def test_a_seed_that_diverged_is_counted() -> None:
    made = studies()
    nan = {"val_accuracy": lambda workers, recipe, seed: math.nan if seed else 0.9}
    made["recipes"] = training_study((4,), ("warmup",), nan, batch=128)
    assert "1 of its seeds diverged" in answer(KEEPING, found_of(LAB, made)).sentences[0]


def test_workers_that_did_not_train_together_are_found() -> None:
    made = studies(seeds=1)
    launches = made["workers"].launches
    alone = [
        tuple(replace(rank, weights=f"{rank.rank}", bytes_sent={}) for rank in launch.ranks)
        for launch in launches
    ]
    pairs = zip(launches, alone, strict=True)
    changed = tuple(replace(launch, ranks=ranks) for launch, ranks in pairs)
    made["workers"] = replace(made["workers"], launches=changed)
    said = answer(AVERAGING, found_of(LAB, made)).sentences[0]
    assert said.startswith("Not all workers trained together")


@pytest.mark.parametrize(
    ("kind", "first", "second", "claimed", "agrees"),
    [
        ("ratio", 136.51, 19.4, "7.04", True),
        ("ratio", 136.51, 19.4, "7", True),
        ("ratio", 136.51, 19.4, "7.05", False),
        ("less", 11, 5, "0.55", True),
        ("less", 11, 5, "0.75", False),
    ],
)
def test_claims(kind: str, first: float, second: float, claimed: str, agrees: bool) -> None:
    claim = check_claim("a figure", kind, str(first), str(second), claimed)
    assert claim.agrees is agrees
    assert claim.sentence.endswith("as published." if agrees else f"not {claimed}.")
