"""What answers are made from: figures out of studies, by workers and batch, and in words."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from statistics import median
from typing import TYPE_CHECKING, Protocol, TypeVar

from farandole.errors import UsageError
from farandole.format import between, decimals_for, listed, number, percent, plural, seconds, size
from farandole.labs.lab import Found, published_path
from farandole.model.metrics import finals_by_seed
from farandole.model.statistics import Estimate, mean
from farandole.study.records import Cell, Launch

if TYPE_CHECKING:
    from farandole.model.analyse import ScalingInfo
    from farandole.model.split import StepSplit
    from farandole.model.utilisation import UtilisationRow

NO_INTERVALS = "One launch per cell: no intervals."


class Celled(Protocol):
    """Anything that belongs to a cell: rows of ScalingInfo, points of curves, launches."""

    @property
    def cell(self) -> Cell:
        """The cell."""
        ...


Row = TypeVar("Row", bound=Celled)


def matching(
    rows: Iterable[Row],
    *,
    workers: int | None = None,
    batch: int | None = None,
    today: bool = False,
    **params: str,
) -> tuple[Row, ...]:
    """Return the rows of cells with these factors, whatever their others are.

    Args:
        rows: of `ScalingInfo`, or launches.
        workers: None takes any number.
        batch: per worker; None takes any.
        today: whether to take the cell of one process with all cores, and it alone.
        params: further factors (`-L name=...`) by name.
    """
    wanted = params.items()
    return tuple(
        row
        for row in rows
        if (workers is None or row.cell.workers == workers)
        and (batch is None or row.cell.batch == batch)
        and row.cell.today is today
        and wanted <= dict(row.cell.params).items()
    )


def only(
    rows: Iterable[Row],
    *,
    workers: int | None = None,
    batch: int | None = None,
    today: bool = False,
    **params: str,
) -> Row | None:
    """Return the first row of cells with these factors; None when there is none."""
    found = matching(rows, workers=workers, batch=batch, today=today, **params)
    return found[0] if found else None


def worker_counts(info: ScalingInfo) -> tuple[int, ...]:
    """Return the numbers of workers that were launched, ascending."""
    return tuple(sorted({row.cell.workers for row in info.rows if not row.cell.today}))


def batches(info: ScalingInfo) -> tuple[int, ...]:
    """Return the batches per worker that were launched, ascending."""
    return tuple(sorted({b for row in info.rows if (b := row.cell.batch) is not None}))


def seconds_for(samples: float, throughput: Estimate | None) -> Estimate | None:
    """Return how long so many samples take at a throughput per second; a slow one takes long."""
    if throughput is None:
        return None
    low, high = throughput.low, throughput.high
    return Estimate(
        value=samples / throughput.value,
        low=None if high is None else samples / high,
        high=None if low is None else samples / low,
    )


def final_mean(launches: Iterable[Launch], metric: str) -> Estimate | None:
    """Return a metric at the end, its mean over seeds with a 95 % interval; None when none has."""
    values = [value for value in finals_by_seed(launches, metric).values() if value == value]
    return mean(values) if values else None


def steps_made(launches: Iterable[Launch]) -> int | None:
    """Return how many steps a run to its end made, the median over launches; None without any."""
    counts = [
        max(len(rank.steps) for rank in launch.ranks)
        for launch in launches
        if launch.outcome == "ok" and launch.ranks
    ]
    return round(median(counts)) if counts else None


def argument(launch: Launch, flag: str) -> str | None:
    """Return the value that a launch's command gave to a flag; None when it did not."""
    argv = launch.argv
    return next((argv[at + 1] for at, word in enumerate(argv[:-1]) if word == flag), None)


def interval_words(estimate: Estimate, *, factor: float = 1.0, unit: str = "") -> str:
    """Return "1.83 (1.79 to 1.87) s" for a sentence; without an interval it says so."""
    value = estimate.value * factor
    places = decimals_for(value)
    shown, ending = number(value, decimals=places), f" {unit}" if unit else ""
    if estimate.low is None or estimate.high is None:
        return f"{shown}{ending} (no interval)"
    bounds = between(estimate.low * factor, estimate.high * factor, decimals=places)
    return f"{shown} ({bounds}){ending}"


def points(estimate: Estimate) -> str:
    """Return a difference of shares in points: "-1.20 points (-2.10 to -0.30)"."""
    shown = f"{100 * estimate.value:+.2f} points"
    if estimate.low is None or estimate.high is None:
        return f"{shown} (one seed: no interval)"
    return f"{shown} ({100 * estimate.low:+.2f} to {100 * estimate.high:+.2f})"


