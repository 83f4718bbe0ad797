"""Speed by workers, by batch, and by processes x threads: what to use of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from farandole.format import fill, number, percent, plural
from farandole.model.measured import (
    UNITS,
    Measured,
    common_unit,
    compare_speed,
    factor_words,
    varying_factors,
)
from farandole.model.statistics import (
    SPEED_MARGIN,
    Estimate,
    geometric_mean,
    quotient,
    scaled,
)
from farandole.model.utilisation import UtilisationRow
from farandole.study.records import Cell

Scaling = Literal["strong", "weak"]
Law = Literal["amdahl", "gustafson"]
Prefer = Literal["time", "money", "balance"]
NEAR = 0.10
RECOMMENDED: Mapping[Prefer, str] = {
    "time": "the cheapest within 3 % of the fastest",
    "balance": "the cheapest within 10 % of the fastest",
    "money": "the fastest within 3 % of the cheapest",
}
"""The rule by which a number of workers is recommended, by what is preferred."""
_UNKNOWN_SPREAD = 0.20
"""Relative spread of an epoch's time that was measured once."""
Group = tuple[int | None, str, str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """One worker count on a curve."""

    cell: Cell
    workers: int
    batch: int | None
    """Per worker and backward pass."""
    global_batch: int | None
    throughput: Estimate
    speedup: Estimate | None
    """Against the curve's baseline; None when void."""
    efficiency: Estimate | None
    ideal_throughput: float
    ideal_speedup: float
    step_s: Estimate | None
    launches: int
    valid: bool
    """Whether its speed counts; else `why` says why not. Its speedup is not to be shown then."""
    why: str = ""
    accumulation: int = 1
    """Backward passes per step."""

    @property
    def worker_batch(self) -> int | None:
        """Samples per step of a worker."""
        return None if self.batch is None else self.batch * self.accumulation


@dataclass(frozen=True, slots=True, kw_only=True)
class LawFit:
    """A serial fraction fitted to a curve, and what it means in words."""

    law: Law
    serial_fraction: Estimate
    limit: float | None
    """Largest speedup that Amdahl's law leaves; None without a limit, and for Gustafson's."""
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Throughput, speedup and efficiency by workers, all other factors fixed."""

    scaling: Scaling
    group: str
    """The other factors in words, "" when there is only one group."""
    label: str
    """For a legend: group and batch."""
    batch: int | None
    """The fixed batch of a step: per worker (weak) or global (strong)."""
    unit: str
    """Of the throughput: samples/s, batches/s, epochs/s or jobs/s."""
    baseline_workers: int
    points: tuple[CurvePoint, ...]
    """By workers, ascending."""
    amdahl: LawFit | None
    gustafson: LawFit | None
    best_workers: int | None
    sentence: str
    main: bool = False
    """Whether the answer speaks of this curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleProcess:
    """One process with all cores, beside the answer."""

    cell: Cell
    throughput: Estimate
    unit: str
    gain: Estimate | None
    """Throughput of the answer's cell over today's."""
    sentence: str


def group_of(cell: Cell) -> Group:
    """Return what a curve holds fixed besides the batch. Hosts grow with workers, so not they."""
    return (cell.threads, cell.transport, cell.device, cell.params)


def group_labels(cells: Iterable[Cell]) -> dict[Group, str]:
    """Name each group by the factors in which groups differ; "" when there is one."""
    found = {group_of(cell): cell for cell in cells if not cell.today}
    varying = varying_factors(found.values(), ("device", "transport", "threads"))
    labels = {}
    for group, cell in found.items():
        words = factor_words(cell, varying)
        if "threads" in varying and cell.threads is not None:
            words.append(plural(cell.threads, "thread"))
        labels[group] = ", ".join(words)
    return labels


def draw_curves(
    cells: Sequence[Measured],
    void: Mapping[Cell, str] | None = None,
    scaling: object = None,
    *,
    epoch_s: Mapping[Cell, Estimate] | None = None,
    prefer: Prefer = "balance",
) -> tuple[Curve, ...]:
    """Return every strong and weak curve of at least two worker counts, the main one first.

    A study of one worker count has one curve of one point. `void` says why cells have no speedup,
    `scaling` which kind was asked for. Where measured times of an epoch contradict the throughput,
    they count.
    """
    labels = group_labels(cell.cell for cell in cells)
    rows: dict[tuple[Group, Scaling], dict[int | None, list[Measured]]] = {}
    known = [cell for cell in cells if not cell.cell.today and any(one.rates for one in cell.paces)]
    first = {group_of(cell.cell): cell.order for cell in sorted(known, key=lambda one: -one.order)}
    for cell in sorted(known, key=lambda one: first[group_of(one.cell)]):
        group = group_of(cell.cell)
        by_batch = rows.setdefault((group, "weak"), {})
        by_batch.setdefault(cell.worker_batch, []).append(cell)
        # Without any batch it cannot be strong scaling that was controlled for.
        by_batch = rows.setdefault((group, "strong"), {})
        if cell.global_batch is not None:
            by_batch.setdefault(cell.global_batch, []).append(cell)
    curves = [
        _curve(
            kind,
            ", ".join(filter(None, [labels[group], "more hosts" * (number > 0)])),
            batch,
            layer,
            void or {},
            epoch_s or {},
            len(by_batch) > 1,
            prefer,
        )
        for (group, kind), by_batch in rows.items()
        for batch, row in by_batch.items()
        for number, layer in enumerate(_layers(row))
    ]
    several = [curve for curve in curves if len(curve.points) > 1]
    places = {curve.group: place for place, curve in reversed(list(enumerate(curves)))}

    def rank(curve: Curve) -> tuple[bool, int, int, bool, int, float]:
        return (
            scaling in ("strong", "weak") and curve.scaling != scaling,
            -len(curve.points),
            places[curve.group],
            curve.scaling != "weak",
            -sum(point.launches for point in curve.points),
            -curve.points[-1].throughput.value,
        )

    ordered = sorted(several or curves[:1], key=rank)
    return tuple(replace(curve, main=index == 0) for index, curve in enumerate(ordered))


def recommend(
    speeds: Mapping[int, float],
    prefer: Prefer = "balance",
    *,
    costs: Mapping[int, float] | None = None,
) -> int:
    """Return the number of workers to use, by the rule that RECOMMENDED names.

    Speeds are work per second, costs are for the same work; worker-hours unless given.
    """
    cost = costs or {workers: workers / speed for workers, speed in speeds.items()}
    if prefer == "money":
        limit = (1 + SPEED_MARGIN) * min(cost.values())
        return max((n for n in speeds if cost[n] <= limit), key=lambda n: speeds[n])
    limit = max(speeds.values()) / (1 + (SPEED_MARGIN if prefer == "time" else NEAR))
    return min((n for n in speeds if speeds[n] >= limit), key=lambda n: cost[n])


def gain(cells: Sequence[Measured]) -> Measured | None:
    """Return the fewest workers that nobody clearly beats.

    From the smallest count upwards, more workers are taken when they are faster by more than the
    margin, and clearly so wherever launches have been repeated.
    """
    unit = common_unit(cells)
    known = [cell for cell in cells if cell.rates(unit)]
    if not known:
        return None
    best, *others = sorted(known, key=lambda found: found.cell.workers)
    for cell in others:
        found, relation = compare_speed(cell, best, unit)
        clear = found.low is None or relation == "higher"
        if found.value > 1 + SPEED_MARGIN and clear:
            best = cell
    return best


def _layers(row: Sequence[Measured]) -> list[list[Measured]]:
    """Part a row into curves with one point per worker count, the first on the fewest hosts.

    Where a count was placed in several ways (1x8 and 2x4), the others make curves of their own,
    which begin where the first does.
    """
    counts: dict[int, list[Measured]] = {}
    for member in sorted(row, key=lambda found: (found.cell.workers, found.cell.hosts)):
        counts.setdefault(member.cell.workers, []).append(member)
    ways = max(len(found) for found in counts.values())
    layers = [[found[way] for found in counts.values() if way < len(found)] for way in range(ways)]
    base = layers[0][0]
    for layer in layers[1:]:
        if layer[0].cell.workers != base.cell.workers:
            layer.insert(0, base)
    return layers


def _curve(
    scaling: Scaling,
    group: str,
    batch: int | None,
    row: Sequence[Measured],
    void: Mapping[Cell, str],
    epoch_s: Mapping[Cell, Estimate],
    many: bool,
    prefer: Prefer,
) -> Curve:
    unit = common_unit(row)
    row = [found for found in row if found.rates(unit)]
    rates = [found.rates(unit) for found in row]
    base, one = row[0], Estimate(value=1.0, low=1.0, high=1.0)
    speeds = list(map(geometric_mean, rates))
    speedups = [one, *(compare_speed(more, base, unit)[0] for more in row[1:])]
    # More workers that are not clearly faster are no reason to take them.
    fastest = gain([found for found in row if found.cell not in void])
    most = fastest.cell.workers if fastest else 0
    # An epoch is what a user waits for. Where it contradicts the samples per second, an epoch's
    # work did not shrink as the number of workers says, or something beside the steps takes time.
    times = [epoch_s[found.cell] for found in row if found.cell in epoch_s]
    if len(times) == len(row) > 1 and unit in UNITS[:2]:
        by_epoch = [quotient(times[0], time) for time in times]
        if not all(
            found.cell in void or _overlap(*pair)
            for found, *pair in zip(row, speedups, by_epoch, strict=True)
        ):
            unit, speedups, most = "epochs/s", by_epoch, row[-1].cell.workers
            speeds = [quotient(one, time) for time in times]
    points = []
    for found, speed, speedup, launches in zip(row, speeds, speedups, rates, strict=True):
        why, ideal = void.get(found.cell, ""), found.cell.workers / base.cell.workers
        points.append(
            CurvePoint(
                cell=found.cell,
                workers=found.cell.workers,
                batch=found.batch,
                accumulation=found.accumulation,
                global_batch=found.global_batch,
                throughput=speed,
                speedup=None if why else speedup,
                efficiency=None if why else scaled(speedup, 1 / ideal),
                ideal_throughput=speeds[0].value * ideal,
                ideal_speedup=ideal,
                step_s=found.step_s,
                launches=len(launches),
                valid=not why,
                why=why,
            )
        )
    counted = {p.workers: p.throughput.value for p in points if p.valid and p.workers <= most}
    words = [group] if group else []
    if batch is not None and (many or scaling == "strong"):
        words.append(f"{'batch' if scaling == 'weak' else 'global batch'} {batch}")
    # Laws speak of multiples of the baseline, which is one worker where it was measured.
    multiples = [point.ideal_speedup for point in points if point.speedup]
    good = [point.speedup for point in points if point.speedup]
    curve = Curve(
        scaling=scaling,
        group=group,
        label=", ".join(words) or f"{scaling} scaling",
        batch=batch,
        unit=unit,
        baseline_workers=base.cell.workers,
        points=tuple(points),
        amdahl=fit_law("amdahl", multiples, good),
        gustafson=fit_law("gustafson", multiples, good),
        best_workers=recommend(counted, prefer) if counted else None,
        sentence="",
    )
    return replace(curve, sentence=_sentence(curve))


def _overlap(first: Estimate, second: Estimate) -> bool:
    """Tell whether two intervals meet; one launch is taken to be off by up to a fifth."""
    bounds = [
        (
            one.low or one.value / (1 + _UNKNOWN_SPREAD),
            one.high or one.value * (1 + _UNKNOWN_SPREAD),
        )
        for one in (first, second)
    ]
    return max(low for low, _ in bounds) <= min(high for _, high in bounds)


def _sentence(curve: Curve) -> str:
    if len(curve.points) < 2:
        return (
            f"Only {plural(curve.baseline_workers, 'worker')} measured, so there is no curve yet."
        )
    last = curve.points[-1]
    law = curve.amdahl if curve.scaling == "strong" else curve.gustafson
    if last.speedup is None or last.efficiency is None:
        return f"{plural(last.workers, 'worker').capitalize()}: {last.why}."
    first = fill(
        "{point.workers:worker} reach {point.speedup.value:times} of the ideal "
        "{point.ideal_speedup:brief}x, an efficiency of {point.efficiency.value:percent}.",
        point=last,
    )
    if curve.baseline_workers != 1:
        base = plural(curve.baseline_workers, "worker")
        first += f" (Relative to {base}, the fewest measured.)"
    return f"{first} {law.sentence}" if law else first


def amdahl_fraction(workers: Sequence[float], speedups: Sequence[float]) -> float:
    """Fit the serial fraction f of 1/S = f + (1-f)/N by least squares over all points.

    With one point this is Karp and Flatt's experimentally determined serial fraction (1990).
    Negative when the speedup is more than linear.
    """
    return _slope([(1 - 1 / n, 1 / s - 1 / n) for n, s in zip(workers, speedups, strict=True)])


def gustafson_fraction(workers: Sequence[float], speedups: Sequence[float]) -> float:
    """Fit the serial fraction f of S = N - f(N-1) by least squares over all points."""
    return _slope([(n - 1, n - s) for n, s in zip(workers, speedups, strict=True)])


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Fit a line through the origin."""
    return sum(x * y for x, y in points) / sum(x * x for x, _ in points)


def fit_law(law: Law, workers: Sequence[float], speedups: Sequence[Estimate]) -> LawFit | None:
    """Fit a law and say what it means; None without a point above one worker."""
    fit, none_serial, all_serial, in_between = _LAWS[law]
    pairs = zip(workers, speedups, strict=True)
    points = [(n, speedup) for n, speedup in pairs if n > 1 and speedup.value > 0]
    if not points:
        return None
    numbers, found = [n for n, _ in points], [speedup for _, speedup in points]
    lows = [speedup.low for speedup in found if speedup.low is not None]
    highs = [speedup.high for speedup in found if speedup.high is not None]
    value = fit(numbers, [speedup.value for speedup in found])
    # A higher speedup is a lower fraction. Shifting all points at once is on the safe side.
    fraction = Estimate(
        value=value,
        low=fit(numbers, highs) if len(highs) == len(found) else None,
        high=fit(numbers, lows) if len(lows) == len(found) else None,
    )
    sentence = none_serial if value <= 0 else all_serial if value >= 1 else in_between
    limit = 1 / min(value, 1.0) if value > 0 else None
    return LawFit(
        law=law,
        serial_fraction=fraction,
        limit=limit if law == "amdahl" else None,
        sentence=fill(sentence, share=value, limit=limit, rest=1 - value),
    )


_LAWS: Mapping[Law, tuple[Callable[..., float], str, str, str]] = {
    "amdahl": (
        amdahl_fraction,
        "Amdahl's law finds no serial part: the speedup is linear or better.",
        "By Amdahl's law none of the work is shared: more workers do not help.",
        "{share:percent} of the work does not get shorter with more workers: by Amdahl's law the "
        "speedup stays below {limit:brief}x.",
    ),
    "gustafson": (
        gustafson_fraction,
        "Gustafson's law finds no serial part: each worker adds its full speed or more.",
        "By Gustafson's law another worker adds nothing.",
        "{share:percent} of the time is serial: by Gustafson's law each added worker contributes "
        "{rest:percent} of its speed.",
    ),
}
"""The fit, and what it means without a serial part, with nothing else, and in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPoint:
    """One batch of a sweep."""

    cell: Cell
    batch: int
    throughput: Estimate | None
    """None when the cell failed."""
    step_s: Estimate | None
    cpu: float | None
    gpu: float | None
    failed: str
    """Why there is no figure; empty when there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSweep:
    """Throughput against batch at a fixed number of workers."""

    group: str
    label: str
    workers: int
    unit: str
    points: tuple[BatchPoint, ...]
    best: int | None
    """The smallest batch that is not clearly slower than the fastest."""
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPoint:
    """One way to share the cores among processes and threads."""

    cell: Cell
    workers: int
    threads: int
    throughput: Estimate
    today: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitTable:
    """Throughput by processes x threads at one global batch, or at one batch of a worker."""

    group: str
    label: str
    unit: str
    points: tuple[SplitPoint, ...]
    best: tuple[int, int] | None
    """(workers, threads)"""
    sentence: str


def sweep_batches(
    cells: Sequence[Measured], used: Mapping[Cell, UtilisationRow]
) -> tuple[BatchSweep, ...]:
    """Return one sweep per group and worker count that was measured at several batches."""
    labels = group_labels(found.cell for found in cells)
    groups: dict[tuple[Group, int, int], list[Measured]] = {}
    for found in cells:
        if found.batch is not None and not found.cell.today:
            key = (group_of(found.cell), found.cell.workers, found.cell.hosts)
            groups.setdefault(key, []).append(found)
    sweeps = []
    for (group, workers, _), row in groups.items():
        if len(row) < 2:
            continue
        unit, points = common_unit(row), []
        for found in sorted(row, key=lambda one: one.batch or 0):
            throughput, use = found.throughput(unit), used.get(found.cell)
            missing = found.failed or found.void_for_speed or "no launch counts for speed"
            points.append(
                BatchPoint(
                    cell=found.cell,
                    batch=found.batch or 0,
                    throughput=throughput,
                    step_s=found.step_s,
                    cpu=use.cpu if use else None,
                    gpu=use.gpu if use else None,
                    failed="" if throughput else missing,
                )
            )
        best = best_batch(row, unit)
        sweeps.append(
            BatchSweep(
                group=labels[group],
                label=", ".join(filter(None, [labels[group], plural(workers, "worker")])),
                workers=workers,
                unit=unit,
                points=tuple(points),
                best=best,
                sentence=_batch_sentence(points, best, unit),
            )
        )
    return tuple(sweeps)


def best_batch(row: Sequence[Measured], unit: str) -> int | None:
    """Return the smallest batch that the fastest beats neither clearly nor by the margin."""
    known = [(found.throughput(unit), found) for found in row]
    speeds = [(speed.value, found) for speed, found in known if speed]
    if not speeds:
        return None
    top_speed, fastest = max(speeds, key=lambda pair: pair[0])
    return min(
        found.batch or 0
        for speed, found in speeds
        if speed * (1 + SPEED_MARGIN) >= top_speed
        and compare_speed(found, fastest, unit)[1] != "lower"
    )


def _batch_sentence(points: Sequence[BatchPoint], best: int | None, unit: str) -> str:
    known = {point.batch: point.throughput.value for point in points if point.throughput}
    sentences = []
    if best is not None:
        fastest = max(known, key=lambda batch: known[batch])
        rate, share = f"{number(known[best])} {unit}", percent(known[best] / known[fastest])
        sentence = f"Batch {best} is enough: {rate}, {share} of what batch {fastest} reaches."
        if len(known) == 1:
            sentence = f"Only batch {best} was measured: {rate}."
        elif best == points[-1].batch:
            sentence = f"Throughput still rises at batch {best} ({rate}): try a larger one."
        elif best == fastest:
            sentence = f"Batch {best} is the fastest: {rate}."
        sentences.append(sentence)
        failed = [point for point in points if point.failed]
        if failed:
            sentences.append(f"Batch {failed[0].batch} has no figure ({failed[0].failed}).")
    for name in ("gpu", "cpu"):
        shares = [(p.batch, getattr(p, name)) for p in points if getattr(p, name) is not None]
        if len(shares) > 1:
            words = [f"{percent(share)} at batch {batch}" for batch, share in shares]
            sentences.append(f"{name.upper()} utilisation is {words[0]} and {words[-1]}.")
            break
    return " ".join(sentences) or "No batch has a usable launch."


def split_cores(cells: Sequence[Measured]) -> tuple[SplitTable, ...]:
    """Return one table per global batch (and other factors) with several numbers of threads.

    Where every worker keeps its batch no two splits have the same global one; then there is one
    table per batch of a worker.
    """
    known = [
        found for found in cells if found.cell.threads and found.paces and found.cell.hosts == 1
    ]
    varying = varying_factors([found.cell for found in known], ("device", "transport"))
    for kind in ("global batch", "batch"):
        rows: dict[tuple[object, int | None], list[Measured]] = {}
        for found in known:
            cell, by_worker = found.cell, kind == "batch"
            batch = found.worker_batch if by_worker else found.global_batch
            key = (cell.transport, cell.device, cell.params), batch
            rows.setdefault(key, []).append(found)
        tables = tuple(
            _split_table(row, varying, [] if batch is None else [f"{kind} {batch}"])
            for (_, batch), row in rows.items()
            if len({found.cell.threads for found in row if not found.cell.today}) > 1
        )
        if tables:
            return tables
    return ()


def _split_table(row: Sequence[Measured], varying: set[str], batch: list[str]) -> SplitTable:
    unit, words = common_unit(row), factor_words(row[0].cell, varying)
    points = [
        SplitPoint(
            cell=found.cell,
            workers=found.cell.workers,
            threads=found.cell.threads or 1,
            throughput=throughput,
            today=found.cell.today,
        )
        for found in row
        if (throughput := found.throughput(unit)) is not None
    ]
    best = gain(row)
    sentence = "No split has a usable launch."
    if best is not None:
        chosen = next(point for point in points if point.cell == best.cell)
        worst = min(points, key=lambda point: point.throughput.value)
        sentence = fill(
            "{best.workers:process} x {best.threads:thread} is best: "
            "{best.throughput.value:number} {unit}, {ratio:times} as fast as {worst.workers} x "
            "{worst.threads}.",
            best=chosen,
            unit=unit,
            ratio=chosen.throughput.value / worst.throughput.value,
            worst=worst,
        )
    return SplitTable(
        group=", ".join(words),
        label=", ".join([*words, *batch]),
        unit=unit,
        points=tuple(sorted(points, key=lambda point: (point.workers, point.threads))),
        best=(best.cell.workers, best.cell.threads or 1) if best else None,
        sentence=sentence,
    )
