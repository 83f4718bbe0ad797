"""Launches sorted into cells, each with what of its speed counts and why the rest does not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from farandole.format import percent, plural
from farandole.model.pace import UNITS, Pace, pace, positive
from farandole.model.statistics import Estimate, geometric_mean, outliers
from farandole.study.records import Cell, Launch, Study

TOO_BUSY = 0.25
"""What others may take of all cores before a figure is not to be quoted. A busy launch counts where
its cell has no quiet one, and is said to: few desktops are ever quiet."""


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
        return tuple(launch for launch in self.launches if launch.outcome in ("ok", "stopped"))

    @property
    def crashed(self) -> str:
        """Why its last failed launch failed; empty when none did, or when others count."""
        bad = [one for one in self.launches if one.outcome not in ("ok", "stopped")]
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


def common_unit(cells: Sequence[Measured]) -> str:
    """Return the best unit that most of these cells know; "" when they share none."""
    known = [sum(bool(cell.rates(unit)) for cell in cells if cell.paces) for unit in UNITS]
    most = max(known, default=0)
    return UNITS[known.index(most)] if most else ""


def measure(
    study: Study, *, rough: bool = False
) -> tuple[tuple[Measured, ...], tuple[LaunchRow, ...]]:
    """Sort a study's launches into cells and list every launch, kept or not.

    Args:
        study: its records.
        rough: let launches on a very busy machine count where a cell has no others, for figures
            that are marked as not quotable.
    """
    by_cell: dict[Cell, list[Launch]] = {}
    seen = {
        replace(launch.cell, batch=None): launch.cell
        for launch in study.launches
        if launch.cell.batch is not None
    }
    for launch in study.launches:
        cell = launch.cell
        if cell.batch is None and not _ended_well(launch):
            # It failed before the recorder saw its batch, and another one of its cell did not.
            cell = seen.get(cell, cell)
        by_cell.setdefault(cell, []).append(launch)
    labels = label_cells(by_cell)
    cells, rows = [], []
    for place, (cell, launches) in enumerate(by_cell.items()):
        found, listed = _measure_cell(cell, labels[cell], launches, study.machine, rough)
        cells.append(replace(found, order=place))
        rows += listed
    cells.sort(key=lambda found: (found.cell.workers, found.batch or 0))
    order = {launch.id: index for index, launch in enumerate(study.launches)}
    return tuple(cells), tuple(sorted(rows, key=lambda row: order[row.id]))


def _measure_cell(
    cell: Cell,
    label: str,
    launches: Sequence[Launch],
    machine: Mapping[str, object],
    rough: bool,
) -> tuple[Measured, list[LaunchRow]]:
    for_speed = any(_ended_well(one) and one.purpose in ("speed", "epoch") for one in launches)
    void = more_ranks_than_cores(launches[0], machine)
    paces = {launch.id: pace(launch) for launch in launches if _ended_well(launch)}
    quiet = any(
        not launch.busy and not _why_left_out(launch, paces.get(launch.id), void, for_speed)
        for launch in launches
    )
    reasons = {
        launch.id: _why_left_out(launch, paces.get(launch.id), void, for_speed)
        or _why_disturbed(launch, quiet=quiet, rough=rough)
        for launch in launches
    }
    kept = [paces[launch.id] for launch in launches if not reasons[launch.id]]
    figures = [found.step_s or next(iter(found.rates.values())) for found in kept]
    flagged = {found.launch.id for found, flag in zip(kept, outliers(figures), strict=True) if flag}
    rows = [
        _row(launch, label, paces.get(launch.id), reasons[launch.id], launch.id in flagged)
        for launch in launches
    ]
    batches = [found.batch for found in paces.values() if found.batch is not None]
    measured = Measured(
        cell=cell,
        label=label,
        launches=tuple(launches),
        paces=tuple(kept),
        batch=cell.batch if cell.batch is not None else (batches[0] if batches else None),
        failed="" if paces else _why_it_ended(launches[-1]),
        void_for_speed=void,
        accumulation=max((found.accumulation for found in paces.values()), default=1),
    )
    return measured, rows


def _ended_well(launch: Launch) -> bool:
    return launch.outcome in ("ok", "stopped")


def _why_it_ended(launch: Launch) -> str:
    what, reason = launch.outcome.replace("_", " "), launch.reason.strip().rstrip(".")
    return f"{what}: {reason}" if reason else what


def _why_left_out(launch: Launch, found: Pace | None, void: str, for_speed: bool) -> str:
    if found is None:
        return _why_it_ended(launch)
    if void:
        return void
    if launch.purpose == "accuracy" and for_speed:
        return "made for accuracy"
    if not found.rates:
        return "recorded neither a step nor a figure"
    return ""


def _why_disturbed(launch: Launch, *, quiet: bool, rough: bool) -> str:
    """Say so when others used the machine; `quiet`: the cell has other launches that count."""
    share = _others(launch)
    tolerable = rough or (share is not None and share <= TOO_BUSY)
    if not launch.busy or (tolerable and not quiet):
        return ""
    took = "" if share is None else f": other programs took {percent(share)} of the cores"
    return f"the machine was busy{took}"


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
    unit = next((unit for unit in UNITS if found and unit in found.rates), "")
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
        throughput=found.rates[unit] if found and unit else None,
        unit=unit,
        wall_s=launch.wall_s,
        started=launch.started,
    )


def label_cells(cells: Iterable[Cell]) -> dict[Cell, str]:
    """Name each cell by its workers and by the factors in which cells differ."""
    cells = list(cells)
    planned = [cell for cell in cells if not cell.today]
    varying = varying_factors(planned, ("batch", "threads", "hosts", "device", "transport"), cells)
    return {cell: _label(cell, varying) for cell in cells}


def varying_factors(
    cells: Iterable[Cell], factors: Iterable[str], with_params: Iterable[Cell] | None = None
) -> set[str]:
    """Return in which of these factors and in which parameters cells differ."""
    cells = list(cells)
    params = [dict(cell.params) for cell in (cells if with_params is None else with_params)]
    names = {name for one in params for name in one}
    return {name for name in factors if len({getattr(cell, name) for cell in cells}) > 1} | {
        name for name in names if len({one.get(name) for one in params}) > 1
    }


def _label(cell: Cell, varying: set[str]) -> str:
    parts = [plural(cell.workers, "worker")]
    if cell.today:
        parts = ["today: 1 process, all cores"]
    if "batch" in varying and cell.batch is not None:
        parts.append(f"batch {cell.batch}")
    if "threads" in varying and cell.threads is not None and not cell.today:
        parts.append(plural(cell.threads, "thread"))
    if "hosts" in varying:
        parts.append(plural(cell.hosts, "host"))
    return ", ".join([*parts, *factor_words(cell, varying)])


def factor_words(cell: Cell, varying: set[str]) -> list[str]:
    """Return the factors beside workers, batch, threads and hosts, as far as they vary."""
    words = [str(getattr(cell, name)) for name in ("device", "transport") if name in varying]
    return words + [f"{name}={value}" for name, value in cell.params if name in varying]


def figure(value: float) -> str:
    """Write a figure for a sentence: four digits, and never an exponent for thousands."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
