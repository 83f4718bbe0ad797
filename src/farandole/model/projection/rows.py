"""What a projection stands on: step times of a study's launches, or of an imported table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from farandole.errors import UsageError
from farandole.model.apart import quiet
from farandole.model.curves import group_of
from farandole.model.info.curve import Curve, Scaling
from farandole.model.info.scaling import ScalingInfo
from farandole.model.measured import Measured, common_unit, count, figure, usable_cores
from farandole.model.pace import Pace, dataset_size, positive
from farandole.model.projection import words
from farandole.model.projection.records import LEAST_ROWS, StepRow
from farandole.study.records import Apart, Cell, Study

_FACTORS = ("device", "transport", "threads", "batch", "hosts")
# Times and throughput of one row differ by warm-up or validation, not by this: ms for s is 1,000.
_OTHER_UNITS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What a job takes beside training, which more workers do not shorten."""

    once_s: float
    """Start-up."""
    per_epoch_s: float = 0.0
    """Validation, checkpoints and whatever else lies between epochs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """Measured step times with what is known around them."""

    rows: tuple[StepRow, ...]
    cells: tuple[Measured, ...]
    """Whose launches the rows are."""
    curve: Curve
    group: str
    device: str
    scaling: Scaling
    batch: int
    """Per worker (weak) or of all workers (strong); 1 where it is not known."""
    batch_known: bool
    samples: float | None
    """Of an epoch; None when nobody told. A made-up one where only times of epochs are known."""
    steps_known: bool
    """Whether `step_s` is a step's time; else it is a multiple of one, the same for all rows."""
    unit: str
    """Of the throughput to show."""
    host_size: int
    """Workers that fit the measured host, or one of them."""
    beside: Mapping[int, Beside]
    """What jobs take beside training, by workers; empty where nobody knows."""
    assumptions: tuple[str, ...]
    apart: tuple[Apart, ...] = ()
    """What workers of these cells took each for itself, where nobody else disturbed them."""

    @property
    def workers(self) -> tuple[int, ...]:
        """The counts that were measured."""
        return tuple(sorted({row.workers for row in self.rows}))

    @property
    def crosses_hosts(self) -> bool:
        """Whether a network between hosts was measured."""
        return any(row.hosts > 1 for row in self.rows)

    def batch_of(self, workers: int) -> int:
        """Return the batch per worker of a count, as the study scales."""
        return self.batch if self.scaling == "weak" else math.ceil(self.batch / workers)

    def steps_per_epoch(self, global_batch: int) -> float | None:
        """Return the optimizer steps of an epoch; None when its samples are not known."""
        return None if self.samples is None else self.samples / global_batch

    def beside_of(self, workers: int) -> Beside:
        """Return what a job takes beside training: of the most workers where none is of so many."""
        if not self.beside:
            return Beside(once_s=0.0)
        return self.beside.get(workers) or self.beside[max(self.beside)]

    def throughput(self, step_s: float, global_batch: int) -> float:
        """Return a throughput in `unit`."""
        rate = global_batch / step_s
        return rate if self.unit == "samples/s" else rate / (self.samples or 1.0)


