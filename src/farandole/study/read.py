"""Reading a study's folder into records: its files, and what workers recorded in rank-N.jsonl.

docs/reference/study-folder.md has the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from os import PathLike
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import numpy as np

from farandole.errors import UsageError
from farandole.study import folder
from farandole.study.codec import Reader, decode
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


class DamagedError(UsageError):
    """A file of a study that does not hold what it should."""


def read_study(path: str | PathLike[str]) -> Study:
    """Read a study with all launches that were recorded to their end; it always has a label.

    A damaged link.json is left out, and the study's notes say so: it is a calibration only.
    """
    place = Path(path)
    head = read_head(place)
    with _problems(place):
        folders = folder.finished_folders(place)
    launches = (*(read_launch(launch) for launch in folders), *_read_rows(place))
    link, notes = Link(), list[str]()
    try:
        if (file := place / folder.LINK_FILE).exists():
            with _read_json(file) as content:
                link = decode(Link, content)
    except DamagedError as error:
        notes.append(f"{error} The study is read without it.")
    return replace(
        head,
        # Without a label the folder's name tells studies apart.
        label=head.label or place.resolve().name,
        launches=launches,
        link=link,
        apart=read_apart(place),
        notes=tuple(notes),
    )


def read_head(path: Path) -> Study:
    """Read study.json alone: the study without its launches."""
    _check_place(path)
    file = path / folder.STUDY_FILE
    with _read_json(file, kind=folder.KIND) as content:
        return decode(Study, _HEAD | content, path=str(path), launches=())


def read_launch(path: Path, *, ranks: bool = True) -> Launch:
    """Read the launch in this folder, without its ranks on request."""
    with _read_json(path / folder.LAUNCH_FILE) as content:
        launch = decode(Launch, content, ranks=())
    return replace(launch, ranks=read_ranks(path)) if ranks else launch


def read_ranks(path: Path) -> tuple[Rank, ...]:
    """Read what the workers of the launch in this folder recorded."""
    found = (read_rank(file) for file in folder.rank_files(path))
    return tuple(rank for rank in found if rank is not None)


def read_apart(path: Path) -> tuple[Apart, ...]:
    """Read what workers did each for itself; nothing where that was not measured."""
    file = path / folder.APART_FILE
    if not file.exists():
        return ()
    with _read_json(file) as content:
        return tuple(decode(Apart, one) for one in content["apart"])


def _read_rows(path: Path) -> list[Launch]:
    """Read the launches of a long imported table; none where a study has no such file."""
    file = path / folder.ROWS_FILE
    if not file.exists():
        return []
    with _problems(file), file.open("rb") as lines:
        return [decode(Launch, _checked(file, json.loads(line)), ranks=()) for line in lines]


@contextmanager
def _read_json(file: Path, *, kind: str | None = None) -> Iterator[dict[str, Any]]:
    """Read a JSON object with a schema; what is wrong with its fields is the file's damage."""
    with _problems(file):
        content = json.loads(file.read_bytes())
        if not isinstance(content, dict):
            raise TypeError("not an object")
        found = content.get("kind")
        if found != kind:
            raise UsageError(f"{file} is not a study of Farandole: its kind is {found!r}.")
        yield _checked(file, content)


def _checked(file: object, content: dict[str, Any]) -> dict[str, Any]:
    schema = content.get("schema")
    if not isinstance(schema, int) or schema < 1:
        raise ValueError(f"its schema is {schema!r}")
    if schema > SCHEMA:
        raise UsageError(
            f"{file} was written by a newer Farandole: its schema is {schema}, this one reads "
            f"{SCHEMA}. Upgrade: pip install -U farandole"
        )
    return content


@contextmanager
def _problems(file: Path) -> Iterator[None]:
    """Say of a file that it cannot be read, or what is damaged in it."""
    try:
        yield
    except UsageError:
        raise  # a newer schema, which is a ValueError, too
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}).") from error
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        if isinstance(error, RecursionError):
            why = "its lists or objects are nested too deeply"
        then = {
            folder.LAUNCH_FILE: "Remove it, and --resume makes that launch again.",
            folder.LINK_FILE: "Remove it, and --resume measures the link again.",
        }.get(file.name, "Take it from a backup.")
        raise DamagedError(f"{file} is damaged ({why}). {then}") from error


def _check_place(path: Path) -> None:
    """Refuse a place that is no study, and say what to name instead."""
    name_it = "Name the folder of a study (its --out)."
    with _problems(path):
        try:
            is_folder = S_ISDIR(path.stat().st_mode)
        except FileNotFoundError as error:
            raise UsageError(f"{path} does not exist. {name_it}") from error
        if not is_folder:
            if path.suffix.lower() in (".csv", ".tsv"):
                name_it = f"Make one of this table first: farandole study import {path} --out DIR"
            raise UsageError(f"{path} is a file, but a study is a folder. {name_it}")
        if is_study(path):
            return
        if next(path.iterdir(), None) is None:
            raise UsageError(f"{path} is empty. {name_it}")
        for parent in list(path.resolve().parents)[:2]:
            if is_study(parent):
                raise UsageError(f"{path} is only a part of a study. Name its folder: {parent}")
    raise UsageError(
        f"{path} is not the folder of a study: it has no {folder.STUDY_FILE}. "
        "Name the one that was given to --out."
    )


