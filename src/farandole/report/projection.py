"""What more workers would give, as the report, a terminal and programs show it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from farandole.format import brief, number, optional, percent, plural, seconds, times, whole
from farandole.model.analyse import ScalingInfo
from farandole.model.projection.advice import Projection
from farandole.model.projection.intervals import Prediction
from farandole.model.projection.join import ProjectionRow
from farandole.model.statistics import Estimate
from farandole.report import words
from farandole.report.document import (
    Bullets,
    Commands,
    Figure,
    Figures,
    Prose,
    Section,
    Tables,
)
from farandole.report.escape import plain, visible
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
    shown = projection_tables(found)
    extra = [one for one in (found.offers_sentence, found.fleet_sentence) if one != found.headline]
    blocks = (
        Prose((found.headline,), strong=True),
        Prose((*found.sentences, *filter(None, extra))),
        Tables(tuple(shown.values())),
        Figures(projection_figures(found, shown), table="elsewhere"),
        *([Bullets(found.assumptions, folded="Taken for granted")] if found.assumptions else ()),
        Prose((found.track_record, f"Next: {found.next.sentence}")),
        Commands((next_command(info),)),
    )
    return Section(key="projection", title="More workers", link="more workers", blocks=blocks)


def terminal_lines(info: ScalingInfo, *, folder: str = "DIR") -> list[str]:
    """Return the headline, a table, what to use and why, and what to measure next.

    Args:
        info: a study with a projection.
        folder: the study's, for the command to copy.
    """
    found = info.projection
    assert found is not None
    dropped = set(_LONG)
    if found.goal is not None:
        # Where epochs differ they say more than the speedup.
        varies = found.goal.kind in ("target", "stable")
        dropped |= {"throughput", "speedup" if varies else "epochs"}
    said = {"offers": found.offers_sentence, "fleet": found.fleet_sentence}
    lines = [visible(found.headline), ""]
    for name, table in projection_tables(found).items():
        if name != "projection" or any(not row.measured for row in found.rows):
            lines += [*to_lines(table.without(dropped)), *filter(None, [said.get(name)]), ""]
    lines += [visible(sentence) for sentence in found.sentences]
    if found.assumptions:
        lines += ["", "Taken for granted:", *(f"- {visible(said)}" for said in found.assumptions)]
    command = next_command(info).replace(" DIR", f" {shlex.quote(folder)}")
    lines += ["", f"next: {visible(found.next.sentence)}", f"  {visible(command)}"]
    return [*lines, "", visible(found.track_record)]


def to_json(info: ScalingInfo) -> dict[str, Any]:
    """Return a projection for programs: docs/how-to/project.md has the schema."""
    content: dict[str, Any] = plain(info.projection)
    content["next"] |= {"command": next_command(info)}
    about = {"schema": SCHEMA, "kind": KIND, "version": __version__, "study": info.label}
    return {"headline": content.pop("headline"), **about, **content}


def next_command(info: ScalingInfo) -> str:
    """Return the command of the next measurement, DIR standing for the study's folder."""
    assert info.projection is not None
    step = info.projection.next
    if step.spec is None:
        return step.command
    return words.commands(replace(info, spec={**info.spec, **step.spec}))[0]


def projection_tables(found: Projection) -> dict[str, Table]:
    """Return what there is of counts, offers and a fleet, by name; empty columns left out."""
    goal, metric = _goal(found), found.metric or "metric"
    counts = (
        Column(key="workers", title="workers", show=whole),
        _words("origin", "", _origin),
        _words("link", "link", lambda row: row.link or ""),
        _projected("time_s", f"time {goal}".strip(), seconds),
        _projected("cost", "cost", number),
        _projected("metric", metric, number),
        _projected("epochs", "epochs", brief),
        _projected("speedup", "speedup", times),
        _words("limited_by", "limited by", _limited),
        _projected("epoch_s", "epoch", seconds),
        _projected("throughput", found.unit, number),
        _projected("step_s", "step", seconds),
        Column(key="global_batch", title="global batch", show=optional),
        Column(key="hosts", title="hosts", show=whole),
    )
    offers = (
        _words("offer", "offer", attrgetter("name")),
        Column(key="workers", title="workers", show=whole, get="outlook.workers"),
        Column(key="hosts", title="hosts", show=whole, get="outlook.hosts"),
        _words("link", "link", lambda one: one.outlook.link or ""),
        Column(key="speed", title="computes", show=times),
        _projected("throughput", found.unit, number, path="outlook.throughput"),
        _projected("time_s", f"time {goal}".strip(), seconds, path="outlook.time_s"),
        _projected("cost", "cost", number, path="outlook.cost"),
        _projected("metric", metric, number, path="outlook.metric"),
        _words("limited_by", "limited by", lambda one: _limited(one.outlook)),
    )
    fleet = (
        Column(key="workers_per_job", title="workers per job", show=whole, get="workers"),
        Column(key="jobs", title="jobs at once", show=whole),
        _words("link", "link", lambda row: row.link or ""),
        _projected("time_s", f"one job {goal}".strip(), seconds),
        _projected("jobs_per_day", "jobs a day", number, path="per_day"),
        _projected("cost", "cost of one", number),
    )
    specs: list[tuple[str, str, Sequence[Any], tuple[Column, ...]]] = [
        ("projection", "Measured and projected, 90 % intervals", found.rows, counts),
        ("offers", "Offers, 90 % intervals", found.offers, offers),
        ("fleet", "A fleet shared out", found.fleet, fleet),
    ]
    return {
        spec[0]: tabulate(*spec).without_empty()
        for spec in specs
        if spec[2] or spec[0] == "projection"
    }


