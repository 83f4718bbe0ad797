"""Measurements of other people's clusters: the two shapes of table that a backtest reads."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from farandole.errors import DataError
from farandole.format import plural
from farandole.model.projection.epochs import EpochRow
from farandole.model.projection.steps import StepRow
from farandole.study.import_table import (
    Decimal,
    Row,
    Sheet,
    UnreadableError,
    decimal_mark,
    is_missing,
    parse_number,
    parse_sheet,
    whole,
)

_SCALES = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_TIME = re.compile(r"(step_time|sync_time)_(\w+)")
_STEP_COLUMNS = ("nodes", "workers", "local_batch", "step_time_s")
_EPOCH_COLUMNS = ("workload", "global_batch", "epochs_to_target")
_NAMES = ("cluster", "model", "workload", "run")
_FEWEST = 3
# Waiting for gradients is a part of the step. Clocks may differ by a little, not by this.
_IMPOSSIBLE_SHARE = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTrace:
    """Step times of one file, by what was trained and where."""

    groups: Mapping[tuple[str, str], tuple[StepRow, ...]]
    """(cluster, model), in the order of the file."""
    notes: tuple[str, ...] = ()
    """What was left out, in sentences."""
    kind: Literal["steps"] = "steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochTrace:
    """Epochs to the target of one file, by workload."""

    groups: Mapping[str, tuple[EpochRow, ...]]
    notes: tuple[str, ...] = ()
    kind: Literal["epochs"] = "epochs"


def read_trace(path: Path) -> StepTrace | EpochTrace:
    """Read a table of step times or of epochs; its columns say which.

    Raises:
        DataError: It cannot be read or used; the message says what and where.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}).") from error
    return parse_trace(content, name=str(path))


def parse_trace(content: bytes, *, name: str) -> StepTrace | EpochTrace:
    """Read the bytes of such a table; see `read_trace`."""
    sheet = parse_sheet(content, name=name)
    reader = _Reader(sheet, name)
    if len(sheet.rows) < _FEWEST:
        raise DataError(
            f"{name} has {plural(len(sheet.rows), 'row')}. A backtest needs at least "
            f"{_FEWEST}: some to fit, "
            "some to score."
        )
    return reader.epochs() if "epochs_to_target" in reader.places else reader.steps()


