"""Strong and weak scaling curves, one per combination of all other factors, and their laws."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from farandole.format import plural
from farandole.model.measured import Measured, common_unit, factor_words
from farandole.model.statistics import SPEED_MARGIN, Estimate, ratio, speed_relation
from farandole.study.records import Cell

Scaling = Literal["strong", "weak"]
_MORE_HOSTS = "more hosts"
_NONE_VOID: Mapping[Cell, str] = MappingProxyType({})
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

    law: Literal["amdahl", "gustafson"]
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
    members = list(found.values())
    varying = {name for name in ("device", "transport") if _differs(members, name)}
    names = {name for cell in members for name, _ in cell.params}
    varying |= {n for n in names if len({dict(cell.params).get(n) for cell in members}) > 1}
    several_threads = _differs(members, "threads")
    labels = {}
    for group, cell in found.items():
        words = factor_words(cell, varying)
        if several_threads and cell.threads is not None:
            words.append(plural(cell.threads, "thread"))
        labels[group] = ", ".join(words)
    return labels


def draw_curves(
    cells: Sequence[Measured],
    void: Mapping[Cell, str] = _NONE_VOID,
    prefer: Scaling | None = None,
) -> tuple[Curve, ...]:
    """Return every strong and weak curve of at least two worker counts, the main one first.

    A study of one worker count has one curve of one point.

    Args:
        cells: of a study, sorted.
        void: cells that have no speedup, each with the reason.
        prefer: the kind of scaling that was asked for.
    """
    groups: dict[Group, list[Measured]] = {}
    for cell in cells:
        if not cell.cell.today and any(found.rates for found in cell.paces):
            groups.setdefault(group_of(cell.cell), []).append(cell)
    labels = group_labels(cell.cell for cell in cells)
    curves: list[Curve] = []
    asked_first = sorted(groups.items(), key=lambda item: min(cell.order for cell in item[1]))
    for group, members in asked_first:
        weak = _by_key(members, lambda found: found.worker_batch)
        strong = _by_key(members, lambda found: found.global_batch)
        # Without any batch it cannot be strong scaling that was controlled for.
        strong.pop(None, None)
        kinds: list[tuple[Scaling, dict[int | None, list[Measured]]]]
        kinds = [("weak", weak), ("strong", strong)]
        for scaling, rows in kinds:
            for batch, row in rows.items():
                for number, layer in enumerate(_layers(row)):
                    words = [labels[group], _MORE_HOSTS * (number > 0)]
                    label = ", ".join(filter(None, words))
                    curves.append(_curve(scaling, label, batch, layer, void, len(rows) > 1))
    several = [curve for curve in curves if len(curve.points) > 1]
    places = {curve.group: place for place, curve in reversed(list(enumerate(curves)))}
    ordered = sorted(
        several or curves[:1], key=lambda curve: _rank(curve, prefer, places[curve.group])
    )
    return tuple(replace(curve, main=index == 0) for index, curve in enumerate(ordered))


def gain(cells: Sequence[Measured], margin: float = SPEED_MARGIN) -> Measured | None:
    """Return the fewest workers that nobody clearly beats: the count to use.

    From the smallest count upwards, more workers are taken when they are faster by more than the
    margin, and clearly so wherever launches have been repeated.
    """
    unit = common_unit(cells)
    best: Measured | None = None
    for cell in sorted(cells, key=lambda found: found.cell.workers):
        rates = cell.rates(unit)
        if not rates:
            continue
        if best is None:
            best = cell
            continue
        found = ratio(rates, best.rates(unit))
        clear = found.low is None or speed_relation(rates, best.rates(unit)) == "higher"
        if found.value > 1 + margin and clear:
            best = cell
    return best


def _by_key(
    members: Sequence[Measured], key: Callable[[Measured], int | None]
) -> dict[int | None, list[Measured]]:
    rows: dict[int | None, list[Measured]] = {}
    for member in members:
        rows.setdefault(key(member), []).append(member)
    return rows


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
    return [layers[0], *(_from(base, layer) for layer in layers[1:])]


def _from(base: Measured, layer: list[Measured]) -> list[Measured]:
    return layer if layer[0].cell.workers == base.cell.workers else [base, *layer]


def _curve(
    scaling: Scaling,
    group: str,
    batch: int | None,
    row: Sequence[Measured],
    void: Mapping[Cell, str],
    many: bool,
) -> Curve:
    unit = common_unit(row)
    row = [found for found in row if found.rates(unit)]
    base = row[0]
    points = tuple(_point(found, base, unit, void.get(found.cell, "")) for found in row)
    good = [point for point in points if point.valid and point.speedup is not None]
    # Laws speak of multiples of the baseline, which is one worker where it was measured.
    multiples = [point.workers / base.cell.workers for point in good]
    speedups = [point.speedup for point in good if point.speedup is not None]
    best = gain([found for found in row if found.cell not in void])
    kind = "batch" if scaling == "weak" else "global batch"
    words = [group] if group else []
    if batch is not None and (many or scaling == "strong"):
        words.append(f"{kind} {batch}")
    curve = Curve(
        scaling=scaling,
        group=group,
        label=", ".join(words) or f"{scaling} scaling",
        batch=batch,
        unit=unit,
        baseline_workers=base.cell.workers,
        points=points,
        amdahl=fit_amdahl(multiples, speedups),
        gustafson=fit_gustafson(multiples, speedups),
        best_workers=best.cell.workers if best else None,
        sentence="",
    )
    return replace(curve, sentence=_sentence(curve))


def _point(found: Measured, base: Measured, unit: str, why_void: str) -> CurvePoint:
    throughput = found.throughput(unit)
    reference = base.throughput(unit)
    assert throughput is not None
    assert reference is not None
    ideal = found.cell.workers / base.cell.workers
    speedup = efficiency = None
    if not why_void:
        one = Estimate(value=1.0, low=1.0, high=1.0)
        speedup = one if found is base else ratio(found.rates(unit), base.rates(unit))
        efficiency = scaled(speedup, 1 / ideal)
    return CurvePoint(
        cell=found.cell,
        workers=found.cell.workers,
        batch=found.batch,
        accumulation=found.accumulation,
        global_batch=found.global_batch,
        throughput=throughput,
        speedup=speedup,
        efficiency=efficiency,
        ideal_throughput=reference.value * ideal,
        ideal_speedup=ideal,
        step_s=found.step_s,
        launches=len(found.rates(unit)),
        valid=not why_void,
        why=why_void,
    )


def scaled(estimate: Estimate, factor: float) -> Estimate:
    """Multiply a value and its interval by a positive number."""
    return Estimate(
        value=estimate.value * factor,
        low=None if estimate.low is None else estimate.low * factor,
        high=None if estimate.high is None else estimate.high * factor,
    )


def _sentence(curve: Curve) -> str:
    if len(curve.points) < 2:
        return f"Only {plural(curve.baseline_workers, 'worker')} measured: there is no curve yet."
    last = curve.points[-1]
    law = curve.amdahl if curve.scaling == "strong" else curve.gustafson
    if last.speedup is None or last.efficiency is None:
        return f"{plural(last.workers, 'worker').capitalize()}: {last.why}."
    first = (
        f"{plural(last.workers, 'worker')} reach {last.speedup.value:.2f}x of "
        f"{last.ideal_speedup:g}x, an efficiency of {last.efficiency.value:.0%}."
    )
    if curve.baseline_workers != 1:
        base = plural(curve.baseline_workers, "worker")
        first += f" (Relative to {base}, the fewest that were measured.)"
    return f"{first} {law.sentence}" if law else first


def _rank(
    curve: Curve, prefer: Scaling | None, place: int
) -> tuple[bool, int, int, bool, int, float]:
    return (
        prefer is not None and curve.scaling != prefer,
        -len(curve.points),
        place,
        curve.scaling != "weak",
        -sum(point.launches for point in curve.points),
        -curve.points[-1].throughput.value,
    )


def _differs(cells: Sequence[Cell], name: str) -> bool:
    return len({getattr(cell, name) for cell in cells}) > 1


def amdahl_fraction(workers: Sequence[float], speedups: Sequence[float]) -> float:
    """Fit the serial fraction f of 1/S = f + (1-f)/N by least squares over all points.

    With one point this is Karp and Flatt's experimentally determined serial fraction (1990).
    Negative when the speedup is more than linear.
    """
    above, below = 0.0, 0.0
    for number, speedup in zip(workers, speedups, strict=True):
        lever = 1 - 1 / number
        above += (1 / speedup - 1 / number) * lever
        below += lever * lever
    return above / below


def gustafson_fraction(workers: Sequence[float], speedups: Sequence[float]) -> float:
    """Fit the serial fraction f of S = N - f(N-1) by least squares over all points."""
    above, below = 0.0, 0.0
    for number, speedup in zip(workers, speedups, strict=True):
        lever = number - 1
        above += (number - speedup) * lever
        below += lever * lever
    return above / below


def fit_amdahl(workers: Sequence[float], speedups: Sequence[Estimate]) -> LawFit | None:
    """Fit Amdahl's law and say what it means; None without a point above one worker."""
    fraction = _fit(amdahl_fraction, workers, speedups)
    if fraction is None:
        return None
    value = fraction.value
    if value <= 0:
        return LawFit(
            law="amdahl",
            serial_fraction=fraction,
            limit=None,
            sentence="Amdahl's law finds no serial part: the speedup is linear or more.",
        )
    if value >= 1:
        return LawFit(
            law="amdahl",
            serial_fraction=fraction,
            limit=1.0,
            sentence="By Amdahl's law nothing of the work is shared: more workers do not help.",
        )
    return LawFit(
        law="amdahl",
        serial_fraction=fraction,
        limit=1 / value,
        sentence=(
            f"{_percent(value)} of the work does not get shorter with more workers: by Amdahl's "
            f"law no number of them gives more than {1 / value:.3g}x."
        ),
    )