def collect(
    study: Study,
    info: ScalingInfo,
    cells: Sequence[Measured],
    only: Sequence[tuple[str, str]] = (),
    batch: int | None = None,
) -> Basis:
    """Gather the step times of the study's main curve and of other batches beside it.

    Args:
        study: its records.
        info: what `analyse` found in it.
        cells: what `measure` made of it.
        only: factors and values that cells must have.
        batch: per worker, of the curve to stand on if it was measured.

    Raises:
        UsageError: when the workers did not train together, no cell is as asked for, or no time
            counts.
    """
    if info.answer.void is not None:
        raise UsageError(f"There is nothing to project from: {info.answer.void}")
    curve = _choose_curve(info, cells, only, batch)
    group = group_of(curve.points[0].cell)
    void = {found.cell for found in info.voids}
    counted = [
        found
        for found in cells
        if group_of(found.cell) == group
        and not found.cell.today
        and found.cell not in void
        and found.paces
        and _has(found, [pair for pair in only if pair[0] == "hosts"])
    ]
    unit = common_unit(counted)
    counted = [found for found in counted if found.rates(unit)]
    if curve.batch is None:
        # Rows of an unknown batch cannot stand beside others.
        counted = [found for found in counted if found.batch is None]
    for found in counted:
        _check_units(found)
    timing = _Timing(counted, unit, study.spec)
    rows = tuple(
        StepRow(
            workers=found.cell.workers,
            hosts=found.cell.hosts,
            batch=found.batch or 1,
            step_s=seconds,
            sync_s=None,
        )
        for found in counted
        for pace in found.paces
        if (seconds := timing.step_s(found, pace)) is not None
    )
    if not rows:
        raise UsageError("There is nothing to project from: no launch of this study has a time.")
    assumptions = list(timing.assumptions)
    if curve.scaling == "strong":
        assumptions.append(
            f"The global batch stays {curve.batch}: each worker's part of it shrinks."
        )
    return Basis(
        rows=rows,
        cells=tuple(counted),
        curve=curve,
        group=curve.group,
        device=curve.points[0].cell.device,
        scaling=curve.scaling,
        batch=curve.batch or 1,
        batch_known=curve.batch is not None,
        samples=timing.samples,
        steps_known=timing.steps_known,
        unit="samples/s" if timing.in_samples else "epochs/s",
        host_size=_host_size(counted, study.machine),
        beside=_beside(counted, info),
        assumptions=tuple(assumptions),
        apart=tuple(one for one in quiet(study.apart) if group_of(one.cell) == group),
    )


class _Timing:
    """How the figures of launches become times of a step."""

    def __init__(self, cells: Sequence[Measured], unit: str, spec: Mapping[str, object]) -> None:
        sizes = [size for c in cells for one in c.launches if (size := dataset_size(one, spec))]
        batches = all(found.batch for found in cells)
        self._unit = unit
        self._spec = spec
        self.assumptions: list[str] = []
        self.samples: float | None = float(sizes[0]) if sizes else None
        if self.samples is None and (per_epoch := _samples_per_epoch(cells)) is not None:
            self.samples = per_epoch
            self.assumptions.append(
                f"An epoch is taken to have {per_epoch:,.0f} samples: what its time and the "
                "throughput come to."
            )
        self.steps_known = batches
        self.in_samples = unit == "samples/s" or (self.samples is not None and batches)
        if unit == "batches/s" and not batches:
            self.in_samples = False
            self.samples = None
        if unit in ("epochs/s", "jobs/s"):
            if self.samples is None or not batches:
                # Any number will do: it cancels when steps become epochs again.
                self.samples, self.steps_known = float(cells[0].batch or 1), False
                self.assumptions.append(
                    "Steps are not known, only epochs: the number of samples or the batch is "
                    "missing."
                )
            if unit == "jobs/s":
                self.assumptions.append(
                    "Only times of whole jobs are known: what they take to start is counted as "
                    "training."
                )

    def step_s(self, found: Measured, pace: Pace) -> float | None:
        """Return a launch's step time, or what stands for it."""
        if pace.step_s is not None and self._unit in ("samples/s", "batches/s"):
            return pace.step_s
        global_batch = (found.batch or 1) * found.cell.workers
        rate = pace.rates.get(self._unit)
        if rate is None:
            return None
        if self._unit == "samples/s":
            return global_batch / rate
        if self._unit == "batches/s":
            return found.cell.workers / rate
        epochs = 1.0
        if self._unit == "jobs/s":
            epochs = (
                positive(pace.launch.figures.get("epochs"))
                or positive(self._spec.get("epochs"))
                or 1.0
            )
        assert self.samples is not None
        return global_batch / (rate * epochs * self.samples)


