"""The faces lab, from launches whose step times follow from a formula, one per network.

A step computes its images and moves its gradients, and nothing hides the one behind the other: so
strong scaling falls off where gradients are large, and weak scaling does not.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from farandole.labs import faces
from farandole.labs.faces import BATCH, CPU, LAB, SCALING, SPLIT, WORKERS
from farandole.labs.lab import Answered, Found, Planned, Rate
from farandole.labs.rows import Row
from farandole.model.curves import Scaling
from farandole.study.options import make_spec
from farandole.study.plan import make_cells
from farandole.study.records import Cell, Launch, Study
from farandole.study.spec import Room
from tests.labs.test_networks import run
from tests.labs.trained import (
    MACHINE,
    asked,
    facts,
    found_of,
    training_study,
)
from tests.model.build import make_launch, make_rank, make_steps, make_study

SHARED = 16
PER_IMAGE_S = {"inceptionv3": 0.08, "resnet50": 0.10, "vgg16": 0.25}
PARAMETERS = {"inceptionv3": 20_000_000, "resnet50": 23_000_000, "vgg16": 40_000_000}
PER_STEP_S, BYTES_PER_S = 0.05, 1e9
PEAK_BYTES = 1_500_000_000


def moves_s(model: str, workers: int) -> float:
    """Return what gradients take in a step."""
    return 4 * PARAMETERS[model] / BYTES_PER_S if workers > 1 else 0.0


def step_s(model: str, workers: int, batch: int, threads: int = 1) -> float:
    """Return a step's time; two threads are worth 1.6."""
    speed = 1.6 if threads == 2 else 1.0
    return PER_STEP_S + batch * PER_IMAGE_S[model] / speed + moves_s(model, workers)


def launch(model: str, workers: int, batch: int, threads: int = 1, repeat: int = 0) -> Launch:
    """Return a launch that was ended after some steps; repeats differ by a percent."""
    cell = Cell(workers=workers, threads=threads, batch=batch, params=(("model", model),))
    length_s = step_s(model, workers, batch, threads) * (1 + 0.01 * repeat)
    waits_s = moves_s(model, workers)
    steps = make_steps(length_s, 8, samples=batch, communication_s=waits_s, exposed_s=waits_s)
    nbytes = 4 * PARAMETERS[model]
    ranks = [
        make_rank(
            number,
            replace(steps, ready_s=steps.end_s - waits_s),
            gradient_bytes_per_step=nbytes,
            bytes_sent={"gradients": nbytes * len(steps)},
            parameters=PARAMETERS[model],
            peak_memory_bytes=PEAK_BYTES,
        )
        for number in range(workers)
    ]
    return make_launch(cell, ranks, repeat=repeat)


def speed_study(repeats: int, *cells: tuple[int, int, int]) -> Study:
    """Return a study of all networks: (workers, batch, threads) by cell."""
    every = product(range(repeats), PER_IMAGE_S, cells)
    launches = [launch(model, *cell, repeat=repeat) for repeat, model, cell in every]
    return make_study(launches, machine=MACHINE)


def accuracy(workers: int, recipe: str, seed: int) -> float:
    return 0.6 - 0.02 * (workers - 1) + 0.005 * seed


