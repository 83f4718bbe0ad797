"""Records as plain JSON objects and back; pure.

Fields that a reader does not know are left alone, fields that a writer did not know have their
defaults: only a change of meaning needs another schema number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, get_args

from farandole.study.records import (
    SCHEMA,
    Apart,
    Cell,
    Launch,
    Link,
    Metric,
    Outcome,
    Purpose,
    Study,
)

KIND = "farandole-study"


def study_to_json(study: Study) -> dict[str, Any]:
    """Return what study.json holds: everything but launches and link."""
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "label": study.label,
        "created": study.created,
        "command": list(study.command),
        "spec": plain(study.spec),
        "machine": plain(study.machine),
        "complete": study.complete,
    }


def study_from_json(content: Mapping[str, Any], *, path: str) -> Study:
    """Return a study without its launches and its link."""
    return Study(
        path=path,
        label=_text(content["label"]),
        command=_texts(content.get("command", ())),
        spec=_mapping(content.get("spec", {})),
        machine=_mapping(content.get("machine", {})),
        created=_text(content.get("created", "")),
        launches=(),
        complete=bool(content.get("complete", False)),
    )


def launch_to_json(launch: Launch) -> dict[str, Any]:
    """Return what launch.json holds: everything but the ranks, which have files of their own."""
    content: dict[str, Any] = {"schema": SCHEMA}
    for field in fields(Launch):
        if field.name not in ("cell", "metrics", "figures", "ranks"):
            content[field.name] = plain(getattr(launch, field.name))
    content["cell"] = cell_to_json(launch.cell)
    content["figures"] = {name: number(value) for name, value in launch.figures.items()}
    content["metrics"] = [metric_to_json(metric) for metric in launch.metrics]
    return content


def row_to_json(launch: Launch, cells: dict[Cell, Any]) -> dict[str, Any]:
    """Return a line of launches.jsonl: what an imported row tells, as in launch.json.

    Args:
        launch: Of the row.
        cells: What cells become, kept from row to row: few are all that a table has.
    """
    if launch.cell not in cells:
        cells[launch.cell] = cell_to_json(launch.cell)
    return {
        "schema": SCHEMA,
        "id": launch.id,
        "cell": cells[launch.cell],
        "repeat": launch.repeat,
        "seed": launch.seed,
        "purpose": launch.purpose,
        "outcome": launch.outcome,
        "reason": launch.reason,
        "wall_s": launch.wall_s,
        "figures": dict(launch.figures),
        "metrics": [
            {"name": metric.name, "value": number(metric.value), "epoch": metric.epoch}
            for metric in launch.metrics
        ],
    }


def launch_from_json(content: Mapping[str, Any]) -> Launch:
    """Return a launch without its ranks.

    Raises:
        KeyError, TypeError, ValueError: It is not a launch.
    """
    given = _known(Launch, content, leave=("ranks",))
    given["cell"] = cell_from_json(content["cell"])
    given["purpose"] = _choice(content["purpose"], get_args(Purpose))
    given["outcome"] = _choice(content["outcome"], get_args(Outcome))
    given["last_output"] = _texts(content.get("last_output", ()))
    given["argv"] = _texts(content.get("argv", ()))
    figures = _mapping(content.get("figures", {}))
    given["figures"] = {name: float(value) for name, value in figures.items()}
    given["metrics"] = tuple(metric_from_json(entry) for entry in content.get("metrics", ()))
    return Launch(**given)


def cell_to_json(cell: Cell) -> dict[str, Any]:
    """Return a cell as in launch.json."""
    return {field.name: plain(getattr(cell, field.name)) for field in fields(Cell)}


def cell_from_json(content: Mapping[str, Any]) -> Cell:
    """Return the cell that `cell_to_json` wrote."""
    given = _known(Cell, content)
    given["workers"] = int(content["workers"])
    given["params"] = tuple((_text(name), _text(value)) for name, value in content["params"])
    return Cell(**given)


def metric_to_json(metric: Metric) -> dict[str, Any]:
    """Return a metric as in launch.json and rank-N.jsonl, without what it does not know."""
    content = {field.name: getattr(metric, field.name) for field in fields(Metric)}
    content["value"] = number(metric.value)
    return {name: plain(value) for name, value in content.items() if value is not None}


def metric_from_json(content: Mapping[str, Any]) -> Metric:
    """Return a metric; NaN and infinities come as strings, and null is read as NaN."""
    value = content["value"]
    given = _known(Metric, content)
    given["name"] = _text(content["name"])
    given["value"] = math.nan if value is None else float(value)
    return Metric(**given)


def link_to_json(link: Link) -> dict[str, Any]:
    """Return what link.json holds."""
    content = {field.name: plain(getattr(link, field.name)) for field in fields(Link)}
    return {"schema": SCHEMA, **content}


def link_from_json(content: Mapping[str, Any]) -> Link:
    """Return the link that `link_to_json` wrote."""
    given = _known(Link, content)
    given["allreduce"] = tuple(
        (int(workers), int(size), float(seconds))
        for workers, size, seconds in content.get("allreduce", ())
    )
    return Link(**given)


def apart_to_json(apart: Sequence[Apart]) -> dict[str, Any]:
    """Return what apart.json holds."""
    figures = [field.name for field in fields(Apart) if field.name != "cell"]
    return {
        "schema": SCHEMA,
        "apart": [
            {"cell": cell_to_json(one.cell)} | {name: plain(getattr(one, name)) for name in figures}
            for one in apart
        ],
    }


def apart_from_json(content: Mapping[str, Any]) -> tuple[Apart, ...]:
    """Return what `apart_to_json` wrote."""
    return tuple(
        Apart(**_known(Apart, one) | {"cell": cell_from_json(one["cell"])})
        for one in content["apart"]
    )


def number(value: float) -> float | str:
    """Return a float as strict JSON has it: what is not finite becomes a word."""
    value = float(value)
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")


def plain(value: Any) -> Any:
    """Return nested mappings, sequences and scalars as what strict JSON can hold."""
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, str) or value is None or isinstance(value, bool):
        return value
    if isinstance(value, Sequence | set | frozenset):
        return [plain(entry) for entry in value]
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return number(value)
    if hasattr(value, "item"):  # a NumPy scalar
        return plain(value.item())
    return str(value)  # a path, for one


def _known(record: type, content: Mapping[str, Any], leave: tuple[str, ...] = ()) -> dict[str, Any]:
    names = {field.name for field in fields(record)} - set(leave)
    return {name: content[name] for name in names if name in content}


def _choice(value: Any, choices: tuple[Any, ...]) -> Any:
    if value not in choices:
        raise ValueError(f"{value!r} is none of {', '.join(choices)}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(_text(value) for value in values)


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r} is not an object")
    return value
