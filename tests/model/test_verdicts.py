"""Verdicts and voids: every rule speaks where it should, and only there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from farandole.model import verdicts
from farandole.model.accuracy import MetricCurve, MetricPoint, MetricRow
from farandole.model.analyse import ScalingInfo, analyse
from farandole.model.communication import Communication
from farandole.model.jobs import JobTime
from farandole.model.measured import measure
from farandole.model.rows import CellRow
from farandole.model.split import StepSplit
from farandole.model.statistics import Estimate
from farandole.model.utilisation import UtilisationRow
from farandole.model.verdicts import Verdict, condense, find_verdicts, find_voids, void_of
from farandole.study.records import Cell, Launch, Mistake
from tests.model.build import (
    make_launch,
    make_rank,
    make_steps,
    make_study,
    repeated,
    table_launch,
    timed_launch,
    trained_launch,
)

TWO = Cell(workers=2, batch=8)


def of_study(launches: list[Launch], **changes: Any) -> dict[str, Verdict]:
    """Return the verdicts on a study by kind."""
    return {one.kind: one for one in analyse(make_study(launches, **changes)).verdicts}


def of_row(cell: Cell = TWO, cores: float | None = None, **changes: Any) -> dict[str, Verdict]:
    """Return the verdicts on a study of one cell with these parts, by kind."""
    samples = changes.pop("samples", None)
    (found,), _ = measure(make_study([timed_launch(cell, 0.1)]))
    found = replace(found, label="a cell", samples=samples)
    given: dict[str, Any] = dict.fromkeys(
        ("step_s", "throughput", "gradient_bytes", "parameters", "steps_per_epoch")
    )
    given |= {"cell": cell, "label": "a cell", "launches": 1, "attempts": 1, "unit": ""}
    given |= {"failed": "", "void_for_speed": "", "measured": found}
    rows = [CellRow(**(given | changes))]
    study: dict[str, Any] = {"spec": {}, "command": (), "void": frozenset()}
    return {
        one.kind: one for one in find_verdicts(rows, [], main_metric=None, cores=cores, **study)
    }


def of_curve(*times: list[float]) -> dict[str, Verdict]:
    """Return the verdicts on step times at 1, 2, 4, ... workers, batch per worker fixed."""
    counts = enumerate(times)
    return of_study([one for n, ts in counts for one in repeated(Cell(workers=2**n, batch=8), ts)])


def exactly(value: float, spread: float | None = None) -> Estimate:
    if spread is None:
        return Estimate(value=value)
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
    found = of_curve(*times).get("leaves_linear")
    assert (found.evidence["workers"] if found else None) == workers
    if workers == 4:
        assert found.sentence == (
            "Efficiency drops from 95 % at 2 workers to 67 % at 4 workers (weak scaling)."
        )
        assert found.action.endswith("stay with 2 workers.")


@pytest.mark.parametrize(
    ("times", "severity"),
    [
        ([[0.10], [0.10]], None),
        ([[0.10], [0.08]], "warn"),
        ([[0.10], [0.098]], "note"),
        # More on average, not clearly.
        ([[0.10, 0.12, 0.09], [0.09, 0.10, 0.11]], None),
        ([[0.10, 0.101, 0.099], [0.08, 0.081, 0.079]], "warn"),
    ],
)
def test_more_than_linear(times: list[list[float]], severity: str | None) -> None:
    found = of_curve(*times).get("more_than_linear")
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
    # On a fixed global batch as many samples a second.
    launches = repeated(Cell(workers=1, batch=16), [0.1, 0.1001, 0.0999, 0.1002, 0.0998])
    found = of_study(launches + repeated(TWO, many))
    assert ("no_significant_difference" in found) is fires


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
    found = of_curve(*times)
    assert ("too_noisy" in found) is fires
    assert not fires or "--repeats 6" in found["too_noisy"].action


def test_single_launches_are_said_once() -> None:
    assert "--repeats 5" in of_curve([0.10], [0.11])["no_intervals"].action
    rows = [table_launch(Cell(workers=n, batch=8), throughput=100.0 * n) for n in (1, 2)]
    assert "rows" in of_study(rows)["no_intervals"].action
    assert "no_intervals" not in of_curve([0.1, 0.101], [0.11, 0.111])
    assert "no_intervals" not in of_curve([0.1])


# Steps


def split(**changes: Any) -> StepSplit:
    """A step of 100 ms on two workers, bound by compute."""
    given: dict[str, Any] = {"cell": TWO, "label": "a cell", "step_s": 0.1}
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
    ("changes", "fires", "limit"),
    [
        ({}, {"compute_bound"}, "compute"),
        (ALONE, {"compute_bound"}, "compute"),
        (INPUT, {"input_bound"}, "input"),
        (COMMUNICATION, {"communication_bound"}, "communication"),
        (STRAGGLER, {"straggler"}, "straggler"),
        # Everybody is late in turn: no straggler.
        (
            {**STRAGGLER, "compute_by_rank_s": ((0, 0.068), (1, 0.068)), "slowest_share": 0.5},
            {"uneven_steps"},
            "straggler",
        ),
        (
            {**INPUT, **COMMUNICATION, "data_s": 0.1},
            {"input_bound", "communication_bound"},
            "communication",
        ),
        # Across hosts only the sum is known.
        (
            {**COMMUNICATION, "transfer_s": None, "waiting_s": None},
            {"communication_bound"},
            "communication",
        ),
        # What was not measured is not judged.
        ({**UNKNOWN, "data_s": None}, set(), "unknown"),
        ({**UNKNOWN, **INPUT}, {"input_bound"}, "input"),
        # At the thresholds nothing fires yet.
        ({"data_s": 0.01, "compute_s": 0.078}, {"compute_bound"}, "compute"),
        ({"transfer_s": 0.02, "exposed_s": 0.02, "compute_s": 0.073}, set(), "compute"),
    ],
)
def test_what_a_step_waits_for(changes: dict[str, Any], fires: set[str], limit: str) -> None:
    found = split(**changes)
    assert set(of_row(found.cell, split=found)) == fires
    assert verdicts.limited_by(found, set()) == limit
    assert verdicts.limited_by(found, {"oversubscription"}) == "oversubscription"
    if limit in ("compute", "unknown"):
        assert verdicts.limited_by(found, {"fixed_cost"}) == "fixed_cost"


def test_communication_names_the_link() -> None:
    given: dict[str, Any] = dict.fromkeys(
        ("derived_s", "derived_epoch_s", "derived_bus_bytes_per_s", "exposed_s", "gradient_bytes")
    )
    given |= {"measured_s": 1.0, "bus_bytes_per_s": 1.2e9, "peak_bytes_per_s": 8e9}
    given |= {"utilisation": 0.15, "bytes_by_kind": {}, "total_bytes_by_kind": {}}
    sent = Communication(cell=TWO, label="a cell", **given)
    found = of_row(split=split(**COMMUNICATION), communication=sent)
    assert found["communication_bound"].sentence == (
        "Bound by communication: 75 % of a step waits for gradients, at 1.20 GB/s, 15 % of the "
        "link's peak (a cell)."
    )


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
    assert ("oversubscription" in of_row(cell, cores)) is fires


def steps_of_two(step_s: float, *, ratio: float = 1.0, pauses: int = 0) -> dict[str, Verdict]:
    """Return the verdicts on 2 workers of which rank 0 computes longer, or pauses at times."""
    steps = 60
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
    alone = [make_rank(0, make_steps(0.1, steps, exposed_s=0.0, samples=8))]
    cells = [(Cell(workers=1, batch=8), alone), (TWO, ranks)]
    return of_study([make_launch(cell, of) for cell, of in cells])


def test_a_straggler_is_blamed_alone_and_by_what_the_others_wait() -> None:
    found = steps_of_two(0.1, ratio=2.0)
    assert "Held up by rank 0: the others wait for it for 50 %" in found["straggler"].sentence
    assert found["straggler"].evidence["its compute over the others'"] == pytest.approx(2.0)
    assert "contention" not in found


def test_computing_that_slows_down_beside_others_is_contention() -> None:
    assert "Computing takes 1.50x as long" in steps_of_two(0.15)["contention"].sentence
    assert "contention" not in steps_of_two(0.11)


def test_pauses_of_one_rank_are_named_with_their_seconds() -> None:
    found = steps_of_two(0.1, pauses=5)
    assert found["one_rank_pauses"].sentence.startswith(
        "Rank 0 alone paused 5 times for 4.50 s in all (900 ms each) while the others waited"
    )
    assert "one_rank_pauses" not in steps_of_two(0.1)


def test_a_step_is_judged_at_the_largest_count() -> None:
    def launch(workers: int, exposed_s: float) -> Launch:
        steps = make_steps(0.1, data_s=0.0, exposed_s=exposed_s, samples=8.0)
        ranks = [make_rank(n, steps) for n in range(workers)]
        return make_launch(Cell(workers=workers, batch=8), ranks)

    info = analyse(make_study([launch(1, 0.0), launch(2, 0.01), launch(4, 0.05)]))
    found = [(one.kind, one.labels) for one in info.verdicts if one.kind.endswith("_bound")]
    assert found == [("communication_bound", ("4 workers",))]


# Jobs and utilisation


def job_of(
    job_s: float | None, epochs: float | None = None, epoch_s: float | None = None, workers: int = 2
) -> JobTime:
    given: dict[str, Any] = dict.fromkeys(("steps_per_epoch", "startup_s", "between_s"))
    fixed = None if None in (job_s, epochs, epoch_s) else job_s - epochs * epoch_s
    return JobTime(
        cell=Cell(workers=workers),
        label="",
        job_s=None if job_s is None else exactly(job_s),
        epochs=epochs,
        epoch_s=None if epoch_s is None else exactly(epoch_s),
        epoch_measured=epoch_s is not None,
        fixed_s=fixed,
        fixed_share=None if fixed is None else fixed / job_s,
        **given,
    )


@pytest.mark.parametrize(
    ("found", "kinds"),
    [
        ((100.0, 10.0, 9.0), []),
        ((100.0, 10.0, 7.0), []),
        ((100.0, 10.0, 6.9), ["fixed_cost"]),
        ((100.0,), []),
        ((None, 10.0, 7.0), []),
        ((5910.0, 30.0, 209.0), ["contradicting_times"]),
        ((100.0, 10.0, 10.0), []),
    ],
)
def test_times_of_a_job(found: tuple[float, ...], kinds: list[str]) -> None:
    assert [verdict.kind for verdict in verdicts.job_verdicts(job_of(*found))] == kinds


@pytest.mark.parametrize(
    ("times", "fires"),
    [
        # The driving lab: 8, 7.5, 8, 8.5 minutes on 2, 4, 4, 8.
        ({2: 480.0, 4: 450.0, 8: 510.0}, True),
        ({1: 456.0, 2: 380.0, 4: 204.0}, False),
        ({1: 100.0}, False),
        ({}, False),
    ],
)
def test_flat_jobs(times: dict[int, float], fires: bool) -> None:
    jobs = [job_of(time_s, workers=workers) for workers, time_s in times.items()]
    assert bool(list(verdicts.flat_jobs(jobs))) is fires


@pytest.mark.parametrize(
    ("samples", "batch", "workers", "fires"),
    [
        (50_000, 64, 2, False),
        (1280, 32, 2, False),
        (1279, 32, 2, True),
        (1000, 128, 1, False),
        (None, 32, 4, False),
        (1000, None, 4, False),
    ],
)
def test_data_too_small(samples: int | None, batch: int | None, workers: int, fires: bool) -> None:
    found = of_row(Cell(workers=workers, batch=batch), samples=samples)
    assert ("data_too_small" in found) is fires


@pytest.mark.parametrize(
    ("by_rank", "words"),
    [
        ([(0.9, None, None), (0.85, None, None)], None),
        ([(0.9, None, None), (0.6, None, None)], "rank 0 keeps its CPU 90 % busy, rank 1 60 %"),
        ([(0.9, 0.9, None), (0.9, 0.5, None)], "rank 0 keeps its GPU 90 % busy, rank 1 50 %"),
        ([(0.9, None, None), (None, None, None)], None),
        # Both idle: nothing to even out.
        ([(0.20, None, None), (0.05, None, None)], None),
        ([(None, None, 2.0e9), (None, None, 2.1e9)], None),
        ([(None, None, 3.0e9), (None, None, 2.0e9)], "rank 0 uses 3.00 GB, rank 1 2.00 GB"),
        # A quarter more, but only of 200 MB.
        ([(None, None, 0.25e9), (None, None, 0.2e9)], None),
    ],
)
def test_uneven_use(by_rank: list[tuple[float | None, ...]], words: str | None) -> None:
    ranks = tuple((rank, *figures) for rank, figures in enumerate(by_rank))
    names = ("cpu", "gpu", "memory_bytes", "gpu_memory_bytes", "energy_j")
    use = UtilisationRow(cell=TWO, label="", by_rank=ranks, **dict.fromkeys(names, None))
    found = list(of_row(utilisation=use).values())
    assert bool(found) is (words is not None)
    assert not found or words in found[0].sentence


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
        ({}, False),
    ],
)
def test_faster_devices(speeds: dict[str, float], fires: bool) -> None:
    estimates = {name: exactly(value) for name, value in speeds.items()}
    found = verdicts.faster_device_gains_nothing(estimates, "4 workers", "epochs/s")
    assert bool(list(found)) is fires


def order_of(speeds: dict[str, dict[str, list[float]]]) -> Verdict | None:
    """Return what is said of samples/s by device and model."""
    found = of_study(
        [
            table_launch(Cell(workers=1, device=device, params=(("model", model),)), throughput=one)
            for device, by_model in speeds.items()
            for model, rates in by_model.items()
            for one in rates
        ]
    )
    return found.get("order_reverses") or found.get("order")


def test_an_order_that_reverses() -> None:
    # The faces lab: VGG16 is last on CPUs and first on GPUs.
    speeds = {
        "cpu": {"ResNet50": [156.33], "InceptionV3": [136.51], "VGG16": [66.25]},
        "gpu": {"ResNet50": [508.88], "InceptionV3": [312.17], "VGG16": [671.09]},
    }
    found = order_of(speeds)
    assert found.kind == "order_reverses"
    assert found.sentence == (
        "By model, samples/s at cpu, 1 worker: ResNet50 (156) > InceptionV3 (137) > VGG16 (66.2). "
        "The order reverses at gpu, 1 worker: VGG16 is faster than ResNet50 there."
    )
    # Reversed by less than the margin, or within the intervals.
    for there in ({"a": [100.0], "b": [101.0]}, {"a": [90.0, 110.0], "b": [105.0, 125.0]}):
        assert order_of({"cpu": {"a": [2.0], "b": [1.0]}, "gpu": there}).kind == "order"
    assert order_of({"cpu": {"a": [1.0]}}) is None


# Metrics


def metric_row(metric: str, final: float | None, **changes: Any) -> MetricRow:
    given: dict[str, Any] = dict.fromkeys(
        ("difference", "verdict", "stable_epoch", "stable_s", "target", "target_epoch", "target_s")
    )
    given |= {"cell": TWO, "label": "a cell", "metric": metric, "seeds": 3}
    given |= {"higher_is_better": "loss" not in metric, "margin": 0.01, "diverged": 0}
    given |= {"final": None if final is None else exactly(final), "censored": 0}
    return MetricRow(**(given | {"target_reached": 0} | changes))


def metric_curve(metric: str, *values: float) -> MetricCurve:
    points = tuple(
        MetricPoint(epoch=float(epoch), value=exactly(value), time_s=None, seeds=1)
        for epoch, value in enumerate(values, start=1)
    )
    return MetricCurve(cell=TWO, label="a cell", metric=metric, points=points)


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
    found = list(verdicts.overfitting(metric_row(*validation), metric_row(*training), by_epoch))
    assert (found[0].evidence["plateau (epoch)"] if found else None) == plateau


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
            "only differences above 0.00400 are detectable (a cell)."
        )


def trained(*ends: tuple[int, float], rise: float = 0.5) -> list[Launch]:
    """Return a run per number of workers and value at the end."""
    counts: dict[int, int] = {}
    launches = []
    for workers, end in ends:
        seed = counts[workers] = counts.get(workers, -1) + 1
        cell = Cell(workers=workers, batch=8)
        launches.append(trained_launch(cell, seed, [rise, *[end] * 6], name="score"))
    return launches


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("python", "train.py"), "; the command does not pass '{seed}'"),
        (("python", "train.py", "--seed={seed}"), ", although the command passes '{seed}'"),
    ],
)
def test_seeds_without_effect_are_said_once(command: tuple[str, ...], why: str) -> None:
    alike = trained((1, 0.9), (1, 0.9), (1, 0.9), (2, 0.8), (2, 0.8), (2, 0.8))
    found = of_study(alike, command=command)["seeds_without_effect"]
    assert found.sentence == (
        f"All 3 seeds gave exactly the same score{why} (1 worker, 2 workers)."
    )
    assert "seeds_without_effect" not in of_study(trained((1, 0.9), (1, 0.91)), command=command)
    # Runs that all ended as NaN are alike for another reason.
    lost = trained((1, float("nan")), (1, float("nan")))
    assert "seeds_without_effect" not in of_study(lost, command=command)


def test_the_soonest_is_named() -> None:
    slow, fast = trained((1, 0.9)), trained((2, 0.9), rise=0.9)
    found = of_study(slow + fast)["soonest"]
    assert found.sentence == (
        "score reaches a stable value soonest with 2 workers: after 10.0 s, against 20.0 s with "
        "1 worker."
    )
    assert "soonest" not in of_study(slow)


def test_a_metric_of_some_cells_only() -> None:
    other = [
        trained_launch(Cell(workers=n, batch=8), 0, [0.5, 0.6], name="lr") for n in range(2, 7)
    ]
    found = of_study(trained((1, 0.9)) + other)["metric_missing"]
    assert found.sentence == (
        "score was not recorded for 2 workers, 3 workers, 4 workers and 2 more: accuracy is "
        "compared without them."
    )
    assert "metric_missing" not in of_study(trained((1, 0.9)))


# All of them


def test_a_few_of_a_kind_are_enough_and_warnings_come_first() -> None:
    alike = [
        Verdict(kind="fixed_cost", severity="warn", sentence=f"{n}.", action="", evidence={})
        for n in range(10)
    ]
    found = [verdict.sentence for verdict in condense(alike)]
    assert found == ["0.", "1.", "2. (And 7 more like this.)"]
    assert condense(alike[:3]) == alike[:3]
    kinds = list(of_curve([0.1], [0.06]).values())
    order = [("void", "warn", "note", "good").index(verdict.severity) for verdict in kinds]
    assert order == sorted(order)
    assert kinds[0].kind == "more_than_linear"


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


def test_an_error_of_the_doctors_is_a_void_unless_a_rule_says_it_already() -> None:
    found = (
        Mistake(id="FD104", text="Weights differ."),
        Mistake(id="FD107", text="lr is 1 and 2."),
    )
    launch = replace(launch_of(*both()), mistakes=found)
    assert void_of(launch) == "mistake"
    (cell,), _ = measure(make_study([launch]))
    (void,) = find_voids(cell)
    assert void.sentence == "Your 2 workers did not train together as they should: lr is 1 and 2."
    assert void.mend == "See farandole doctor --explain FD107."
    assert void_of(replace(launch, mistakes=found[:1])) is None
    averaged = replace(launch_of(*both(bytes_sent=NOTHING)), mistakes=found)
    assert void_of(averaged) == "not_averaged"
    (cell,), _ = measure(make_study([averaged]))
    assert find_voids(cell)[0].evidence["id"] == "FD101"


def test_a_void_says_what_to_do_by_framework() -> None:
    for framework, words in (
        ("torch", "optimizer = hvd.DistributedOptimizer(optimizer)"),
        ("farandole.keras", "model.compile(hvd.DistributedOptimizer(optimizer)"),
    ):
        launch = launch_of(*both(bytes_sent=NOTHING, framework=framework))
        (cell,), _ = measure(make_study([launch]))
        (void,) = find_voids(cell)
        assert words in void.mend
        assert (void.evidence["gradient bytes"], void.launches) == (0, (launch.id,))
        assert find_voids(replace(cell, launches=(replace(launch, outcome="failed"),))) == []


def epochs(*cells: tuple[int, int | None, int]) -> ScalingInfo:
    """Return a study of epochs by workers, size of the data set and steps of each worker."""
    launches = []
    for workers, size, number in cells:
        given = {"epochs": ((100.0, 101.0 + 0.1 * number),), "dataset_size": size}
        ranks = [make_rank(n, make_steps(0.1, number, samples=8), **given) for n in range(workers)]
        cell = Cell(workers=workers, batch=8)
        launches.append(make_launch(cell, ranks, purpose="epoch", wall_s=99.0))
    return analyse(make_study(launches))


@pytest.mark.parametrize(
    ("cells", "headline"),
    [
        (((1, 2048, 256), (2, 2048, 128)), None),
        (
            ((1, 2048, 256), (2, 2048, 256)),
            "Each of your 2 workers went through all 2,048 samples: an epoch did not shrink.",
        ),
        # Without one worker, too, since the data are of one size whatever the workers.
        (((2, 2048, 256), (4, 2048, 256)), "Each of your 2 workers went through all"),
        # num_replicas=hvd.local_size() on two hosts.
        (
            ((1, 2048, 256), (4, 2048, 128)),
            "Your 4 workers trained on 4,096 samples in an epoch of 2,048 samples: their parts",
        ),
        # A sampler that draws twice what there is, cut into parts.
        (((1, 2048, 512), (2, 2048, 256)), None),
        # Each worker has a data set of its own, of half the samples.
        (((1, 2048, 256), (2, 1024, 128)), None),
        (((1, None, 256), (2, None, 256)), None),
    ],
)
def test_workers_that_do_not_share_the_data(
    cells: tuple[tuple[int, int | None, int], ...], headline: str | None
) -> None:
    info = epochs(*cells)
    assert (info.answer.void is not None) is (headline is not None)
    if headline:
        assert info.answer.headline.startswith(headline)
        assert info.answer.speedup is None
        (check,) = (one for one in info.checks if one.kind == "same_samples")
        assert check.passed is False
