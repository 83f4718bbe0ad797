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
from farandole.report import charts, words
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
        Prose(tuple(dict.fromkeys([*found.sentences, *filter(None, extra)]))),
        Tables(tuple(shown.values())),
        Figures(projection_figures(found, shown), table="elsewhere"),
        *([Bullets(found.assumptions, folded="Assumptions")] if found.assumptions else ()),
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
    lines += [visible(sentence) for sentence in dict.fromkeys(found.sentences)]
    if found.assumptions:
        lines += ["", "Assumptions:", *(f"- {visible(said)}" for said in found.assumptions)]
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
        return (
            replace(_estimate(figure), value=math.nan) if figure.indicative else _estimate(figure)
        )

    return Column(key=key, title=title, show=show, interval=True, get=cell)


def _count_words(row: ProjectionRow) -> str:
    link = f", {row.link}" if row.link else ""
    return plural(row.workers, "worker") + link + (" (measured)" if row.measured else "")


def _share(key: str) -> Callable[[ProjectionRow], float | None]:
    return lambda row: row.parts.get(key)


_LIMITS = (
    _words("workers", "workers", _count_words),
    *(Column(key=key, title=_PARTS[key], show=percent, get=_share(key)) for key in _PARTS),
)


def projection_figures(found: Projection, shown: dict[str, Table]) -> tuple[Figure, ...]:
    """Draw a study's projection: figures against workers, what limits, and offers."""
    goal, metric = _goal(found), found.metric
    links = _links(found) or ["projected"]
    band = links[len(links) // 2]  # the middle one of three usual links
    of = f" on {band}; the table has the others" if len(links) > 1 else ""
    caption = (
        f" The band is the 90 % interval{of}. Beyond 16 times the measured size there are only "
        "bounds."
    )
    dashed = "measured and projected; dashed: ideal scaling of the smallest count"
    # Field, name, title, caption, words at the axis, how figures are shown, the ideal's power.
    specs: dict[str, tuple[str, str, str, str, Any, int | None]] = {
        "throughput": (
            "projected-throughput",
            "Throughput, projected",
            f"Throughput in {found.unit}, {dashed}.",
            *(f"throughput ({found.unit})", number, 1),
        ),
        "time_s": (
            "projected-time",
            f"Time {goal}",
            f"Time {goal}, {dashed}.",
            *("time", seconds, -1),
        ),
        "cost": (
            "projected-cost",
            f"Cost {goal}",
            f"Cost {goal} at {found.price}, whole hosts billed.",
            *("cost", number, None),
        ),
        "metric": (
            "projected-metric",
            f"{metric} at the same epochs",
            f"{metric} after as many epochs as the measured runs, at each count's global batch.",
            *(metric or "", number, None),
        ),
    }
    drawn = [
        charts.bands(name, title, words + caption, points, y_title=axis, band=band, log=log)
        for field, (name, title, words, axis, show, power) in specs.items()
        if goal or field in ("throughput", "metric")
        if (points := _points(found, links, band, field, show, power)).rows
        for log in [field != "metric"]
    ]
    rows = [row for row in found.rows if not row.indicative]
    limits = tabulate("projected-limits", "What limits", rows[:_MOST_BARS], _LIMITS)
    if not all(row.measured for row in rows):
        drawn.append(
            charts.stacked(
                limits.name,
                limits.title,
                "Where the time goes: computing, communication that training waits for, data "
                "loading, the extra epochs a larger batch needs, and fixed costs.",
                limits,
                category="workers",
                parts=list(_PARTS),
                axis="share of the time",
            )
        )
    drawn = [replace(figure, table=shown["projection"]) for figure in drawn]
    offers = shown.get("offers")
    if goal and offers and {"time_s", "cost"} <= {column.key for column in offers.columns}:
        said = f"Time {goal} and cost of each offer, with 90 % intervals. Lower left is best."
        drawn.append(charts.scatter("offers", "Offers", said, offers, x="time_s", y="cost"))
    return tuple(figure for figure in drawn if figure.spec)


def _points(
    found: Projection, links: Sequence[str], band: str, field: str, show: Any, power: int | None
) -> Table:
    """Return a figure by workers and link as `charts.bands` draws it; no rows if it has none."""
    asked = {(row.workers, row.link) for row in found.rows if not row.measured}
    # What needs no link belongs to the foremost one; lines of the others begin at its end.
    within = max((one.workers for one in found.curve if one.link is None), default=0)
    places = [("measured", row) for row in found.rows if row.measured] + [
        (link, row)
        for link in links
        for row in found.curve
        if row.link in (None, link) and (row.link or link == band or row.workers >= within)
    ]
    base = next((row for name, row in places if name == "measured" and getattr(row, field)), None)

    def ideal(row: ProjectionRow) -> float | None:
        if base is None or power is None:
            return None
        start: float = getattr(base, field).value
        return start * (row.workers / base.workers) ** power

    def note(name: str, row: ProjectionRow) -> str:
        is_asked = (row.workers, row.link) in asked
        drawn = "indicative" if getattr(row, field).indicative else "asked" * is_asked
        return name if name == "measured" else drawn

    rows = [
        (name, row.workers, _estimate(getattr(row, field)), ideal(row), note(name, row))
        for name, row in places
        if getattr(row, field) is not None
    ]
    columns = (
        Column(key="series", title="series", text=True),
        Column(key="workers", title="workers", show=whole),
        Column(key="value", title="value", show=show, interval=True),
        Column(key="ideal", title="ideal", show=show),
        Column(key="note", title="note", text=True),
    )
    projected = any(name != "measured" for name, *_ in rows)
    return Table(name="points", title=field, columns=columns, rows=tuple(rows) if projected else ())


def _estimate(figure: Prediction) -> Estimate:
    return Estimate(value=figure.value, low=figure.low, high=figure.high)


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
