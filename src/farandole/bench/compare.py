"""From launches to rows: summaries, ratios, whether each figure was reached; as text and JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import correlation, median
from typing import Any

from farandole.bench.plan import Group, Quantity, Row, Target
from farandole.bench.run import LaunchRecord
from farandole.format import plural, seconds, size
from farandole.model.statistics import Estimate, ratio, summarize, welch
from farandole.report.table import Column, Table, to_lines

REACHED, STRETCH, MISSED = "reached", "stretch reached", "not reached"
VOID = "void: others used this machine"
NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A target with what was measured of it."""

    target: Target
    measured: Estimate | None = None
    verdict: str = NOT_MEASURED
    """A figure is never called reached on void launches."""
    certain: bool = False
    """Whether the whole interval lies on the verdict's side of the figure to reach; of a ranking,
    whether every pair of launches gives that verdict."""
    note: str | None = None
    """What else a reader wants to see of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One implementation's line in a row."""

    contestant: str
    """The implementation's name, as the JSON calls it."""
    ranks: int
    median: Estimate | None
    launches: tuple[float, ...]
    """The value of every launch that counts; of the void ones when none does."""
    void: bool
    """True when no launch was undisturbed, so that the values are of disturbed ones."""
    void_launches: int
    against_baseline: Estimate | None
    """Speed over the baseline's speed; for memory, what it has more, in copies of the gradients."""
    note: str | None
    """Why there is no value: missing, failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A row with what was measured of it."""

    row: Row
    entries: tuple[Entry, ...]
    verdicts: tuple[Verdict, ...]


def compare(group: Group, records: Sequence[LaunchRecord]) -> list[Result]:
    """Return the group's rows from all of its launches, void and failed ones included."""
    num_ranks = {one.name: one.num_ranks for one in group.implementations}
    results = []
    for row in group.rows:
        timed = row.unit != "bytes"
        found = {name: usable(records, name, row.series, timed=timed) for name in row.names}
        launches = {name: values for name, (values, _) in found.items()}
        void = {name: disturbed for name, (_, disturbed) in found.items()}
        entries = tuple(
            Entry(
                contestant=name,
                ranks=num_ranks[name],
                median=summarize(launches[name]) if launches[name] else None,
                launches=launches[name],
                void=void[name],
                void_launches=sum(
                    record.name == name and record.void and record.failure is None and timed
                    for record in records
                ),
                against_baseline=_against_baseline(row, launches, name),
                note=None if launches[name] else _reason(records, name),
            )
            for name in row.names
        )
        verdicts = tuple(
            compare_ranking(target, row, records)
            if target.quantity == "rank correlation"
            else compare_target(target, row, launches, void)
            for target in row.targets
        )
        results.append(Result(row=row, entries=entries, verdicts=verdicts))
    return results


def usable(
    records: Sequence[LaunchRecord], name: str, series: str, *, timed: bool = True
) -> tuple[tuple[float, ...], bool]:
    """Return an implementation's values and whether they are of void launches, for want of better.

    Args:
        timed: whether the series is of times, which others' use of the machine spoils.
    """
    mine = [record for record in records if record.name == name and series in record.values]
    good = tuple(record.values[series] for record in mine if record.counts or not timed)
    return (good, False) if good else (tuple(one.values[series] for one in mine), bool(mine))


def compare_target(
    target: Target,
    row: Row,
    launches: Mapping[str, Sequence[float]],
    void: Mapping[str, bool],
) -> Verdict:
    """Return whether `target` was reached by these launches."""
    names = [target.subject] if target.against is None else [target.subject, target.against]
    if not all(launches.get(name) for name in names):
        return Verdict(target=target)
    estimate = _measure(target.quantity, row, *(launches[name] for name in names))
    reached, *ends_reach = (
        _meets(target, value, target.to_reach)
        for value in (estimate.value, estimate.low, estimate.high)
        if value is not None
    )
    verdict = REACHED if reached else MISSED
    if target.stretch is not None and _meets(target, estimate.value, target.stretch):
        verdict = STRETCH
    return Verdict(
        target=target,
        measured=estimate,
        verdict=VOID if any(void[name] for name in names) else verdict,
        certain=ends_reach == [reached, reached],
    )


def _meets(target: Target, value: float, figure: float) -> bool:
    return value >= figure if target.quantity == "speed ratio" else value <= figure


def _measure(
    quantity: Quantity, row: Row, mine: Sequence[float], other: Sequence[float] | None = None
) -> Estimate:
    if other is None:
        return summarize(mine)
    if quantity == "speed ratio":
        return ratio(other, mine)
    if quantity == "time ratio":
        return ratio(mine, other)
    unit = 1 if quantity == "time difference" else row.gradient_bytes or 1
    return welch([value / unit for value in mine], [value / unit for value in other])


def _against_baseline(
    row: Row, launches: Mapping[str, Sequence[float]], name: str
) -> Estimate | None:
    baseline = launches.get(row.baseline or "")
    if name == row.baseline or not baseline or not launches[name]:
        return None
    quantity: Quantity = "excess" if row.gradient_bytes else "speed ratio"
    return _measure(quantity, row, launches[name], baseline)


def _reason(records: Sequence[LaunchRecord], name: str) -> str:
    for record in reversed(records):
        if record.name == name and record.missing is not None:
            return f"not measured: {record.missing}"
        if record.name == name and record.failure is not None:
            return f"failed: {record.failure}"
    return NOT_MEASURED


