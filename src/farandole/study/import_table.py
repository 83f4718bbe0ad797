"""Figures measured elsewhere, from a CSV table into a study's folder.

CSV as people save it, whichever separator, byte-order mark, quotes, comments; numbers and times as
1,234.5 and 1.234,5, 95 %, 1:38:30. What reads a table's cells is pure.
"""

from __future__ import annotations

import csv
import functools
import gc
import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from farandole.errors import UsageError
from farandole.format import plural
from farandole.study import folder
from farandole.study.records import Cell, Launch, Metric, Outcome, Study

# Cells, numbers and times.

Decimal = Literal[".", ","]

_MISSING = {"", "-", "--", "\u2013", "\u2014", "n/a", "na", "none", "null", "?", "not measured"}
_CLOCK = re.compile(r"(?:(\d+):)?(\d+):(\d{2}(?:[.,]\d+)?)")
_SPACES = str.maketrans("", "", " _'\u00a0\u2009\u202f\u2019")
# By decimal mark; the other mark parts thousands, which no lone zero comes before.
_NUMBERS = {
    mark: re.compile(rf"[+-]?(?:[1-9]\d{{0,2}}(?:{other}\d{{3}})+|\d*)(?:{mark}\d*)?(?:e[+-]?\d+)?")
    for mark, other in ((r"\.", ","), (",", r"\."))
}


class UnreadableError(ValueError):
    """A value that is no number; the importer says where it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of values, as many as there are columns."""

    line: int
    """Its number in the file, for messages."""
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """The cells of a table as text."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    separator: str

    def column(self, index: int) -> list[str]:
        """Return the values of one column."""
        return [row.values[index] for row in self.rows]


def parse_sheet(content: bytes, *, name: str) -> Sheet:
    """Return the table in a file; rows without any value and lines with `#` are left out."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in content:
        raise UsageError(f"{name} is not a CSV file in UTF-8. Save it as CSV (UTF-8).")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UsageError(f"{name}, line {line}: not UTF-8. Save it as CSV (UTF-8).") from error
    # Lines keep their numbers: a comment becomes an empty row.
    lines = ["" if line.startswith("#") else f"{line}\n" for line in re.split(r"\r\n?|\n", text)]
    header = next((line.strip() for line in lines if line.strip()), None)
    if header is None:
        raise UsageError(f"{name} is empty. Its first line must name the columns.")
    outside_quotes = "".join(header.split('"')[::2])
    separator = max((",", ";", "\t"), key=outside_quotes.count)
    reader = csv.reader(lines, delimiter=separator, strict=True)
    found: list[tuple[int, list[str]]] = []
    try:
        for values in reader:
            stripped = [value.strip() for value in values]
            if any(stripped):
                found.append((reader.line_num, stripped))
    except csv.Error as error:
        raise UsageError(f"{name}, line {reader.line_num}: not a table ({error}).") from error
    (_, columns), *rest = found
    if not any(re.search(r"[^\W\d_]", column) for column in columns):
        raise UsageError(
            f"{name} has no header: its first line, {header!r}, has no letters. Name the "
            "columns there, without # before them, which makes a line a comment."
        )
    if not rest:
        raise UsageError(f"{name} has a header and no rows. Add one row per run.")
    width, rows = len(columns), []
    for line, values in rest:
        if any(values[width:]):
            raise UsageError(
                f"{name}, line {line}: {len(values)} values for {width} columns. Put values with "
                f"{separator!r} in them into quotes."
            )
        rows.append(Row(line=line, values=tuple((values + [""] * width)[:width])))
    return Sheet(columns=tuple(columns), rows=tuple(rows), separator=separator)


def is_missing(text: str) -> bool:
    """Tell whether somebody left the value out."""
    return not text[:1].isdecimal() and text.strip().lower() in _MISSING


