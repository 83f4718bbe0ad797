"""The cifar10 lab: its plan, its answers from launches made by hand, and its corrections."""

from __future__ import annotations

import functools
import itertools
import math
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from farandole.labs.cifar10 import LAB
from farandole.labs.cifar10_plan import (
    ACCURACY,
    BASELINE,
    FEWER,
    FULL,
    LADDER,
    NORM,
    ORDER,
    QUICK,
    REPLICAS,
    SYNC,
    TIME,
    Effort,
    Sizing,
)
from farandole.labs.lab import (
    Answered,
    Asked,
    DataFacts,
    Found,
    Plan,
    Planned,
    Rate,
    published_path,
)
from farandole.model.analyse import ScalingInfo, analyse
from farandole.model.metrics import smallest_difference
from farandole.report.table import Table
from farandole.study.import_table import read_table
from farandole.study.records import Cell, Launch, Metric
from tests.model.build import MACHINE, make_launch, make_rank, make_steps, make_study, timed_launch

PARAMETERS = 11_173_962
SMALL_PARAMETERS = 68_194
DATA = DataFacts(source="by hand", train=50_000, test=10_000, sample="32x32 RGB")
TEST_SAMPLES = 2000
TWO_CORES = {**MACHINE, "cores": 2, "physical_cores": 2}


def ask(**changes: object) -> Asked:
    given: dict[str, object] = {
        "size": "quick",
        "budget_s": None,
        "data": None,
        "workers": (),
        "recipes": (),
        "cores": 2,
    }
    return Asked(**(given | changes))  # type: ignore[arg-type]


def time_launches(
    step_s: Mapping[tuple[int, int], Sequence[float]], *, too_large: int = 256
) -> list[Launch]:
    """Return ResNet-18's launches: step times by workers and batch, and one that does not fit."""
    launches = []
    for (workers, batch), times in step_s.items():
        cell = Cell(workers=workers, threads=1, batch=batch)
        for repeat, seconds in enumerate(times):
            steps = make_steps(
                seconds,
                20,
                samples=batch,
                # Most of it runs beside the backward pass.
                communication_s=0.010 if workers > 1 else 0.0,
                exposed_s=0.004 if workers > 1 else 0.0,
            )
            ranks = [
                make_rank(
                    number,
                    replace(steps, ready_s=steps.end_s - 0.010),
                    gradient_bytes_per_step=4 * PARAMETERS,
                    bytes_sent={"gradients": 4 * PARAMETERS * len(steps)},
                    parameters=PARAMETERS,
                )
                for number in range(workers)
            ]
            launches.append(make_launch(cell, ranks, repeat=repeat))
    for workers in sorted({workers for workers, _ in step_s}):
        cell = Cell(workers=workers, threads=1, batch=too_large)
        reason = "a worker had 0.95 GB of memory; its limit is 0.69 GB (--memory)"
        launches.append(make_launch(cell, outcome="out_of_memory", reason=reason))
    return launches


def trained_launch(
    workers: int,
    seed: int,
    accuracy: float,
    *,
    recipe: str = "fixed",
    norm: str = "local",
    order: str = "epoch",
    steps: int = 40,
) -> Launch:
    """Return a run of the small network to its end."""
    argv = (
        *("python", "cifar10.py", "--model", "small", "--epochs", "2", "--batch-size", "32"),
        *("--test-samples", str(TEST_SAMPLES), "--recipe", recipe, "--norm", norm),
        *("--order", order, "--seed", str(seed)),
    )
    params = tuple({"recipe": recipe, "norm": norm, "order": order}.items())
    cell = Cell(workers=workers, threads=1, batch=32, params=params)
    metrics = (
        Metric(name="val_accuracy", value=accuracy / 2, epoch=1, time_s=1.0),
        Metric(name="val_accuracy", value=accuracy, epoch=2, time_s=2.0),
        Metric(name="first_sample", value=17.0, epoch=1, time_s=1.0),
        Metric(name="first_sample", value=17.0 if order == "fixed" else 4.0, epoch=2, time_s=2.0),
    )
    sent = {"gradients": 4 * SMALL_PARAMETERS * steps, "parameters": 4 * SMALL_PARAMETERS}
    if norm == "broadcast":
        sent["buffers"] = 1000 * steps
    if norm == "sync":
        sent["other"] = 2000 * steps
    ranks = [
        make_rank(
            number,
            make_steps(0.02 * max(1, workers / 2), steps, samples=32),
            parameters=SMALL_PARAMETERS,
            gradient_bytes_per_step=4 * SMALL_PARAMETERS,
            bytes_sent=sent if workers > 1 else {},
            metrics=metrics if number == 0 else (),
        )
        for number in range(workers)
    ]
    return make_launch(
        cell, ranks, purpose="accuracy", outcome="ok", seed=seed, repeat=seed, argv=argv
    )


