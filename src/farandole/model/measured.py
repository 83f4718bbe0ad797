"""How fast launches and cells were: one number per launch, and which launches of a cell count."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import numpy.typing as npt

from farandole.format import listed, percent, plural
from farandole.model.statistics import (
    LEAST_LAUNCHES,
    Estimate,
    Relation,
    geometric_mean,
    launch_value,
    outliers,
    ratio,
    speed_relation,
)
from farandole.study.records import Cell, Floats, Launch, Study

TOO_BUSY = 0.25
"""What others may take of all cores before a figure is not to be quoted. A busy launch counts where
its cell has no quiet one, and is said to: few desktops are ever quiet."""
STATED = (
    *("dataset_size", "parameters", "gradient_bytes", "stable_epoch"),
    *("gpu_utilisation", "cpu_utilisation"),
)
"""Figures that an imported table may state; it keeps columns it does not know among the metrics."""
UNITS = ("samples/s", "batches/s", "epochs/s", "jobs/s")
"""What a throughput may be in, best first. A batch is one worker's."""
_WINDOW = 3
"""Steps whose median decides, so that one hiccup neither ends nor prolongs the warm-up."""
_LEAST_STEPS = 8
"""With fewer there is no second half to compare with."""
_TOLERANCE = 0.05


# One launch


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The figures of one launch; None where neither steps nor figures tell."""

    launch: Launch
    step_s: float | None
    rates: Mapping[str, float]
    """By unit, in the order of UNITS."""
    steps: int
    """That entered the figure."""
    warmup: int
    typical: npt.NDArray[np.intp]
    """Indices of the typical steps, whose slowest duration is in the middle half; of two, both."""
    batch: int | None
    """Per worker and backward pass, as planned or else as seen."""
    accumulation: int
    """Backward passes per step."""


def pace(launch: Launch) -> Pace:
    """Measure one launch."""
    slowest = slowest_durations(launch)
    warmup = warmup_steps(slowest)
    samples = [_median(rank.steps.samples[warmup:]) for rank in launch.ranks]
    seen = [rank.batch_seen for rank in launch.ranks if rank.batch_seen]
    batch = launch.cell.batch if launch.cell.batch is not None else max(seen, default=None)
    accumulation = 1
    if batch is not None:
        passes = [_median(rank.steps.passes[warmup:]) for rank in launch.ranks]
        # Older recordings do not count passes: their samples tell.
        known = [count for count in passes if count is not None] or [
            count / batch for count in samples if count is not None
        ]
        accumulation = max(1, round(max(known, default=1.0)))
    else:
        columns = [rank.steps.samples[warmup:] for rank in launch.ranks]
        recorded = {float(count) for column in columns for count in column[np.isfinite(column)]}
        if len(recorded) == 1 and min(recorded) >= 1:
            batch = int(recorded.pop())
    steady = slowest[warmup:]
    good = np.isfinite(steady) & (steady > 0)
    step_s = positive(launch.figures.get("step_s"))
    typical = np.empty(0, dtype=np.intp)
    if good.any():
        step_s = launch_value(steady[good].tolist())
        # Of two, none would be in the middle.
        low, high = np.quantile(steady[good], (0.25, 0.75) if good.sum() > 2 else (0, 1))
        typical = warmup + np.flatnonzero(good & (steady >= low) & (steady <= high))
    # All ranks must have told theirs, and a step without any samples tells nothing.
    total = 0.0 if None in samples else sum(count or 0.0 for count in samples)
    if not total and batch is not None:
        total = float(batch * accumulation * launch.cell.workers)
    throughput, epoch_s, job_s = (
        positive(launch.figures.get(name)) for name in ("throughput", "epoch_s", "job_s")
    )
    rates = {
        "samples/s": total / step_s if step_s and total else throughput,
        "batches/s": launch.cell.workers / step_s if step_s else None,
        "epochs/s": 1 / epoch_s if epoch_s else None,
        "jobs/s": 1 / job_s if job_s else None,
    }
    return Pace(
        launch=launch,
        step_s=step_s,
        rates={unit: rate for unit, rate in rates.items() if rate},
        steps=int(good.sum()),
        warmup=warmup,
        typical=typical,
        batch=batch,
        accumulation=accumulation,
    )


def slowest_durations(launch: Launch) -> Floats:
    """Return each step's duration on the rank that took longest.

    Ranks may have recorded different numbers of steps; what all of them have counts.
    """
    shortest = min((len(rank.steps) for rank in launch.ranks), default=0)
    if not shortest:
        return np.empty(0)
    slowest: Floats = np.max([rank.steps.duration_s[:shortest] for rank in launch.ranks], axis=0)
    return slowest


def warmup_steps(durations_s: Floats) -> int:
    """Return how many steps at the begin do not count.

    The first never does: it has no step before it, and plans are made in it. After that, steps are
    dropped as long as the median of the next three is above the second half's median by more than
    5 % and by more than three standard deviations; never more than half of all.
    """
    steps = len(durations_s)
    if steps < _LEAST_STEPS:
        return min(1, steps)
    half = durations_s[steps // 2 :]
    centre = float(np.median(half))
    deviation = 1.4826 * float(np.median(np.abs(half - centre)))  # MAD to standard deviation
    limit = max(centre * (1 + _TOLERANCE), centre + 3 * deviation)
    begin = durations_s[1 : steps // 2 + _WINDOW]
    windows = np.lib.stride_tricks.sliding_window_view(begin, _WINDOW)
    settled = np.flatnonzero(~(np.median(windows, axis=1) > limit))
    return 1 + int(settled[0]) if len(settled) else steps // 2


def dataset_size(launch: Launch, spec: Mapping[str, object]) -> int | None:
    """Return the number of training samples: recorded, in the figures, or in the study's spec."""
    for rank in launch.ranks:
        if rank.dataset_size:
            return rank.dataset_size
    found = stated(launch, "dataset_size") or positive(spec.get("dataset_size"))
    return None if found is None else int(found)