def decimal_mark(texts: Iterable[str], *, separator: str) -> Decimal:
    """Find which mark a file's numbers have, from those that can be read in one way only."""
    dot = comma = unclear = None
    for text in texts:
        # What says nothing, or nothing new, is most of a large table.
        if text.isdecimal() or (dot and "," not in text and text.count(".") == 1):
            continue
        bare = _bare(text)
        with_dot, with_comma = (pattern.fullmatch(bare) for pattern in _NUMBERS.values())
        if with_dot and not with_comma:
            dot = dot or text
        elif with_comma and not with_dot:
            comma = comma or text
        elif with_dot and "," in bare:
            unclear = unclear or text
    if dot and comma:
        raise UnreadableError(f"{dot!r} and {comma!r} have different decimal marks")
    # Where commas part the columns, one inside a number parts thousands. Elsewhere who knows.
    if unclear and not (dot or comma) and separator != ",":
        raise UnreadableError(
            f"{unclear!r} may have decimals or thousands; write it without the comma"
        )
    return "," if comma else "."


LARGEST = 1e30
"""No time, size or rate is larger: 1e300 in a table is a slip."""


def parse_number(text: str, mark: Decimal) -> float:
    """Return the value; a percentage as a share of 1."""
    try:
        if mark == "." and len(text) < 20 and text.replace(".", "", 1).isdecimal():
            return float(text)  # most of a large table
        bare, thousands = _bare(text), "," if mark == "." else "."
        if thousands in bare and not _NUMBERS[r"\." if mark == "." else ","].fullmatch(bare):
            raise UnreadableError(text)
        value = float(bare.replace(thousands, "").replace(",", "."))
    except ValueError as error:
        raise UnreadableError(text) from error
    if LARGEST < abs(value) < math.inf:
        raise UnreadableError(text)
    return value / 100 if text.rstrip().endswith("%") else value


def is_number(text: str, mark: Decimal) -> bool:
    """Tell whether `parse_number` reads it."""
    try:
        parse_number(text, mark)
    except UnreadableError:
        return False
    return True


def parse_clock(text: str) -> float | None:
    """Return the seconds of h:mm:ss or m:ss; None when it is written otherwise."""
    match = _CLOCK.fullmatch(text.strip())
    if match is None:
        return None
    hours, minutes, seconds = match[1], int(match[2]), float(match[3].replace(",", "."))
    if seconds >= 60 or (hours is not None and minutes >= 60):
        raise UnreadableError(text)
    return int(hours or 0) * 3600 + minutes * 60 + seconds


def whole(value: float) -> int | None:
    """Return a count; None when it is none."""
    return int(value) if math.isfinite(value) and value == int(value) else None


def _bare(text: str) -> str:
    return text.strip().lower().removesuffix("%").translate(_SPACES)


# What columns hold.

Role = Literal["count", "time", "rate", "text", "repeat", "other"]

# Names of columns, with what else they are called.
_NAMES: dict[Role, dict[str, str]] = {
    "count": {
        "workers": "worker num_workers ranks processes np world_size gpus num_gpus",
        "hosts": "host nodes node num_hosts num_nodes",
        "threads": "thread threads_per_worker num_threads",
        "batch": "batch_size batch_per_worker local_batch batchsize",
        "global_batch": "global_batch_size total_batch",
        "epochs": "num_epochs",
        "seed": "",
    },
    # Text whatever its values look like: a model may be called 50.
    "text": {"device": "devices gpu gpu_type", "transport": "", "model": "", "network": ""}
    | {"net": "", "dataset": "", "data": "", "lab": "", "recipe": "", "scaling": "", "name": ""},
    "repeat": {"run": "", "repeat": "", "rep": "", "trial": "", "repetition": ""},
}
_KNOWN = {
    alias: (name, role)
    for role, names in _NAMES.items()
    for name, aliases in names.items()
    for alias in (name, *aliases.split())
}
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
_NEEDED = "Add a column `workers` (or `hosts`) that says how many took part in each row."


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

    @property
    def meaning(self) -> str:
        """What study.json says of it."""
        if self.role == "other":
            return f"metric {self.name}"
        factor = self.role == "text" and self.name not in ("device", "transport")
        return f"factor {self.name}" if factor else self.name


