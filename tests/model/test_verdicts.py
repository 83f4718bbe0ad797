"""Verdicts and voids: every rule speaks where it should, and only there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from farandole.model import verdicts
from farandole.model.accuracy import MetricCurve, MetricPoint, MetricRow
from farandole.model.analyse import analyse
from farandole.model.communication import Communication
from farandole.model.curves import Curve, draw_curves
from farandole.model.jobs import JobTime
from farandole.model.measured import Measured, measure
from farandole.model.rows import CellRow
from farandole.model.split import StepSplit
from farandole.model.statistics import Estimate
from farandole.model.utilisation import UtilisationRow
from farandole.model.verdicts import Verdict, condense, find_voids, limited_by, void_of
from farandole.study.records import Cell, Launch
from tests.model.build import (
    make_launch,
    make_rank,
    make_steps,
    make_study,
    repeated,
    timed_launch,
    trained_launch,
)


def first(found: Iterator[Verdict]) -> Verdict | None:
    return next(found, None)


def measured(cell: Cell, **changes: Any) -> Measured:
    (found,), _ = measure(make_study([timed_launch(cell, 0.1)]))
    return replace(found, **changes)


def make_row(cell: Cell | None = None, **changes: Any) -> CellRow:
    found = measured(cell or Cell(workers=2, batch=8), label="a cell")
    given: dict[str, Any] = dict.fromkeys(
        ("step_s", "throughput", "gradient_bytes", "parameters", "steps_per_epoch")
    )
    given |= {"cell": found.cell, "label": "a cell", "launches": 1, "attempts": 1, "unit": ""}
    given |= {"failed": "", "void_for_speed": "", "measured": found}
    return CellRow(**(given | changes))


def curve_of(*times: list[float]) -> Curve:
    """Step times at 1, 2, 4, ... workers, one per launch; batch per worker fixed."""
    launches = [
        launch
        for power, step_times in enumerate(times)
        for launch in repeated(Cell(workers=2**power, batch=8), step_times)
    ]
    return draw_curves(measure(make_study(launches))[0])[0]


def exactly(value: float, spread: float | None = None) -> Estimate:
    if spread is None:
        return Estimate(value=value, low=None, high=None)
    return Estimate(value=value, low=value - spread, high=value + spread)


# Curves


@pytest.mark.parametrize(
    ("times", "workers"),
    [
        ([[0.10], [0.10], [0.10]], None),
        ([[0.10], [0.105], [0.15]], 4),
        ([[0.10], [0.15], [0.15]], 2),
        # 0.89 on average, but the interval reaches above 0.9.
        ([[0.10, 0.101, 0.099], [0.112, 0.118, 0.107]], None),
        ([[0.10, 0.1001, 0.0999], [0.125, 0.1251, 0.1249]], 2),
    ],
)
def test_leaving_linear(times: list[list[float]], workers: int | None) -> None:
    found = first(verdicts.leaves_linear(curve_of(*times)))
    assert (found.evidence["workers"] if found else None) == workers
    if workers == 4:
        assert found.sentence == (
            "Efficiency falls to 67 % at 4 workers, after 95 % at 2 (weak scaling)."
        )
        assert found.action.startswith("Up to 2 ")


@pytest.mark.parametrize(
    ("times", "severity"),
    [
        ([[0.10], [0.10]], None),
        ([[0.10], [0.11]], None),
        ([[0.10], [0.08]], "warn"),
        ([[0.10], [0.098]], "note"),
        # More on average, not clearly.
        ([[0.10, 0.12, 0.09], [0.09, 0.10, 0.11]], None),
        ([[0.10, 0.101, 0.099], [0.08, 0.081, 0.079]], "warn"),
    ],
)
def test_more_than_linear(times: list[list[float]], severity: str | None) -> None:
    found = first(verdicts.more_than_linear(curve_of(*times)))
    assert (found.severity if found else None) == severity


@pytest.mark.parametrize(
    ("many", "fires"),
    [
        ([0.0995, 0.0996, 0.0994, 0.0997, 0.0993], True),
        ([0.0905, 0.0906, 0.0904, 0.0907, 0.0903], False),
        # Too few launches to claim it.
        ([0.0995, 0.0996, 0.0994], False),
        ([0.1], False),
    ],
)
def test_the_same_speed(many: list[float], fires: bool) -> None:
    launches = repeated(Cell(workers=1, batch=16), [0.1, 0.1001, 0.0999, 0.1002, 0.0998])
    launches += repeated(Cell(workers=2, batch=8), many)
    few, more = measure(make_study(launches))[0]
    assert bool(first(verdicts.same_speed(few, more, "samples/s"))) is fires


@pytest.mark.parametrize(
    ("times", "fires"),
    [
        ([[0.10, 0.13, 0.09], [0.11, 0.15, 0.10]], True),
        ([[0.10, 0.101, 0.099], [0.11, 0.111, 0.109]], False),
        # Between 0.95 and 1.08 nobody knows whether it pays.
        ([[0.10, 0.102, 0.098], [0.196, 0.206, 0.191]], True),
        ([[0.10], [0.11]], False),
    ],
)
def test_too_noisy(times: list[list[float]], fires: bool) -> None:
    found = first(verdicts.too_noisy(curve_of(*times)))
    assert bool(found) is fires
    assert not found or "--repeats 6" in found.action


def test_single_launches_are_said_once() -> None:
    def found(*curves: Curve, imported: bool = False) -> Verdict | None:
        return first(verdicts.single_launches(curves, imported=imported, flag="--repeats"))

    single = curve_of([0.10], [0.11])
    assert "--repeats 5" in found(single, single).action
    assert "rows" in found(single, imported=True).action
    assert found(single, curve_of([0.1, 0.101], [0.11, 0.111])) is None
    assert found(curve_of([0.1])) is None
    assert found() is None


# Steps


def split(**changes: Any) -> StepSplit:
    """A step of 100 ms on two workers, bound by compute."""
    given: dict[str, Any] = {"cell": Cell(workers=2, batch=8), "label": "2 workers", "step_s": 0.1}
    given |= {"data_s": 0.002, "compute_s": 0.086, "transfer_s": 0.005, "waiting_s": 0.002}
    given |= {"exposed_s": 0.007, "optimizer_s": 0.005, "hidden_s": 0.0, "slowest_rank": 1}
    given |= {"slowest_share": 0.5, "compute_by_rank_s": ((0, 0.086), (1, 0.086))}
    return StepSplit(**(given | changes))


INPUT = {"data_s": 0.03, "compute_s": 0.058}
COMMUNICATION = {"transfer_s": 0.3, "exposed_s": 0.302, "step_s": 0.4}
STRAGGLER = {
    "waiting_s": 0.02,
    "exposed_s": 0.025,
    "compute_s": 0.068,
    "compute_by_rank_s": ((0, 0.05), (1, 0.086)),
    "slowest_share": 0.97,
}
ALONE = {"cell": Cell(workers=1, batch=8), "transfer_s": 0.0, "waiting_s": 0.0, "exposed_s": 0.0}
UNKNOWN = {"transfer_s": None, "waiting_s": None, "exposed_s": None}


@pytest.mark.parametrize(
    ("changes", "fires"),
    [
        ({}, {"compute_bound"}),
        (ALONE, {"compute_bound"}),
        (INPUT, {"input_bound"}),
        (COMMUNICATION, {"communication_bound"}),
        (STRAGGLER, {"straggler"}),
        # Everybody is late in turn: no straggler.
        (
            {**STRAGGLER, "compute_by_rank_s": ((0, 0.068), (1, 0.068)), "slowest_share": 0.5},
            {"uneven_steps"},
        ),
        ({**INPUT, **COMMUNICATION, "data_s": 0.1}, {"input_bound", "communication_bound"}),
        # Across hosts only the sum is known.
        ({**COMMUNICATION, "transfer_s": None, "waiting_s": None}, {"communication_bound"}),
        # What was not measured is not judged.
        ({**UNKNOWN, "data_s": None}, set()),
        # At the thresholds nothing fires yet.
        ({"data_s": 0.01, "compute_s": 0.078}, {"compute_bound"}),
        ({"transfer_s": 0.02, "exposed_s": 0.02, "compute_s": 0.073}, set()),
    ],
)
def test_what_a_step_waits_for(changes: dict[str, Any], fires: set[str]) -> None:
    found = verdicts.step_verdicts(make_row(split=split(**changes)))
    assert {verdict.kind for verdict in found} == fires


def test_communication_names_the_link() -> None:
    given: dict[str, Any] = dict.fromkeys(
        ("derived_s", "derived_epoch_s", "derived_bus_bytes_per_s", "exposed_s", "gradient_bytes")
    )
    sent = Communication(
        cell=Cell(workers=2),
        label="2 workers",
        measured_s=1.0,
        bus_bytes_per_s=1.2e9,
        peak_bytes_per_s=8e9,
        utilisation=0.15,
        bytes_by_kind={},
        total_bytes_by_kind={},
        **given,
    )
    row = make_row(split=split(**COMMUNICATION), communication=sent)
    assert first(verdicts.step_verdicts(row)).sentence == (
        "Bound by communication: 75 % of a step waits for gradients, at 1.20 GB/s, 15 % of the "
        "link's peak (a cell)."
    )


@pytest.mark.parametrize(
    ("found", "fired", "expected"),
    [
        (split(), set(), "compute"),
        (split(), {"fixed_cost"}, "fixed_cost"),
        (split(), {"oversubscription"}, "oversubscription"),
        (split(**INPUT), set(), "input"),
        (split(**COMMUNICATION), {"fixed_cost"}, "communication"),
        (split(**STRAGGLER), set(), "straggler"),
        (split(**{**INPUT, **COMMUNICATION, "data_s": 0.06}), set(), "communication"),
        (None, set(), "unknown"),
        (None, {"fixed_cost"}, "fixed_cost"),
        (split(**UNKNOWN), set(), "unknown"),
        (split(**UNKNOWN, **INPUT), set(), "input"),
    ],
)
def test_what_limits(found: StepSplit | None, fired: set[str], expected: str) -> None:
    assert limited_by(found, fired) == expected


@pytest.mark.parametrize(
    ("cell", "cores", "fires"),
    [
        (Cell(workers=4, threads=2), 8.0, False),
        (Cell(workers=4, threads=4), 8.0, True),
        (Cell(workers=4, threads=4, hosts=2), 8.0, False),
        (Cell(workers=16, threads=1), 8.0, True),
        (Cell(workers=16, threads=1, device="cuda"), 8.0, False),
        (Cell(workers=16), 8.0, False),
        (Cell(workers=16, threads=1), None, False),
    ],
)
def test_oversubscription(cell: Cell, cores: float | None, fires: bool) -> None:
    assert bool(first(verdicts.oversubscription(measured(cell), cores))) is fires


@pytest.mark.parametrize(
    ("compute_s", "batch", "fires"), [(0.05, 8, True), (0.08, 8, False), (0.05, 16, False)]
)
def test_contention(compute_s: float, batch: int, fires: bool) -> None:
    one = split(cell=Cell(workers=1, batch=batch), compute_s=compute_s)
    assert bool(first(verdicts.contention(one, split()))) is fires


def straggling_study(*, ratio: float, pauses: int = 0) -> dict[str, Verdict]:
    """Return the verdicts on 2 workers of which rank 0 computes longer, or pauses at times."""
    step_s, steps = 0.1, 60
    durations = [step_s * ratio] * steps
    for index in range(pauses):
        durations[9 + 10 * index] = 1.0
    ends = 100.0 + np.cumsum(durations)
    ready = np.concatenate([[100.0], ends[:-1]]) + step_s
    waits = np.array(durations) - step_s
    ranks = [
        make_rank(0, make_steps(durations, exposed_s=0.0, ready_s=ends, samples=8)),
        make_rank(1, make_steps(durations, exposed_s=waits, ready_s=ready, samples=8)),
    ]
    alone = [make_rank(0, make_steps(step_s, steps, exposed_s=0.0, samples=8))]
    cells = [(Cell(workers=1, batch=8), alone), (Cell(workers=2, batch=8), ranks)]
    found = analyse(make_study([make_launch(cell, of) for cell, of in cells])).verdicts
    return {verdict.kind: verdict for verdict in found}


def test_a_straggler_is_blamed_alone_and_by_what_the_others_wait() -> None:
    found = straggling_study(ratio=2.0)
    assert "Held up by rank 0: the others wait for it for 50 %" in found["straggler"].sentence
    assert found["straggler"].evidence["its compute over the others'"] == pytest.approx(2.0)
    assert "contention" not in found


def test_pauses_of_one_rank_are_named_with_their_seconds() -> None:
    found = straggling_study(ratio=1.0, pauses=5)
    assert found["one_rank_pauses"].sentence.startswith(
        "Rank 0 alone paused 5 times for 4.50 s in all (900 ms each) while the others waited"
    )
    assert "one_rank_pauses" not in straggling_study(ratio=1.0)


# Jobs and utilisation


def job_row(
    job_s: float | None, epochs: float | None = None, epoch_s: float | None = None, workers: int = 2
) -> CellRow:
    fixed = None if None in (job_s, epochs, epoch_s) else job_s - epochs * epoch_s
    cell = Cell(workers=workers)
    job = JobTime(
        cell=cell,
        label="",
        job_s=None if job_s is None else exactly(job_s),
        epochs=epochs,
        epoch_s=None if epoch_s is None else exactly(epoch_s),
        epoch_measured=epoch_s is not None,
        steps_per_epoch=None,
        startup_s=None,
        between_s=None,
        fixed_s=fixed,
        fixed_share=None if fixed is None else fixed / job_s,
    )
    return make_row(cell, job=job)


@pytest.mark.parametrize(
    ("found", "kinds"),
    [
        ((100.0, 10.0, 9.0), []),
        ((100.0, 10.0, 7.0), []),
        ((100.0, 10.0, 6.9), ["fixed_cost"]),
        ((319.0, 10.0, 11.0), ["fixed_cost"]),
        ((100.0,), []),
        ((None, 10.0, 7.0), []),
        ((5910.0, 30.0, 209.0), ["contradicting_times"]),
        ((2594.0, 30.0, 81.0), []),
        ((100.0, 10.0, 10.0), []),
    ],
)
def test_times_of_a_job(found: tuple[float, ...], kinds: list[str]) -> None:
    row = job_row(*found)
    rules = (verdicts.fixed_cost, verdicts.contradicting_times)
    assert [verdict.kind for rule in rules for verdict in rule(row)] == kinds


@pytest.mark.parametrize(
    ("times", "fires"),
    [
        # The driving lab: 8, 7.5, 8, 8.5 minutes on 2, 4, 4, 8.
        ({2: 480.0, 4: 450.0, 8: 510.0}, True),
        ({1: 456.0, 2: 380.0, 4: 204.0}, False),
        ({1: 100.0, 2: 50.0}, False),
        ({1: 100.0}, False),
        ({}, False),
    ],
)
def test_flat_jobs(times: dict[int, float], fires: bool) -> None:
    rows = [job_row(time_s, workers=workers) for workers, time_s in times.items()]
    assert bool(first(verdicts.flat_jobs(rows))) is fires


@pytest.mark.parametrize(
    ("samples", "batch", "workers", "fires"),
    [
        (50_000, 64, 2, False),
        (1000, 32, 4, True),
        (1280, 32, 2, False),
        (1279, 32, 2, True),
        (1000, 128, 1, False),
        (None, 32, 4, False),
        (1000, None, 4, False),
    ],
)
def test_data_too_small(samples: int | None, batch: int | None, workers: int, fires: bool) -> None:
    found = measured(Cell(workers=workers, batch=batch), samples=samples)
    assert bool(first(verdicts.data_too_small(found))) is fires


@pytest.mark.parametrize(
    ("by_rank", "words"),
    [
        ([(0.9, None, None), (0.85, None, None)], None),
        ([(0.9, None, None), (0.6, None, None)], "rank 0 keeps its CPU 90 % busy, rank 1 60 %"),
        ([(0.9, 0.9, None), (0.9, 0.5, None)], "rank 0 keeps its GPU 90 % busy, rank 1 50 %"),
        ([(0.9, None, None)], None),
        ([(0.9, None, None), (None, None, None)], None),
        # Both idle: nothing to even out.
        ([(0.20, None, None), (0.05, None, None)], None),
        ([(None, None, 2.0e9), (None, None, 2.1e9)], None),
        ([(None, None, 3.0e9), (None, None, 2.0e9)], "rank 0 takes 3.00 GB, rank 1 2.00 GB"),
        # A quarter more, but only of 200 MB.
        ([(None, None, 0.25e9), (None, None, 0.2e9)], None),
    ],
)
def test_uneven_use(by_rank: list[tuple[float | None, ...]], words: str | None) -> None:
    ranks = tuple((rank, *figures) for rank, figures in enumerate(by_rank))
    names = ("cpu", "gpu", "memory_bytes", "gpu_memory_bytes", "energy_j")
    use = UtilisationRow(
        cell=Cell(workers=2), label="", by_rank=ranks, **dict.fromkeys(names, None)
    )
    found = first(verdicts.uneven_use(make_row(utilisation=use)))
    assert bool(found) is (words is not None)
    assert not found or words in found.sentence


# Devices and other factors


@pytest.mark.parametrize(
    ("speeds", "fires"),
    [
        # 81 and 80 s an epoch on 4 T4 and 4 V100.
        ({"T4": 1 / 81, "V100": 1 / 80}, True),
        ({"T4": 1 / 81, "V100": 1 / 40}, False),
        ({"NVIDIA A100-SXM4-40GB": 90.0, "Tesla T4": 100.0}, True),
        ({"cpu": 100.0, "Tesla T4": 90.0}, True),
        # Of devices that nobody knows none is the faster one.
        ({"this": 100.0, "that": 100.0}, False),
        ({"T4": 100.0}, False),
        ({}, False),
    ],
)
def test_faster_devices(speeds: dict[str, float], fires: bool) -> None:
    found = verdicts.faster_device_gains_nothing(
        {name: exactly(value) for name, value in speeds.items()}, "4 workers", "epochs/s"
    )
    assert bool(first(found)) is fires


def test_an_order_that_reverses() -> None:
    # The faces lab: VGG16 is last on CPUs and first on GPUs.
    speeds = {
        "cpu": {"ResNet50": 156.33, "InceptionV3": 136.51, "VGG16": 66.25},
        "gpu": {"ResNet50": 508.88, "InceptionV3": 312.17, "VGG16": 671.09},
    }
    estimates = {
        setting: {name: exactly(value) for name, value in by_name.items()}
        for setting, by_name in speeds.items()
    }
    found = first(verdicts.order_of_values(estimates, "model", "images/s"))
    assert found.kind == "order_reverses"
    assert found.sentence == (
        "By model, images/s at cpu: ResNet50 (156) > InceptionV3 (137) > VGG16 (66.2). "
        "The order reverses at gpu: VGG16 is faster than ResNet50 there."
    )
    assert first(verdicts.order_of_values({"cpu": {"a": exactly(1.0)}}, "model", "s")) is None


@pytest.mark.parametrize(
    "there",
    [
        # Reversed by less than the margin, or within the intervals.
        {"a": exactly(100.0), "b": exactly(101.0)},
        {"a": exactly(100.0, 10.0), "b": exactly(115.0, 10.0)},
    ],
)
def test_what_is_not_clear_does_not_reverse(there: dict[str, Estimate]) -> None:
    here = {"a": exactly(2.0, 0.1), "b": exactly(1.0, 0.1)}
    speeds = {"cpu": here, "gpu": there}
    assert first(verdicts.order_of_values(speeds, "model", "samples/s")).kind == "order"


# Metrics


def metric_row(metric: str, final: float | None, **changes: Any) -> MetricRow:
    given: dict[str, Any] = dict.fromkeys(
        ("difference", "verdict", "stable_epoch", "stable_s", "target", "target_epoch", "target_s")
    )
    given |= {"cell": Cell(workers=2), "label": "2 workers", "metric": metric, "seeds": 3}
    given |= {"higher_is_better": "loss" not in metric, "margin": 0.01, "diverged": 0}
    given |= {"final": None if final is None else exactly(final), "censored": 0}
    return MetricRow(**(given | {"target_reached": 0} | changes))


def metric_curve(metric: str, *values: float) -> MetricCurve:
    points = tuple(
        MetricPoint(epoch=float(epoch), value=exactly(value), time_s=None, seeds=1)
        for epoch, value in enumerate(values, start=1)
    )
    return MetricCurve(cell=Cell(workers=2), label="2 workers", metric=metric, points=points)


@pytest.mark.parametrize(
    ("validation", "training", "values", "plateau"),
    [
        (("val_accuracy", 0.94), ("accuracy", 0.98), (), None),
        (("val_accuracy", 0.98), ("accuracy", 0.94), (), None),
        (("val_accuracy", None), ("accuracy", 0.94), (), None),
        (("val_accuracy", 0.7), ("accuracy", 0.9), (0.3, 0.5, *[0.7] * 6), 3),
        # The loss rises by 20 % after its best.
        (("val_loss", 0.60), ("loss", 0.1), (1.0, 0.5, 0.55, 0.6), 2),
        (("val_loss", 0.51), ("loss", 0.1), (1.0, 0.5, 0.5, 0.51), None),
        # It rises, but so does training's: not overfitting.
        (("val_loss", 0.60), ("loss", 0.7), (1.0, 0.5, 0.55, 0.6), None),
    ],
)
def test_overfitting(
    validation: tuple[str, float | None],
    training: tuple[str, float],
    values: tuple[float, ...],
    plateau: int | None,
) -> None:
    by_epoch = metric_curve(validation[0], *values) if values else None
    found = first(verdicts.overfitting(metric_row(*validation), metric_row(*training), by_epoch))
    assert (found.evidence["plateau (epoch)"] if found else None) == plateau


def test_overfitting_names_the_gap_and_a_stated_plateau() -> None:
    row = metric_row("val_accuracy", 0.6888, stable_epoch=15.0)
    found = first(verdicts.overfitting(row, metric_row("accuracy", 0.8610), None))
    assert found.evidence["gap"] == pytest.approx(0.1722)
    assert found.sentence.endswith("val_accuracy gains nothing after epoch 15 (2 workers).")


@pytest.mark.parametrize(
    ("metric", "values", "epoch"),
    [
        ("score", (0.5, 0.6, 0.7, 0.8, 0.9, 0.9), None),
        ("score", (0.5, 0.6, 0.9, 0.7, 0.9, 0.9), 4),
        ("score", (0.5, 0.6, 0.9, 0.87, 0.9, 0.9), None),
        ("loss", (2.0, 1.0, 0.5, 1.5, 0.5, 0.4), 4),
        ("loss", (2.0, 1.0, 0.5, 0.6, 0.5, 0.4), None),
        # In the first fifth anything may happen.
        ("score", (0.9, 0.1, 0.5, 0.6, 0.7, 0.8, 0.9, 0.9, 0.9, 0.9), None),
        ("score", (0.9,), None),
    ],
)
def test_instability(metric: str, values: tuple[float, ...], epoch: int | None) -> None:
    found = verdicts.instability(metric_row(metric, 0.9), metric_curve(metric, *values))
    assert next((one.evidence["epoch"] for one in found), None) == epoch


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({}, []),
        ({"verdict": "same"}, ["no_significant_difference"]),
        ({"verdict": "worse"}, ["accuracy_worse"]),
        ({"verdict": "better"}, ["accuracy_better"]),
        ({"verdict": "inconclusive"}, ["too_noisy"]),
        ({"rising": 2}, ["not_stable"]),
        ({"diverged": 3}, ["diverged"]),
    ],
)
def test_how_a_metric_ends(changes: dict[str, Any], kinds: list[str]) -> None:
    difference = Estimate(value=-0.002, low=-0.006, high=0.002)
    row = metric_row("val_accuracy", 0.98, difference=difference, **changes)
    found = list(verdicts.metric_verdicts(row, None, "val_accuracy"))
    assert [verdict.kind for verdict in found] == kinds
    if kinds == ["too_noisy"]:
        assert found[0].sentence == (
            "Cannot tell whether val_accuracy changed: -0.0020 (-0.0060 to +0.0020) over 3 seeds; "
            "only differences above 0.00400 are detectable (2 workers)."
        )


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("python", "train.py"), "the command has no '{seed}' and the script does not read"),
        (("python", "train.py", "--seed={seed}"), "the script does not use the seed"),
    ],
)
def test_seeds_without_effect_are_said_once(command: tuple[str, ...], why: str) -> None:
    rows = [metric_row("loss", 0.5, seeds_alike=True, label=f"{n} workers") for n in (2, 4)]
    # Runs that all ended as NaN are alike for another reason.
    rows.append(metric_row("loss", None, seeds_alike=True, diverged=3))
    (found,) = verdicts.seeds_without_effect(rows, command)
    assert f"All 3 seeds gave the very same loss, since {why}" in found.sentence
    assert found.sentence.endswith("(2 workers, 4 workers).")
    assert not list(verdicts.seeds_without_effect([metric_row("loss", 0.5)], command))


def test_the_soonest_is_named() -> None:
    slow = metric_row("val_accuracy", 0.7, label="2 T4", stable_s=3135.0)
    fast = metric_row("val_accuracy", 0.7, label="8 V100", stable_s=1100.0)
    found = first(verdicts.soonest([slow, fast, metric_row("val_accuracy", 0.7)]))
    assert found.sentence == (
        "val_accuracy reaches a stable value soonest with 8 V100: after 18 min 20 s, against "
        "52 min 15 s with 2 T4."
    )
    assert first(verdicts.soonest([slow])) is None
    targets = [metric_row("a", 1.0, target_s=seconds) for seconds in (5.0, 9.0)]
    found = first(verdicts.soonest([*targets, slow, fast]))
    assert found.sentence.startswith("a reaches the target soonest")


@pytest.mark.parametrize(
    ("having", "lacking", "cells"),
    [
        (["1 worker"], ["2 workers", "4 workers"], "2 workers, 4 workers"),
        (["a"], list("bcdef"), "b, c, d and 2 more"),
        (["a"], [], None),
        ([], ["a"], None),
    ],
)
def test_a_metric_of_some_cells_only(
    having: list[str], lacking: list[str], cells: str | None
) -> None:
    found = first(verdicts.metric_missing("val_acc", having, lacking))
    expected = f"val_acc was not recorded for {cells}: accuracy is compared where it was."
    assert (found.sentence if found else None) == (expected if cells else None)


def test_a_curve_that_still_rises_is_not_stable() -> None:
    rising = [trained_launch(Cell(workers=1), seed, [k / 10 for k in range(9)]) for seed in (0, 1)]
    flat = [trained_launch(Cell(workers=1), 0, [0.5, 0.8, 0.9, 0.9, 0.9, 0.9, 0.9])]
    found = [analyse(make_study(launches)).each("metrics")[0] for launches in (rising, flat)]
    assert [(row.stable_epoch, row.rising) for row in found] == [(None, 2), (3.0, 0)]


# All of them


def test_a_few_of_a_kind_are_enough() -> None:
    alike = [
        Verdict(kind="fixed_cost", severity="warn", sentence=f"{n}.", action="", evidence={})
        for n in range(10)
    ]
    found = [verdict.sentence for verdict in condense(alike)]
    assert found == ["0.", "1.", "2. (And 7 more like this.)"]
    assert condense(alike[:3]) == alike[:3]
    assert condense([]) == []


def test_warnings_come_first() -> None:
    launches = [
        timed_launch(Cell(workers=n, batch=8, threads=1), t) for n, t in ((1, 0.1), (2, 0.06))
    ]
    found = analyse(make_study(launches)).verdicts
    order = [("void", "warn", "note", "good").index(verdict.severity) for verdict in found]
    assert order == sorted(order)
    assert found[0].kind == "more_than_linear"


def test_a_step_is_judged_at_the_largest_count() -> None:
    def launch(workers: int, exposed_s: float) -> Launch:
        steps = make_steps(0.1, data_s=0.0, exposed_s=exposed_s, samples=8.0)
        ranks = [make_rank(n, steps) for n in range(workers)]
        return make_launch(Cell(workers=workers, batch=8), ranks)

    info = analyse(make_study([launch(1, 0.0), launch(2, 0.01), launch(4, 0.05)]))
    found = [(one.kind, one.labels) for one in info.verdicts if one.kind.endswith("_bound")]
    assert found == [("communication_bound", ("4 workers",))]


# Voids

SAME = tuple(str(index) for index in range(64))
NOTHING = {"gradients": 0, "control": 10}


def launch_of(*changes: dict[str, Any], steps: int = 40) -> Launch:
    ranks = [make_rank(n, make_steps(0.1, steps), **given) for n, given in enumerate(changes)]
    return make_launch(Cell(workers=len(changes), batch=8), ranks)


def both(**changes: Any) -> list[dict[str, Any]]:
    return [changes, changes]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (both(), None),
        ([{"bytes_sent": NOTHING}], None),
        (both(bytes_sent=NOTHING), "not_averaged"),
        (both(bytes_sent=NOTHING, weights=None), "not_averaged"),
        ([{"bytes_sent": NOTHING, "weights": w} for w in ("a", "b")], "not_averaged"),
        # Nothing was looked at, so nothing can be said.
        (both(bytes_sent={}), None),
        ([{"bytes_sent": {}, "weights": w} for w in ("a", "b")], "weights_differ"),
        # Averaged by hand through calls of another kind: bytes moved, and the weights agree.
        (both(bytes_sent={"gradients": 0, "other": 160_000}), None),
        # They agree as well when all did the same on the same samples.
        (both(bytes_sent={"gradients": 0, "other": 8}, sample_hashes=SAME), "not_averaged"),
        (both(bytes_sent={"gradients": 0, "other": 8}, sample_hashes=()), "not_averaged"),
        ([{"weights": "a"}, {"weights": "b"}], "weights_differ"),
        ([{"weights": "a"}, {"weights": None}], None),
        (both(sample_hashes=SAME), "same_samples"),
        ([{"sample_hashes": SAME}, {"sample_hashes": SAME[::-1]}], "same_samples"),
        # Half of what the other saw is not chance; shuffled without shards few are in common.
        ([{"sample_hashes": SAME}, {"sample_hashes": (*SAME[:20], "a", "b")}], "same_samples"),
        ([{"sample_hashes": SAME[:40]}, {"sample_hashes": SAME[30:]}], None),
        (both(sample_hashes=()), None),
        # A data set of 64: in the second epoch everybody has seen everything.
        (
            [
                {"sample_hashes": SAME, "dataset_size": 64},
                {"sample_hashes": SAME[32:] + SAME[:32], "dataset_size": 64},
            ],
            None,
        ),
        # The same batch in every step: a synthetic benchmark.
        (both(sample_hashes=SAME[:8] * 8), None),
    ],
)
def test_why_workers_did_not_train_together(
    changes: list[dict[str, Any]], expected: str | None
) -> None:
    assert void_of(launch_of(*changes)) == expected
    assert void_of(launch_of(*changes, steps=0)) is None


@pytest.mark.parametrize(
    ("changes", "torch", "keras", "evidence"),
    [
        (
            both(bytes_sent=NOTHING),
            "optimizer = hvd.DistributedOptimizer(optimizer) (or the model: DDP(model)).",
            "model.compile(hvd.DistributedOptimizer(optimizer)",
            ("gradient bytes", 0),
        ),
        (
            [{"weights": "a"}, {"weights": "b"}],
            "broadcast_parameters",
            "BroadcastGlobalVariablesCallback",
            ("weights of rank 1", "b"),
        ),
        (
            both(sample_hashes=SAME),
            "DistributedSampler",
            "hvd.shard((x, y), batch_size=...)",
            ("overlap of samples", 1.0),
        ),
    ],
)
def test_each_void_says_what_to_do(
    changes: list[dict[str, Any]], torch: str, keras: str, evidence: tuple[str, object]
) -> None:
    for framework, words in (("torch", torch), ("keras", keras), ("farandole.keras", keras)):
        launch = launch_of(*({**given, "framework": framework} for given in changes))
        (cell,), _ = measure(make_study([launch]))
        (void,) = find_voids(cell)
        assert words in void.mend
        assert evidence in void.evidence.items()
        assert void.launches == (launch.id,)
        assert find_voids(replace(cell, launches=(replace(launch, outcome="failed"),))) == []


@pytest.mark.parametrize(
    ("sizes", "steps", "void"),
    [
        ((2048, 2048), 256, True),
        ((2048, 2048), 128, False),
        # Each worker has a data set of its own, of half the samples.
        ((2048, 1024), 128, False),
        ((None, None), 256, False),
    ],
)
def test_workers_that_all_go_through_the_whole_data(
    sizes: tuple[int | None, int | None], steps: int, void: bool
) -> None:
    def launch(workers: int, size: int | None, number: int) -> Launch:
        made = make_steps(0.1, number, samples=8)
        given = {"epochs": ((100.0, 101.0 + 0.1 * number),), "dataset_size": size}
        ranks = [make_rank(n, made, **given) for n in range(workers)]
        return make_launch(Cell(workers=workers, batch=8), ranks, purpose="epoch", wall_s=99.0)

    info = analyse(make_study([launch(1, sizes[0], 256), launch(2, sizes[1], steps)]))
    assert (info.answer.void is not None) is void
    if void:
        assert info.answer.headline.startswith(
            "Each of your 2 workers went through all 2,048 samples: an epoch did not shrink."
        )
        assert info.answer.speedup is None


def test_void_cells_have_no_verdict_about_speed() -> None:
    two = launch_of(*both(bytes_sent=NOTHING))
    info = analyse(make_study([timed_launch(Cell(workers=1, batch=8), 0.1), two]))
    assert {verdict.kind for verdict in info.verdicts} <= {"compute_bound"}
