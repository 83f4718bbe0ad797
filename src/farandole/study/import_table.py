"""Figures measured elsewhere, from a CSV table into a study's folder."""

from __future__ import annotations

import gc
import hashlib
import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from farandole.errors import UsageError
from farandole.format import plural
from farandole.study import folder
from farandole.study.folder import (
    check_new,
    create_study,
    mark_complete,
    write_launch,
    write_rows,
)
from farandole.study.records import Cell, Launch, Metric, Outcome, Study
from farandole.study.spreadsheet import (
    Decimal,
    Row,
    Sheet,
    UnreadableError,
    decimal_mark,
    is_missing,
    is_number,
    parse_clock,
    parse_number,
    parse_sheet,
    whole,
)

Role = Literal["count", "time", "rate", "text", "repeat", "other"]

_COUNTS = {
    "workers": (
        *("worker", "num_workers", "ranks", "processes", "np", "world_size", "gpus", "num_gpus"),
    ),
    "hosts": ("host", "nodes", "node", "num_hosts", "num_nodes"),
    "threads": ("thread", "threads_per_worker", "num_threads"),
    "batch": ("batch_size", "batch_per_worker", "local_batch", "batchsize"),
    "global_batch": ("global_batch_size", "total_batch"),
    "epochs": ("num_epochs",),
    "seed": (),
}
_TEXTS = {"device": ("devices", "gpu", "gpu_type"), "transport": ()}
# Text whatever its values look like: a model may be called 50.
PARAMS = {"model", "network", "net", "dataset", "data", "lab", "recipe", "scaling", "name"}
_REPEATS = {"run", "repeat", "rep", "trial", "repetition"}
_TIMES = {"epoch": "epoch_s", "job": "job_s", "step": "step_s"}
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_UNIT_WORDS = {
    "sec": "s", "secs": "s", "second": "s", "seconds": "s", "msec": "ms", "milliseconds": "ms",
    "mins": "min", "minute": "min", "minutes": "min", "hr": "h", "hrs": "h", "hour": "h",
    "hours": "h", "usec": "us", "microseconds": "us",
}  # fmt: skip
# job_id and epoch_loss are no times; of whatever else follows such a word, a unit is expected.
_NO_UNIT = re.compile(r"acc|loss|err|score|count|num|name|\bid\b|index|stable|auc|f1|lr|rate")
# Names that look like a time, but do not say of what.
_TIME_LIKE = re.compile(
    r"(?:.*_)?(?:\w*time|duration|elapsed|latency|wall|seconds|secs?|ms|mins?|minutes|hours|[sh])"
    r"(?:_(?:us|ms|s|secs?|seconds|mins?|minutes|h|hours))?"
)
_MEASURES = re.compile(r"acc|loss|err|score|auc|f1|mse|mae|perplexity")
_SAMPLES = r"(?:samples?|images?|imgs?|examples?|sequences?|seqs?|records?|rows?)"
_RATE_UNIT = re.compile(rf"(?:{_SAMPLES}_?)?(?:per|/)?_?(s|sec|second|min|minute|h|hour)")
_RATE_NAME = re.compile(rf"{_SAMPLES}_per_(s|sec|second|min|minute|h|hour)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table and what it is taken for."""

    index: int
    given: str
    """Its name as in the file."""
    name: str
    """The figure, factor or metric that it holds."""
    role: Role
    scale: float | None = 1.0
    """What one of its unit is in seconds, or per second; None: only h:mm:ss says."""


def understand(index: int, given: str) -> Column:
    """Tell what a column holds, from its name alone.

    Raises:
        UsageError: It is a known figure in a unit that is not known.
    """
    name = normalized(given)
    for known, aliases in _COUNTS.items():
        if name == known or name in aliases:
            return Column(index=index, given=given, name=known, role="count")
    for known, aliases in _TEXTS.items():
        if name == known or name in aliases:
            return Column(index=index, given=given, name=known, role="text")
    if name in PARAMS:
        return Column(index=index, given=given, name=name, role="text")
    if name in _REPEATS:
        return Column(index=index, given=given, name=name, role="repeat")
    return (
        _time(index, given, name)
        or _rate(index, given, name)
        or Column(index=index, given=given, name=name, role="other")
    )


def unknown_note(column: Column) -> str:
    """Say that a column with numbers became a metric, and what else it might have been."""
    if _MEASURES.search(column.name):
        return f"Column {column.given!r} became a metric."
    hint = ""
    if _TIME_LIKE.fullmatch(column.name):
        hint = " If it is the time of a job, an epoch or a step, call it job_s, epoch_s or step_s."
    return f"Column {column.given!r} is not known and became a metric.{hint}"


def normalized(given: str) -> str:
    """Return a column's name as we spell it: `Job time (min)` is job_time_min."""
    name = re.sub(r"[(\[]\s*(.*?)\s*[)\]]", r" \1", given.strip().lower())
    return re.sub(r"_+", "_", re.sub(r"[^\w/%.]+", "_", name)).strip("_")


def _time(index: int, given: str, name: str) -> Column | None:
    match = re.fullmatch(r"(epoch|job|step)(_times?|_duration)?(?:_(.+))?", name)
    # The number of an epoch or of a step is no time.
    if match is None or match[0] in ("epoch", "step"):
        return None
    unit = match[3]
    if unit is None:
        scale = None
    else:
        unit = _UNIT_WORDS.get(unit, unit)
        if unit not in _UNITS:
            if match[2] is None and _NO_UNIT.search(unit):
                return None
            raise UsageError(
                f"Column {given!r}: {match[3]!r} is no unit that is known here. Use "
                f"{', '.join(f'{match[1]}_{unit}' for unit in _UNITS)}, or h:mm:ss values."
            )
        scale = _UNITS[unit]
    return Column(index=index, given=given, name=_TIMES[match[1]], role="time", scale=scale)


def _rate(index: int, given: str, name: str) -> Column | None:
    if match := _RATE_NAME.fullmatch(name.replace("/", "_per_")):
        unit = match[1]
    elif name == "throughput":
        unit = "s"
    elif name.startswith("throughput_"):
        match = _RATE_UNIT.fullmatch(name.removeprefix("throughput_"))
        if match is None:
            raise UsageError(
                f"Column {given!r}: {name.removeprefix('throughput_')!r} is no unit that is known "
                "here. Use throughput (samples per second) or throughput_per_min."
            )
        unit = match[1]
    else:
        return None
    seconds = _UNITS[_UNIT_WORDS.get(unit, unit)]
    return Column(index=index, given=given, name="throughput", role="rate", scale=1 / seconds)


_ENDS: dict[str, Outcome] = {
    "oom": "out_of_memory",
    "out of memory": "out_of_memory",
    "failed": "failed",
    "crashed": "failed",
    "error": "failed",
    "timeout": "timeout",
    "timed out": "timeout",
}
# More of them go into one file: folders take a tenth of a millisecond each, and more to read.
_MANY_ROWS = 1000
# Beyond any machine; a larger one is another column's value.
_MOST = 1_000_000_000
_NEEDED = "Add a column `workers` (or `hosts`) with how many took part in each row."


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What was read from a table."""

    launches: tuple[Launch, ...]
    columns: dict[str, str]
    """Each column of the file, and what it was taken for."""
    notes: tuple[str, ...]
    """What a user should know of how it was read, in sentences."""


def import_table(table: Path, out: Path, *, label: str | None = None) -> tuple[Study, Imported]:
    """Make a study of a table; nothing is written unless all of it can be read.

    Raises:
        UsageError: The table cannot be read or used, or `out` is taken.
        StoreError: The folder cannot be written to.
    """
    try:
        content = table.read_bytes()
    except OSError as error:
        raise UsageError(f"{table} cannot be read ({error.strerror}).") from error
    check_new(out)
    collects = gc.isenabled()
    gc.disable()  # nothing of a table is garbage before its end, and looking for it takes a fifth
    try:
        return _import(content, table, out, label)
    finally:
        if collects:
            gc.enable()


def _import(content: bytes, table: Path, out: Path, label: str | None) -> tuple[Study, Imported]:
    imported = read_table(content, name=str(table))
    study = create_study(
        out,
        label=label or table.stem,
        command=(),
        spec={
            "imported": {
                "file": table.name,
                "sha256": hashlib.sha256(content).hexdigest(),
                "columns": imported.columns,
                "notes": list(imported.notes),
            }
        },
        # Not this one: where the figures come from, nobody has told.
        machine={},
    )
    if len(imported.launches) > _MANY_ROWS:
        write_rows(out, imported.launches)
    for launch in imported.launches if len(imported.launches) <= _MANY_ROWS else ():
        write_launch(out / folder.LAUNCHES / launch.id, launch, durable=False)
    return replace(mark_complete(study), launches=imported.launches), imported


def read_table(content: bytes, *, name: str) -> Imported:
    """Return the launches that a table tells of.

    Raises:
        UsageError: Something in it is not clear; the message says where.
    """
    return _Reader(parse_sheet(content, name=name), name).imported()


class _Reader:
    """One table on its way to launches."""

    def __init__(self, sheet: Sheet, name: str) -> None:
        self._sheet = sheet
        self._name = name
        self._notes: list[str] = []
        self._mark = self._decimal_mark()
        self._columns = self._understood()
        self._cells: dict[tuple[tuple[str, object], ...], tuple[Cell, int]] = {}
        """By what rows say of them, each with a number, which is hashed faster: a long table has
        few."""
        self._numbers: dict[Cell, int] = {}
        self._counts: dict[tuple[int, str], int] = {}
        """Whole numbers by column and text."""

    def imported(self) -> Imported:
        launches: list[Launch] = []
        repeats: Counter[tuple[int, int | None]] = Counter()
        for row in self._sheet.rows:
            made = self._launch(row, len(launches) + 1, repeats)
            if made is None:
                self._notes.append(f"Line {row.line} has no figures and was left out.")
                continue
            launches.append(made)
        if not launches:
            raise UsageError(f"{self._name} has no figures: no times, throughput or metrics.")
        return Imported(
            launches=tuple(launches),
            columns={column.given: _meaning(column) for column in self._columns},
            notes=tuple(dict.fromkeys(self._notes)),
        )

    def _decimal_mark(self) -> Decimal:
        texts = [value for row in self._sheet.rows for value in row.values]
        try:
            return decimal_mark(texts, separator=self._sheet.separator)
        except UnreadableError as error:
            raise UsageError(f"{self._name}: {error}.") from error

    def _understood(self) -> tuple[Column, ...]:
        columns: list[Column] = []
        for index, given in enumerate(self._sheet.columns):
            # A number's first digit settles it: the call would take longer than all the rest.
            values = [
                value
                for value in self._sheet.column(index)
                if (value and value[0].isdecimal()) or not is_missing(value)
            ]
            if not given:
                self._unnamed(index, values)
                continue
            column = self._judged(understand(index, given), values)
            twin = next((other for other in columns if other.name == column.name), None)
            if twin is not None:
                raise UsageError(
                    f"{self._name}: columns {twin.given!r} and {given!r} are both "
                    f"{column.name}. Keep one of them, or give them different names."
                )
            columns.append(column)
        if not {"workers", "hosts"} & {column.name for column in columns}:
            found = ", ".join(column.given for column in columns)
            raise UsageError(
                f"{self._name} does not say how many workers (it has {found}). {_NEEDED}"
            )
        return tuple(columns)

    def _unnamed(self, index: int, values: list[str]) -> None:
        """Pass over a column without a name if it is empty or only numbers the rows."""
        if values in ([], [str(number) for number in range(len(self._sheet.rows))]):
            return
        raise UsageError(f"{self._name}: column {index + 1} has no name. Name it or remove it.")

    def _judged(self, column: Column, values: list[str]) -> Column:
        """Settle what a column's name alone leaves open, by its values."""
        if column.role not in ("repeat", "other"):
            return column
        values = [value for value in values if value.lower() not in _ENDS]
        numbers = [is_number(value, self._mark) for value in values]
        if column.role == "repeat":
            if all(numbers):
                self._notes.append(f"Column {column.given!r} was taken for the number of a repeat.")
                return column
            return replace(column, role="text")
        if not any(numbers):
            if values:
                self._notes.append(f"Column {column.given!r} has text and became a factor.")
            return replace(column, role="text")
        if not all(numbers):
            odd = values[numbers.index(False)]
            raise UsageError(
                f"{self._name}: column {column.given!r} has numbers and {odd!r}. Leave that "
                "value empty, or make the whole column text."
            )
        self._notes.append(unknown_note(column))
        return column

    def _launch(
        self, row: Row, number: int, repeats: Counter[tuple[int, int | None]]
    ) -> Launch | None:
        """Return what a row tells, counted among the repeats; None when it has no figure."""
        counts: dict[str, int] = {}
        texts: dict[str, str] = {}
        figures: dict[str, float] = {}
        metrics: list[tuple[str, float]] = []
        outcome: Outcome = "ok"
        for column in self._columns:
            value = row.values[column.index]
            digit = bool(value) and value[0].isdecimal()
            if not digit and is_missing(value):
                continue
            if column.role == "text":
                texts[column.name] = value
            elif not digit and value.lower() in _ENDS:
                outcome = _ENDS[value.lower()]
            elif column.role == "count":
                known = self._counts.get((column.index, value))
                if known is None:
                    known = self._counts[column.index, value] = self._count(row, column, value)
                counts[column.name] = known
            elif column.role in ("time", "rate"):
                figures |= self._figure(row, column, value)
            elif column.role == "other":
                metrics.append((column.name, parse_number(value, self._mark)))
        if not figures and not metrics and outcome == "ok":
            return None
        if "epochs" in counts:
            figures["epochs"] = counts["epochs"]
        seed = counts.pop("seed", None)
        factors = (*counts.items(), *texts.items())
        if factors not in self._cells:
            cell = self._cell(row, counts, texts)
            self._cells[factors] = cell, self._numbers.setdefault(cell, len(self._numbers))
        cell, place = self._cells[factors]
        repeat = repeats[place, seed]
        repeats[place, seed] += 1
        return Launch(
            id=folder.launch_id(number, cell, repeat),
            cell=cell,
            repeat=repeat,
            seed=seed,
            purpose="imported",
            outcome=outcome,
            reason="" if outcome == "ok" else "As the imported table says.",
            wall_s=figures.get("job_s"),
            figures=figures,
            metrics=tuple(
                Metric(name=name, value=value, epoch=counts.get("epochs"))
                for name, value in metrics
            ),
        )

    def _cell(self, row: Row, counts: dict[str, int], texts: dict[str, str]) -> Cell:
        workers, hosts = counts.get("workers"), counts.get("hosts")
        if workers is None:
            if hosts is None:
                raise self._wrong(row, f"neither workers nor hosts is given. {_NEEDED}")
            self._notes.append(
                "No workers are given for some rows: each host counts as one worker."
            )
            workers = hosts
        if hosts is not None and hosts > workers:
            raise self._wrong(
                row,
                f"{plural(hosts, 'host')} for {plural(workers, 'worker')}: one would have none.",
            )
        factors = {
            name: text for name, text in texts.items() if name not in ("device", "transport")
        }
        return Cell(
            workers=workers,
            threads=counts.get("threads"),
            batch=self._batch(row, workers, counts),
            transport=texts.get("transport", "unknown"),
            hosts=hosts or 1,
            device=texts.get("device", "unknown"),
            params=tuple(factors.items()),
        )

    def _batch(self, row: Row, workers: int, counts: dict[str, int]) -> int | None:
        batch, shared = counts.get("batch"), counts.get("global_batch")
        if shared is None:
            return batch
        if shared % workers:
            raise self._wrong(
                row, f"{plural(workers, 'worker')} do not divide a global batch of {shared}."
            )
        if batch is not None and batch * workers != shared:
            raise self._wrong(
                row,
                f"batch {batch} on {plural(workers, 'worker')} is a global batch of "
                f"{batch * workers}, not "
                f"{shared}. Give one of the two; batch is per worker.",
            )
        return shared // workers

    def _count(self, row: Row, column: Column, value: str) -> int:
        try:
            found = whole(parse_number(value, self._mark))
        except UnreadableError:
            found = None
        least = 0 if column.name == "seed" else 1
        if found is not None and found > _MOST and column.name != "seed":
            raise self._wrong(
                row, f"column {column.given!r} is {value!r}, but must be at most {_MOST:,}."
            )
        if found is None or found < least or value.endswith("%"):
            kind = "a whole number" if least == 0 else "a whole number of at least 1"
            raise self._wrong(row, f"column {column.given!r} is {value!r}, but must be {kind}.")
        return found

    def _figure(self, row: Row, column: Column, value: str) -> dict[str, float]:
        try:
            seconds = parse_clock(value) if column.role == "time" else None
            if seconds is None:
                if column.scale is None:
                    stem = column.name.removesuffix("_s")
                    raise self._wrong(
                        row,
                        f"column {column.given!r} has no unit for {value!r}. Call it {stem}_s, "
                        f"{stem}_ms, {stem}_min or {stem}_h, or write h:mm:ss.",
                    )
                seconds = parse_number(value, self._mark) * column.scale
            elif column.scale == 3600.0 and value.count(":") == 1:
                raise self._wrong(row, f"column {column.given!r}: write {value!r} as h:mm:ss.")
        except UnreadableError as error:
            raise self._wrong(
                row, f"column {column.given!r} has {value!r}, which is no number."
            ) from error
        if math.isnan(seconds):
            return {}
        if not (0 < seconds < math.inf) or value.endswith("%"):
            raise self._wrong(row, f"column {column.given!r} is {value!r}, but must be above 0.")
        return {column.name: seconds}

    def _wrong(self, row: Row, what: str) -> UsageError:
        return UsageError(f"{self._name}, line {row.line}: {what}")


def _meaning(column: Column) -> str:
    if column.role == "other":
        return f"metric {column.name}"
    if column.role == "text" and column.name not in ("device", "transport"):
        return f"factor {column.name}"
    return column.name