def counts_in_words(counts: Sequence[int], noun: str = "worker") -> str:
    """Return "1 worker", "1, 2 and 4 workers"."""
    if len(counts) == 1:
        return plural(counts[0], noun)
    return f"{listed([str(one) for one in counts])} {noun}s"


def void_times(workers: Iterable[int], cores: int, *, metric: str = "accuracy") -> list[str]:
    """Say which numbers of workers are more than the cores: only a metric of them counts."""
    void = sorted(number for number in workers if number > cores)
    if not void:
        return []
    return [
        f"{counts_in_words(void)} share {plural(cores, 'core')}: their times are void, their "
        f"{metric} counts."
    ]


def without_intervals(rows: Iterable[Estimate | None]) -> bool:
    """Tell whether figures were measured, but none of them more than once."""
    known = [row for row in rows if row is not None]
    return bool(known) and all(row.low is None for row in known)


def disturbed(found: Found, study: str) -> list[str]:
    """Say so when launches of a study were disturbed; nothing when all were quiet."""
    record = found.records.get(study)
    busy = [launch for launch in (record.launches if record else ()) if launch.busy]
    if record is None or not busy:
        return []
    most = max((one.foreign_share or 0.0) + (one.steal_share or 0.0) for one in busy)
    return [
        f"Other programs took up to {percent(most)} of the cores during {len(busy)} of "
        f"{len(record.launches)} launches: times and utilisation are not the script's alone."
    ]


_PARTS = {
    "data": "waiting for data",
    "compute": "computing",
    "transfer": "the transfer of gradients",
    "waiting": "waiting for the slowest worker",
    "optimizer": "the update",
}

_LEAST_SHARE = 0.005


def use_words(row: UtilisationRow) -> str:
    """Say how busy the workers of a cell were, and what memory each took."""
    shares = [cpu for _, cpu, _, _ in row.by_rank if cpu is not None]
    memory = [taken for *_, taken in row.by_rank if taken is not None]
    words = f"{plural(row.cell.workers, 'worker')}: "
    parts = []
    if shares:
        parts.append(f"{_span(percent(min(shares)), percent(max(shares)))} of its cores busy")
    if memory:
        parts.append(f"{_span(size(min(memory)), size(max(memory)))} of memory")
    return f"{words}each has {listed(parts) or 'no figure of its use'}."


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def split_words(split: StepSplit) -> str:
    """Say what a typical step of a cell consists of, the largest part first."""
    parts = [(part, name) for name, part in split.parts().items() if part is not None]
    told = [
        f"{percent(part / split.step_s)} {_PARTS[name]}"
        for part, name in sorted(parts, reverse=True)
        if part / split.step_s >= _LEAST_SHARE
    ]
    return (
        f"A step of {seconds(split.step_s)} on {plural(split.cell.workers, 'worker')} is "
        f"{listed(told)}."
    )


def claims_of(lab: str) -> tuple[Claim, ...]:
    """Return a lab's derived figures, each beside what its own inputs give."""
    lines = published_path("claims").read_text(encoding="utf-8").splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return tuple(
        check_claim(
            row["what"], row["kind"], float(row["first"]), float(row["second"]), row["claimed"]
        )
        for row in rows
        if row["lab"] == lab
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A published figure beside what its own inputs give."""

    what: str
    claimed: str
    """As published, since its digits say how exact it means to be."""
    value: float
    agrees: bool
    sentence: str


def check_claim(what: str, kind: str, first: float, second: float, claimed: str) -> Claim:
    """Derive a figure again and compare it to the digits given.

    Args:
        what: the figure's name.
        kind: "ratio" is first / second, "less" is 1 - second / first.
        first: see kind.
        second: see kind.
        claimed: as published.

    Raises:
        UsageError: when the kind is not known.
    """
    if kind == "ratio":
        value, formula = first / second, f"{first:.10g} / {second:.10g}"
    elif kind == "less":
        value, formula = 1 - second / first, f"1 - {second:.10g} / {first:.10g}"
    else:
        raise UsageError(f"A claim of kind {kind!r} is not known. Use ratio or less.")
    exponent = Decimal(claimed).as_tuple().exponent
    digits = -exponent if isinstance(exponent, int) and exponent < 0 else 0
    # Half a unit of the last digit, and a hair for the binary fraction.
    agrees = abs(value - float(claimed)) <= 0.5 * 10**-digits * (1 + 1e-9)
    shown = f"{value:.{max(digits, 2)}f}"
    sentence = f"{what[:1].upper()}{what[1:]}: {formula} is {shown}"
    return Claim(
        what=what,
        claimed=claimed,
        value=value,
        agrees=agrees,
        sentence=f"{sentence}, as published." if agrees else f"{sentence}, not {claimed}.",
    )