def _words(key: str, title: str, get: Callable[[Any], str]) -> Column:
    return Column(key=key, title=title, text=True, get=get)


def _projected(key: str, title: str, show: Callable[[Any], str], path: str = "") -> Column:
    """Return a column of projected figures; an indicative one has no value, but bounds."""

    def cell(row: Any) -> Estimate | None:
        figure = attrgetter(path or key)(row)
        if figure is None:
            return None
        value = math.nan if figure.indicative else figure.value
        return Estimate(value=value, low=figure.low, high=figure.high)

    return Column(key=key, title=title, show=show, interval=True, get=cell)


def projection_figures(found: Projection, shown: dict[str, Table]) -> tuple[Figure, ...]:
    """Draw a study's projection."""
    goal, metric, table = _goal(found), found.metric, shown["projection"]
    links = _links(found)
    of = f" on {_foremost(links)}; the table has the others" if len(links) > 1 else ""
    band = (
        f" The band is the 90 % interval{of}. Beyond 16 times what was measured there are bounds, "
        "and no line."
    )
    dashed = "measured and projected; dashed: the smallest count's"
    # Name, title, caption, field, words at the axis, how figures are shown, the ideal's power.
    specs: list[tuple[Any, ...]] = [
        (
            *("projected-throughput", "Throughput, projected"),
            f"Throughput in {found.unit}, {dashed} times the workers.",
            *("throughput", f"throughput ({found.unit})", number, 1),
        )
    ]
    if goal:
        specs += [
            (
                *("projected-time", f"Time {goal}"),
                f"Time {goal}, {dashed} time over the workers.",
                *("time_s", "time", seconds, -1),
            ),
            (
                *("projected-cost", f"Cost {goal}"),
                f"Cost {goal} at {found.price}, whole hosts billed.",
                *("cost", "cost", number, 0),
            ),
        ]
    if metric is not None:
        specs.append(
            (
                *("projected-metric", f"{metric} at the same epochs"),
                f"{metric} after as many epochs as the measured runs had, at the global batch of "
                "so many workers.",
                *("metric", metric, number, 0),
            )
        )
    drawn = [
        Figure(
            name=name,
            title=title,
            caption=caption + band,
            spec=spec,
            table=table,
            alt=f"{title} against workers: measured points and projected bands.",
        )
        for name, title, caption, *drawing in specs
        if (spec := _by_workers(found, *drawing)) is not None
    ]
    others = (_limits(found, table), _offers(found, shown))
    return (*drawn, *(figure for figure in others if figure is not None))


