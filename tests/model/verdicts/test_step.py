"""What a step is bound by: where each rule fires, and where it must not."""

from __future__ import annotations

from typing import Any

import pytest

from farandole.model.info.communication import Communication
from farandole.model.info.step import StepSplit
from farandole.model.info.verdict import Verdict
from farandole.model.verdicts.step import (
    communication_bound,
    compute_bound,
    contention,
    input_bound,
    limited_by,
    oversubscription,
    straggler,
)
from farandole.study.records import Cell


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
    found = split(**changes)
    rules = (compute_bound, communication_bound, input_bound, straggler)
    assert {verdict.kind for rule in rules if (verdict := rule(found)) is not None} == fires


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
    found = communication_bound(split(**COMMUNICATION), communication)
    assert found is not None
    assert found.sentence == (
        "Bound by communication: 75% of a step waits for gradients on their way, at 1.20 GB/s, "
        "15% of the link's peak (2 workers)."
    )


def test_a_straggler_is_named_with_its_evidence() -> None:
    found = straggler(split(**STRAGGLER))
    assert found is not None
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
