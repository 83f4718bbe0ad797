"""Reading a study's folder into records: its files, and what workers recorded in rank-N.jsonl.

docs/reference/study-folder.md has the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from os import PathLike
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import numpy as np

from farandole.errors import UsageError
from farandole.study import folder
from farandole.study.codec import decode
from farandole.study.folder import is_study
from farandole.study.records import (
    SCHEMA,
    Apart,
    Floats,
    GradientTimes,
    Launch,
    Link,
    Metric,
    Noise,
    Opened,
    Rank,
    Steps,
    Study,
    Utilisation,
)

# What study.json may leave out.
_HEAD = {"command": (), "spec": {}, "machine": {}, "created": "", "complete": False}
# Kinds of lines that have columns, and those that are records of their own.
_BLOCKS = {
    "steps": tuple(field.name for field in fields(Steps)),
    "use": tuple(field.name for field in fields(Utilisation)),
}
_RECORDS = {"metric": Metric, "opened": Opened, "buckets": GradientTimes}

_NoiseKey = tuple[int, int, tuple[int, ...]]
"""Optimizer, parts, and the bytes of its buckets: lines of one key belong together."""
_NoiseRow = tuple[int, int, list[float], list[float]]
"""Update, step, norms before, norms after."""


class DamagedError(UsageError):
    """A file of a study that does not hold what it should."""


def read_study(path: str | PathLike[str]) -> Study:
    """Read a study with all launches that were recorded to their end; it always has a label.

    A damaged link.json is left out, and the study's notes say so: it is a calibration only.

    Raises:
        UsageError: There is no study, it cannot be read, or a newer Farandole wrote it.
    """
    place = Path(path)
    head = read_head(place)
    try:
        folders = folder.finished_folders(place)
    except OSError as error:
        raise _unreadable(place, error) from error
    launches = (*(read_launch(launch) for launch in folders), *_read_rows(place))
    link = Link()
    notes: tuple[str, ...] = ()
    try:
        if (file := place / folder.LINK_FILE).exists():
            with _checked(file) as content:
                link = decode(Link, content)
    except DamagedError as error:
        notes = (f"{error} The study is read without it.",)
    return replace(
        head,
        # Without a label the folder's name tells studies apart.
        label=head.label or place.resolve().name,
        launches=launches,
        link=link,
        apart=read_apart(place),
        notes=notes,
    )


def read_head(path: Path) -> Study:
    """Read study.json alone: the study without its launches.

    Raises:
        UsageError: As `read_study`.
    """
    _check_place(path)
    file = path / folder.STUDY_FILE
    kind = _read_json(file).get("kind")
    if kind != folder.KIND:
        raise UsageError(f"{file} is not a study of Farandole: its kind is {kind!r}.")
    with _checked(file) as content:
        return decode(Study, _HEAD | content, path=str(path), launches=())


def read_launch(path: Path, *, ranks: bool = True) -> Launch:
    """Read the launch in this folder, without its ranks on request.

    Raises:
        UsageError: It was not recorded to its end, is damaged, or a newer Farandole wrote it.
    """
    with _checked(path / folder.LAUNCH_FILE) as content:
        launch = decode(Launch, content, ranks=())
    return replace(launch, ranks=read_ranks(path)) if ranks else launch


def read_ranks(path: Path) -> tuple[Rank, ...]:
    """Read what the workers of the launch in this folder recorded."""
    found = (read_rank(file) for file in folder.rank_files(path))
    return tuple(rank for rank in found if rank is not None)


def read_apart(path: Path) -> tuple[Apart, ...]:
    """Read what workers did each for itself; nothing where that was not measured.

    Raises:
        UsageError: It is damaged, or a newer Farandole wrote it.
    """
    file = path / folder.APART_FILE
    if not file.exists():
        return ()
    with _checked(file) as content:
        return tuple(decode(Apart, one) for one in content["apart"])


def _read_rows(path: Path) -> list[Launch]:
    """Read the launches of a long imported table; none where a study has no such file."""
    file = path / folder.ROWS_FILE
    launches: list[Launch] = []
    if not file.exists():
        return launches
    with _damage(file), file.open("rb") as lines:
        for line in lines:
            content = json.loads(line)
            _check_schema(file, content)
            launches.append(decode(Launch, content, ranks=()))
    return launches


@contextmanager
def _checked(file: Path) -> Iterator[dict[str, Any]]:
    """Read a JSON object with a schema; what is wrong with its fields is the file's damage."""
    content = _read_json(file)
    with _damage(file):
        _check_schema(file, content)
        yield content


