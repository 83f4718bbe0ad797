"""Every question answered from figures made by hand, in words that follow the figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from farandole.labs.cifar10 import questions
from farandole.labs.cifar10.accuracy import answer_accuracy
from farandole.labs.cifar10.answers import answer
from farandole.labs.cifar10.batch import answer_batch
from farandole.labs.cifar10.communication import answer_communication
from farandole.labs.cifar10.lab import LAB
from farandole.labs.cifar10.plan import ACCURACY, BASELINE, NORM, ORDER, REPLICAS, SYNC, TIME
from farandole.labs.cifar10.replicas import answer_replicas
from farandole.labs.cifar10.speedup import answer_speedup
from farandole.labs.cifar10.wire import answer_batch_norm
from farandole.labs.lab import Answered
from farandole.model.gap import smallest_difference
from farandole.report.table import Table
from tests.labs.cifar10.build import (
    PARAMETERS,
    SMALL_PARAMETERS,
    STEP_S,
    TEST_SAMPLES,
    ask,
    find,
    replica_launch,
    time_launches,
    trained_launch,
    usual,
)

FOUND = find(usual())


ANSWERED = {one.question.key: one for one in answer(FOUND)}


def rows(table: Table) -> list[Mapping[str, Any]]:
    keys = [column.key for column in table.columns]
    return [dict(zip(keys, row, strict=True)) for row in table.rows]


def the_row(answered: Answered, table: int = 0, **wanted: Any) -> Mapping[str, Any]:
    (found,) = [row for row in rows(answered.tables[table]) if wanted.items() <= dict(row).items()]
    return found


def once() -> dict[str, list[Any]]:
    """Return what a quick run finds: one launch of everything."""
    return {
        TIME: time_launches({key: times[:1] for key, times in STEP_S.items()}),
        BASELINE: [trained_launch(1, 0, 0.7, steps=80)],
        ACCURACY: [
            trained_launch(2, 0, 0.65, recipe=name, steps=40) for name in ("fixed", "linear")
        ],
        NORM: [trained_launch(2, 0, 0.66, norm=norm) for norm in ("broadcast", "sync")],
        ORDER: [trained_launch(1, 0, 0.69, order="fixed")],
        REPLICAS: [replica_launch(2, 0.03)],
    }


ONCE = {one.question.key: one for one in answer(find(once()))}


@pytest.mark.parametrize("found", [ANSWERED, ONCE])
def test_every_question_has_a_table_with_figures_and_words(found: Mapping[str, Answered]) -> None:
    answered = found.values()
    assert tuple(one.question for one in answered) == LAB.questions
    for one in answered:
        assert one.sentences, one.question.key
        assert one.tables[0].name == one.question.key
        assert one.tables[0].rows, one.question.key
        for figure in one.figures:
            assert figure.spec, figure.name


def test_names_of_tables_are_different() -> None:
    names = [table.name for one in ANSWERED.values() for table in one.tables]
    assert len(names) == len(set(names))


def test_seconds_per_epoch_are_images_over_throughput() -> None:
    row = the_row(ANSWERED["batch"], batch=16)
    # 50,000 / 16 steps of 0.8 and 0.82 s.
    assert row["epoch_s"].value == pytest.approx(3125 * math.sqrt(0.8 * 0.82))
    assert row["outcome"] == "ran"
    assert row["lab_outcome"] == ""
    assert the_row(ANSWERED["batch"], batch=512)["lab_epoch_s"] == 5.201220
    assert the_row(ANSWERED["batch"], batch=2048)["lab_outcome"] == "out of memory"


def test_a_batch_that_does_not_fit_says_so() -> None:
    assert the_row(ANSWERED["batch"], batch=256)["outcome"] == "out of memory"
    assert any(
        sentence.startswith("Batch 256 does not fit: out of memory")
        for sentence in ANSWERED["batch"].sentences
    )
    assert not [row for row in rows(ANSWERED["speedup"].tables[0]) if row["batch"] == 256]


@pytest.mark.parametrize(
    ("large_s", "words"),
    [(0.8, "is shared by more"), (1.0, "hardly matters"), (1.3, "is the slower one")],
)
def test_the_batchs_effect_follows_the_figures(large_s: float, words: str) -> None:
    found = find({TIME: time_launches({(1, 4): (0.25,), (1, 16): (large_s,)})})
    assert words in answer_batch(found, questions.BATCH).sentences[0]


def test_speedups_with_their_intervals_beside_the_labs() -> None:
    row = the_row(ANSWERED["speedup"], batch=16, workers=2)
    assert row["speedup"].value == pytest.approx(2 * math.sqrt(0.8 * 0.82 / (0.9 * 0.92)))
    assert row["speedup"].low is not None
    lab = the_row(ANSWERED["speedup"], batch=512, workers=2)
    assert lab["lab_speedup"] == pytest.approx(1.2313, abs=5e-5)
    assert lab["speedup"] is None
    words = " ".join(ANSWERED["speedup"].sentences)
    assert "weak scaling" in words
    assert "1,563 steps in place of 3,125" in words
    assert "The lab's 4 workers would take turns on 2 cores" in words


def test_a_machine_with_the_labs_cores_leaves_nothing_out() -> None:
    found = find({TIME: time_launches(STEP_S)}, ask(cores=4))
    words = " ".join(answer_speedup(found, questions.SPEEDUP).sentences)
    assert "take turns" not in words


def test_communication_measured_and_derived_in_decimal_gigabytes() -> None:
    row = the_row(ANSWERED["communication"], batch=16, workers=2)
    # Parts of a step are scaled to the geometric mean of its launches, hence the tolerance.
    assert row["transfer_step_s"] == pytest.approx(0.010, rel=1e-3)
    assert row["waiting_step_s"] == pytest.approx(0.0)
    assert row["transfer_epoch_s"] == pytest.approx(0.010 * 50_000 / 32, rel=1e-3)
    # 2(N-1)/N is 1 with 2 workers; the 6 ms that ran beside the backward pass are in it.
    assert row["bus_gb_per_s"] == pytest.approx(4 * PARAMETERS / 0.010 / 1e9, rel=1e-3)
    derived = math.sqrt(0.9 * 0.92) - math.sqrt(0.8 * 0.82)
    assert row["derived_step_s"] == pytest.approx(derived)
    assert row["derived_epoch_s"] == pytest.approx(derived * 50_000 / 32)
    assert row["derived_gb_per_s"] == pytest.approx(4 * PARAMETERS / derived / 1e9)
    lab = the_row(ANSWERED["communication"], batch=32, workers=2)
    assert lab["lab_derived_epoch_s"] == pytest.approx(16.9940435)
    assert lab["lab_derived_gb_per_s"] == pytest.approx(2.05476, abs=5e-6)
    assert "10.0 times as much" in ANSWERED["communication"].sentences[0]


def test_a_derived_time_below_zero_is_called_what_it_is() -> None:
    found = find({TIME: time_launches({(1, 16): (0.95,), (2, 16): (0.9,)})})
    answered = answer_communication(found, questions.COMMUNICATION)
    assert "not above zero" in answered.sentences[0]
    row = the_row(answered, batch=16)
    assert row["derived_gb_per_s"] is None


def test_accuracy_by_recipe_and_workers_against_one_worker() -> None:
    row = the_row(ANSWERED["accuracy"], recipe="fixed", workers=8)
    # Differences of the seeds: 0.600 - 0.700 and 0.611 - 0.710.
    assert row["difference"].value == pytest.approx(-0.0995)
    # t(0.95, 1) = 6.313752; the standard error of two values is half their distance.
    assert row["difference"].high == pytest.approx(-0.0995 + 6.313752 * 0.0005)
    assert row["resolvable"] == pytest.approx(smallest_difference(TEST_SAMPLES, 0.6055, 2))
    assert (row["steps"], row["global_batch"], row["verdict"]) == (10, 256, "loses")
    assert row["speed"] == "void"
    assert "more ranks than cores (8 on 2)" in ANSWERED["accuracy"].tables[0].notes[-1]
    assert the_row(ANSWERED["accuracy"], recipe="longer")["epochs"] == 4
    small = the_row(ANSWERED["accuracy"], recipe="linear", workers=8)
    assert small["verdict"] == "not resolved"
    base = the_row(ANSWERED["accuracy"], workers=1)
    assert base["difference"] is None
    assert base["speed"] == "counts"


def test_the_words_about_accuracy_follow_the_figures() -> None:
    words = ANSWERED["accuracy"].sentences
    assert words[0].startswith("8 workers at one worker's rate: -9.95 points (-10.27 to -9.63)")
    assert "10 updates in place of 80" in words[0]
    assert "linear: -0.95 points" in words[1]
    assert words[2].startswith("More epochs (4 in place of 2)")
    better = [
        trained_launch(8, seed, accuracy + 0.01 * seed, recipe=name, steps=10)
        for name, accuracy in (("fixed", 0.72), ("linear", 0.5))
        for seed in (0, 1)
    ]
    found = find({BASELINE: usual()[BASELINE], ACCURACY: better})
    words = answer_accuracy(found, questions.ACCURACY).sentences
    assert "+2.00 points" in words[0]
    assert words[1] == "No other recipe with as many epochs did better there."


def test_synchronised_batch_norm_is_one_of_the_remedies() -> None:
    row = the_row(ANSWERED["accuracy"], recipe="fixed + SyncBatchNorm")
    assert row["workers"] == 2
    sync = [
        trained_launch(8, seed, 0.71 + 0.01 * seed, recipe="linear", norm="sync") for seed in (0, 1)
    ]
    made = usual()
    found = find({BASELINE: made[BASELINE], ACCURACY: made[ACCURACY], SYNC: sync})
    words = answer_accuracy(found, questions.ACCURACY).sentences[1]
    assert "is linear + SyncBatchNorm: +1.00 points" in words


def test_one_seed_has_no_interval_and_says_so() -> None:
    answered = ONCE
    row = the_row(answered["accuracy"], recipe="linear")
    assert row["verdict"] == "one seed: no interval"
    assert "no interval" in answered["accuracy"].sentences[0]
    assert "no intervals" in " ".join(answered["accuracy"].tables[0].notes)
    assert "no interval" in answered["speedup"].sentences[0]
    assert answered["speedup"].tables[0].notes == ("One launch per cell: no intervals.",)
    assert "single runs" in answered["batch_norm"].sentences[0]


def test_threads_against_processes() -> None:
    table = rows(ANSWERED["replicas"].tables[0])
    assert [row["arrangement"] for row in table] == [
        *("1 process", "2 threads of 1 process", "2 processes")
    ]
    # 32 images in 20 ms; twice as many in 30 and 31 ms; twice 32 in 20 ms.
    assert table[0]["throughput"].value == pytest.approx(1600)
    assert table[1]["throughput"].value == pytest.approx(64 / math.sqrt(0.030 * 0.031))
    assert table[2]["ratio"] == pytest.approx(2.0)
    assert ANSWERED["replicas"].sentences[0].startswith("2 processes are 1.52 times as fast")
    faster = once() | {REPLICAS: [replica_launch(2, 0.01)]}
    del faster[TIME]
    sentence = answer_replicas(find(faster), questions.REPLICAS).sentences[0]
    # 64 images in 10 ms against twice 32 in 20 ms, in the order of the words.
    assert sentence.startswith(
        "2 threads of 1 process are 2.00 times as fast as 2 processes (6,400 images/s against 3,200"
    )


def test_the_order_of_samples() -> None:
    table = rows(ANSWERED["replicas"].tables[1])
    assert [row["repeats"] for row in table] == [0.0, 1.0]
    assert table[1]["difference"].value == pytest.approx(-0.039)
    assert "100 % of the later epochs begin" in ANSWERED["replicas"].sentences[1]
    assert "-3.90 points" in ANSWERED["replicas"].sentences[2]


def test_bytes_by_kind_and_worker() -> None:
    row = the_row(ANSWERED["wire"], norm="broadcast from rank 0", kind="buffers")
    assert row["step_bytes"] == pytest.approx(1000)
    row = the_row(ANSWERED["wire"], norm="synchronised", kind="gradients")
    assert row["step_bytes"] == pytest.approx(4 * SMALL_PARAMETERS)
    assert row["total_bytes"] == 2 * 40 * 4 * SMALL_PARAMETERS
    start = the_row(ANSWERED["wire"], norm="synchronised", kind="parameters")
    assert (start["step_bytes"], start["total_bytes"]) == (None, 2 * 4 * SMALL_PARAMETERS)
    assert "beside them nothing (0 %), and 273 kB once" in ANSWERED["wire"].sentences[0]
    assert "beside them buffers 1.00 kB (0.4 %)" in ANSWERED["wire"].sentences[1]
    kinds = [r["kind"] for r in rows(ANSWERED["wire"].tables[0]) if r["norm"] == "left alone"]
    assert kinds == ["gradients", "parameters"]


def test_batch_norm_left_alone_broadcast_and_synchronised() -> None:
    table = rows(ANSWERED["batch_norm"].tables[0])
    assert [row["norm"] for row in table] == [
        *("left alone", "broadcast from rank 0", "synchronised")
    ]
    assert table[0]["difference"] is None
    # 0.685 and 0.695 against 0.680 and 0.691.
    assert table[2]["difference"].value == pytest.approx(0.0045)
    assert "statistics synchronised do better" in ANSWERED["batch_norm"].sentences[0]
    alike = [
        trained_launch(2, seed, accuracy, norm=norm)
        for norm in ("broadcast", "sync")
        for seed, accuracy in ((0, 0.69), (1, 0.68))
    ]
    found = find({ACCURACY: usual()[ACCURACY], NORM: alike})
    sentence = answer_batch_norm(found, questions.BATCH_NORM).sentences[0]
    assert "as far as these runs can show" in sentence
    same = [trained_launch(2, seed, 0.68 + 0.011 * seed, norm="broadcast") for seed in (0, 1)]
    found = find({ACCURACY: usual()[ACCURACY], NORM: same})
    sentence = answer_batch_norm(found, questions.BATCH_NORM).sentences[0]
    assert "broadcast from rank 0 the very same: gradients alone do" in sentence


@pytest.mark.parametrize("missing", [TIME, BASELINE, ACCURACY, NORM, ORDER, REPLICAS])
def test_a_study_that_could_not_be_made_is_said_to_be_missing(missing: str) -> None:
    others = {name: made for name, made in FOUND.records.items() if name != missing}
    infos = {name: info for name, info in FOUND.studies.items() if name != missing}
    found = replace(FOUND, records=others, studies=infos)
    answered = answer(found)
    assert len(answered) == len(LAB.questions)
    assert all(one.sentences for one in answered)
    # None of the sentences is the same as with all studies, where the study is what it is about.
    told = {sentence for one in ANSWERED.values() for sentence in one.sentences}
    assert not {sentence for one in answered for sentence in one.sentences} >= told
    assert len(LAB.corrections(found)) == 5


def test_workers_that_others_disturbed_have_no_speed_and_the_reason() -> None:
    busy = [
        replace(launch, busy=True, foreign_share=0.6, steal_share=0.0)
        for launch in time_launches(STEP_S)
    ]
    words = answer_speedup(find({TIME: busy}), questions.SPEEDUP).sentences[0]
    assert words == (
        "No speedup can be given: the machine was busy: other programs took 60% of the cores."
    )