def compare_ranking(target: Target, row: Row, records: Sequence[LaunchRecord]) -> Verdict:
    """Return whether two implementations put the row's `ranked` series into the same order."""
    found: dict[str, list[tuple[float, ...]]] = {}
    void = False
    for name in (target.subject, target.against or ""):
        columns = [usable(records, name, series) for series in row.ranked]
        found[name] = list(zip(*(values for values, _ in columns), strict=True))
        void = void or any(disturbed for _, disturbed in columns)
    if not all(found.values()):
        return Verdict(target=target)
    medians = {
        name: [median(each) for each in zip(*rows, strict=True)] for name, rows in found.items()
    }
    correlation = spearman(*medians.values())
    reached = correlation >= target.to_reach
    mine, others = found.values()
    each = [spearman(one, other) >= target.to_reach for one in mine for other in others]
    return Verdict(
        target=target,
        measured=Estimate(value=correlation, low=None, high=None),
        verdict=VOID if void else REACHED if reached else MISSED,
        certain=len(each) > 1 and all(same == reached for same in each),
        note="; ".join(f"{name}: {_order(row.ranked, each)}" for name, each in medians.items()),
    )


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Spearman's rank correlation: 1 for the same order, -1 for the reverse.

    Where one side cannot tell anything apart there is no order to agree on: 1 if neither can.
    """
    from scipy.stats import rankdata  # not at the top: it takes a second

    one, other = rankdata(first).tolist(), rankdata(second).tolist()
    if one == other:
        return 1.0
    return correlation(one, other) if len({*one}) > 1 and len({*other}) > 1 else 0.0


def _order(names: Sequence[str], throughputs: Sequence[float]) -> str:
    ordered = sorted(zip(names, throughputs, strict=True), key=lambda item: -item[1])
    return " > ".join(f"{name} ({value:,.0f}/s)" for name, value in ordered)


def speed(value: float) -> str:
    """Return small ratios in percent and large ones as a factor."""
    return f"{value:.2f}x" if value >= 2.0 else f"{100 * value:.1f} %"


_SHOW: dict[str, Callable[[float], str]] = {
    "s": seconds,
    "ratio": "{:.4f}".format,
    "time": seconds,
    "speed ratio": speed,
    "time ratio": "{:.4f}".format,
    "time difference": seconds,
    "bytes": size,
    "excess": "{:.2f} copies".format,
    "rank correlation": "{:.2f}".format,
}
"""How a value of a unit or of a quantity is written."""


def to_text(result: Result) -> list[str]:
    """Return a row as aligned lines: its title, its table, figures to reach, and notes."""
    row, counts = result.row, {entry.ranks for entry in result.entries}
    title = row.title
    if len(counts) == 1 and row.of_ranks:
        title += f" ({plural(counts.pop(), 'rank')})"
    columns = [
        Column(key="name", title="implementation", text=True),
        _column("median (95 % interval)", _SHOW[row.unit]),
        Column(key="launches", title="launches", text=True),
    ]
    if row.gradient_bytes is not None:
        columns.append(_column(f"more than {row.baseline}", "{:+.2f} copies of gradients".format))
    elif row.baseline is not None:
        columns.append(_column(f"speed, of {row.baseline}", speed))
    rows = []
    for entry in result.entries:
        launches = str(len(entry.launches))
        if entry.void:
            launches += ", all void"
        elif entry.void_launches:
            launches += f" and {entry.void_launches} void"
        against = entry.against_baseline and entry.against_baseline.value
        rows.append((entry.contestant, entry.median, launches, against)[: len(columns)])
    table = Table(name=row.key, title=title, columns=tuple(columns), rows=tuple(rows))
    lines = [f"{entry.contestant}: {entry.note}" for entry in result.entries if entry.note]
    lines += [_verdict_line(verdict) for verdict in result.verdicts]
    lines += [verdict.note for verdict in result.verdicts if verdict.note]
    return [title, *to_lines(table), *(f"  {line}" for line in lines)]


def _column(title: str, show: Callable[[float], str]) -> Column:
    """Return a column of figures, blank where there is none: the reason stands below the table."""
    return Column(key=title, title=title, show=lambda value: "" if value is None else show(value))


def _verdict_line(verdict: Verdict) -> str:
    target, estimate, show = verdict.target, verdict.measured, _SHOW[verdict.target.quantity]
    figure = f"to reach: {target.text}"
    if target.stretch is not None:
        figure += f" (stretch {show(target.stretch)})"
    if estimate is None:
        return f"{figure}: {verdict.verdict}"
    measured = show(estimate.value)
    if estimate.low is not None and estimate.high is not None:
        measured += f" ({show(estimate.low)} to {show(estimate.high)})"
    doubt = "" if verdict.certain or verdict.verdict == VOID else ", not certain"
    return f"{figure}: {measured}: {verdict.verdict}{doubt}"


def to_json(result: Result) -> dict[str, Any]:
    """Return a row as `--json` prints it (docs/benchmarks.md describes it)."""
    row = asdict(result.row)
    targets = [asdict(verdict) for verdict in result.verdicts]
    return {
        **{name: row[name] for name in ("key", "title", "unit", "baseline", "gradient_bytes")},
        "entries": [asdict(entry) for entry in result.entries],
        "targets": [{**target.pop("target"), **target} for target in targets],
    }


def launch_to_json(group: str, record: LaunchRecord) -> dict[str, Any]:
    """Return a launch as `--json` prints it."""
    found = {**asdict(record), "counts": record.counts, **asdict(record.disturbance)}
    for name in ("name", "disturbance", "timed"):
        del found[name]
    return {"group": group, "contestant": record.name, **found}