@cache
def found(repeats: int = 2) -> Found:
    """Return what the lab finds on two cores; nothing could be made with zero repeats."""
    if not repeats:
        return found_of(LAB, {})
    studies = {
        SCALING: speed_study(repeats, (1, SHARED, 1), (2, SHARED, 1), (2, SHARED // 2, 1)),
        BATCH: speed_study(repeats, (1, 4, 2), (1, SHARED, 2)),
        WORKERS: training_study(
            (1, 2), ("linear",), {"val_accuracy": accuracy}, batch=16, seeds=repeats
        ),
    }
    return found_of(LAB, studies)


@cache
def answers(repeats: int = 2) -> dict[str, Answered]:
    return {one.question.key: one for one in LAB.answer(found(repeats))}


def said(key: str, repeats: int = 2) -> str:
    return "\n".join(answers(repeats)[key].sentences)


def rows(key: str, repeats: int = 2, **wanted: object) -> list[dict[str, Any]]:
    """Return the rows of a question's table with these cells, by the keys of its columns."""
    every = answers(repeats)[key].tables[0].records()
    return [row for row in every if wanted.items() <= row.items()]


# The lab as a whole.


def test_some_networks_and_settings_may_be_missing() -> None:
    weak = [launch("vgg16", workers, SHARED) for workers in (1, 2)]
    for launches in (weak, weak[:1], [*weak, launch("resnet50", 2, 8)]):
        once = make_study([launch("resnet50", 1, 4, 2)], machine=MACHINE)
        made = found_of(LAB, {SCALING: make_study(launches, machine=MACHINE), BATCH: once})
        assert all(one.sentences for one in LAB.answer(made))
        assert all(one.shown_by for one in LAB.corrections(made))


def test_one_launch_per_cell_claims_nothing() -> None:
    for key, claim in {
        "split": "which split is best",
        "batch": "where it stops rising",
        "why": "whether strong scaling is slower",
        "order": "whether this order holds",
    }.items():
        assert f"Cannot tell {claim}" in said(key, repeats=1), key
    assert "at most" not in said("why", repeats=1)


def test_repeats_resolve_what_differs_by_more_than_they_do() -> None:
    # Five launches of a percent's spread, and a quarter to two thirds of a step between cells.
    assert "Repeats show that strong scaling is slower than weak." in said("why", repeats=5)
    assert "at most" in said("why", repeats=5)
    assert "Repeats show this order." in said("order", repeats=5)
    assert "It still rises at batch 16, the largest tried." in said("batch", repeats=5)


def test_a_knee_is_claimed_where_the_largest_batch_is_no_faster() -> None:
    def row(batch: int, rate: float) -> Row:
        return Row(batch=batch, rates=[rate * (1 + 0.001 * at) for at in range(5)])

    rising = Row(model="a", rows=[row(2, 10.0), row(4, 19.0)])
    flat = Row(model="b", rows=[*rising.rows, row(8, 24.0), row(16, 24.01)])
    once = Row(model="c", rows=[Row(batch=2, rates=[10.0]), Row(batch=4, rates=[19.0])])
    still, stops = "it still rises at batch 4, the largest tried", "it stops rising at batch 8"
    for one in (rising, flat, once):
        one.verdict = faces.knee(one)
    said = faces.verdicts([rising, flat, once])
    open_ = "cannot tell where it stops rising (c). More runs of each setting (a larger --budget)"
    assert said == f"I{still[1:]} (a); {stops} (b); {open_} would tell."
    assert faces.verdicts([flat]) == f"I{stops[1:]}."


@pytest.mark.parametrize(("scaling", "batch"), [("weak", SHARED), ("strong", SHARED // 2)])
def test_weak_and_strong_scaling_follow_the_formula(scaling: Scaling, batch: int) -> None:
    one, two = faces.by_network(faces.measured(found(1), scaling))["VGG16"]
    assert (one.count, one.batch, two.count, two.batch) == (1, SHARED, 2, batch)
    throughput = 2 * batch / step_s("vgg16", 2, batch)
    assert two.throughput.value == pytest.approx(throughput)
    speedup = throughput * step_s("vgg16", 1, SHARED) / SHARED
    assert two.speedup.value == pytest.approx(speedup)
    assert two.efficiency.value == pytest.approx(speedup / 2)
    # Repeats differ by a percent, and their geometric mean stands for them.
    (own,) = rows(scaling, source="here", model="VGG16", count=2)
    assert own["images_per_s"].value == pytest.approx(throughput, rel=0.01)
    assert own["speedup"].low < own["speedup"].value < own["speedup"].high


def test_all_splits_of_the_cores_at_one_global_batch() -> None:
    own = rows("split", 1, source="here", model="VGG16")
    assert [(row["processes"], row["threads"]) for row in own] == [(1, 2), (2, 1)]
    wanted = [SHARED / step_s("vgg16", 1, SHARED, 2), SHARED / step_s("vgg16", 2, SHARED // 2)]
    assert [row["images_per_s"].value for row in own] == pytest.approx(wanted)
    assert [row["share"] for row in own] == pytest.approx([wanted[0] / wanted[1], 1.0])
    assert [row["memory_bytes"] for row in own] == [PEAK_BYTES, 2 * PEAK_BYTES]
    # 16 images take 2.55 s by 1 x 2 and 2.21 s by 2 x 1.
    assert "VGG16 with 2 x 1 (1.15x that of 1 x 2)" in said("split", 1)
    assert len(rows("split", 0, source=CPU)) == 4


def test_the_parts_of_a_loss_are_those_of_the_formula() -> None:
    (vgg,) = (row for row in faces.losses(found(1)) if (row.source, row.model) == ("here", "VGG16"))
    shared_s = step_s("vgg16", 2, SHARED // 2)
    assert vgg.weak_lost_s == pytest.approx(moves_s("vgg16", 2))
    assert vgg.strong_lost_s == pytest.approx(shared_s - step_s("vgg16", 1, SHARED) / 2)
    assert vgg.strong_waited == pytest.approx(moves_s("vgg16", 2) / shared_s, rel=1e-3)
    assert vgg.gradient_bytes == 160_000_000
    wanted = dict.fromkeys(faces.PARTS, 0.0)
    wanted |= {"fixed_s": PER_STEP_S / 2, "exchange_s": moves_s("vgg16", 2)}
    assert vgg.parts == pytest.approx(wanted, abs=1e-6)
    assert sum(vgg.parts.values()) == pytest.approx(vgg.strong_lost_s)
    # 80 MB and half of 50 ms: 80 of 105 ms are the exchange.
    assert "exchange of gradients is 76 % (InceptionV3)" in said("why", 1)


def test_the_laws_on_the_labs_cpu_nodes() -> None:
    lab = {row.model: row for row in faces.losses(found(0))}
    for model, speedup in (("InceptionV3", 6.8), ("ResNet50", 7.2), ("VGG16", 6.3)):
        # Karp and Flatt: (1/S - 1/N) / (1 - 1/N).
        share = lab[model].amdahl.serial_fraction.value
        assert share == pytest.approx((1 / speedup - 1 / 8) / (7 / 8))
    share = lab["VGG16"].gustafson.serial_fraction.value
    assert share == pytest.approx((8 - 66.25 / 8.82) / 7)
    # 8 x 128 images at the speed of eight nodes, less 128 at the speed of one.
    weak, strong = zip(*((row.weak_lost_s, row.strong_lost_s) for row in lab.values()), strict=True)
    assert weak == pytest.approx((0.903, 0.946, 0.944), abs=5e-4)
    assert strong == pytest.approx((0.145, 0.078, 0.490), abs=1e-3)


_COUNT = """
import json, math, keras
from keras.layers import Conv2D, Dense
with keras.device("meta"):
    for name in ("InceptionV3", "ResNet50", "VGG16"):
        model = getattr(keras.applications, name)(weights=None, input_shape=(224, 224, 3))
        layers = [one for one in model.layers if isinstance(one, (Conv2D, Dense))]
        weights = model.trainable_weights
        print(json.dumps([
            name, model.count_params(), sum(math.prod(one.shape) for one in weights), len(layers),
            len(weights),
            sum(math.prod(one.kernel.shape) * math.prod(one.output.shape[1:-1]) for one in layers),
        ]))
"""


def test_networks_are_counted_as_keras_has_them(tmp_path: Path) -> None:
    counted = [json.loads(line) for line in run(_COUNT, tmp_path).splitlines()]
    assert counted == [list(vars(row).values()) for row in faces.NETWORKS]


# Plans: every size is a study that could be run, larger efforts take longer.

RATES = {
    "inceptionv3": Rate(samples_per_s=10.0, startup_s=12.0),
    "resnet50": Rate(samples_per_s=9.0, startup_s=10.0),
    "vgg16": Rate(samples_per_s=4.0, startup_s=9.0),
    "small": Rate(samples_per_s=300.0, startup_s=7.0),
}
DRAWN = facts(1800, 180)


def planned(effort: int = 0, **wanted: object) -> dict[str, Planned]:
    plan = LAB.plan(asked(**wanted), DRAWN, RATES, effort)  # type: ignore[arg-type]
    return {study.name: study for study in plan.studies}


def cells(study: Planned, cores: int) -> set[tuple[str, int, int | None, int | None]]:
    """Return what `farandole study` would run: network, workers, threads, batch."""
    room, command = Room(cores=cores, physical=cores), ["python", study.script, *study.arguments]
    spec, _ = make_spec(command, study.options, room=room, folder=".", reads=lambda name: False)
    made = make_cells(spec)
    return {(dict(c.params)["model"], c.workers, c.threads, c.batch) for c in made}


@pytest.mark.parametrize("cores", [2, 4, 8, 28])
def test_no_cell_is_run_twice_and_the_labs_splits_are_there(cores: int) -> None:
    wanted = planned(size="budget", cores=cores)
    speed = [study for name, study in wanted.items() if name in (SCALING, BATCH, SPLIT)]
    every = [cell for study in speed for cell in cells(study, cores)]
    assert len(every) == len(set(every))
    shared = wanted[SCALING].options["params"]["global_batch"]
    splits = {(w, t) for _, w, t, b in every if b is not None and w * b == shared and t}
    assert {(n, cores // n) for n in (1, 2, 4) if cores % n == 0} <= splits
