"""The report as one JSON document: docs/report.md has its schema."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from farandole.model.info.answer import Answer
from farandole.model.info.comparison import Comparison
from farandole.model.info.scaling import ScalingInfo
from farandole.report.method import paragraph
from farandole.report.reproduce import commands
from farandole.report.series import studies
from farandole.version import __version__

SCHEMA = 1


def to_json(found: ScalingInfo | Comparison) -> dict[str, Any]:
    """Return everything that is known, the answer first; None stands for "not measured"."""
    infos = studies(found)
    comparison = None
    if isinstance(found, Comparison):
        comparison = plain(found)
        del comparison["infos"]
    return {
        "answer": head(infos[0].answer),
        "headline": infos[0].answer.headline,
        "schema": SCHEMA,
        "kind": "farandole-report",
        "version": __version__,
        "studies": [_study(info) for info in infos],
        "comparison": comparison,
    }


def head(answer: Answer) -> dict[str, Any]:
    """Return an answer as programs read it."""
    return {
        "workers": answer.workers,
        "speedup": plain(answer.speedup),
        "interval": plain(answer.interval),
        "accuracy": answer.accuracy,
        "limited_by": answer.limited_by,
        "void": answer.void,
        "next": answer.next,
    }


def _study(info: ScalingInfo) -> dict[str, Any]:
    content: dict[str, Any] = plain(info)
    # Drawn and in tables/, but too long for a document that people and programs read whole.
    del content["utilisation_series"]
    content["answer"] = head(info.answer) | content["answer"]
    return content | {"method": paragraph(info), "commands": commands(info)}


def plain(value: Any) -> Any:
    """Return dataclasses, mappings and tuples as what strict JSON has."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)