def inferred_samples(cells: Iterable[Measured]) -> float | None:
    """Return the samples of an epoch by its time and the throughput, where launches have both."""
    rates = [pace.rates for found in cells for pace in found.paces]
    known = [
        one["samples/s"] / one["epochs/s"] for one in rates if {"samples/s", "epochs/s"} <= {*one}
    ]
    return median(known) if known else None


def stated(launch: Launch, name: str) -> float | None:
    """Return a positive figure that came with an imported table."""
    found = positive(launch.figures.get(name))
    if found is None and launch.purpose == "imported":
        values = [metric.value for metric in launch.metrics if metric.name == name]
        found = positive(values[-1]) if values else None
    return found


def positive(value: object) -> float | None:
    """Return a positive finite number as it is, and anything else as None."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        return None
    number = float(value)
    return number if math.isfinite(number) and number > 0 else None


def _median(column: Floats) -> float | None:
    known = column[np.isfinite(column)]
    return float(np.median(known)) if len(known) else None


# The launches of a cell


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRow:
    """One launch: whether its speed was kept, and why not."""

    id: str
    cell: Cell
    label: str
    purpose: str
    outcome: str
    repeat: int
    seed: int | None
    kept: bool
    why: str
    """Why its speed was left out; empty when kept."""
    outlier: bool
    """Flagged, and kept all the same."""
    steps: int
    """That were recorded: with `--steps 20` these are 20."""
    counted_steps: int
    """That entered its figure."""
    warmup_steps: int
    """Dropped at the begin."""
    step_s: float | None
    throughput: float | None
    unit: str
    wall_s: float | None
    started: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One cell with its launches."""

    cell: Cell
    label: str
    launches: tuple[Launch, ...]
    paces: tuple[Pace, ...]
    """Of the launches whose speed counts."""
    batch: int | None
    """Per worker and backward pass: planned, or else seen."""
    samples: int | None
    """Of the training data."""
    failed: str
    """Why no launch ended well; empty when one did."""
    void_for_speed: str
    accumulation: int = 1
    """Backward passes per step."""
    order: int = 0
    """Position of its first launch in the study: what was asked for first comes first."""

    @property
    def imported(self) -> bool:
        """Whether its figures were measured elsewhere."""
        return all(launch.purpose == "imported" for launch in self.launches)

    @property
    def worker_batch(self) -> int | None:
        """Samples per step of a worker."""
        return None if self.batch is None else self.batch * self.accumulation

    @property
    def global_batch(self) -> int | None:
        """Samples per step over all workers."""
        each = self.worker_batch
        return None if each is None else each * self.cell.workers

    @property
    def ended_well(self) -> tuple[Launch, ...]:
        """The launches that ran to their end or to an agreed step."""
        return tuple(launch for launch in self.launches if launch.succeeded)

    @property
    def crashed(self) -> str:
        """Why its last failed launch failed; empty when none did, or when others count."""
        bad = [one for one in self.launches if not one.succeeded]
        return _why_it_ended(bad[-1]) if bad and not self.paces else ""

    @property
    def disturbance(self) -> float | None:
        """What others took of all cores during its launches that count; None when all are quiet."""
        shares = [_others(found.launch) or 0.0 for found in self.paces if found.launch.busy]
        return max(shares, default=None)

    @property
    def unit(self) -> str:
        """The best unit that all its launches know; "" without any figure."""
        return common_unit([self])

    def rates(self, unit: str) -> list[float]:
        """Return one throughput per launch that counts."""
        return [pace.rates[unit] for pace in self.paces if unit in pace.rates]

    def throughput(self, unit: str) -> Estimate | None:
        """Return the geometric mean over launches."""
        rates = self.rates(unit)
        return geometric_mean(rates) if rates else None

    @property
    def step_s(self) -> Estimate | None:
        """Time of a step, over launches."""
        times = [pace.step_s for pace in self.paces if pace.step_s is not None]
        return geometric_mean(times) if times else None


