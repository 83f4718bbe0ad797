"""What more workers would give, as the report, a terminal and programs show it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from farandole.format import brief, number, optional, percent, plural, seconds, times, whole
from farandole.model.analyse import ScalingInfo
from farandole.model.projection.advice import Projection
from farandole.model.projection.epochs import Goal
from farandole.model.projection.intervals import Prediction
from farandole.model.projection.join import ProjectionRow
from farandole.model.statistics import Estimate
from farandole.report import words
from farandole.report.document import (
    Block,
    Bullets,
    Commands,
    Figure,
    Figures,
    Prose,
    Section,
    Spec,
    Tables,
    plain,
)
from farandole.report.escape import visible
from farandole.report.table import Column, Table, tabulate, to_lines
from farandole.version import __version__

SCHEMA = 1
KIND = "farandole-projection"
_PARTS = {
    "compute": "computing",
    "communication": "communication",
    "input": "loading",
    "epochs": "more epochs",
    "fixed_cost": "beside the epochs",
}
# What a terminal can do without: the page and the files have it.
_LONG = {"hosts", "global_batch", "step_s", "epoch_s"}
_MOST_BARS = 16


def projection_section(info: ScalingInfo) -> Section | None:
    """Return the section of a report on more workers; None where nobody asked."""
    found = info.projection
    if found is None:
        return None
    shown = _tables(found)
    extra = (found.offers_sentence, found.fleet_sentence)
    said = (*found.sentences, *(one for one in extra if one and one != found.headline))
    blocks: list[Block] = [
        Prose((found.headline,), strong=True),
        Prose(said),
        Tables(tuple(shown)),
        Figures(figures(info, shown), table="elsewhere"),
    ]
    if found.assumptions:
        blocks.append(Bullets(tuple(found.assumptions), folded="Taken for granted"))
    blocks += [
        Prose((found.track_record, f"Next: {found.next.sentence}")),
        Commands((next_command(info),)),
    ]
    return Section(
        key="projection", title="More workers", link="more workers", blocks=tuple(blocks)
    )


def terminal_lines(info: ScalingInfo, *, folder: str = "DIR") -> list[str]:
    """Return the headline, a table, what to use and why, and what to measure next.

    Args:
        info: a study with a projection.
        folder: the study's, for the command to copy.
    """
    found = info.projection
    assert found is not None
    lines = [visible(found.headline), ""]
    if any(not row.measured for row in found.rows):
        lines += [*to_lines(_short(projection_table(found), found.goal)), ""]
    for table, sentence in (
        (offer_table(found), found.offers_sentence),
        (fleet_table(found), found.fleet_sentence),
    ):
        if table is not None:
            lines += [*to_lines(_short(table, found.goal)), *([sentence] if sentence else []), ""]
    lines += [visible(sentence) for sentence in found.sentences]
    if found.assumptions:
        lines += ["", "Taken for granted:", *(f"- {visible(said)}" for said in found.assumptions)]
    command = next_command(info).replace(" DIR", f" {shlex.quote(folder)}")
    lines += ["", f"next: {visible(found.next.sentence)}", f"  {visible(command)}"]
    return [*lines, "", visible(found.track_record)]


def to_json(info: ScalingInfo) -> dict[str, Any]:
    """Return a projection for programs: docs/project.md has the schema."""
    found = info.projection
    assert found is not None
    content: dict[str, Any] = plain(found)
    headline = content.pop("headline")
    content["next"] |= {"command": next_command(info)}
    return {
        "headline": headline,
        "schema": SCHEMA,
        "kind": KIND,
        "version": __version__,
        "study": info.label,
        **content,
    }


def next_command(info: ScalingInfo) -> str:
    """Return the command of the next measurement, DIR standing for the study's folder."""
    assert info.projection is not None
    step = info.projection.next
    if step.spec is None:
        return step.command
    return words.commands(replace(info, spec={**info.spec, **step.spec}))[0]


