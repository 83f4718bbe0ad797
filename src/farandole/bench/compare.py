"""From launches to rows: summaries, ratios, whether each figure was reached; as JSON and text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
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


def compare(group: Group, records: Sequence[LaunchRecord]) -> list[dict[str, Any]]:
    """Return the group's rows as `--json` prints them (docs/explanation/benchmarks.md)."""
    return [_compare_row(group, row, records) for row in group.rows]


def _compare_row(group: Group, row: Row, records: Sequence[LaunchRecord]) -> dict[str, Any]:
    timed, launches, void = row.unit != "bytes", {}, {}
    ranks = {one.name: one.num_ranks for one in group.implementations}
    for name in row.names:
        launches[name], void[name] = usable(records, name, row.series, timed=timed)
    entries = [
        {
            "contestant": name,
            "ranks": ranks[name],
            "median": summarize(launches[name]) if launches[name] else None,
            "launches": launches[name],
            # True when no launch was undisturbed, so that the values are of disturbed ones.
            "void": void[name],
            "void_launches": sum(
                record.name == name and record.void and record.failure is None and timed
                for record in records
            ),
            "against_baseline": _against_baseline(row, launches, name),
            "note": None if launches[name] else _reason(records, name),
        }
        for name in row.names
    ]
    targets = [
        compare_ranking(target, row, records)
        if target.quantity == "rank correlation"
        else compare_target(target, row, launches, void)
        for target in row.targets
    ]
    head = {name: getattr(row, name) for name in ("key", "title", "unit", "baseline")}
    return head | {"gradient_bytes": row.gradient_bytes, "entries": entries, "targets": targets}


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


def _verdict(
    target: Target,
    measured: Estimate | None = None,
    verdict: str = NOT_MEASURED,
    *,
    certain: bool = False,
    note: str | None = None,
) -> dict[str, Any]:
    """Return a target with what was measured of it.

    It is certain when the whole interval, or every pair of launches in a ranking, says the same.
    """
    found = {"measured": measured, "verdict": verdict, "certain": certain, "note": note}
    return asdict(target) | found


def compare_target(
    target: Target, row: Row, launches: Mapping[str, Sequence[float]], void: Mapping[str, bool]
) -> dict[str, Any]:
    """Return whether `target` was reached by these launches."""
    names = [target.subject] if target.against is None else [target.subject, target.against]
    if not all(launches.get(name) for name in names):
        return _verdict(target)
    estimate = _measure(target.quantity, row, *(launches[name] for name in names))

    def meets(value: float, figure: float) -> bool:
        return value >= figure if target.quantity == "speed ratio" else value <= figure

    ends = (estimate.value, estimate.low, estimate.high)
    reached, *others = (meets(end, target.to_reach) for end in ends if end is not None)
    verdict = REACHED if reached else MISSED
    if target.stretch is not None and meets(estimate.value, target.stretch):
        verdict = STRETCH
    if any(void[name] for name in names):
        verdict = VOID
    return _verdict(target, estimate, verdict, certain=others == [reached, reached])


def _measure(
    quantity: Quantity, row: Row, mine: Sequence[float], other: Sequence[float] | None = None
) -> Estimate:
    if other is None:
        return summarize(mine)
    if quantity in ("speed ratio", "time ratio"):
        return ratio(other, mine) if quantity == "speed ratio" else ratio(mine, other)
    unit = 1 if quantity == "time difference" else row.gradient_bytes or 1
    return welch([value / unit for value in mine], [value / unit for value in other])


def _against_baseline(
    row: Row, launches: Mapping[str, Sequence[float]], name: str
) -> Estimate | None:
    """Return the speed over the baseline's, or the memory beyond it in copies of the gradients."""
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