def common_unit(cells: Iterable[Measured]) -> str:
    """Return the best unit that most of these cells know; "" when they share none."""
    cells = list(cells)
    most = max(UNITS, key=lambda unit: sum(bool(cell.rates(unit)) for cell in cells))
    return most if any(cell.rates(most) for cell in cells) else ""


def compare_speed(first: Measured, second: Measured, unit: str) -> tuple[Estimate, Relation]:
    """Return the first's throughput over the second's, and whether the first is faster.

    Launches of one round meet the same drift of the machine: where there are enough rounds, each
    gives one ratio.
    """
    rates, paired = (first.rates(unit), second.rates(unit)), _took_turns(first, second, unit)
    return ratio(*rates, paired=paired), speed_relation(*rates, paired=paired)


def _took_turns(first: Measured, second: Measured, unit: str) -> bool:
    """Tell whether two cells were launched in the same rounds, each first in half of them.

    One that always came first would be favoured by a steady drift.
    """
    launches = [
        [pace.launch for pace in found.paces if unit in pace.rates] for found in (first, second)
    ]
    rounds = [[(one.purpose, one.repeat) for one in row] for row in launches]
    number = len(rounds[0])
    if number < LEAST_LAUNCHES or rounds[0] != rounds[1] or first.imported:
        return False
    came_first = [one.id < other.id for one, other in zip(*launches, strict=True)]
    return abs(2 * came_first.count(True) - number) <= 1


def measure(study: Study) -> tuple[tuple[Measured, ...], tuple[LaunchRow, ...]]:
    """Sort a study's launches into cells and list every launch, kept or not.

    Launches on a busy machine count where a cell has no others; what shows them says so.
    """
    by_cell: dict[Cell, list[Launch]] = {}
    known = [launch.cell for launch in study.launches if launch.cell.batch is not None]
    seen = {replace(cell, batch=None): cell for cell in known}
    for launch in study.launches:
        # A launch may fail before the recorder sees its batch: another one of its cell knows it.
        cell = launch.cell if launch.succeeded else seen.get(launch.cell, launch.cell)
        by_cell.setdefault(cell, []).append(launch)
    labels = label_cells(by_cell)
    cells: list[Measured] = []
    rows: dict[str, LaunchRow] = {}
    for order, (cell, launches) in enumerate(by_cell.items()):
        paces = {launch.id: pace(launch) for launch in launches if launch.succeeded}
        crowded = more_ranks_than_cores(launches[0], study.machine)
        left_out = _left_out(launches, paces, crowded)
        kept = [paces[launch.id] for launch in launches if not left_out[launch.id]]
        flags = outliers([found.step_s or next(iter(found.rates.values())) for found in kept])
        flagged = {found.launch.id for found, flag in zip(kept, flags, strict=True) if flag}
        for one in launches:
            rows[one.id] = _row(
                one, labels[cell], paces.get(one.id), left_out[one.id], one.id in flagged
            )
        batches = (cell.batch, *(found.batch for found in paces.values()))
        sizes = (dataset_size(launch, study.spec) for launch in launches)
        cells.append(
            Measured(
                cell=cell,
                label=labels[cell],
                launches=tuple(launches),
                paces=tuple(kept),
                batch=next((batch for batch in batches if batch is not None), None),
                samples=next(filter(None, sizes), None),
                failed="" if paces else _why_it_ended(launches[-1]),
                void_for_speed=crowded,
                accumulation=max((found.accumulation for found in paces.values()), default=1),
                order=order,
            )
        )
    if not any(found.samples for found in cells):
        samples = inferred_samples(cells)
        cells = [replace(found, samples=round(samples) if samples else None) for found in cells]
    cells.sort(key=lambda found: (found.cell.workers, found.batch or 0))
    return tuple(cells), tuple(rows[launch.id] for launch in study.launches)


def _why_it_ended(launch: Launch) -> str:
    what, reason = launch.outcome.replace("_", " "), launch.reason.strip().rstrip(".")
    made = max((len(rank.steps) for rank in launch.ranks if rank.stopped), default=0)
    without = [str(rank.rank) for rank in launch.ranks if not len(rank.steps)]
    if made and without:
        # The others were ended after so many steps, and it lost its connection to them.
        reason = f"rank {listed(without)} never called optimizer.step(), the others {made} times"
    if launch.outcome == "failed" and reason and launch.purpose != "imported":
        return reason  # which says that it failed
    return f"{what}: {reason}" if reason else what