def projection_table(found: Projection) -> Table:
    """Return measured and projected counts."""
    return tabulate(
        "projection",
        "Measured and projected, 90 % intervals",
        found.rows,
        (
            Column(key="workers", title="workers", show=whole),
            Column(key="origin", title="", text=True, get=_origin),
            Column(key="link", title="link", text=True, get=lambda row: row.link or ""),
            _estimated("time_s", f"time {_goal(found)}".strip(), seconds),
            _estimated("cost", "cost", number),
            _estimated("metric", found.metric or "metric", number),
            _estimated("epochs", "epochs", brief),
            _estimated("speedup", "speedup", times),
            Column(key="limited_by", title="limited by", text=True, get=_limited),
            _estimated("epoch_s", "epoch", seconds),
            _estimated("throughput", found.unit, number),
            _estimated("step_s", "step", seconds),
            Column(key="global_batch", title="global batch", show=optional),
            Column(key="hosts", title="hosts", show=whole),
        ),
    ).without_empty()


def offer_table(found: Projection) -> Table | None:
    """Return the offers side by side; None without any."""
    if not found.offers:
        return None
    return tabulate(
        "offers",
        "Offers, 90 % intervals",
        found.offers,
        (
            Column(key="offer", title="offer", text=True, get="name"),
            Column(key="workers", title="workers", show=whole, get="outlook.workers"),
            Column(key="hosts", title="hosts", show=whole, get="outlook.hosts"),
            Column(key="link", title="link", text=True, get=lambda one: one.outlook.link or ""),
            Column(key="speed", title="computes", show=times),
            _estimated("throughput", found.unit, number, of="outlook"),
            _estimated("time_s", f"time {_goal(found)}".strip(), seconds, of="outlook"),
            _estimated("cost", "cost", number, of="outlook"),
            _estimated("metric", found.metric or "metric", number, of="outlook"),
            Column(
                key="limited_by",
                title="limited by",
                text=True,
                get=lambda one: _limited(one.outlook),
            ),
        ),
    ).without_empty()


def fleet_table(found: Projection) -> Table | None:
    """Return what a fleet does with jobs of every size; None when nobody asked."""
    if not found.fleet:
        return None
    return tabulate(
        "fleet",
        "A fleet shared out",
        found.fleet,
        (
            Column(key="workers_per_job", title="workers per job", show=whole, get="workers"),
            Column(key="jobs", title="jobs at once", show=whole),
            Column(key="link", title="link", text=True, get=lambda row: row.link or ""),
            _estimated("time_s", f"one job {_goal(found)}".strip(), seconds),
            _estimated("jobs_per_day", "jobs a day", number, path="per_day"),
            _estimated("cost", "cost of one", number),
        ),
    ).without_empty()


def figures(info: ScalingInfo, shown: Sequence[Table]) -> tuple[Figure, ...]:
    """Draw a study's projection."""
    found = info.projection
    assert found is not None
    table, goal = shown[0], _goal(found)
    drawn = [
        _by_workers(
            "projected-throughput",
            "Throughput, projected",
            f"Throughput in {found.unit}, measured and projected; dashed: the smallest count's "
            f"times the workers. {_bands(found)}",
            found,
            table,
            lambda row: row.throughput,
            axis=f"throughput ({found.unit})",
            show=number,
            ideal=lambda base, workers: base.throughput.value / base.workers * workers,
        )
    ]
    if found.goal is not None:
        drawn += [
            _by_workers(
                "projected-time",
                f"Time {goal}",
                f"Time {goal}, measured and projected; dashed: the smallest count's time over the "
                f"workers. {_bands(found)}",
                found,
                table,
                lambda row: row.time_s,
                axis="time",
                show=seconds,
                ideal=lambda base, workers: base.time_s.value * base.workers / workers,
            ),
            _by_workers(
                "projected-cost",
                f"Cost {goal}",
                f"Cost {goal} at {found.price}, whole hosts billed. {_bands(found)}",
                found,
                table,
                lambda row: row.cost,
                axis="cost",
                show=number,
            ),
        ]
    if found.metric is not None:
        drawn.append(
            _by_workers(
                "projected-metric",
                f"{found.metric} at the same epochs",
                f"{found.metric} after as many epochs as the measured runs had, at the global "
                f"batch of so many workers. {_bands(found)}",
                found,
                table,
                lambda row: row.metric,
                axis=found.metric,
                show=number,
                log=False,
            )
        )
    drawn += [_limits(found, table), _offers(found, shown)]
    return tuple(figure for figure in drawn if figure is not None)