@contextmanager
def _damage(file: Path) -> Iterator[None]:
    try:
        yield
    except UsageError:
        raise  # a newer schema, which is a ValueError, too
    except OSError as error:
        raise _unreadable(file, error) from error
    except RecursionError as error:
        why = ValueError("its lists or objects are nested too deeply")
        raise _damaged(file, why) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(file, error) from error


def _read_json(file: Path) -> dict[str, Any]:
    with _damage(file):
        content = json.loads(file.read_bytes())
        if not isinstance(content, dict):
            raise TypeError("not an object")
        return content


def _check_place(path: Path) -> None:
    try:
        if not S_ISDIR(path.stat().st_mode):
            hint = "Name the folder of a study (its --out)."
            if path.suffix.lower() in (".csv", ".tsv"):
                hint = f"Make one of this table first: farandole study import {path} --out DIR"
            raise UsageError(f"{path} is a file, but a study is a folder. {hint}")
        if is_study(path):
            return
        empty = next(path.iterdir(), None) is None
    except FileNotFoundError as error:
        raise UsageError(
            f"{path} does not exist. Name the folder of a study (its --out)."
        ) from error
    except OSError as error:
        raise _unreadable(path, error) from error
    if empty:
        raise UsageError(f"{path} is empty. Name the folder of a study (its --out).")
    for parent in list(path.resolve().parents)[:2]:
        if is_study(parent):
            raise UsageError(f"{path} is only a part of a study. Name its folder: {parent}")
    raise UsageError(
        f"{path} is not the folder of a study: it has no {folder.STUDY_FILE}. "
        "Name the one that was given to --out."
    )


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
        self._single: dict[str, dict[str, Any]] = {"begin": {}, "setup": {}, "end": {}}
        self._blocks: dict[str, list[tuple[Floats, ...]]] = {kind: [] for kind in _BLOCKS}
        self._records: dict[str, list[Any]] = {kind: [] for kind in _RECORDS}
        self._epochs: list[tuple[float, float]] = []
        self._notes: list[str] = []
        self._rates: list[tuple[int, float]] = []
        self._noise: dict[_NoiseKey, list[_NoiseRow]] = {}

    def take(self, content: dict[str, Any], name: str) -> None:
        """Add one line; one that does not hold what its kind promises changes nothing."""
        kind = content.get("kind")
        if kind == "begin":
            if int(content["schema"]) > SCHEMA:
                raise newer_schema(name, content["schema"])
            begin: dict[str, Any] = {
                "rank": int(content["rank"]),
                "begin_s": float(content["begin_s"]),
            }
            begin |= {"host": str(content.get("host", "")), "size": content.get("size")}
            # A script that executes itself anew begins twice; the first is when it started.
            self._single["begin"] = self._single["begin"] or begin
        elif kind == "setup":
            self._single["setup"] |= content
        elif kind == "end":
            self._single["end"] = content
        elif kind in _BLOCKS:
            self._blocks[kind].append(_columns(content["columns"], _BLOCKS[kind]))
        elif kind in _RECORDS:
            self._records[kind].append(decode(_RECORDS[kind], content))
        elif kind == "epoch":
            self._epochs.append((float(content["begin_s"]), float(content["end_s"])))
        elif kind == "note":
            self._notes.append(str(content["text"]))
        elif kind == "noise":
            self._take_noise(content)
        elif kind == "learning_rate":
            self._rates.append((int(content["step"]), float(content["value"])))

    def _take_noise(self, content: Mapping[str, Any]) -> None:
        nbytes = tuple(int(size) for size in content["bytes"])
        before, after = ([float(value) for value in content[name]] for name in ("before", "after"))
        if not len(nbytes) == len(before) == len(after):
            raise ValueError(f"norms of {len(before)} and {len(after)} buckets of {len(nbytes)}")
        row = int(content["update"]), int(content["step"]), before, after
        key = int(content["optimizer"]), int(content.get("parts", 1)), nbytes
        self._noise.setdefault(key, []).append(row)

    def rank(self) -> Rank | None:
        begin, setup, end = self._single.values()
        if not begin:
            return None
        rank, steps = begin["rank"], Steps(**self._joined("steps"))
        if self.damaged:
            what = "line was" if self.damaged == 1 else "lines were"
            self._notes.append(f"{self.damaged} {what} damaged and left out.")
        known = {name: value for name, value in (setup | end | begin).items() if value is not None}
        return decode(
            Rank,
            known,
            steps=steps,
            utilisation=Utilisation(**self._joined("use")),
            metrics=tuple(replace(metric, rank=rank) for metric in self._records["metric"]),
            opened=tuple(self._records["opened"]),
            buckets=tuple(self._records["buckets"]),
            epochs=tuple(self._epochs),
            notes=tuple(self._notes),
            learning_rates=tuple(self._rates),
            noise=tuple(_noise(*key, rows, steps.samples) for key, rows in self._noise.items()),
        )

    def _joined(self, kind: str) -> dict[str, Floats]:
        blocks = self._blocks[kind]
        return {
            column: np.concatenate([np.empty(0), *(block[index] for block in blocks)])
            for index, column in enumerate(_BLOCKS[kind])
        }


