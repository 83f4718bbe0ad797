"""From launches to rows: summaries, ratios, whether each figure was reached; as JSON and text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from statistics import correlation, median
from typing import Any

from farandole.bench.plan import Group, Quantity, Row, Target
from farandole.bench.run import LaunchRecord
from farandole.format import plural, seconds, size
from farandole.model.statistics import Estimate, difference, ratio, summarize
from farandole.report.table import Column, tabulate, to_lines

REACHED, STRETCH, MISSED = "reached", "stretch reached", "not reached"
VOID = "void: others used this machine"
NOT_MEASURED = "not measured"


def compare(group: Group, records: Sequence[LaunchRecord]) -> list[dict[str, Any]]:
    """Return the group's rows as `--json` prints them (docs/explanation/benchmarks.md)."""
    ranks = {one.name: one.num_ranks for one in group.implementations}
    return [_compare_row(row, ranks, records) for row in group.rows]


def _compare_row(
    row: Row, ranks: Mapping[str, int], records: Sequence[LaunchRecord]
) -> dict[str, Any]:
    entries = []
    values = {name: usable(records, name, row, row.series) for name in row.names}
    baseline = [one for (one,) in usable(records, row.baseline or "", row, row.series)[0]]
    for name, (each, void) in values.items():
        launches, against = [one for (one,) in each], None
        if launches and baseline and name != row.baseline:
            # The speed over the baseline's, or the memory beyond it in copies of the gradients.
            quantity: Quantity = "excess" if row.gradient_bytes else "speed ratio"
            against = _measure(quantity, row, launches, baseline)
        disturbed = [one for one in records if one.name == name and one.void and not one.failure]
        entries.append(
            {
                "contestant": name,
                "ranks": ranks[name],
                "median": summarize(launches) if launches else None,
                "launches": launches,
                # True when no launch was undisturbed, so that the values are of disturbed ones.
                "void": void,
                "void_launches": 0 if row.unit == "bytes" else len(disturbed),
                "against_baseline": against,
                "note": None if launches else _reason(records, name),
            }
        )
    head = {name: getattr(row, name) for name in ("key", "title", "unit", "baseline")}
    targets = [compare_target(target, row, records) for target in row.targets]
    return head | {"gradient_bytes": row.gradient_bytes, "entries": entries, "targets": targets}


def usable(
    records: Sequence[LaunchRecord], name: str, row: Row, *series: str
) -> tuple[list[tuple[float, ...]], bool]:
    """Return an implementation's values, launch by launch, and whether all its launches were void.

    Void launches count for want of better, and where sizes are measured: those nobody disturbs.
    """
    mine = [one for one in records if one.name == name and one.values.keys() >= {*series}]
    good = [one for one in mine if one.counts or row.unit == "bytes"]
    values = [tuple(one.values[each] for each in series) for one in good or mine]
    return values, bool(mine) and not good


def compare_target(target: Target, row: Row, records: Sequence[LaunchRecord]) -> dict[str, Any]:
    """Return a target with what was measured of it and whether it was reached.

    It is certain when the whole interval, or every pair of launches in a ranking, says the same.
    """
    found: dict[str, Any] = {"measured": None, "verdict": NOT_MEASURED, "certain": False}
    found = asdict(target) | found | {"note": None}
    ranking = target.quantity == "rank correlation"
    names = [name for name in (target.subject, target.against) if name is not None]
    series = row.ranked if ranking else (row.series,)
    launches, voids = zip(*(usable(records, name, row, *series) for name in names), strict=True)
    if not all(launches):
        return found
    if ranking:
        medians = [[median(values) for values in zip(*each, strict=True)] for each in launches]
        estimate = Estimate(value=spearman(*medians), low=None, high=None)
        ends = [spearman(*pair) for pair in product(*launches)]
        orders = zip(names, medians, strict=True)
        found["note"] = "; ".join(f"{name}: {_order(series, each)}" for name, each in orders)
    else:
        estimate = _measure(target.quantity, row, *([one for (one,) in each] for each in launches))
        ends = [end for end in (estimate.low, estimate.high) if end is not None]
    at_least = target.quantity in ("speed ratio", "rank correlation")

    def meets(value: float, figure: float) -> bool:
        return value >= figure if at_least else value <= figure

    reached = meets(estimate.value, target.to_reach)
    found["measured"], found["verdict"] = estimate, REACHED if reached else MISSED
    if target.stretch is not None and meets(estimate.value, target.stretch):
        found["verdict"] = STRETCH
    if any(voids):
        found["verdict"] = VOID
    found["certain"] = len(ends) > 1 and all(meets(e, target.to_reach) == reached for e in ends)
    return found


def _measure(
    quantity: Quantity, row: Row, mine: Sequence[float], other: Sequence[float] | None = None
) -> Estimate:
    if other is None:
        return summarize(mine)
    if quantity in ("speed ratio", "time ratio"):
        return ratio(other, mine) if quantity == "speed ratio" else ratio(mine, other)
    unit = 1 if quantity == "time difference" else row.gradient_bytes or 1
    return difference([value / unit for value in mine], [value / unit for value in other])


def _reason(records: Sequence[LaunchRecord], name: str) -> str:
    for record in reversed(records):
        if record.name == name and record.missing is not None:
            return f"not measured: {record.missing}"
        if record.name == name and record.failure is not None:
            return f"failed: {record.failure}"
    return NOT_MEASURED


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
        Column(key="name", title="implementation", text=True, get=lambda one: one["contestant"]),
        Column(
            key="median",
            title="median (95 % interval)",
            show=_SHOW[row["unit"]],
            get=lambda one: one["median"],
        ),
        Column(key="launches", title="launches", text=True, get=_launches),
    ]
    if row["baseline"]:
        memory = row["gradient_bytes"]
        columns.append(
            Column(
                key="against",
                title=("more than " if memory else "speed, of ") + row["baseline"],
                show="{:+.2f} copies of gradients".format if memory else speed,
                get=lambda one: one["against_baseline"] and one["against_baseline"].value,
            )
        )
    # Blank where there is no figure: the reason stands below the table.
    table = tabulate(row["key"], title, entries, columns, absent=lambda *_: "")
    lines = [f"{entry['contestant']}: {entry['note']}" for entry in entries if entry["note"]]
    lines += [_target_line(target) for target in targets]
    lines += [target["note"] for target in targets if target["note"]]
    return [title, *to_lines(table), *(f"  {line}" for line in lines)]


def _launches(entry: Mapping[str, Any]) -> str:
    void = f" and {entry['void_launches']} void" if entry["void_launches"] else ""
    return f"{len(entry['launches'])}{', all void' if entry['void'] else void}"


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