def _by_workers(
    name: str,
    title: str,
    caption: str,
    found: Projection,
    table: Table,
    get: Callable[[ProjectionRow], Prediction | None],
    *,
    axis: str,
    show: Callable[[float | None], str],
    ideal: Callable[[Any, int], float] | None = None,
    log: bool = True,
) -> Figure | None:
    """Draw a figure against workers: bands and lines by link, measured points over them."""
    from farandole.report import charts

    known = [figure for row in (*found.rows, *found.curve) if (figure := get(row)) is not None]
    scale = 1.0
    if show is seconds and known:
        scale, unit = charts.time_scale(max(figure.value for figure in known))
        axis = f"{axis} ({unit})"
    asked = {(row.workers, row.link) for row in found.rows if not row.measured}
    measured = _rows([row for row in found.rows if row.measured], get, show, scale, ("measured",))
    links = _links(found) or ["projected"]
    projected = [
        row | {"asked": (row["x"], row["link"]) in asked}
        for row in _rows(found.curve, get, show, scale, links)
    ]
    if not projected:
        return None
    base = next((row for row in found.rows if row.measured and get(row) is not None), None)
    promised = None
    if ideal is not None and base is not None:
        promised = lambda workers: ideal(base, workers) / scale  # noqa: E731
    spec = charts.bands(
        measured, projected, title=axis, band=_foremost(links), ideal=promised, log=log
    )
    return _figure(name, title, caption, spec, table)


def _rows(
    points: Sequence[ProjectionRow],
    get: Callable[[ProjectionRow], Prediction | None],
    show: Callable[[float | None], str],
    scale: float,
    links: Sequence[str],
) -> list[dict[str, Any]]:
    """Return points for drawing; what needs no link belongs to the foremost one.

    Lines of the others begin where it ends.
    """
    rows = []
    within = max((one.workers for one in points if one.link is None), default=0)
    for name in links:
        for one in points:
            figure = get(one)
            if figure is None or one.link not in (None, name):
                continue
            if one.link is None and name != _foremost(links) and one.workers < within:
                continue
            bounds = f"{show(figure.low)} to {show(figure.high)}"
            rows.append(
                {
                    "name": name,
                    "link": one.link,
                    "x": one.workers,
                    "y": figure.value / scale,
                    "low": figure.low / scale,
                    "high": figure.high / scale,
                    "indicative": figure.indicative,
                    "workers": whole(one.workers),
                    "text": bounds if figure.indicative else f"{show(figure.value)} ({bounds})",
                }
            )
    return rows


def _limits(found: Projection, table: Table) -> Figure | None:
    from farandole.report import charts

    rows = [row for row in found.rows if not row.indicative]
    if all(row.measured for row in rows):
        return None

    def share(key: str) -> Callable[[ProjectionRow], float | None]:
        return lambda row: row.parts.get(key)

    bars = tabulate(
        "projected-limits",
        "What limits",
        rows[:_MOST_BARS],
        (
            Column(key="name", title="workers", text=True, get=_name),
            *(
                Column(key=key, title=word, show=percent, get=share(key))
                for key, word in _PARTS.items()
            ),
        ),
    )
    return _figure(
        "projected-limits",
        "What limits",
        "Where the time goes: computing for the epochs of the smallest measured batch, "
        "communication that training waits for, loading that cannot keep up, epochs that a larger "
        "batch needs on top, and what a job takes beside its epochs.",
        charts.stacked(bars, category="name", parts=list(_PARTS), title="share of the time"),
        table,
        alt="Stacked bars: shares of the time by what limits, one bar per number of workers.",
    )


