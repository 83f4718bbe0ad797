"""Verdicts on speed: every rule speaks where it should, and only there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from farandole.model.accuracy import MetricCurve, MetricPoint, MetricRow
from farandole.model.analyse import analyse
from farandole.model.communication import Communication
from farandole.model.curves import Curve, draw_curves
from farandole.model.jobs import JobTime
from farandole.model.measured import measure
from farandole.model.split import StepSplit
from farandole.model.statistics import Estimate
from farandole.model.utilisation import UtilisationRow
from farandole.model.verdicts import (
    Verdict,
    changed,
    condense,
    contention,
    contradicting_times,
    data_too_small,
    diverged,
    faster_device_gains_nothing,
    fixed_cost,
    flat_jobs,
    instability,
    leaves_linear,
    limited_by,
    missing,
    more_than_linear,
    no_gain,
    order_reverses,
    overfitting,
    oversubscription,
    seeds_without_effect,
    single_launches,
    soonest,
    step_verdicts,
    too_noisy,
    uneven_memory,
    uneven_utilisation,
)
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


def curve_of(*times: list[float]) -> Curve:
    """Step times at 1, 2, 4, ... workers, one per launch; batch per worker fixed."""
    launches = [
        launch
        for power, step_times in enumerate(times)
        for launch in repeated(Cell(workers=2**power, batch=8), step_times)
    ]
    return draw_curves(measure(make_study(launches))[0])[0]


@pytest.mark.parametrize(
    ("curve", "workers"),
    [
        (curve_of([0.10], [0.10], [0.10]), None),
        (curve_of([0.10], [0.105], [0.15]), 4),
        (curve_of([0.10], [0.15], [0.15]), 2),
        # 0.89 on average, but the interval reaches above 0.9.
        (curve_of([0.10, 0.101, 0.099], [0.112, 0.118, 0.107]), None),
        (curve_of([0.10, 0.1001, 0.0999], [0.125, 0.1251, 0.1249]), 2),
    ],
)
def test_leaving_linear(curve: Curve, workers: int | None) -> None:
    found = leaves_linear(curve)
    assert (found.evidence["workers"] if found else None) == workers


def test_leaving_linear_names_the_last_good_count() -> None:
    found = leaves_linear(curve_of([0.10], [0.105], [0.15]))
    assert found is not None
    assert found.sentence == (
        "Efficiency falls to 67 % at 4 workers, after 95 % at 2 (weak scaling)."
    )
    assert found.action.startswith("Up to 2 ")


@pytest.mark.parametrize(
    ("curve", "severity"),
    [
        (curve_of([0.10], [0.10]), None),
        (curve_of([0.10], [0.11]), None),
        (curve_of([0.10], [0.08]), "warn"),
        (curve_of([0.10], [0.098]), "note"),
        # More on average, not clearly.
        (curve_of([0.10, 0.12, 0.09], [0.09, 0.10, 0.11]), None),
        (curve_of([0.10, 0.101, 0.099], [0.08, 0.081, 0.079]), "warn"),
    ],
)
def test_more_than_linear(curve: Curve, severity: str | None) -> None:
    found = more_than_linear(curve)
    assert (found.severity if found else None) == severity


@pytest.mark.parametrize(
    ("few", "many", "fires"),
    [
        ([100.0, 100.1, 99.9, 100.2, 99.8], [100.5, 100.4, 100.6, 100.3, 100.7], True),
        ([100.0, 100.1, 99.9, 100.2, 99.8], [110.5, 110.4, 110.6, 110.3, 110.7], False),
        # Too few launches to claim it.
        ([100.0, 100.1, 99.9], [100.5, 100.4, 100.6], False),
        ([100.0], [100.0], False),
    ],
)
def test_no_gain(few: list[float], many: list[float], fires: bool) -> None:
    assert (no_gain(few, many, "1 worker", "2 workers") is not None) is fires


@pytest.mark.parametrize(
    ("curve", "fires"),
    [
        (curve_of([0.10, 0.13, 0.09], [0.11, 0.15, 0.10]), True),
        (curve_of([0.10, 0.101, 0.099], [0.11, 0.111, 0.109]), False),
        # Between 0.95 and 1.08 nobody knows whether it pays.
        (curve_of([0.10, 0.102, 0.098], [0.196, 0.206, 0.191]), True),
        (curve_of([0.10], [0.11]), False),
    ],
)
def test_too_noisy(curve: Curve, fires: bool) -> None:
    found = too_noisy(curve)
    assert (found is not None) is fires
    if found is not None:
        assert "--repeats 6" in found.action


def test_single_launches_are_said_once() -> None:
    single = curve_of([0.10], [0.11])
    found = single_launches([single, single])
    assert found is not None
    assert "--repeats 5" in found.action
    imported = single_launches([single], imported=True)
    assert imported is not None
    assert "rows" in imported.action
    assert single_launches([single, curve_of([0.1, 0.101], [0.11, 0.111])]) is None
    assert single_launches([curve_of([0.1])]) is None
    assert single_launches([]) is None


def split(**changes: Any) -> StepSplit:
    """A step of 100 ms on two workers, bound by compute."""
    given: dict[str, Any] = {
        "cell": Cell(workers=2, batch=8),
        "label": "2 workers",
        "step_s": 0.1,
        "data_s": 0.002,
        "compute_s": 0.086,
        "transfer_s": 0.005,
        "waiting_s": 0.002,
        "exposed_s": 0.007,
        "optimizer_s": 0.005,
        "hidden_s": 0.0,
        "slowest_rank": 1,
        "slowest_share": 0.5,
        "compute_by_rank_s": ((0, 0.086), (1, 0.086)),
    }
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

ONE_WORKER = {
    "cell": Cell(workers=1, batch=8),
    "transfer_s": 0.0,
    "waiting_s": 0.0,
    "exposed_s": 0.0,
}


@pytest.mark.parametrize(
    ("changes", "fires"),
    [
        ({}, {"compute_bound"}),
        (ONE_WORKER, {"compute_bound"}),
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
        ({"transfer_s": None, "waiting_s": None, "exposed_s": None, "data_s": None}, set()),
        # At the thresholds nothing fires yet.
        ({"data_s": 0.01, "compute_s": 0.078}, {"compute_bound"}),
        ({"transfer_s": 0.02, "exposed_s": 0.02, "compute_s": 0.073}, set()),
    ],
)
def test_rules(changes: dict[str, Any], fires: set[str]) -> None:
    assert {verdict.kind for verdict in step_verdicts(split(**changes))} == fires


def test_communication_names_the_link() -> None:
    communication = Communication(
        cell=Cell(workers=2),
        label="2 workers",
        gradient_bytes=4,
        measured_s=1.0,
        exposed_s=1.0,
        derived_s=None,
        derived_epoch_s=None,
        bus_bytes_per_s=1.2e9,
        derived_bus_bytes_per_s=None,
        peak_bytes_per_s=8e9,
        utilisation=0.15,
        bytes_by_kind={},
        total_bytes_by_kind={},
    )
    (found,) = step_verdicts(split(**COMMUNICATION), communication)
    assert found.sentence == (
        "Bound by communication: 75 % of a step waits for gradients, at 1.20 GB/s, 15 % of the "
        "link's peak (2 workers)."
    )


def test_a_straggler_is_named_with_its_evidence() -> None:
    (found,) = step_verdicts(split(**STRAGGLER))
    assert "rank 1" in found.sentence
    assert found.evidence["waiting share"] == pytest.approx(0.2)
    assert found.evidence["its compute over the others'"] == pytest.approx(0.086 / 0.05)


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
    assert (oversubscription(cell, "a cell", cores) is not None) is fires


@pytest.mark.parametrize(
    ("compute_s", "batch", "fires"), [(0.05, 8, True), (0.08, 8, False), (0.05, 16, False)]
)
def test_contention(compute_s: float, batch: int, fires: bool) -> None:
    one = split(cell=Cell(workers=1, batch=batch), compute_s=compute_s)
    assert (contention(one, split()) is not None) is fires


FIXED = {
    "fixed_cost": Verdict(kind="fixed_cost", severity="warn", sentence="", action="", evidence={})
}

TOO_MANY = {
    "oversubscription": Verdict(
        kind="oversubscription", severity="warn", sentence="", action="", evidence={}
    )
}


@pytest.mark.parametrize(
    ("found", "fired", "expected"),
    [
        (split(), {}, "compute"),
        (split(), FIXED, "fixed_cost"),
        (split(), TOO_MANY, "oversubscription"),
        (split(**INPUT), {}, "input"),
        (split(**COMMUNICATION), FIXED, "communication"),
        (split(**STRAGGLER), {}, "straggler"),
        (split(**{**INPUT, **COMMUNICATION, "data_s": 0.06}), {}, "communication"),
        (None, {}, "unknown"),
        (None, FIXED, "fixed_cost"),
        (split(exposed_s=None, transfer_s=None, waiting_s=None), {}, "unknown"),
        (split(exposed_s=None, transfer_s=None, waiting_s=None, **INPUT), {}, "input"),
    ],
)
def test_what_limits(found: StepSplit | None, fired: dict[str, Verdict], expected: str) -> None:
    assert limited_by(found, fired) == expected


def job(
    job_s: float | None, epochs: float | None = None, epoch_s: float | None = None, workers: int = 2
) -> JobTime:
    fixed = None if None in (job_s, epochs, epoch_s) else job_s - epochs * epoch_s  # type: ignore[operator]
    return JobTime(
        cell=Cell(workers=workers),
        label=f"{workers} workers",
        job_s=None if job_s is None else Estimate(value=job_s, low=None, high=None),
        epochs=epochs,
        epoch_s=None if epoch_s is None else Estimate(value=epoch_s, low=None, high=None),
        epoch_measured=epoch_s is not None,
        steps_per_epoch=None,
        startup_s=None,
        between_s=None,
        fixed_s=fixed,
        fixed_share=None if fixed is None or job_s is None else fixed / job_s,
    )


@pytest.mark.parametrize(
    ("found", "fires"),
    [
        (job(100.0, 10.0, 9.0), False),
        (job(100.0, 10.0, 7.0), False),
        (job(100.0, 10.0, 6.9), True),
        (job(319.0, 10.0, 11.0), True),
        (job(100.0), False),
        (job(None, 10.0, 7.0), False),
    ],
)
def test_fixed_cost(found: JobTime, fires: bool) -> None:
    assert (fixed_cost(found) is not None) is fires


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
    found = flat_jobs([job(time_s, workers=workers) for workers, time_s in times.items()])
    assert (found is not None) is fires


@pytest.mark.parametrize(
    ("samples", "batch", "workers", "fires"),
    [
        (50_000, 128, 2, False),
        (1000, 128, 4, True),
        (1280, 64, 2, False),
        (1279, 64, 2, True),
        (1000, 128, 1, False),
        (None, 128, 4, False),
        (1000, None, 4, False),
    ],
)
def test_data_too_small(samples: int | None, batch: int | None, workers: int, fires: bool) -> None:
    assert (data_too_small(samples, batch, workers, "a cell") is not None) is fires


@pytest.mark.parametrize(
    ("found", "fires"),
    [
        (job(5910.0, 30.0, 209.0), True),
        (job(2594.0, 30.0, 81.0), False),
        (job(100.0, 10.0, 10.0), False),
        (job(5910.0), False),
    ],
)
def test_contradicting_times(found: JobTime, fires: bool) -> None:
    assert (contradicting_times(found) is not None) is fires


def row(*by_rank: tuple[float | None, float | None, float | None]) -> UtilisationRow:
    return UtilisationRow(
        cell=Cell(workers=len(by_rank)),
        label="a cell",
        cpu=None,
        gpu=None,
        memory_bytes=None,
        gpu_memory_bytes=None,
        energy_j=None,
        by_rank=tuple((rank, *figures) for rank, figures in enumerate(by_rank)),
    )


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (row((0.9, None, None), (0.85, None, None)), None),
        (row((0.9, None, None), (0.6, None, None)), "CPU"),
        (row((0.9, 0.9, None), (0.9, 0.5, None)), "GPU"),
        (row((0.9, None, None)), None),
        (row((0.9, None, None), (None, None, None)), None),
        # Both idle: nothing to even out.
        (row((0.04, None, None), (0.01, None, None)), None),
    ],
)
def test_uneven_utilisation(found: UtilisationRow, word: str | None) -> None:
    verdict = uneven_utilisation(found)
    assert (verdict is not None) is (word is not None)
    if verdict is not None and word is not None:
        assert word in verdict.sentence


@pytest.mark.parametrize(
    ("found", "fires"),
    [
        (row((None, None, 2.0e9), (None, None, 2.1e9)), False),
        (row((None, None, 3.0e9), (None, None, 2.0e9)), True),
        # A quarter more, but only of 200 MB.
        (row((None, None, 0.25e9), (None, None, 0.2e9)), False),
        (row((None, None, 3.0e9)), False),
    ],
)
def test_uneven_memory(found: UtilisationRow, fires: bool) -> None:
    assert (uneven_memory(found) is not None) is fires


def speed(value: float, spread: float | None = None) -> Estimate:
    if spread is None:
        return Estimate(value=value, low=None, high=None)
    return Estimate(value=value, low=value - spread, high=value + spread)


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
    found = faster_device_gains_nothing(
        {name: speed(value) for name, value in speeds.items()}, "4 workers", "epochs/s"
    )
    assert (found is not None) is fires


def test_an_order_that_reverses() -> None:
    # The faces lab: VGG16 is last on CPUs and first on GPUs.
    found = order_reverses(
        {
            "cpu": {"ResNet50": speed(156.33), "InceptionV3": speed(136.51), "VGG16": speed(66.25)},
            "gpu": {
                "ResNet50": speed(508.88),
                "InceptionV3": speed(312.17),
                "VGG16": speed(671.09),
            },
        },
        "model",
        "images/s",
    )
    assert found is not None
    assert found.kind == "order_reverses"
    assert found.sentence == (
        "By model, images/s at cpu: ResNet50 (156) > InceptionV3 (137) > VGG16 (66.2). "
        "The order reverses at gpu: VGG16 is faster than ResNet50 there."
    )


@pytest.mark.parametrize(
    "there",
    [
        # Reversed by less than the margin, or within the intervals.
        {"a": speed(100.0), "b": speed(101.0)},
        {"a": speed(100.0, 10.0), "b": speed(115.0, 10.0)},
    ],
)
def test_what_is_not_clear_does_not_reverse(there: dict[str, Estimate]) -> None:
    here = {"a": speed(2.0, 0.1), "b": speed(1.0, 0.1)}
    found = order_reverses({"cpu": here, "gpu": there}, "model", "samples/s")
    assert found is not None
    assert found.kind == "order"


def test_one_value_has_no_order() -> None:
    assert order_reverses({"cpu": {"a": speed(1.0)}}, "model", "samples/s") is None
    assert order_reverses({}, "model", "samples/s") is None


CELL = Cell(workers=2)


def metric_row(metric: str, final: float | None, **changes: Any) -> MetricRow:
    given: dict[str, Any] = {
        "cell": CELL,
        "label": "2 workers",
        "metric": metric,
        "higher_is_better": "loss" not in metric,
        "final": None if final is None else Estimate(value=final, low=None, high=None),
        "seeds": 3,
        "diverged": 0,
        "difference": None,
        "margin": 0.01,
        "verdict": None,
        "stable_epoch": None,
        "stable_s": None,
        "censored": 0,
        "target": None,
        "target_epoch": None,
        "target_s": None,
        "target_reached": 0,
    }
    return MetricRow(**(given | changes))


def metric_curve(metric: str, *values: float) -> MetricCurve:
    points = tuple(
        MetricPoint(
            epoch=float(epoch),
            value=Estimate(value=value, low=None, high=None),
            time_s=None,
            seeds=1,
        )
        for epoch, value in enumerate(values, start=1)
    )
    return MetricCurve(cell=CELL, label="2 workers", metric=metric, points=points)


@pytest.mark.parametrize(
    ("validation", "training", "values", "fires"),
    [
        (("val_accuracy", 0.6888), ("accuracy", 0.8610), (), True),
        (("val_accuracy", 0.94), ("accuracy", 0.98), (), False),
        (("val_accuracy", 0.98), ("accuracy", 0.94), (), False),
        (("val_accuracy", None), ("accuracy", 0.94), (), False),
        # The loss rises by 20 % after its best.
        (("val_loss", 0.60), ("loss", 0.1), (1.0, 0.5, 0.55, 0.6), True),
        (("val_loss", 0.51), ("loss", 0.1), (1.0, 0.5, 0.5, 0.51), False),
        # It rises, but so does training's: not overfitting.
        (("val_loss", 0.60), ("loss", 0.7), (1.0, 0.5, 0.55, 0.6), False),
    ],
)
def test_overfitting(
    validation: tuple[str, float | None],
    training: tuple[str, float],
    values: tuple[float, ...],
    fires: bool,
) -> None:
    by_epoch = metric_curve(validation[0], *values) if values else None
    found = overfitting(metric_row(*validation), metric_row(*training), by_epoch)
    assert (found is not None) is fires


def test_overfitting_names_the_gap_and_the_plateau() -> None:
    by_epoch = metric_curve("val_accuracy", 0.3, 0.5, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7)
    found = overfitting(metric_row("val_accuracy", 0.7), metric_row("accuracy", 0.9), by_epoch)
    assert found is not None
    assert found.evidence["gap"] == pytest.approx(0.2)
    assert found.evidence["plateau (epoch)"] == 3
    stated = overfitting(
        metric_row("val_accuracy", 0.7, stable_epoch=15.0), metric_row("accuracy", 0.9)
    )
    assert stated is not None
    assert stated.evidence["plateau (epoch)"] == 15
    loss = overfitting(
        metric_row("val_loss", 0.6),
        metric_row("loss", 0.1),
        metric_curve("val_loss", 1.0, 0.5, 0.6),
    )
    assert loss is not None
    assert loss.evidence["plateau (epoch)"] == 2


@pytest.mark.parametrize(
    ("values", "higher", "epoch"),
    [
        ((0.5, 0.6, 0.7, 0.8, 0.9, 0.9), True, None),
        ((0.5, 0.6, 0.9, 0.7, 0.9, 0.9), True, 4),
        ((0.5, 0.6, 0.9, 0.87, 0.9, 0.9), True, None),
        ((2.0, 1.0, 0.5, 1.5, 0.5, 0.4), False, 4),
        ((2.0, 1.0, 0.5, 0.6, 0.5, 0.4), False, None),
        # In the first fifth anything may happen.
        ((0.9, 0.1, 0.5, 0.6, 0.7, 0.8, 0.9, 0.9, 0.9, 0.9), True, None),
        ((0.9,), True, None),
    ],
)
def test_instability(values: tuple[float, ...], higher: bool, epoch: int | None) -> None:
    found = instability(metric_curve("metric", *values), higher=higher, margin=0.01)
    assert (found.evidence["epoch"] if found else None) == epoch


def test_divergence() -> None:
    assert diverged(metric_row("loss", 0.5)) is None
    found = diverged(metric_row("loss", None, diverged=3))
    assert found is not None
    assert found.sentence.startswith("3 of 3 runs diverged")


DIFFERENCE = Estimate(value=-0.002, low=-0.006, high=0.002)


@pytest.mark.parametrize(
    ("verdict", "kind", "severity"),
    [
        ("same", "no_significant_difference", "good"),
        ("worse", "accuracy_worse", "warn"),
        ("better", "accuracy_better", "note"),
        ("inconclusive", "too_noisy", "note"),
        (None, None, None),
    ],
)
def test_changes(verdict: str | None, kind: str | None, severity: str | None) -> None:
    found = changed(metric_row("val_accuracy", 0.98, verdict=verdict, difference=DIFFERENCE))
    assert (found.kind if found else None) == kind
    assert (found.severity if found else None) == severity


def test_seeds_without_effect() -> None:
    assert seeds_without_effect(metric_row("loss", 0.5)) is None
    found = seeds_without_effect(metric_row("loss", 0.5, seeds_alike=True))
    assert found is not None
    assert "All 3 seeds gave the very same loss" in found.sentence
    # Runs that all ended as NaN are alike for another reason.
    assert seeds_without_effect(metric_row("loss", None, seeds_alike=True, diverged=3)) is None


def test_the_soonest_is_named() -> None:
    slow = metric_row("val_accuracy", 0.7, label="2 T4", stable_s=3135.0)
    fast = metric_row("val_accuracy", 0.7, label="8 V100", stable_s=1100.0)
    found = soonest([slow, fast, metric_row("val_accuracy", 0.7)])
    assert found is not None
    assert found.sentence == (
        "val_accuracy reaches a stable value soonest with 8 V100: after 18 min 20 s, against "
        "52 min 15 s with 2 T4."
    )
    assert soonest([slow]) is None
    target = soonest(
        [metric_row("a", 1.0, target_s=5.0), metric_row("a", 1.0, target_s=9.0), slow, fast]
    )
    assert target is not None
    assert target.sentence.startswith("a reaches the target soonest")


def test_a_metric_of_some_cells_only() -> None:
    found = missing("val_acc", having=["1 worker"], lacking=["2 workers", "4 workers"])
    assert found is not None
    assert found.sentence == (
        "val_acc was not recorded for 2 workers, 4 workers: accuracy is compared where it was."
    )
    many = missing("val_acc", having=["a"], lacking=list("bcdef"))
    assert many is not None
    assert "for b, c, d and 2 more:" in many.sentence
    assert missing("val_acc", having=["a"], lacking=[]) is None
    assert missing("val_acc", having=[], lacking=["a"]) is None


def kinds_of(launches: list[Launch], **changes: object) -> set[str]:
    return {verdict.kind for verdict in analyse(make_study(launches, **changes)).verdicts}


def test_a_few_of_a_kind_are_enough() -> None:
    alike = [
        Verdict(kind="fixed_cost", severity="warn", sentence=f"{n}.", action="", evidence={})
        for n in range(10)
    ]
    assert [found.sentence for found in condense(alike)] == [
        "0.",
        "1.",
        "2. (And 7 more like this.)",
    ]
    assert condense(alike[:3]) == alike[:3]
    assert condense([]) == []


def test_warnings_come_first() -> None:
    launches = [
        timed_launch(Cell(workers=n, batch=8, threads=1), t) for n, t in ((1, 0.1), (2, 0.06))
    ]
    verdicts = analyse(make_study(launches)).verdicts
    order = {"void": 0, "warn": 1, "note": 2, "good": 3}
    found = [order[verdict.severity] for verdict in verdicts]
    assert found == sorted(found)
    assert verdicts[0].kind == "more_than_linear"


def test_a_step_is_judged_at_the_largest_count() -> None:
    def launch(workers: int, exposed_s: float) -> Launch:
        steps = make_steps(0.1, data_s=0.0, exposed_s=exposed_s, samples=8.0)
        return make_launch(
            Cell(workers=workers, batch=8), [make_rank(n, steps) for n in range(workers)]
        )

    launches = [launch(1, 0.0), launch(2, 0.01), launch(4, 0.05)]
    found = [
        verdict
        for verdict in analyse(make_study(launches)).verdicts
        if verdict.kind in ("communication_bound", "compute_bound")
    ]
    assert [(verdict.kind, verdict.labels) for verdict in found] == [
        ("communication_bound", ("4 workers",))
    ]


def test_threads_that_outnumber_cores() -> None:
    cells = [Cell(workers=n, batch=8, threads=4) for n in (1, 4)]
    launches = [timed_launch(cell, 0.1) for cell in cells]
    info = analyse(make_study(launches))
    assert "oversubscription" in {verdict.kind for verdict in info.verdicts}
    assert info.answer.limited_by == "oversubscription"


def test_void_cells_have_no_verdict_about_speed() -> None:
    apart = [
        make_rank(n, make_steps(0.02, samples=8.0), bytes_sent={"gradients": 0}) for n in (0, 1)
    ]
    launches = [
        timed_launch(Cell(workers=1, batch=8), 0.1),
        make_launch(Cell(workers=2, batch=8), apart),
    ]
    assert kinds_of(launches) <= {"compute_bound"}


def straggling_study(*, ratio: float, pauses: int = 0) -> list[Verdict]:
    """Return the verdicts on 2 workers of which rank 0 computes longer, or pauses at times."""
    step_s, steps = 0.1, 60
    durations = [step_s * ratio] * steps
    for index in range(pauses):
        durations[9 + 10 * index] = 1.0
    ends = 100.0 + np.cumsum(durations)
    begins = np.concatenate([[100.0], ends[:-1]])
    own = np.array([step_s, *[step_s] * (steps - 1)])
    waits = np.array(durations) - own
    ranks = [
        make_rank(0, make_steps(durations, exposed_s=0.0, ready_s=ends, samples=8)),
        make_rank(1, make_steps(durations, exposed_s=waits, ready_s=begins + own, samples=8)),
    ]
    alone = [make_rank(0, make_steps(step_s, steps, exposed_s=0.0, samples=8))]
    cells = [(Cell(workers=1, batch=8), alone), (Cell(workers=2, batch=8), ranks)]
    return list(analyse(make_study([make_launch(cell, of) for cell, of in cells])).verdicts)


def test_a_straggler_is_blamed_alone_and_by_what_the_others_wait() -> None:
    found = {verdict.kind: verdict for verdict in straggling_study(ratio=2.0)}
    assert "the others wait for it for 50 % of a step" in found["straggler"].sentence
    assert "contention" not in found


def test_pauses_of_one_rank_are_named_with_their_seconds() -> None:
    found = {verdict.kind: verdict for verdict in straggling_study(ratio=1.0, pauses=5)}
    assert found["one_rank_pauses"].sentence.startswith(
        "Rank 0 alone paused 5 times for 4.50 s in all (900 ms each) while the others waited"
    )
    assert not any(one.kind == "one_rank_pauses" for one in straggling_study(ratio=1.0))


def test_a_curve_that_still_rises_is_not_stable() -> None:
    rising = [trained_launch(Cell(workers=1), seed, [k / 10 for k in range(9)]) for seed in (0, 1)]
    flat = [trained_launch(Cell(workers=1), 0, [0.5, 0.8, 0.9, 0.9, 0.9, 0.9, 0.9])]
    info = analyse(make_study(rising))
    (row,) = info.each("metrics")
    assert (row.stable_epoch, row.rising) == (None, 2)
    assert any(verdict.kind == "not_stable" for verdict in info.verdicts)
    (row,) = analyse(make_study(flat)).each("metrics")
    assert (row.stable_epoch, row.rising) == (3.0, 0)


@pytest.mark.parametrize(("startup", "job_s"), [(56.0, 53.0), (1.0, 53.0), (53.0, 53.0)])
def test_the_start_up_is_never_longer_than_the_job(startup: float, job_s: float) -> None:
    begin = 98.0 + startup
    epochs = ((begin, begin + 1.0),)
    steps = make_steps(0.1, 10, begin_s=begin)
    launch = make_launch(
        Cell(workers=1, batch=8),
        [make_rank(0, steps, epochs=epochs)],
        outcome="ok",
        purpose="epoch",
        wall_s=job_s,
    )
    (job,) = analyse(make_study([launch])).each("job")
    assert job.startup_s + (job.between_s or 0.0) <= job.job_s.value