def _by_workers(
    found: Projection, field: str, axis: str, show: Callable[[float | None], str], power: int
) -> dict[str, Any] | None:
    """Draw a figure against workers: bands and lines by link, measured points over them."""
    from farandole.report import charts

    def get(row: ProjectionRow) -> Prediction | None:
        figure: Prediction | None = getattr(row, field)
        return figure

    known = [figure for row in (*found.rows, *found.curve) if (figure := get(row)) is not None]
    scale = 1.0
    if show is seconds and known:
        scale, unit = charts.time_scale(max(figure.value for figure in known))
        axis = f"{axis} ({unit})"

    def points(rows: Sequence[ProjectionRow], links: Sequence[str]) -> list[dict[str, Any]]:
        """What needs no link belongs to the foremost one; lines of the others begin at its end."""
        within = max((one.workers for one in rows if one.link is None), default=0)
        return [
            {
                "name": name,
                "link": one.link,
                "x": one.workers,
                "y": figure.value / scale,
                "low": figure.low / scale,
                "high": figure.high / scale,
                "indicative": figure.indicative,
                "workers": whole(one.workers),
                "text": _interval(figure, show),
            }
            for name in links
            for one in rows
            if (figure := get(one)) is not None
            and one.link in (None, name)
            and (one.link or name == _foremost(links) or one.workers >= within)
        ]

    asked = {(row.workers, row.link) for row in found.rows if not row.measured}
    links = _links(found) or ["projected"]
    projected = [
        row | {"asked": (row["x"], row["link"]) in asked} for row in points(found.curve, links)
    ]
    if not projected:
        return None
    measured = points([row for row in found.rows if row.measured], ["measured"])
    ideal = None
    if measured and power:
        base = measured[0]
        ideal = lambda workers: base["y"] * (workers / base["x"]) ** power  # noqa: E731
    log = field != "metric"
    return charts.bands(
        measured, projected, title=axis, band=_foremost(links), ideal=ideal, log=log
    )


def _limits(found: Projection, table: Table) -> Figure | None:
    from farandole.report import charts

    rows = [row for row in found.rows if not row.indicative]
    if all(row.measured for row in rows):
        return None

    def name(row: ProjectionRow) -> str:
        link = f", {row.link}" if row.link else ""
        return plural(row.workers, "worker") + link + (" (measured)" if row.measured else "")

    def share(key: str) -> Callable[[ProjectionRow], float | None]:
        return lambda row: row.parts.get(key)

    columns = [Column(key=key, title=_PARTS[key], show=percent, get=share(key)) for key in _PARTS]
    titles = ("projected-limits", "What limits")
    bars = tabulate(*titles, rows[:_MOST_BARS], (_words("name", "workers", name), *columns))
    return Figure(
        name=titles[0],
        title=titles[1],
        caption="Where the time goes: computing for the epochs of the smallest measured batch, "
        "communication that training waits for, loading that cannot keep up, the extra epochs a "
        "larger batch needs, and what a job takes beside its epochs.",
        spec=charts.stacked(bars, category="name", parts=list(_PARTS), title="share of the time"),
        table=table,
        alt="Stacked bars: shares of the time by what limits, one bar per number of workers.",
    )


def _offers(found: Projection, shown: dict[str, Table]) -> Figure | None:
    from farandole.report import charts

    priced = [
        (one.name, one.outlook.time_s, one.outlook.cost)
        for one in found.offers
        if one.outlook.cost and one.outlook.time_s
    ]
    if not priced or found.goal is None:
        return None
    scale, unit = charts.time_scale(max(time.high for _, time, _ in priced))
    rows = [
        {
            "name": name,
            "x": time.value / scale,
            "x_low": time.low / scale,
            "x_high": time.high / scale,
            "y": cost.value,
            "low": cost.low,
            "high": cost.high,
            "time": _interval(time, seconds),
            "text": _interval(cost, number),
        }
        for name, time, cost in priced
    ]
    goal = found.goal.words
    hover = {"name": "offer", "time": "time", "text": "cost"}
    return Figure(
        name="offers",
        title="Offers",
        caption=f"Time {goal} and cost of each offer, with 90 % intervals: the lower left is best.",
        spec=charts.scatter(rows, x_title=f"time {goal} ({unit})", y_title="cost", hover=hover),
        table=shown["offers"],
        alt="Cost against time, one point per offer.",
    )


def _interval(figure: Prediction, show: Callable[[float | None], str]) -> str:
    bounds = f"{show(figure.low)} to {show(figure.high)}"
    return bounds if figure.indicative else f"{show(figure.value)} ({bounds})"


def _goal(found: Projection) -> str:
    return found.goal.words if found.goal else ""


def _origin(row: ProjectionRow) -> str:
    if row.measured:
        return "measured"
    return "indicative" if row.indicative else "projected"


def _limited(row: ProjectionRow) -> str:
    return "" if row.indicative else row.limited_by.replace("_", " ")


def _links(found: Projection) -> list[str]:
    return list(dict.fromkeys(row.link for row in found.curve if row.link is not None))


def _foremost(names: Sequence[str]) -> str:
    """Return the series whose band is drawn: the middle one of three usual links."""
    return names[len(names) // 2]
