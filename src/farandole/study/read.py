"""Reading a study's folder into records: its files, and what workers recorded in rank-N.jsonl.

docs/study-folder.md has the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from os import PathLike
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import numpy as np

from farandole.errors import UsageError
from farandole.study import encode, folder
from farandole.study.encode import metric_from_json
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

_Row = tuple[int, int, list[float], list[float]]
"""Update, step, norms before, norms after."""


class NoiseLines:
    """Collects lines; those of one optimizer and one layout of its buckets belong together."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, int, tuple[int, ...]], list[_Row]] = {}

    def take(self, content: Mapping[str, Any]) -> None:
        """Add a line.

        Raises:
            KeyError, TypeError, ValueError: it does not hold what it should.
        """
        nbytes = tuple(int(size) for size in content["bytes"])
        before, after = ([float(value) for value in content[name]] for name in ("before", "after"))
        if not len(nbytes) == len(before) == len(after):
            raise ValueError(f"norms of {len(before)} and {len(after)} buckets of {len(nbytes)}")
        row = int(content["update"]), int(content["step"]), before, after
        key = int(content["optimizer"]), int(content.get("parts", 1)), nbytes
        self._rows.setdefault(key, []).append(row)

    def joined(self, samples: Floats) -> tuple[Noise, ...]:
        """Return the records.

        Args:
            samples: of each step of the rank.
        """
        return tuple(
            _noise(optimizer, parts, nbytes, rows, samples)
            for (optimizer, parts, nbytes), rows in self._rows.items()
        )


def _noise(
    optimizer: int, parts: int, nbytes: tuple[int, ...], rows: list[_Row], samples: Floats
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
    # Without a label the folder's name tells studies apart.
    label = head.label or place.resolve().name
    notes: tuple[str, ...] = ()
    try:
        link = _read_link(place)
    except DamagedError as error:
        link, notes = Link(), (f"{error} The study is read without it.",)
    return replace(
        head, label=label, launches=launches, link=link, apart=read_apart(place), notes=notes
    )


def read_head(path: Path) -> Study:
    """Read study.json alone: the study without its launches.

    Raises:
        UsageError: As `read_study`.
    """
    _check_place(path)
    file = path / folder.STUDY_FILE
    content = _read_json(file)
    if content.get("kind") != encode.KIND:
        raise UsageError(
            f"{file} is not a study of Farandole: its kind is {content.get('kind')!r}."
        )
    _check_schema(file, content)
    try:
        return encode.study_from_json(content, path=str(path))
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(file, error) from error


def read_launch(path: Path, *, ranks: bool = True) -> Launch:
    """Read the launch in this folder, without its ranks on request.

    Raises:
        UsageError: It was not recorded to its end, is damaged, or a newer Farandole wrote it.
    """
    file = path / folder.LAUNCH_FILE
    content = _read_json(file)
    _check_schema(file, content)
    try:
        launch = encode.launch_from_json(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(file, error) from error
    if not ranks:
        return launch
    found = (read_rank(rank) for rank in folder.rank_files(path))
    return replace(launch, ranks=tuple(rank for rank in found if rank is not None))


def _read_rows(path: Path) -> list[Launch]:
    """Read the launches of a long imported table; none where a study has no such file."""
    file = path / folder.ROWS_FILE
    launches = []
    try:
        with file.open("rb") as lines:
            for line in lines:
                content = json.loads(line)
                _check_schema(file, content)
                launches.append(encode.launch_from_json(content))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unreadable(file, error) from error
    except UsageError:
        raise  # a newer schema, which is a ValueError, too
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise _damaged(file, error) from error
    return launches


def is_study(path: Path) -> bool:
    """Tell whether a study, readable or not, is at this place.

    Raises:
        OSError: The place cannot be looked at.
    """
    try:
        (path / folder.STUDY_FILE).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


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


def _read_link(path: Path) -> Link:
    file = path / folder.LINK_FILE
    if not file.exists():
        return Link()
    content = _read_json(file)
    _check_schema(file, content)
    try:
        return encode.link_from_json(content)
    except (TypeError, ValueError, AttributeError) as error:
        raise _damaged(file, error) from error


def read_apart(path: Path) -> tuple[Apart, ...]:
    """Read what workers did each for itself; nothing where that was not measured.

    Raises:
        UsageError: It is damaged, or a newer Farandole wrote it.
    """
    file = path / folder.APART_FILE
    if not file.exists():
        return ()
    content = _read_json(file)
    _check_schema(file, content)
    try:
        return encode.apart_from_json(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(file, error) from error


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except OSError as error:
        raise _unreadable(file, error) from error
    except RecursionError as error:
        raise _damaged(file, ValueError("its lists or objects are nested too deeply")) from error
    except ValueError as error:
        raise _damaged(file, error) from error
    if not isinstance(content, dict):
        raise _damaged(file, TypeError("not an object"))
    return content


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