def _noise(
    optimizer: int, parts: int, nbytes: tuple[int, ...], rows: list[_NoiseRow], samples: Floats
) -> Noise:
    # A script that executes itself anew counts from 1 again: its last word holds.
    last = {row[0]: row for row in rows}
    updates, steps, before, after = zip(*(last[update] for update in sorted(last)), strict=True)
    step = np.array(steps, dtype=np.int64)
    # The last steps of a worker that was killed may be missing.
    known = (step >= 0) & (step < len(samples))
    found = np.full(len(step), np.nan)
    found[known] = samples[step[known]]
    return Noise(
        optimizer=optimizer,
        parts=parts,
        bucket_bytes=nbytes,
        update=np.array(updates, dtype=np.int64),
        step=step,
        samples=found,
        before=np.array(before, dtype=np.float64),
        after=np.array(after, dtype=np.float64),
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


def newer_schema(name: str, schema: object) -> UsageError:
    """Say that a file is from a newer Farandole."""
    return UsageError(
        f"{name} was written by a newer Farandole: its schema is {schema}, this one reads "
        f"{SCHEMA}. Upgrade: pip install -U farandole"
    )


def _check_schema(file: Path, content: dict[str, Any]) -> None:
    schema = content.get("schema")
    if not isinstance(schema, int) or schema < 1:
        raise _damaged(file, ValueError(f"its schema is {schema!r}"))
    if schema > SCHEMA:
        raise newer_schema(str(file), schema)


def _unreadable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{path} cannot be read ({error.strerror}).")


def _damaged(file: Path, error: Exception) -> DamagedError:
    why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    then = {
        folder.LAUNCH_FILE: "Remove it, and --resume makes that launch again.",
        folder.LINK_FILE: "Remove it, and --resume measures the link again.",
    }.get(file.name, "Take it from a backup.")
    return DamagedError(f"{file} is damaged ({why}). {then}")