def replica_launch(replicas: int, step_s: float) -> Launch:
    cell = Cell(workers=1, threads=1, batch=32 * replicas, params=(("replicas", str(replicas)),))
    return timed_launch(cell, step_s)


STEP_S = {(1, 4): (0.25, 0.26), (1, 16): (0.8, 0.82), (2, 4): (0.3, 0.31), (2, 16): (0.9, 0.92)}


def usual() -> dict[str, list[Launch]]:
    """Return launches of all studies, with two seeds: eight workers at a fixed rate lose."""
    seeds = (0, 1)
    recipes = {
        ("fixed", 2): 0.68,
        ("linear", 2): 0.70,
        ("fixed", 8): 0.60,
        ("linear", 8): 0.69,
        ("longer", 8): 0.66,
    }
    return {
        TIME: time_launches(STEP_S),
        BASELINE: [trained_launch(1, s, 0.70 + 0.01 * s, steps=80) for s in seeds],
        ACCURACY: [
            trained_launch(workers, s, accuracy + 0.011 * s, recipe=name, steps=80 // workers)
            for (name, workers), accuracy in recipes.items()
            for s in seeds
        ],
        NORM: [
            trained_launch(2, s, accuracy + 0.01 * s, norm=norm)
            for norm, accuracy in (("broadcast", 0.681), ("sync", 0.685))
            for s in seeds
        ],
        ORDER: [trained_launch(1, s, 0.66 + 0.012 * s, order="fixed") for s in seeds],
        REPLICAS: [replica_launch(2, step_s) for step_s in (0.030, 0.031)],
    }


def find(launches: Mapping[str, Iterable[Launch]], asked: Asked | None = None) -> Found:
    """Return what a lab with these launches finds."""
    asked = asked or ask()
    records = {name: make_study(made, machine=TWO_CORES) for name, made in launches.items()}
    return Found(
        asked=asked,
        data=DATA,
        plan=LAB.plan(asked, DATA, {}, 0),
        studies={name: analyse(study) for name, study in records.items()},
        records=records,
        published={name: published(name) for name in LAB.published},
    )


@functools.cache
def published(name: str) -> ScalingInfo:
    launches = read_table(published_path(name).read_bytes(), name=name).launches
    return analyse(make_study(launches, label=name, machine={}))


# The plan.

SHARED = DataFacts(source="a folder", train=10_000, test=2000, sample="32x32 RGB")
RATES = {
    "resnet18": Rate(samples_per_s=18.0, startup_s=4.0),
    "small": Rate(samples_per_s=1500.0, startup_s=4.0),
}


def plan(asked: Asked, *, effort: int = 0, data: DataFacts = DATA) -> Plan:
    return LAB.plan(asked, data, RATES if asked.size == "budget" else {}, effort)


def study(found: Plan, name: str) -> Planned:
    return next(study for study in found.studies if study.name == name)


def flag(words: tuple[str, ...], name: str) -> str:
    return words[words.index(name) + 1]


def ladder_asked(**changes: object) -> Asked:
    return ask(size="budget", budget_s=900.0, **changes)


@pytest.mark.parametrize("cores", [1, 2, 4, 64])
@pytest.mark.parametrize("data", [DATA, SHARED])
@pytest.mark.parametrize("workers", [(), (1,), (2, 4)])
def test_a_larger_effort_never_takes_less_time(
    cores: int, data: DataFacts, workers: tuple[int, ...]
) -> None:
    asked = ladder_asked(cores=cores, workers=workers)
    plans = [plan(asked, effort=effort, data=data) for effort in range(LAB.efforts)]
    for smaller, larger in itertools.pairwise(plans):
        assert smaller.estimate_s <= larger.estimate_s


def test_the_default_budget_has_room_for_intervals_at_eight_workers() -> None:
    asked = ladder_asked()
    fitting = [
        effort
        for effort in range(LAB.efforts)
        if plan(asked, effort=effort, data=SHARED).estimate_s < 770
    ]
    here = LADDER[fitting[-1]]
    assert here.workers[-1] == 8
    assert here.seeds >= 3
    assert here.repeats >= 2


def test_no_cell_is_run_twice() -> None:
    for asked in (ask(), ladder_asked(), ask(size="full")):
        cells = []
        for one in plan(asked, effort=LAB.efforts - 1).studies:
            varied = flag(one.flags, "-L").split("=")
            for count, value in itertools.product(
                flag(one.flags, "-np").split(","), varied[1].split(",")
            ):
                filled = [word.replace("{" + varied[0] + "}", value) for word in one.arguments]
                skipped = {"--test-samples", "--samples", "--epochs"}
                words = dict(zip(filled[::2], filled[1::2], strict=True))
                kept = {key: word for key, word in words.items() if key not in skipped}
                cells.append((count, *sorted(kept.items())))
        assert len(cells) == len(set(cells))


def test_quick_is_small() -> None:
    found = plan(ask())
    assert [one.name for one in found.studies] == [
        *(TIME, BASELINE, ACCURACY, NORM, REPLICAS, ORDER)
    ]
    assert flag(study(found, TIME).flags, "-np") == "1,2"
    assert flag(study(found, ACCURACY).flags, "-np") == "2"
    for one in found.studies:
        name = "--seeds" if "--seeds" in one.flags else "--repeats"
        assert flag(one.flags, name) == "1"
    assert found.estimate_s < 100


def test_full_is_the_labs_protocol() -> None:
    found = plan(ask(size="full", cores=4))
    time = study(found, TIME)
    assert flag(time.flags, "-L") == "batch=32,128,512,2048"
    assert flag(time.flags, "-np") == "1,2,4"
    assert flag(time.flags, "--epochs") == "1"
    assert flag(time.arguments, "--samples") == "0"
    accuracy = study(found, ACCURACY)
    assert flag(accuracy.arguments, "--model") == "resnet18"
    assert flag(accuracy.arguments, "--batch-size") == "512"
    assert flag(accuracy.arguments, "--samples") == "0"
    assert "--keep-busy" not in time.flags


def test_speed_is_measured_up_to_the_cores_and_accuracy_beyond() -> None:
    found = plan(ask(workers=(2, 4, 8)))
    assert flag(study(found, TIME).flags, "-np") == "1,2"
    assert flag(study(found, BASELINE).flags, "-np") == "1"
    assert flag(study(found, ACCURACY).flags, "-np") == "8"
    assert flag(study(found, FEWER).flags, "-np") == "2,4"
    assert flag(study(found, NORM).flags, "-np") == "2"
    assert flag(study(found, REPLICAS).flags, "-L") == "replicas=2"


def test_one_worker_alone_has_nothing_to_be_compared_with() -> None:
    found = plan(ask(workers=(1,)))
    assert [one.name for one in found.studies] == [TIME, BASELINE, ORDER]


def test_recipes_that_were_asked_for_and_the_baseline() -> None:
    found = plan(ask(recipes=("warmup", "linear")))
    assert flag(study(found, ACCURACY).flags, "-L") == "recipe=warmup,linear"
    assert flag(study(found, BASELINE).flags, "-L") == "recipe=fixed"
    # What else is varied there is varied at the first of them, whose other half is in ACCURACY.
    assert flag(study(found, NORM).arguments, "--recipe") == "warmup"


def test_batch_norm_is_synchronised_where_most_is_to_be_kept() -> None:
    found = plan(ladder_asked(), effort=LAB.efforts - 1)
    sync = study(found, SYNC)
    assert flag(sync.flags, "-np") == "8"
    assert flag(sync.arguments, "--recipe") == "warmup"
    # On 2 workers at the first recipe it is in the study of batch norm.
    found = plan(ladder_asked(workers=(1, 2), recipes=("linear",)), effort=LAB.efforts - 1)
    assert SYNC not in [one.name for one in found.studies]


def test_data_are_handed_on_and_subsets_fit_them() -> None:
    tiny = DataFacts(source="a folder", train=600, test=60, sample="32x32 RGB")
    for one in plan(ask(data=Path("some where")), data=tiny).studies:
        assert flag(one.arguments, "--data") == "some where"
        assert int(flag(one.arguments, "--samples")) <= tiny.train
        assert int(flag(one.arguments, "--test-samples")) <= tiny.test


@pytest.mark.parametrize("here", [QUICK, *LADDER, FULL])
@pytest.mark.parametrize("cores", [1, 8])
def test_the_limit_leaves_room_for_every_batch_but_the_last(here: Effort, cores: int) -> None:
    # As measured: see memory_bytes.
    need = {batch: 355e6 + 7.85e6 * batch for batch in (*here.batches, here.too_large)}
    limit = Sizing(asked=ask(cores=cores), data=DATA, rates={}, here=here).memory_bytes
    assert all(1.2 * need[batch] < limit for batch in here.batches)
    assert need[here.too_large] > 1.3 * limit


def test_choices_say_what_differs() -> None:
    choices = {choice.what: choice for choice in plan(ask()).choices}
    assert choices["training images, accuracy"].here == "512 of 50,000"
    assert choices["batch that does not fit"].lab.startswith("2,048")
    assert choices["network, accuracy"].lab == "ResNet-18"
    full = {choice.what for choice in plan(ask(size="full", cores=4)).choices}
    assert not full & {
        *("network, accuracy", "batches per worker, times", "batch per worker, accuracy"),
        *("steps of a launch for times", "workers, times", "training images, accuracy"),
    }


def test_pilots_measure_both_networks_on_one_worker() -> None:
    pilots = LAB.pilot(ladder_asked())
    assert [one.name for one in pilots] == ["resnet18", "small"]
    for one in pilots:
        assert flag(one.flags, "-np") == "1"
        assert flag(one.arguments, "--model") == one.name


# The answers.

FOUND = find(usual())


def answers(found: Found) -> dict[str, Answered]:
    return {one.question.key: one for one in LAB.answer(found)}


ANSWERED = answers(FOUND)


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


ONCE = answers(find(once()))


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
        sentence.startswith("Batch 256 failed (out of memory): a worker had")
        for sentence in ANSWERED["batch"].sentences
    )
    assert not [row for row in rows(ANSWERED["speedup"].tables[0]) if row["batch"] == 256]