# What one worker recorded.


def read_rank(path: Path) -> Rank | None:
    """Read a worker's file; None when it holds no `begin`, because the worker never got so far."""
    with _problems(path), path.open("rb") as file:
        return parse_rank(file, name=str(path))


def parse_rank(lines: Iterable[bytes], *, name: str) -> Rank | None:
    """Return what lines of JSON say; kinds and fields that are not known are passed over.

    A last line that was cut short is what a killed worker leaves and is ignored; others that cannot
    be read are counted in the notes.
    """
    found: dict[str, list[Any]] = {kind: [] for kind in _LINES}
    damaged, damaged_last = 0, False
    for line in lines:
        damaged += damaged_last
        damaged_last = False
        if not line.strip():
            continue
        try:
            content = json.loads(line)
            kind = content.get("kind")
            if kind == "begin":
                _checked(name, content)
            if kind in _LINES:
                found[kind].append(_LINES[kind](content))
        except UsageError:
            raise  # a newer schema, which is a ValueError, too
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            damaged_last = True
    if not found["begin"]:
        return None
    if damaged:
        what = "line was" if damaged == 1 else "lines were"
        found["note"].append(f"{damaged} {what} damaged and left out.")
    # A script that executes itself anew begins twice; the first is when it started.
    single = [*found["setup"], *found["end"][-1:], found["begin"][0]]
    known = {name: value for one in single for name, value in one.items() if value is not None}
    steps = _joined(Steps, found["steps"])
    return decode(
        Rank,
        known,
        steps=steps,
        utilisation=_joined(Utilisation, found["use"]),
        metrics=tuple(replace(metric, rank=known["rank"]) for metric in found["metric"]),
        opened=tuple(found["opened"]),
        buckets=tuple(found["buckets"]),
        epochs=tuple(found["epoch"]),
        notes=tuple(found["note"]),
        learning_rates=tuple(found["learning_rate"]),
        noise=_noise(found["noise"], steps.samples),
    )


def _begin(content: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "rank": int(content["rank"]),
        "begin_s": float(content["begin_s"]),
        "host": str(content.get("host", "")),
        "size": content.get("size"),
    }


def _columns(record: type, content: Mapping[str, Any]) -> dict[str, Floats]:
    """Return a block's columns; null and a column that is missing become NaN."""
    given, names = content["columns"], [field.name for field in fields(record)]
    lengths = {len(given[name]) for name in names if name in given}
    if len(lengths) != 1:
        raise ValueError(f"columns of different lengths: {lengths}")
    missing = np.full(lengths.pop(), np.nan)
    return {name: np.array(given.get(name, missing), dtype=np.float64) for name in names}


def _joined(record: type, blocks: list[dict[str, Floats]]) -> Any:
    names = [field.name for field in fields(record)]
    return record(
        **{name: np.concatenate([np.empty(0), *(one[name] for one in blocks)]) for name in names}
    )


def _noise_row(content: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what tells by which optimizer and layout a line is, and its figures."""
    nbytes = tuple(int(size) for size in content["bytes"])
    before, after = ([float(value) for value in content[name]] for name in ("before", "after"))
    if not len(nbytes) == len(before) == len(after):
        raise ValueError(f"norms of {len(before)} and {len(after)} buckets of {len(nbytes)}")
    key = int(content["optimizer"]), int(content.get("parts", 1)), nbytes
    return key, (int(content["update"]), int(content["step"]), before, after)


def _noise(rows: list[tuple[Any, ...]], samples: Floats) -> tuple[Noise, ...]:
    groups: dict[Any, dict[int, Any]] = {}
    for key, row in rows:
        # A script that executes itself anew counts from 1 again: its last word holds.
        groups.setdefault(key, {})[row[0]] = row
    found = []
    for (optimizer, parts, nbytes), by_update in groups.items():
        ordered = [by_update[update] for update in sorted(by_update)]
        updates, steps, before, after = zip(*ordered, strict=True)
        step = np.array(steps, dtype=np.int64)
        # The last steps of a worker that was killed may be missing.
        known = (step >= 0) & (step < len(samples))
        trained = np.full(len(step), np.nan)
        trained[known] = samples[step[known]]
        found.append(
            Noise(
                optimizer=optimizer,
                parts=parts,
                bucket_bytes=nbytes,
                update=np.array(updates, dtype=np.int64),
                step=step,
                samples=trained,
                before=np.array(before, dtype=np.float64),
                after=np.array(after, dtype=np.float64),
            )
        )
    return tuple(found)


_LINES: dict[str, Reader] = {
    "begin": _begin,
    "setup": dict,
    "end": dict,
    "steps": partial(_columns, Steps),
    "use": partial(_columns, Utilisation),
    "metric": partial(decode, Metric),
    "opened": partial(decode, Opened),
    "buckets": partial(decode, GradientTimes),
    "epoch": lambda content: (float(content["begin_s"]), float(content["end_s"])),
    "note": lambda content: str(content["text"]),
    "learning_rate": lambda content: (int(content["step"]), float(content["value"])),
    "noise": _noise_row,
}
"""What reads a line of each kind."""