def _check_units(found: Measured) -> None:
    """Refuse rows of a table whose step time and throughput cannot both be true."""
    for pace in found.paces:
        figures = pace.launch.figures
        step_s, stated = (positive(figures.get(name)) for name in ("step_s", "throughput"))
        if step_s is None or stated is None or found.batch is None:
            continue
        reckoned = found.batch * found.cell.workers / step_s
        if not 1 / _OTHER_UNITS < reckoned / stated < _OTHER_UNITS:
            raise UsageError(
                f"{count(found.cell.workers, 'worker')} of batch {found.batch} with steps of "
                f"{words.time(step_s)} train {figure(reckoned)} samples a second, but the table "
                f"says {figure(stated)}. Correct the units (step_s, step_ms; samples a second of "
                "all workers together), and import it again."
            )


def _samples_per_epoch(cells: Sequence[Measured]) -> float | None:
    """Return the samples of an epoch, from launches that tell both throughput and epoch time."""
    found = [
        pace.rates["samples/s"] / pace.rates["epochs/s"]
        for cell in cells
        for pace in cell.paces
        if {"samples/s", "epochs/s"} <= pace.rates.keys()
    ]
    return median(found) if found else None


def _choose_curve(
    info: ScalingInfo,
    cells: Sequence[Measured],
    only: Sequence[tuple[str, str]],
    batch: int | None,
) -> Curve:
    found = {cell.cell: cell for cell in cells}
    hosts = [pair for pair in only if pair[0] == "hosts"]
    others = [pair for pair in only if pair[0] != "hosts"]
    alike = [
        curve
        for curve in (_on_hosts(curve, found, hosts) for curve in info.curves)
        if curve.points and all(_has(found[point.cell], others) for point in curve.points)
    ]
    measured = [curve for curve in alike if (curve.scaling, curve.batch) == ("weak", batch)]
    if alike:
        return (measured or alike)[0]
    if not info.curves:
        raise UsageError(f"There is nothing to project from. {info.answer.headline}")
    shown = ", ".join(f"{name}={value}" for name, value in only)
    if timed := [c for c in cells if c.paces and not c.cell.today and _has(c, only)]:
        raise _no_curve(shown, timed, _with_curves(info, found, only))
    raise UsageError(f"No curve of this study has {shown}. {_choices(cells, only)}")


def _on_hosts(
    curve: Curve, found: Mapping[Cell, Measured], hosts: Sequence[tuple[str, str]]
) -> Curve:
    """Leave the points that are on so many hosts, which may grow along a curve; two or none."""
    points = tuple(point for point in curve.points if _has(found[point.cell], hosts))
    return curve if not hosts else replace(curve, points=points if len(points) > 1 else ())


def _no_curve(shown: str, timed: Sequence[Measured], others: Sequence[str]) -> UsageError:
    """Say that cells are there, but not two that only their workers tell apart."""
    counts = sorted({found.cell.workers for found in timed})
    or_others = f", or name cells that have two: {' or '.join(others)}" if others else ""
    if len(counts) == 1:
        return UsageError(
            f"{shown} was measured with {count(counts[0], 'worker')} only, and what more would "
            f"give shows from two numbers of workers on. Measure a second one{or_others}."
        )
    return UsageError(
        f"{shown} was measured with {' and '.join(map(str, counts))} workers, but with neither the "
        "same batch per worker nor the same global batch, so that nothing tells what more workers "
        f"give. Measure two numbers of workers at one batch{or_others}."
    )


def _with_curves(
    info: ScalingInfo, found: Mapping[Cell, Measured], only: Sequence[tuple[str, str]]
) -> list[str]:
    """Return the values of these factors that have several numbers of workers, as flags."""
    chosen = [
        [(name, _value(found[curve.points[0].cell], name)) for name, _ in only]
        for curve in info.curves
        if len(curve.points) > 1
    ]
    return sorted(
        {
            "--only " + ",".join(f"{name}={value}" for name, value in pairs)
            for pairs in chosen
            if all(value is not None for _, value in pairs)
        }
    )