def compare_ranking(target: Target, row: Row, records: Sequence[LaunchRecord]) -> dict[str, Any]:
    """Return whether two implementations put the row's `ranked` series into the same order."""
    launches: dict[str, list[tuple[float, ...]]] = {}
    void = False
    for name in (target.subject, target.against or ""):
        columns = [usable(records, name, series) for series in row.ranked]
        launches[name] = list(zip(*(values for values, _ in columns), strict=True))
        void = void or any(disturbed for _, disturbed in columns)
    if not all(launches.values()):
        return _verdict(target)
    medians = {
        name: [median(each) for each in zip(*rows, strict=True)] for name, rows in launches.items()
    }
    value = spearman(*medians.values())
    reached = value >= target.to_reach
    mine, others = launches.values()
    each = [spearman(one, other) >= target.to_reach for one in mine for other in others]
    return _verdict(
        target,
        Estimate(value=value, low=None, high=None),
        VOID if void else REACHED if reached else MISSED,
        certain=len(each) > 1 and all(same == reached for same in each),
        note="; ".join(f"{name}: {_order(row.ranked, each)}" for name, each in medians.items()),
    )


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Spearman's rank correlation: 1 for the same order, -1 for the reverse.

    Where one side has equal values only there is no order to agree on: 1 if both have.
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


# How a value of a unit or of a quantity is written.
_SHOW: dict[str, Callable[[float], str]] = {
    **dict.fromkeys(("s", "time", "time difference"), seconds),
    **dict.fromkeys(("ratio", "time ratio"), "{:.4f}".format),
    "speed ratio": speed,
    "bytes": size,
    "excess": "{:.2f} copies".format,
    "rank correlation": "{:.2f}".format,
}


def to_text(row: Mapping[str, Any]) -> list[str]:
    """Return a row as aligned lines: its title, its table, figures to reach, and notes."""
    entries, targets, title = row["entries"], row["targets"], row["title"]
    counts = {entry["ranks"] for entry in entries}
    if len(counts) == 1 and counts != {1}:
        title += f" ({plural(counts.pop(), 'rank')})"
    columns = [
        Column(key="name", title="implementation", text=True),
        _column("median (95 % interval)", _SHOW[row["unit"]]),
        Column(key="launches", title="launches", text=True),
    ]
    if row["gradient_bytes"]:
        more = "{:+.2f} copies of gradients".format
        columns.append(_column(f"more than {row['baseline']}", more))
    elif row["baseline"]:
        columns.append(_column(f"speed, of {row['baseline']}", speed))
    rows = []
    for entry in entries:
        launches = str(len(entry["launches"]))
        if entry["void"]:
            launches += ", all void"
        elif entry["void_launches"]:
            launches += f" and {entry['void_launches']} void"
        against = entry["against_baseline"] and entry["against_baseline"].value
        rows.append((entry["contestant"], entry["median"], launches, against)[: len(columns)])
    # Blank where there is no figure: the reason stands below the table.
    absent = (("",) * len(columns),) * len(rows)
    table = Table(
        name=row["key"], title=title, columns=tuple(columns), rows=tuple(rows), absent=absent
    )
    lines = [f"{entry['contestant']}: {entry['note']}" for entry in entries if entry["note"]]
    lines += [_target_line(target) for target in targets]
    lines += [target["note"] for target in targets if target["note"]]
    return [title, *to_lines(table), *(f"  {line}" for line in lines)]


def _column(title: str, show: Callable[[float], str]) -> Column:
    return Column(key=title, title=title, show=show)


def _target_line(target: Mapping[str, Any]) -> str:
    show, estimate = _SHOW[target["quantity"]], target["measured"]
    line = f"to reach: {target['text']}"
    if target["stretch"] is not None:
        line += f" (stretch {show(target['stretch'])})"
    if estimate is not None:
        line += f": {show(estimate.value)}"
        if estimate.low is not None and estimate.high is not None:
            line += f" ({show(estimate.low)} to {show(estimate.high)})"
    unsure = estimate is not None and not target["certain"] and target["verdict"] != VOID
    return f"{line}: {target['verdict']}{', not certain' if unsure else ''}"


def launch_to_json(group: str, record: LaunchRecord) -> dict[str, Any]:
    """Return a launch as `--json` prints it."""
    found = {**asdict(record), "counts": record.counts, **asdict(record.disturbance)}
    for name in ("name", "disturbance", "timed"):
        del found[name]
    return {"group": group, "contestant": record.name, **found}