def understand(index: int, given: str) -> Column:
    """Tell what a column holds, from its name alone."""
    # `Job time (min)` is job_time_min.
    name = re.sub(r"[(\[]\s*(.*?)\s*[)\]]", r" \1", given.strip().lower())
    name = re.sub(r"_+", "_", re.sub(r"[^\w/%.]+", "_", name)).strip("_")
    scale: float | None = 1.0
    role: Role = "other"
    time = re.fullmatch(r"(epoch|job|step)(_times?|_duration)?(?:_(.+))?", name)
    rate = _RATE_NAME.fullmatch(name.replace("/", "_per_"))
    unknown = f"Column {given!r}: {{!r}} is not a known unit. Use "
    if name in _KNOWN:
        name, role = _KNOWN[name]
    # The number of an epoch or of a step is no time.
    elif time is not None and name not in ("epoch", "step"):
        unit = _UNIT_WORDS.get(time[3], time[3])
        if unit is None or unit in _UNITS:
            scale = None if unit is None else _UNITS[unit]
            name, role = f"{time[1]}_s", "time"
        elif time[2] is not None or not _NO_UNIT.search(unit):
            units = ", ".join(f"{time[1]}_{unit}" for unit in _UNITS)
            raise UsageError(f"{unknown.format(time[3])}{units}, or h:mm:ss values.")
    elif rate is not None or name == "throughput" or name.startswith("throughput_"):
        shown = name.removeprefix("throughput").removeprefix("_")
        rate = rate or _RATE_UNIT.fullmatch(shown or "s")
        if rate is None:
            raise UsageError(
                f"{unknown.format(shown)}throughput (samples per second) or throughput_per_min."
            )
        scale = 1 / _UNITS[_UNIT_WORDS.get(rate[1], rate[1])]
        name, role = "throughput", "rate"
    return Column(index=index, given=given, name=name, role=role, scale=scale)


def unknown_note(column: Column) -> str:
    """Say that a column with numbers became a metric, and what else it might have been."""
    if _MEASURES.search(column.name):
        return f"Column {column.given!r} became a metric."
    hint = ""
    if _TIME_LIKE.fullmatch(column.name):
        hint = " If it is the time of a job, an epoch or a step, call it job_s, epoch_s or step_s."
    return f"Column {column.given!r} is unknown, so it became a metric.{hint}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What was read from a table."""

    launches: tuple[Launch, ...]
    columns: dict[str, str]
    """Each column of the file, and what it was taken for."""
    notes: tuple[str, ...]
    """What a user should know of how it was read, in sentences."""


def import_table(table: Path, out: Path, *, label: str | None = None) -> tuple[Study, Imported]:
    """Make a study of a table; nothing is written unless all of it can be read."""
    try:
        content = table.read_bytes()
    except OSError as error:
        raise UsageError(f"{table} cannot be read ({error.strerror}).") from error
    folder.check_new(out)
    imported = read_table(content, name=str(table))
    source = {
        "file": table.name,
        "sha256": hashlib.sha256(content).hexdigest(),
        "columns": imported.columns,
        "notes": list(imported.notes),
    }
    # Which machine the figures come from is not known.
    study = folder.create_study(
        out, label=label or table.stem, command=(), spec={"imported": source}, machine={}
    )
    if len(imported.launches) > _MANY_ROWS:
        folder.write_rows(out, imported.launches)
    else:
        for launch in imported.launches:
            folder.write_launch(out / folder.LAUNCHES / launch.id, launch, durable=False)
    return replace(folder.mark_complete(study), launches=imported.launches), imported


def read_table(content: bytes, *, name: str) -> Imported:
    """Return the launches that a table tells of."""
    collects = gc.isenabled()
    gc.disable()  # nothing of a table is garbage before its end, and looking for it takes a fifth
    try:
        return _Reader(content, name).imported()
    finally:
        if collects:
            gc.enable()