def _has(found: Measured, only: Sequence[tuple[str, str]]) -> bool:
    return all(value.lower() == (_value(found, name) or "").lower() for name, value in only)


def _value(found: Measured, name: str) -> str | None:
    if name == "batch":
        return None if found.batch is None else str(found.batch)
    if name in _FACTORS:
        return str(getattr(found.cell, name))
    return dict(found.cell.params).get(name)


def _choices(cells: Sequence[Measured], only: Sequence[tuple[str, str]]) -> str:
    parts = []
    for name, _ in only:
        values = sorted({v for c in cells if (v := _value(c, name)) is not None})
        if not values:
            names = sorted({*_FACTORS, *(n for c in cells for n, _ in c.cell.params)})
            return f"It has no factor {name}; choose from {', '.join(names)}."
        parts.append(f"{name} is {' or '.join(values)}")
    return f"There, {', '.join(parts)}."


def _host_size(cells: Sequence[Measured], machine: Mapping[str, object]) -> int:
    """Return how many workers fit one of the measured hosts."""
    most = max(_on_one(found.cell) for found in cells)
    if any(found.cell.hosts > 1 or found.imported for found in cells):
        return most
    cell = cells[0].cell
    gpus = machine.get("gpus")
    if cell.device != "cpu":
        return max(most, len(gpus) if isinstance(gpus, list | tuple) else 0)
    cores = usable_cores(machine)
    return max(most, int(cores // (cell.threads or 1)) if cores else 0)


def _on_one(cell: Cell) -> int:
    return math.ceil(cell.workers / max(cell.hosts, 1))


def _beside(cells: Sequence[Measured], info: ScalingInfo) -> dict[int, Beside]:
    known = {found.cell for found in cells}
    found: dict[int, Beside] = {}
    for job in info.job_times:
        if job.cell not in known:
            continue
        if job.startup_s is not None:
            between = (job.between_s or 0.0) / job.epochs if job.epochs else 0.0
            found[job.cell.workers] = Beside(once_s=job.startup_s, per_epoch_s=between)
        elif job.fixed_s is not None and job.fixed_s > 0:
            # A table does not tell the two apart; below 0 it is a slip of the table.
            found[job.cell.workers] = Beside(once_s=job.fixed_s)
    return found


def few_rows(basis: Basis, study: Study) -> UsageError:
    """Say that there are too few rows, and what would help."""
    is_few = "is" if len(basis.rows) == 1 else "are"
    rows = f"{count(len(basis.rows), 'row')} with a time {is_few}"
    if len(basis.rows) >= LEAST_ROWS:
        counted = count(basis.workers[0], "worker")
        remedy = (
            "Measure a second one: farandole study -np 1,2 --repeats 3 --out DIR -- COMMAND."
            if study.command
            else "Add rows of a second one to the table, and import it again."
        )
        return UsageError(
            f"All rows with a time are of {counted}, which is too few to project from: what more "
            "would give shows from two numbers of workers on, or from recorded gradient times. "
            + remedy
        )
    if not study.command:
        return UsageError(
            f"{rows} too few to project from: at least {LEAST_ROWS} are needed, at "
            "two numbers of workers or more. Add what was measured to the table, and import it "
            f"again{_or_by_name(basis, study)}."
        )
    return UsageError(
        f"{rows} too few to project from: at least {LEAST_ROWS} are needed. "
        "Measure more: farandole study -np 1,2 --repeats 3 --out DIR -- COMMAND."
    )


def _or_by_name(basis: Basis, study: Study) -> str:
    """Say how two rows among others are taken all the same."""
    if len(basis.workers) == 1 or len(study.launches) < LEAST_ROWS or not basis.device:
        return ""
    return f"; or take these at their word, with wide intervals: --only device={basis.device}"