@pytest.mark.parametrize(
    ("large_s", "words"),
    [(0.8, "over more images"), (1.0, "hardly matters"), (1.3, "is slower here")],
)
def test_the_batchs_effect_follows_the_figures(large_s: float, words: str) -> None:
    found = find({TIME: time_launches({(1, 4): (0.25,), (1, 16): (large_s,)})})
    assert words in answers(found)["batch"].sentences[0]


def test_speedups_with_their_intervals_beside_the_labs() -> None:
    row = the_row(ANSWERED["speedup"], batch=16, workers=2)
    assert row["speedup"].value == pytest.approx(2 * math.sqrt(0.8 * 0.82 / (0.9 * 0.92)))
    assert row["speedup"].low is not None
    lab = the_row(ANSWERED["speedup"], batch=512, workers=2)
    assert lab["lab_speedup"] == pytest.approx(1.2313, abs=5e-5)
    assert lab["speedup"] is None
    words = " ".join(ANSWERED["speedup"].sentences)
    assert "weak scaling" in words
    assert "1,563 steps instead of 3,125" in words
    assert "The lab's 4 workers would share 2 cores" in words


def test_a_machine_with_the_labs_cores_leaves_nothing_out() -> None:
    found = find({TIME: time_launches(STEP_S)}, ask(cores=4))
    words = " ".join(answers(found)["speedup"].sentences)
    assert "would share" not in words


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
    assert "10.0x as much" in ANSWERED["communication"].sentences[0]