def fit_gustafson(workers: Sequence[float], speedups: Sequence[Estimate]) -> LawFit | None:
    """Fit Gustafson's law and say what it means; None without a point above one worker."""
    fraction = _fit(gustafson_fraction, workers, speedups)
    if fraction is None:
        return None
    value = fraction.value
    if value <= 0:
        sentence = "Gustafson's law finds no serial part: each worker adds a whole worker or more."
    elif value >= 1:
        sentence = "By Gustafson's law a further worker adds nothing."
    else:
        sentence = (
            f"{_percent(value)} of the time on many workers is not shared: by Gustafson's law each "
            f"further worker adds {1 - value:.2f} of a worker."
        )
    return LawFit(law="gustafson", serial_fraction=fraction, limit=None, sentence=sentence)


def _fit(
    law: Callable[[Sequence[float], Sequence[float]], float],
    workers: Sequence[float],
    speedups: Sequence[Estimate],
) -> Estimate | None:
    points = [
        (number, speedup)
        for number, speedup in zip(workers, speedups, strict=True)
        if number > 1 and speedup.value > 0
    ]
    if not points:
        return None
    numbers = [number for number, _ in points]
    lows = [speedup.low for _, speedup in points if speedup.low is not None]
    highs = [speedup.high for _, speedup in points if speedup.high is not None]
    # A higher speedup is a lower fraction. Shifting all points at once is on the safe side.
    low = law(numbers, highs) if len(highs) == len(points) else None
    high = law(numbers, lows) if len(lows) == len(points) else None
    return Estimate(value=law(numbers, [s.value for _, s in points]), low=low, high=high)


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"