def _offers(found: Projection, shown: Sequence[Table]) -> Figure | None:
    from farandole.report import charts

    priced = [
        (one.name, one.outlook.time_s, one.outlook.cost)
        for one in found.offers
        if one.outlook.cost and one.outlook.time_s
    ]
    if not priced or found.goal is None:
        return None
    length_s, unit = charts.time_scale(max(time.high for _, time, _ in priced))
    rows = [
        {
            "name": name,
            "x": time.value / length_s,
            "x_low": time.low / length_s,
            "x_high": time.high / length_s,
            "y": cost.value,
            "low": cost.low,
            "high": cost.high,
            "time": f"{seconds(time.value)} ({seconds(time.low)} to {seconds(time.high)})",
            "text": f"{number(cost.value)} ({number(cost.low)} to {number(cost.high)})",
        }
        for name, time, cost in priced
    ]
    spec = charts.scatter(
        rows,
        x_title=f"time {found.goal.words} ({unit})",
        y_title="cost",
        hover={"name": "offer", "time": "time", "text": "cost"},
    )
    return _figure(
        "offers",
        "Offers",
        f"Time {found.goal.words} and cost of each offer, with 90 % intervals: the lower left is "
        "best.",
        spec,
        next(table for table in shown if table.name == "offers"),
        alt="Cost against time, one point per offer.",
    )


def _figure(name: str, title: str, caption: str, spec: Spec, table: Table, alt: str = "") -> Figure:
    alt = alt or f"{title} against workers: measured points and projected bands."
    return Figure(name=name, title=title, caption=caption, spec=spec, table=table, alt=alt)


def _tables(found: Projection) -> list[Table]:
    shown = (projection_table(found), offer_table(found), fleet_table(found))
    return [table for table in shown if table is not None]


def _estimated(
    key: str, title: str, show: Callable[[Any], str], *, path: str = "", of: str = ""
) -> Column:
    """Return a column of projected figures; an indicative one has no value, but bounds."""

    def cell(row: Any) -> Estimate | None:
        figure = getattr(getattr(row, of) if of else row, path or key)
        if figure is None:
            return None
        value = math.nan if figure.indicative else figure.value
        return Estimate(value=value, low=figure.low, high=figure.high)

    return Column(key=key, title=title, show=show, interval=True, get=cell)


def _goal(found: Projection) -> str:
    return found.goal.words if found.goal else ""


def _origin(row: ProjectionRow) -> str:
    if row.measured:
        return "measured"
    return "indicative" if row.indicative else "projected"


def _limited(row: ProjectionRow) -> str:
    return "" if row.indicative else row.limited_by.replace("_", " ")


def _name(row: ProjectionRow) -> str:
    name = plural(row.workers, "worker") + (f", {row.link}" if row.link else "")
    return f"{name} (measured)" if row.measured else name


def _short(table: Table, goal: Goal | None) -> Table:
    """Leave out columns; where epochs differ they say more than the speedup."""
    dropped = set(_LONG)
    if goal is not None:
        varies = goal.kind in ("target", "stable")
        dropped |= {"throughput"} | ({"speedup"} if varies else {"epochs"})
    return table.without(dropped)


def _links(found: Projection) -> list[str]:
    return list(dict.fromkeys(row.link for row in found.curve if row.link is not None))


def _foremost(names: Sequence[str]) -> str:
    """Return the series whose band is drawn: the middle one of three usual links."""
    return names[len(names) // 2]


def _bands(found: Projection) -> str:
    """Say what the band is."""
    links = _links(found)
    of = f" on {_foremost(links)}; the table has the others" if len(links) > 1 else ""
    return (
        f"The band is the 90 % interval{of}. Beyond 16 times what was measured there are bounds, "
        "and no line."
    )