def test_a_derived_time_below_zero_is_called_what_it_is() -> None:
    found = find({TIME: time_launches({(1, 16): (0.95,), (2, 16): (0.9,)})})
    answered = answers(found)["communication"]
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
    assert "8 workers change accuracy by -9.95 points (-10.27 to -9.63)" in words[0]
    assert "10 updates instead of 80" in words[0]
    assert "linear: -0.95 points" in words[1]
    assert words[2].startswith("Training for 4 epochs instead of 2")
    better = [
        trained_launch(8, seed, accuracy + 0.01 * seed, recipe=name, steps=10)
        for name, accuracy in (("fixed", 0.72), ("linear", 0.5))
        for seed in (0, 1)
    ]
    found = find({BASELINE: usual()[BASELINE], ACCURACY: better})
    words = answers(found)["accuracy"].sentences
    assert "+2.00 points" in words[0]
    assert words[1] == "No other recipe with as many epochs does better."


def test_synchronised_batch_norm_is_one_of_the_remedies() -> None:
    row = the_row(ANSWERED["accuracy"], recipe="fixed + SyncBatchNorm")
    assert row["workers"] == 2
    sync = [
        trained_launch(8, seed, 0.71 + 0.01 * seed, recipe="linear", norm="sync") for seed in (0, 1)
    ]
    made = usual()
    found = find({BASELINE: made[BASELINE], ACCURACY: made[ACCURACY], SYNC: sync})
    words = answers(found)["accuracy"].sentences[1]
    assert "is linear + SyncBatchNorm: +1.00 points" in words


