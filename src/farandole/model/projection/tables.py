"""Measurements of other people's clusters: the two shapes of table that a backtest reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farandole.errors import DataError
from farandole.format import plural
from farandole.model.projection.epochs import EpochRow
from farandole.model.projection.steps import StepRow
from farandole.study.import_table import (
    Row,
    UnreadableError,
    decimal_mark,
    is_missing,
    parse_number,
    parse_sheet,
    whole,
)

_SCALES = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_STEPS = ("nodes", "workers", "local_batch", "step_time_s")
_EPOCHS = ("workload", "global_batch", "epochs_to_target")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochTrace:
    """Epochs to the target of one file, by workload."""

    groups: Mapping[str, tuple[EpochRow, ...]]
    notes: tuple[str, ...] = ()


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
    table = _Table(content, name)
    epochs = "epochs_to_target" in table.places
    groups: dict[Any, list[Any]] = {}
    for row in table.sheet.rows:
        table.row = row
        if (found := table.epoch_row() if epochs else table.step_row()) is not None:
            groups.setdefault(found[0], []).append(found[1])
    if not groups:
        what = ("epochs", "epochs_to_target") if epochs else ("step times", "step_time_s")
        raise DataError(f"{name} has no {what[0]}. Fill the column {what[1]}.")
    trace = EpochTrace if epochs else StepTrace
    return trace(groups={key: tuple(r) for key, r in groups.items()}, notes=tuple(table.notes))


class _Table:
    """A sheet whose columns are understood, and the row that is being read."""

    row: Row

    def __init__(self, content: bytes, name: str) -> None:
        self.sheet, self._name = parse_sheet(content, name=name), name
        self.notes: list[str] = []
        self._scale: dict[str, float] = {}
        self.places = self._understood()
        if len(self.sheet.rows) < _FEWEST:
            raise DataError(
                f"{name} has {plural(len(self.sheet.rows), 'row')}. A backtest needs at least "
                f"{_FEWEST}: some to fit, some to score."
            )
        numbers = [place for column, place in self.places.items() if column not in _NAMES]
        texts = [row.values[place] for row in self.sheet.rows for place in numbers]
        try:
            self._mark = decimal_mark(texts, separator=self.sheet.separator)
        except UnreadableError as error:
            raise DataError(f"{name}: {error}.") from error

    def step_row(self) -> tuple[tuple[str, str], StepRow] | None:
        """Return cluster and model of the row, and its step; None where it has no time."""
        if is_missing(self._text("step_time_s")):
            self.notes.append(f"Line {self.row.line} has no step time and was left out.")
            return None
        hosts, workers = self._count("nodes"), self._count("workers")
        if hosts > workers:
            shown = f"{plural(hosts, 'node')} for {plural(workers, 'worker')}"
            raise self._wrong(f"{shown}: one would have none.")
        step_s, sync_s = self._positive("step_time_s"), None
        if not is_missing(self._text("sync_time_s")):
            sync_s = self._number("sync_time_s")
            if not 0 <= sync_s < math.inf:
                raise self._wrong(f"the sync time is {sync_s:g} s, but must be 0 or more.")
            if sync_s > _IMPOSSIBLE_SHARE * step_s:
                raise self._wrong(
                    f"a sync time of {sync_s:g} s in a step of {step_s:g} s: the sync is a part of "
                    "the step. Check the units: columns end in _s, _ms or _us."
                )
            sync_s = min(sync_s, step_s)
        batch = self._count("local_batch")
        found = StepRow(workers=workers, hosts=hosts, batch=batch, step_s=step_s, sync_s=sync_s)
        return (self._text("cluster"), self._text("model")), found

    def epoch_row(self) -> tuple[str, EpochRow] | None:
        """Return the row's workload and epochs; None where the target was not reached."""
        missing = is_missing(self._text("epochs_to_target"))
        if missing or not math.isfinite(self._number("epochs_to_target")):
            why = "has no epochs" if missing else "never reached its target"
            self.notes.append(f"Line {self.row.line} {why} and was left out.")
            return None
        epochs = self._positive("epochs_to_target")
        found = EpochRow(global_batch=self._count("global_batch"), epochs=epochs)
        return self._text("workload"), found

    def _understood(self) -> dict[str, int]:
        places: dict[str, int] = {}
        for index, given in enumerate(self.sheet.columns):
            column = given.strip().lower()
            stem, _, unit = column.rpartition("_")
            if stem in ("step_time", "sync_time"):
                if unit not in _SCALES:
                    raise DataError(
                        f"{self._name}: column {given!r} has the unit {unit!r}. Choose from "
                        f"{', '.join(_SCALES)}."
                    )
                column = f"{stem}_s"
                self._scale.setdefault(column, _SCALES[unit])
            elif column not in {*_STEPS, *_EPOCHS, *_NAMES}:
                self.notes.append(f"Column {given!r} is not known and was not used.")
                continue
            if column in places:
                raise DataError(
                    f"{self._name}: columns {self.sheet.columns[places[column]]!r} and {given!r} "
                    "are the same figure. Keep one of them."
                )
            places[column] = index
        lacking = [[one for one in columns if one not in places] for columns in (_STEPS, _EPOCHS)]
        if not any(lacking):
            raise DataError(f"{self._name} has steps and epochs. Put them into two files.")
        if all(lacking):
            raise DataError(
                f"{self._name} lacks {', '.join(sorted(lacking, key=len)[0])} (it has "
                f"{', '.join(self.sheet.columns)}). A table of steps has {', '.join(_STEPS)}; one "
                f"of epochs has {', '.join(_EPOCHS)}."
            )
        return places

    def _text(self, column: str) -> str:
        return self.row.values[self.places[column]] if column in self.places else ""

    def _number(self, column: str) -> float:
        text = self._text(column)
        try:
            return parse_number(text, self._mark) * self._scale.get(column, 1.0)
        except UnreadableError as error:
            raise self._wrong(f"column {column!r} has {text!r}, which is no number.") from error

    def _count(self, column: str) -> int:
        value = whole(self._number(column))
        if value is None or value < 1:
            must = "must be a whole number of at least 1"
            raise self._wrong(f"column {column!r} is {self._text(column)!r}, but {must}.")
        return value

    def _positive(self, column: str) -> float:
        value = self._number(column)
        if not 0 < value < math.inf:
            raise self._wrong(f"column {column!r} is {self._text(column)!r}, but must be above 0.")
        return value

    def _wrong(self, what: str) -> DataError:
        return DataError(f"{self._name}, line {self.row.line}: {what}")