class _Reader:
    """One table on its way to launches."""

    def __init__(self, content: bytes, name: str) -> None:
        self._name, self._sheet = name, parse_sheet(content, name=name)
        self._notes: list[str] = []
        texts = (value for row in self._sheet.rows for value in row.values)
        try:
            self._mark = decimal_mark(texts, separator=self._sheet.separator)
        except UnreadableError as error:
            raise UsageError(f"{name}: {error}.") from error
        self._columns = self._understood()
        self._readers = [
            (column, functools.cache(functools.partial(self._value, column)))
            for column in self._columns
        ]
        self._cells: dict[tuple[Any, ...], Cell] = {}
        """By what rows say of them: a long table has few."""
        self._repeats: Counter[tuple[Cell, int | None]] = Counter()

    def imported(self) -> Imported:
        launches: list[Launch] = []
        for row in self._sheet.rows:
            try:
                launch = self._launch(len(launches) + 1, row.values)
            except UnreadableError as error:
                raise UsageError(f"{self._name}, line {row.line}: {error}") from error
            if launch is None:
                self._notes.append(f"Line {row.line} has no figures and was left out.")
            else:
                launches.append(launch)
        if not launches:
            raise UsageError(f"{self._name} has no figures: no times, throughput or metrics.")
        return Imported(
            launches=tuple(launches),
            columns={column.given: column.meaning for column in self._columns},
            notes=tuple(dict.fromkeys(self._notes)),
        )

    def _understood(self) -> list[Column]:
        """Tell what each column is, by its name and then by its values."""
        columns: dict[str, Column] = {}
        for index, given in enumerate(self._sheet.columns):
            values = [value for value in self._sheet.column(index) if not is_missing(value)]
            if not given:
                # Empty, or what pandas numbers the rows with.
                if values in ([], [str(number) for number in range(len(self._sheet.rows))]):
                    continue
                raise UsageError(
                    f"{self._name}: column {index + 1} has no name. Name it or remove it."
                )
            column = self._judged(understand(index, given), values)
            twin = columns.setdefault(column.name, column)
            if twin is not column:
                raise UsageError(
                    f"{self._name}: columns {twin.given!r} and {given!r} are both "
                    f"{column.name}. Keep one of them, or give them different names."
                )
        if not {"workers", "hosts"} & set(columns):
            found = ", ".join(column.given for column in columns.values())
            raise UsageError(
                f"{self._name} does not say how many workers (it has {found}). {_NEEDED}"
            )
        return list(columns.values())

    def _judged(self, column: Column, values: list[str]) -> Column:
        """Settle what a column's name alone leaves open, by its values."""
        if column.role not in ("repeat", "other"):
            return column
        given = f"Column {column.given!r}"
        values = [value for value in values if value.lower() not in _ENDS]
        odd = [value for value in values if not is_number(value, self._mark)]
        if column.role == "repeat" and not odd:
            self._notes.append(f"{given} was read as the number of the repeat.")
        elif column.role == "repeat":
            return replace(column, role="text")
        elif len(odd) == len(values):
            self._notes += [f"{given} has text, so it became a factor."] if values else []
            return replace(column, role="text")
        elif odd:
            raise UsageError(
                f"{self._name}: column {column.given!r} has numbers and {odd[0]!r}. Leave that "
                "value empty, or make the whole column text."
            )
        else:
            self._notes.append(unknown_note(column))
        return column

    def _launch(self, number: int, values: tuple[str, ...]) -> Launch | None:
        """Return the launch that a row tells of; None when it has no figure."""
        found: dict[Role, dict[str, Any]] = {role: {} for role in get_args(Role)}
        outcome: Outcome = "ok"
        for column, read in self._readers:
            text = values[column.index]
            if is_missing(text):
                continue
            if column.role != "text" and text.lower() in _ENDS:
                outcome = _ENDS[text.lower()]
            else:
                found[column.role][column.name] = read(text)
        counts, metrics, timed = found["count"], found["other"], {**found["time"], **found["rate"]}
        figures = {name: value for name, value in timed.items() if not math.isnan(value)}
        if not figures and not metrics and outcome == "ok":
            return None
        seed, epochs = counts.pop("seed", None), counts.get("epochs")
        key = (*counts.items(), *found["text"].items())
        if key not in self._cells:
            self._cells[key] = self._cell(counts, found["text"])
        cell = self._cells[key]
        repeat = self._repeats[cell, seed]
        self._repeats[cell, seed] += 1
        return Launch(
            id=folder.launch_id(number, cell, repeat),
            cell=cell,
            repeat=repeat,
            seed=seed,
            purpose="imported",
            outcome=outcome,
            reason="" if outcome == "ok" else "As the imported table says.",
            wall_s=figures.get("job_s"),
            figures=figures | ({} if epochs is None else {"epochs": epochs}),
            metrics=tuple(
                Metric(name=name, value=value, epoch=epochs) for name, value in metrics.items()
            ),
        )

    def _cell(self, counts: dict[str, int], texts: dict[str, str]) -> Cell:
        workers, hosts = counts.get("workers"), counts.get("hosts")
        if workers is None:
            if hosts is None:
                raise UnreadableError(f"neither workers nor hosts is given. {_NEEDED}")
            self._notes.append("Some rows do not give the workers: each host counts as one worker.")
            workers = hosts
        noun = plural(workers, "worker")
        if hosts is not None and hosts > workers:
            raise UnreadableError(f"{plural(hosts, 'host')} for {noun}: one would have none.")
        batch, shared = counts.get("batch"), counts.get("global_batch")
        if shared is not None and shared % workers:
            raise UnreadableError(f"{noun} do not divide a global batch of {shared}.")
        if shared is not None and batch is not None and batch * workers != shared:
            raise UnreadableError(
                f"batch {batch} on {noun} is a global batch of {batch * workers}, not {shared}. "
                "Give one of the two; batch is per worker."
            )
        factors = {name: x for name, x in texts.items() if name not in ("device", "transport")}
        return Cell(
            workers=workers,
            threads=counts.get("threads"),
            batch=batch if shared is None else shared // workers,
            transport=texts.get("transport", "unknown"),
            hosts=hosts or 1,
            device=texts.get("device", "unknown"),
            params=tuple(factors.items()),
        )

    def _value(self, column: Column, text: str) -> Any:
        """Read a value as its column's role has it."""
        if column.role in ("text", "repeat"):
            return text
        if column.role == "other":
            return parse_number(text, self._mark)
        return (self._count if column.role == "count" else self._measure)(column, text)

    def _count(self, column: Column, text: str) -> int:
        is_seed = column.name == "seed"
        found = whole(parse_number(text, self._mark)) if is_number(text, self._mark) else None
        wrong = f"column {column.given!r} is {text!r}, but must be"
        if found is None or found < (not is_seed) or text.endswith("%"):
            raise UnreadableError(f"{wrong} a whole number{' of at least 1' * (not is_seed)}.")
        if found > _MOST and not is_seed:
            raise UnreadableError(f"{wrong} at most {_MOST:,}.")
        return found

    def _measure(self, column: Column, text: str) -> float:
        """Return a time in seconds, or a rate per second."""
        what, stem, scale = f"column {column.given!r}", column.name.removesuffix("_s"), column.scale
        try:
            value = parse_clock(text) if column.role == "time" else None
            clock = value is not None
            if value is None and scale is not None:
                value = parse_number(text, self._mark) * scale
        except UnreadableError as error:
            raise UnreadableError(f"{what} has {text!r}, which is not a number.") from error
        if clock and scale == _UNITS["h"] and text.count(":") == 1:
            raise UnreadableError(f"{what}: write {text!r} as h:mm:ss.")
        if value is None:
            raise UnreadableError(
                f"{what} has no unit for {text!r}. Call it {stem}_s, {stem}_ms, {stem}_min or "
                f"{stem}_h, or write h:mm:ss."
            )
        if value <= 0 or math.isinf(value) or text.endswith("%"):
            raise UnreadableError(f"{what} is {text!r}, but must be above 0.")
        return value
