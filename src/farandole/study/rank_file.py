"""What a worker recorded, from the lines of its rank-N.jsonl (docs/study-folder.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from farandole.errors import UsageError
from farandole.study.encode import metric_from_json
from farandole.study.noise_lines import NoiseLines
from farandole.study.records import (
    SCHEMA,
    Floats,
    GradientTimes,
    Metric,
    Opened,
    Rank,
    Steps,
    Utilisation,
)

_STEP_COLUMNS = tuple(field.name for field in fields(Steps))
_USE_COLUMNS = tuple(field.name for field in fields(Utilisation))
_BLOCKS = {"steps": _STEP_COLUMNS, "use": _USE_COLUMNS}


def read_rank(path: Path) -> Rank | None:
    """Read a worker's file; None when it holds no `begin`, because the worker never got so far.

    Raises:
        UsageError: It cannot be read, or a newer Farandole wrote it.
    """
    try:
        with path.open("rb") as file:
            return parse_rank(file, name=str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from error


def parse_rank(lines: Iterable[bytes], *, name: str) -> Rank | None:
    """Return what the lines tell; kinds and fields that are not known are passed over.

    Args:
        lines: Each one JSON object. A last one that was cut short is what a killed worker leaves
            and is ignored; others that cannot be read are counted in the notes.
        name: What to call the file in errors.
    """
    parts = _Parts()
    damaged_last = False
    for line in lines:
        parts.damaged += damaged_last
        damaged_last = False
        if not line.strip():
            continue
        try:
            content = json.loads(line)
            if not isinstance(content, dict):
                raise TypeError(content)
            parts.take(content, name)
        except UsageError:
            raise  # a newer schema, which is a ValueError, too
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            damaged_last = True
    return parts.rank()


class _Parts:
    """A rank under construction."""

    def __init__(self) -> None:
        self.damaged = 0
        self._begin: Mapping[str, Any] | None = None
        self._setup: dict[str, Any] = {}
        self._end: dict[str, Any] = {}
        self._blocks: dict[str, list[tuple[Floats, ...]]] = {kind: [] for kind in _BLOCKS}
        self._metrics: list[Metric] = []
        self._epochs: list[tuple[float, float]] = []
        self._notes: list[str] = []
        self._opened: list[Opened] = []
        self._rates: list[tuple[int, float]] = []
        self._noise = NoiseLines()
        self._buckets: list[GradientTimes] = []

    def take(self, content: dict[str, Any], name: str) -> None:
        """Add one line; one that does not hold what its kind promises changes nothing."""
        kind = content.get("kind")
        if kind == "begin":
            if int(content["schema"]) > SCHEMA:
                raise newer_schema(name, content["schema"])
            # A script that executes itself anew begins twice; the first is when it started.
            self._begin = self._begin or {
                "rank": int(content["rank"]),
                "host": str(content.get("host", "")),
                "begin_s": float(content["begin_s"]),
                "size": _count(content.get("size")),
            }
        elif kind == "setup":
            self._setup |= content
        elif kind in _BLOCKS:
            self._blocks[kind].append(_columns(content["columns"], _BLOCKS[kind]))
        elif kind == "metric":
            self._metrics.append(metric_from_json(content))
        elif kind == "epoch":
            self._epochs.append((float(content["begin_s"]), float(content["end_s"])))
        elif kind == "note":
            self._notes.append(str(content["text"]))
        elif kind == "opened":
            modified = content.get("modified_unix_s")
            self._opened.append(
                Opened(
                    path=str(content["path"]),
                    write=bool(content.get("write", False)),
                    modified_unix_s=None if modified is None else float(modified),
                )
            )
        elif kind == "buckets":
            self._buckets.append(_gradient_times(content))
        elif kind == "noise":
            self._noise.take(content)
        elif kind == "learning_rate":
            self._rates.append((int(content["step"]), float(content["value"])))
        elif kind == "end":
            self._end = content

    def rank(self) -> Rank | None:
        if self._begin is None:
            return None
        setup, end = self._setup, self._end
        rank, steps = self._begin["rank"], Steps(**self._joined("steps"))
        notes = list(self._notes)
        if self.damaged:
            what = "line was" if self.damaged == 1 else "lines were"
            notes.append(f"{self.damaged} {what} damaged and left out.")
        return Rank(
            rank=rank,
            host=self._begin["host"],
            framework=str(setup.get("framework") or ""),
            device=str(setup.get("device") or "cpu"),
            steps=steps,
            begin_s=self._begin["begin_s"],
            end_s=None if end.get("end_s") is None else float(end["end_s"]),
            bytes_sent={kind: int(size) for kind, size in (end.get("bytes_sent") or {}).items()},
            gradient_bytes_per_step=_count(setup.get("gradient_bytes_per_step")),
            parameters=_count(setup.get("parameters")),
            peak_memory_bytes=_count(end.get("peak_memory_bytes")),
            peak_gpu_bytes=_count(end.get("peak_gpu_bytes")),
            weights=None if end.get("weights") is None else str(end["weights"]),
            sample_hashes=tuple(str(sample) for sample in setup.get("sample_hashes") or ()),
            batch_seen=_count(setup.get("batch_seen")),
            epochs=tuple(self._epochs),
            dataset_size=_count(setup.get("dataset_size")),
            utilisation=Utilisation(**self._joined("use")),
            metrics=tuple(replace(metric, rank=rank) for metric in self._metrics),
            notes=tuple(notes),
            stopped=bool(end.get("stopped", False)),
            opened=tuple(self._opened),
            learning_rates=tuple(self._rates),
            noise=self._noise.joined(steps.samples),
            buckets=tuple(self._buckets),
            bucket_bytes=_count(setup.get("bucket_bytes")),
            size=self._begin["size"],
        )

    def _joined(self, kind: str) -> dict[str, Floats]:
        blocks = self._blocks[kind]
        if not blocks:
            return {column: np.empty(0) for column in _BLOCKS[kind]}
        return {
            column: np.concatenate([block[index] for block in blocks])
            for index, column in enumerate(_BLOCKS[kind])
        }


def newer_schema(name: str, schema: object) -> UsageError:
    """Say that a file is from a newer Farandole."""
    return UsageError(
        f"{name} was written by a newer Farandole: its schema is {schema}, this one reads "
        f"{SCHEMA}. Upgrade: pip install -U farandole"
    )


def _columns(given: Mapping[str, Any], names: tuple[str, ...]) -> tuple[Floats, ...]:
    """Return a block's columns in order; null and a column that is missing become NaN."""
    lengths = {len(given[name]) for name in names if name in given}
    if len(lengths) != 1:
        raise ValueError(f"columns of different lengths: {lengths}")
    (length,) = lengths
    return tuple(
        np.array(given[name], dtype=np.float64) if name in given else np.full(length, np.nan)
        for name in names
    )


def _gradient_times(content: Mapping[str, Any]) -> GradientTimes:
    pieces = list(zip(content["bytes"], content["ready_s"], strict=True))
    return GradientTimes(
        step=int(content["step"]),
        bytes=tuple(int(nbytes) for nbytes, _ in pieces),
        ready_s=tuple(float(ready_s) for _, ready_s in pieces),
    )


def _count(value: Any) -> int | None:
    return None if value is None else int(value)