def test_one_seed_has_no_interval_and_says_so() -> None:
    answered = ONCE
    row = the_row(answered["accuracy"], recipe="linear")
    assert row["verdict"] == "one seed: no interval"
    assert "no interval" in answered["accuracy"].sentences[0]
    assert "no intervals" in " ".join(answered["accuracy"].tables[0].notes)
    assert "may be noise" in answered["speedup"].sentences[1]
    assert answered["speedup"].tables[0].notes == ("One launch per cell: no intervals.",)
    assert "one seed" in answered["batch_norm"].sentences[0]


def test_threads_against_processes() -> None:
    table = rows(ANSWERED["replicas"].tables[0])
    assert [row["arrangement"] for row in table] == [
        *("1 process", "2 threads of 1 process", "2 processes")
    ]
    # 32 images in 20 ms; twice as many in 30 and 31 ms; twice 32 in 20 ms.
    assert table[0]["throughput"].value == pytest.approx(1600)
    assert table[1]["throughput"].value == pytest.approx(64 / math.sqrt(0.030 * 0.031))
    assert table[2]["ratio"] == pytest.approx(2.0)
    assert ANSWERED["replicas"].sentences[0].startswith("2 processes are 1.52x as fast")
    faster = once() | {REPLICAS: [replica_launch(2, 0.01)]}
    del faster[TIME]
    sentence = answers(find(faster))["replicas"].sentences[0]
    # 64 images in 10 ms against twice 32 in 20 ms, in the order of the words.
    assert sentence.startswith(
        "2 threads of 1 process are 2.00x as fast as 2 processes (6,400 images/s against 3,200"
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
    assert "plus nothing (0 %), and 273 kB once at the start" in ANSWERED["wire"].sentences[0]
    assert "plus buffers 1.00 kB (0.4 %)" in ANSWERED["wire"].sentences[1]
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
    assert "higher with statistics synchronised" in ANSWERED["batch_norm"].sentences[0]
    alike = [
        trained_launch(2, seed, accuracy, norm=norm)
        for norm in ("broadcast", "sync")
        for seed, accuracy in ((0, 0.69), (1, 0.68))
    ]
    found = find({ACCURACY: usual()[ACCURACY], NORM: alike})
    sentence = answers(found)["batch_norm"].sentences[0]
    assert "as far as these runs can show" in sentence
    same = [trained_launch(2, seed, 0.68 + 0.011 * seed, norm="broadcast") for seed in (0, 1)]
    found = find({ACCURACY: usual()[ACCURACY], NORM: same})
    said = answers(found)["batch_norm"].sentences
    assert "Gradients alone are enough" in said[0]
    assert "broadcast from rank 0: identical" in said[1]


@pytest.mark.parametrize("missing", [TIME, BASELINE, ACCURACY, NORM, ORDER, REPLICAS])
def test_a_study_that_could_not_be_made_is_said_to_be_missing(missing: str) -> None:
    others = {name: made for name, made in FOUND.records.items() if name != missing}
    infos = {name: info for name, info in FOUND.studies.items() if name != missing}
    found = replace(FOUND, records=others, studies=infos)
    answered = LAB.answer(found)
    assert len(answered) == len(LAB.questions)
    assert all(one.sentences for one in answered)
    # None of the sentences is the same as with all studies, where the study is what it is about.
    told = {sentence for one in ANSWERED.values() for sentence in one.sentences}
    assert not {sentence for one in answered for sentence in one.sentences} >= told
    assert len(LAB.corrections(found)) == 5


def test_a_busy_machine_still_gets_speedups() -> None:
    busy = [
        replace(launch, busy=True, foreign_share=0.6, steal_share=0.0)
        for launch in time_launches(STEP_S)
    ]
    assert answers(find({TIME: busy}))["speedup"].sentences[0].startswith("2 workers reach")


# The corrections.

CORRECTED = {one.said: one for one in LAB.corrections(FOUND)}
EMPTY = {one.said: one for one in LAB.corrections(find({}))}


def shown_by(words: str) -> str:
    (correction,) = [one for said, one in CORRECTED.items() if words in said]
    return correction.shown_by


def test_there_is_one_for_each_that_is_known() -> None:
    assert len(CORRECTED) == 5
    # Without any run the arithmetic is still there.
    assert EMPTY.keys() == CORRECTED.keys()
    assert all(one.shown_by for one in EMPTY.values())


def test_weak_scaling_of_the_step_and_strong_of_the_epoch() -> None:
    shown = shown_by("strong scaling in one place")
    # 62.661095 s / 1562.5 steps and 44.222406 s / 781.25 steps.
    assert "half as many steps of 56.6 ms instead of 40.1 ms" in shown
    assert "1,563 steps instead of 3,125" in shown


def test_one_gpu_has_two_times_and_communication_hangs_on_them() -> None:
    shown = shown_by("One GPU at batch 32")
    # 40.171962 - 46.355837 / 2 and 40.171962 - 62.661095 / 2; 781.25 x 44.695848 MB over each.
    assert "17.0 s (2.05 GB/s)" in shown
    assert f"{40.171962 - 62.661095 / 2:.2f} s" in shown
    assert f"({781.25 * 4 * 11_173_962 / (40.171962 - 62.661095 / 2) / 1e9:.2f} GB/s)" in shown
    assert "take 10.0 ms of a step" in shown


def test_a_gigabyte_is_a_thousand_million_bytes() -> None:
    shown = shown_by("2^30")
    assert "2.05476 GB/s, as published" in shown
    # Of 2.05476e9 bytes.
    assert "1.91364 in units of 2^30" in shown


def test_the_slip_in_the_speedup() -> None:
    shown = shown_by("1.18592")
    assert "4.946042 / 4.017061 is 1.23126, not 1.18592" in shown
    assert "Here, 2 workers at batch" in shown


@pytest.mark.parametrize("words", ["80 updates", "make 10", "of all 68,194 parameters each"])
def test_fewer_updates_of_the_same_parameters(words: str) -> None:
    assert words in shown_by("fewer parameters")


# The lab.


def test_questions_that_open_the_report_are_among_its_questions() -> None:
    keys = [question.key for question in LAB.questions]
    assert len(keys) == len(set(keys)) == 7
    assert set(LAB.leading) <= set(keys)


def test_generated_data_are_of_cifar10s_size() -> None:
    data = LAB.data(None)
    assert (data.train, data.test, data.sample) == (50_000, 10_000, "32x32 RGB")


def test_listing_the_lab_loads_neither_torch_nor_charts() -> None:
    code = (
        "import sys, farandole.labs.cifar10; "
        "print(sorted({'torch', 'altair', 'keras'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