def _left_out(
    launches: Sequence[Launch], paces: Mapping[str, Pace], crowded: str
) -> dict[str, str]:
    """Say by launch why its speed does not count; empty where it does."""
    for_speed = any(one.id in paces and one.purpose in ("speed", "epoch") for one in launches)
    reasons = {}
    for one in launches:
        if one.id not in paces:
            reasons[one.id] = _why_it_ended(one)
        elif crowded:
            reasons[one.id] = crowded
        elif one.purpose == "accuracy" and for_speed:
            reasons[one.id] = "made for accuracy"
        else:
            without = "recorded neither a step nor a figure"
            reasons[one.id] = "" if paces[one.id].rates else without
    quiet = any(not one.busy and not reasons[one.id] for one in launches)
    for one in launches:
        if one.busy and not reasons[one.id] and quiet:
            share = _others(one)
            took = "" if share is None else f": other programs took {percent(share)} of the cores"
            reasons[one.id] = f"the machine was busy{took}"
    return reasons


def _others(launch: Launch) -> float | None:
    """Return what others took of all cores: programs here, and other machines of the host."""
    shares = [share for share in (launch.foreign_share, launch.steal_share) if share is not None]
    return sum(shares) if shares else None


def more_ranks_than_cores(launch: Launch, machine: Mapping[str, object]) -> str:
    """Say so when workers share cores, which voids a launch for speed; else ""."""
    cores = usable_cores(machine)
    if launch.purpose == "imported" or cores is None or launch.cell.device != "cpu":
        return ""
    ranks = math.ceil(launch.cell.workers / max(launch.cell.hosts, 1))
    if ranks <= cores:
        return ""
    return f"more ranks than cores ({ranks} on {cores:.0f}): valid for accuracy, void for speed"


def usable_cores(machine: Mapping[str, object]) -> float | None:
    """Return how many cores the workers of a host could keep busy; None when not told."""
    cores = positive(machine.get("cores")) or positive(machine.get("physical_cores"))
    quota = positive(machine.get("quota"))
    if cores is None or quota is None:
        return cores
    return min(cores, max(1.0, float(round(quota))))


def _row(launch: Launch, label: str, found: Pace | None, why: str, outlier: bool) -> LaunchRow:
    unit, rate = next(iter(found.rates.items()), ("", None)) if found else ("", None)
    return LaunchRow(
        id=launch.id,
        cell=launch.cell,
        label=label,
        purpose=launch.purpose,
        outcome=launch.outcome,
        repeat=launch.repeat,
        seed=launch.seed,
        kept=not why,
        why=why,
        outlier=outlier,
        steps=max((len(rank.steps) for rank in launch.ranks), default=0),
        counted_steps=found.steps if found else 0,
        warmup_steps=found.warmup if found else 0,
        step_s=found.step_s if found else None,
        throughput=rate,
        unit=unit,
        wall_s=launch.wall_s,
        started=launch.started,
    )


def label_cells(cells: Iterable[Cell]) -> dict[Cell, str]:
    """Name each cell by its workers and by the factors in which cells differ."""
    cells = list(cells)
    planned = [cell for cell in cells if not cell.today]
    varying = varying_factors(planned, ("batch", "threads", "hosts", "device", "transport"))
    varying |= varying_factors(cells, ())
    labels = {}
    for cell in cells:
        words = [plural(cell.workers, "worker")]
        if cell.today:
            words = ["today: 1 process, all cores"]
        if "batch" in varying and cell.batch is not None:
            words.append(f"batch {cell.batch}")
        if "threads" in varying and cell.threads is not None and not cell.today:
            words.append(plural(cell.threads, "thread"))
        if "hosts" in varying:
            words.append(plural(cell.hosts, "host"))
        labels[cell] = ", ".join([*words, *factor_words(cell, varying)])
    return labels


def varying_factors(cells: Iterable[Cell], factors: Iterable[str]) -> set[str]:
    """Return in which of these factors and in which parameters cells differ."""
    cells = list(cells)
    values = [{name: getattr(cell, name) for name in factors} | dict(cell.params) for cell in cells]
    names = {name for one in values for name in one}
    return {name for name in names if len({one.get(name) for one in values}) > 1}


def factor_words(cell: Cell, varying: set[str]) -> list[str]:
    """Return the factors beside workers, batch, threads and hosts, as far as they vary."""
    words = [str(getattr(cell, name)) for name in ("device", "transport") if name in varying]
    return words + [f"{name}={value}" for name, value in cell.params if name in varying]
