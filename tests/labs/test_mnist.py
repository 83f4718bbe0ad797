"""The mnist lab: its plans, its answers from launches made by hand, and its corrections."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from farandole.labs import mnist
from farandole.labs.lab import Found, Rate
from farandole.labs.mnist import EFFORTS, full_steps, length
from farandole.labs.questions import Question, answer
from farandole.labs.rows import HERE
from farandole.labs.rows import LAB as THE_LAB
from farandole.study.records import Launch
from tests.labs.mnist_studies import accuracy, found, studies
from tests.labs.trained import facts, found_of, speed
from tests.model.build import make_utilisation

RATES = {name: Rate(samples_per_s=300.0, startup_s=7.0) for name in ("mnist", "driving")}
MNIST, DIGITS = facts(60_000, 10_000), facts(1437, 360)


def rows_of(question: Question, source: str = "", made: Found | None = None) -> list[Any]:
    """Return a question's table as records by key."""
    rows = answer(question, made or found()).tables[0].records()
    return [row for row in rows if not source or row["source"] == source]


def said(question: Question, made: Found | None = None) -> tuple[str, ...]:
    return answer(question, made or found()).sentences


# The plan of mnist.


def test_small_data_are_seen_more_often_and_large_data_at_least_three_times() -> None:
    for effort in EFFORTS[:-1]:
        samples, epochs = length(effort, 60_000)
        assert samples * epochs <= effort.visits
        assert epochs >= 3
    assert length(EFFORTS[7], 1437) == (1437, 12_288 // 1437)
    assert length(EFFORTS[-1], 1437) == length(EFFORTS[-2], 1437) == (1437, 40)


# The questions of mnist.


def test_counted_steps_are_whole_ones_and_the_labs_two_nodes_had_six_workers() -> None:
    rows = rows_of(mnist.STEPS, HERE)
    counted = {(row["recipe"], row["workers"]): row["counted"] for row in rows}
    # 3 epochs of 1000 samples at 128: 7.8 steps are 8, on 4 workers 1.95 are 2.
    assert [counted["linear", n] for n in (1, 2, 4)] == [24, 12, 6]
    assert [counted["longer", n] for n in (2, 4)] == [24, 12]
    assert all(row["whole_steps"] == row["counted"] for row in rows)
    lab = rows_of(mnist.STEPS, THE_LAB)
    assert [row["formula"] for row in lab] == [18_750, 9_375, 9_375, 4_687.5]
    assert [row["counted"] for row in lab] == [None, None, 3120, None]
    assert [n for n in range(1, 17) if full_steps(40, 60_000, 128, n) == 3120] == [6]
    assert mnist.likely_gpus() == 6


def test_speedup_is_that_of_training_and_the_job_gains_less() -> None:
    one, two, four = rows_of(mnist.WORKERS, HERE)
    assert two["speedup"].value == pytest.approx(speed(2) / speed(1))
    assert two["efficiency"].value == pytest.approx(speed(2) / speed(1) / 2)
    assert two["job_speedup"] == pytest.approx(one["job_s"].value / two["job_s"].value)
    assert 1 < two["job_speedup"] < two["speedup"].value
    # More workers than cores have an accuracy and no speed.
    for key in ("job_s", "job_speedup", "samples_per_s", "speedup", "efficiency"):
        assert four[key] is None
    mean = sum(accuracy(4, "linear", seed) for seed in range(2)) / 2
    assert four["accuracy"].value == pytest.approx(mean)
    lab = rows_of(mnist.WORKERS, THE_LAB)
    times = (456.14687, 379.69139, 152.0235, 203.63445)
    assert [row["job_speedup"] for row in lab] == pytest.approx([times[0] / one for one in times])


def test_bottlenecks_have_a_row_per_rank_and_name_an_idle_one() -> None:
    rows = rows_of(mnist.BOTTLENECKS)
    assert [(row["setting"], row["rank"]) for row in rows] == [
        *(("1 worker", 0), ("2 workers", 0), ("2 workers", 1)),
        *(("4 workers", rank) for rank in range(4)),
    ]
    assert rows[2]["cpu"] == pytest.approx(0.51)
    equal = "Utilisation and memory of the workers differ by less than a fifth."
    assert equal in said(mnist.BOTTLENECKS)

    def idle(launch: Launch) -> Launch:
        one, used = launch.ranks, make_utilisation([0.1] * 4)
        return replace(launch, ranks=(*one[:1], *(replace(r, utilisation=used) for r in one[1:])))

    made = studies()
    launches = tuple(map(idle, made["workers"].launches))
    made["workers"] = replace(made["workers"], launches=launches)
    words = said(mnist.BOTTLENECKS, found_of(mnist.LAB, made))
    assert any("Unequal utilisation" in sentence and "rank 1" in sentence for sentence in words)
    assert equal not in words


def test_size_counts_the_workers_of_all_nodes() -> None:
    rows = {(row["nodes"], row["per_node"]): row for row in rows_of(mnist.TWO_NODES, THE_LAB)}
    one, two = rows[1, 4], rows[2, 4]
    assert (one["workers"], two["workers"]) == (4, 8)
    assert two["global_batch"] == 2 * one["global_batch"] == 1024
    assert two["steps_per_epoch"] == pytest.approx(one["steps_per_epoch"] / 2)
    assert two["rate"] == pytest.approx(0.008)
    # As published: two GPUs.
    assert rows[2, 1]["job_s"].value == 152.0235
    assert [rows[2, each]["accuracy"].value for each in (1, 3, 4)] == [0.9902, 0.9905, 0.9879]
    assert rows[2, 3]["job_s"] is None
    here = rows_of(mnist.TWO_NODES, HERE)
    assert [(row["nodes"], row["workers"], row["global_batch"]) for row in here] == [
        (1, 1, 128),
        (1, 2, 256),
        (1, 4, 512),
    ]


def test_the_best_count_is_named_only_where_runs_can_tell() -> None:
    words = said(mnist.BEST)
    assert words[0].startswith("The highest accuracy here is 0.9510, with 1 worker; whether 2 and ")
    # 1.645 x sqrt(2 x 0.9905 x 0.0095 / 10,000) = 0.00226: 8 workers lie 0.0026 below, in one run.
    assert (
        "0.9905, with 6 workers; whether 2 and 8 do as well cannot be told from 1 run" in words[1]
    )
    assert "resolve 0.23 points" in words[1]