class _Reader:
    """One table on its way to rows."""

    def __init__(self, sheet: Sheet, name: str) -> None:
        self._sheet = sheet
        self._name = name
        self._notes: list[str] = []
        self._scale: dict[str, float] = {}
        self.places = self._understood()
        self._check_complete()
        self._mark = self._decimal_mark()

    def steps(self) -> StepTrace:
        groups: dict[tuple[str, str], list[StepRow]] = {}
        for row in self._sheet.rows:
            if is_missing(self._text(row, "step_time_s")):
                self._notes.append(f"Line {row.line} has no step time and was left out.")
                continue
            key = (self._text(row, "cluster"), self._text(row, "model"))
            groups.setdefault(key, []).append(self._step_row(row))
        if not groups:
            raise DataError(f"{self._name} has no step times. Fill the column step_time_s.")
        return StepTrace(
            groups={key: tuple(rows) for key, rows in groups.items()}, notes=tuple(self._notes)
        )

    def epochs(self) -> EpochTrace:
        groups: dict[str, list[EpochRow]] = {}
        for row in self._sheet.rows:
            if is_missing(self._text(row, "epochs_to_target")):
                self._notes.append(f"Line {row.line} has no epochs and was left out.")
                continue
            if not math.isfinite(self._number(row, "epochs_to_target")):
                self._notes.append(f"Line {row.line} never reached its target and was left out.")
                continue
            found = EpochRow(
                global_batch=self._count(row, "global_batch"),
                epochs=self._positive(row, "epochs_to_target"),
            )
            groups.setdefault(self._text(row, "workload"), []).append(found)
        if not groups:
            raise DataError(f"{self._name} has no epochs. Fill the column epochs_to_target.")
        return EpochTrace(
            groups={key: tuple(rows) for key, rows in groups.items()}, notes=tuple(self._notes)
        )

    def _step_row(self, row: Row) -> StepRow:
        hosts, workers = self._count(row, "nodes"), self._count(row, "workers")
        if hosts > workers:
            raise self._wrong(
                row,
                f"{plural(hosts, 'node')} for {plural(workers, 'worker')}: one would have none.",
            )
        step = self._positive(row, "step_time_s")
        return StepRow(
            workers=workers,
            hosts=hosts,
            batch=self._count(row, "local_batch"),
            step_s=step,
            sync_s=self._sync(row, step),
        )

    def _sync(self, row: Row, step: float) -> float | None:
        if is_missing(self._text(row, "sync_time_s")):
            return None
        sync = self._number(row, "sync_time_s") * self._scale["sync_time_s"]
        if not 0 <= sync < math.inf:
            raise self._wrong(row, f"the sync time is {sync:g} s, but must be 0 or more.")
        if sync > _IMPOSSIBLE_SHARE * step:
            raise self._wrong(
                row,
                f"a sync time of {sync:g} s in a step of {step:g} s: the sync is a part of the "
                "step. Check the units: columns end in _s, _ms or _us.",
            )
        return min(sync, step)

    def _understood(self) -> dict[str, int]:
        places: dict[str, int] = {}
        known = {*_STEP_COLUMNS, *_EPOCH_COLUMNS, *_NAMES}
        for index, given in enumerate(self._sheet.columns):
            column = given.strip().lower()
            if (time := _TIME.fullmatch(column)) is not None:
                if time[2] not in _SCALES:
                    raise DataError(
                        f"{self._name}: column {given!r} has the unit {time[2]!r}. Choose from "
                        f"{', '.join(_SCALES)}."
                    )
                column = f"{time[1]}_s"
                self._scale.setdefault(column, _SCALES[time[2]])
            elif column not in known:
                self._notes.append(f"Column {given!r} is not known and was not used.")
                continue
            if column in places:
                raise DataError(
                    f"{self._name}: columns {self._sheet.columns[places[column]]!r} and {given!r} "
                    "are the same figure. Keep one of them."
                )
            places[column] = index
        return places

    def _check_complete(self) -> None:
        steps = [column for column in _STEP_COLUMNS if column not in self.places]
        epochs = [column for column in _EPOCH_COLUMNS if column not in self.places]
        if not steps and not epochs:
            raise DataError(f"{self._name} has steps and epochs. Put them into two files.")
        if steps and epochs:
            lacking = min(steps, epochs, key=len)
            raise DataError(
                f"{self._name} lacks {', '.join(lacking)} (it has "
                f"{', '.join(self._sheet.columns)}). A table of steps has "
                f"{', '.join(_STEP_COLUMNS)}; one of epochs has {', '.join(_EPOCH_COLUMNS)}."
            )

    def _decimal_mark(self) -> Decimal:
        places = [place for column, place in self.places.items() if column not in _NAMES]
        texts = [row.values[place] for row in self._sheet.rows for place in places]
        try:
            return decimal_mark(texts, separator=self._sheet.separator)
        except UnreadableError as error:
            raise DataError(f"{self._name}: {error}.") from error

    def _text(self, row: Row, column: str) -> str:
        return row.values[self.places[column]] if column in self.places else ""

    def _number(self, row: Row, column: str) -> float:
        text = self._text(row, column)
        try:
            return parse_number(text, self._mark)
        except UnreadableError as error:
            raise self._wrong(
                row, f"column {column!r} has {text!r}, which is no number."
            ) from error

    def _count(self, row: Row, column: str) -> int:
        value = whole(self._number(row, column))
        if value is None or value < 1:
            text = self._text(row, column)
            raise self._wrong(
                row, f"column {column!r} is {text!r}, but must be a whole number of at least 1."
            )
        return value

    def _positive(self, row: Row, column: str) -> float:
        value = self._number(row, column) * self._scale.get(column, 1.0)
        if not 0 < value < math.inf:
            text = self._text(row, column)
            raise self._wrong(row, f"column {column!r} is {text!r}, but must be above 0.")
        return value

    def _wrong(self, row: Row, what: str) -> DataError:
        return DataError(f"{self._name}, line {row.line}: {what}")
