"""What more workers would give, as the report, a terminal and programs show it."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, replace
from typing import Any

from farandole.model.info.scaling import ScalingInfo
from farandole.model.projection.advice import Projection
from farandole.model.projection.epochs import Goal
from farandole.model.projection.intervals import Prediction
from farandole.model.projection.join import ProjectionRow
from farandole.model.statistics import Estimate
from farandole.report import reproduce
from farandole.report.document import plain
from farandole.report.escape import visible
from farandole.report.figure import Figure
from farandole.report.table import Column, Table, to_lines
from farandole.report.text import brief, number, optional, seconds, times, whole
from farandole.version import __version__

SCHEMA = 1
KIND = "farandole-projection"
_LIMITS = {"fixed_cost": "fixed cost"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The section of a report on more workers."""

    headline: str
    sentences: tuple[str, ...]
    table: Table
    offers: Table | None
    fleet: Table | None
    figures: tuple[Figure, ...]
    assumptions: tuple[str, ...]
    next: str
    command: str
    track_record: str

    def tables(self) -> tuple[Table, ...]:
        """Return all tables."""
        return tuple(one for one in (self.table, self.offers, self.fleet) if one is not None)


def shown(info: ScalingInfo) -> Shown | None:
    """Return what a report shows of a study's projection; None where none was made."""
    found = info.projection
    if found is None:
        return None
    from farandole.report.charts import projection as charts

    table, offers = outlooks(found), offer_table(found)
    return Shown(
        headline=found.headline,
        sentences=_sentences(found),
        table=table,
        offers=offers,
        fleet=fleet_table(found),
        figures=charts.figures(info, table, offers),
        assumptions=found.assumptions,
        next=found.next.sentence,
        command=next_command(info),
        track_record=found.track_record,
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
        lines += [*to_lines(_short(outlooks(found), found.goal)), ""]
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
    return reproduce.commands(replace(info, spec={**info.spec, **step.spec}))[0]


def outlooks(found: Projection) -> Table:
    """Return measured and projected counts."""
    goal = found.goal.words if found.goal else ""
    columns = (
        Column(key="workers", title="workers", show=whole),
        Column(key="origin", title="", text=True),
        Column(key="link", title="link", text=True),
        Column(key="time_s", title=f"time {goal}".strip(), show=seconds, interval=True),
        Column(key="cost", title="cost", show=number, interval=True),
        Column(key="metric", title=found.metric or "metric", interval=True),
        Column(key="epochs", title="epochs", show=brief, interval=True),
        Column(key="speedup", title="speedup", show=times, interval=True),
        Column(key="limited_by", title="limited by", text=True),
        Column(key="epoch_s", title="epoch", show=seconds, interval=True),
        Column(key="throughput", title=found.unit, interval=True),
        Column(key="step_s", title="step", show=seconds, interval=True),
        Column(key="global_batch", title="global batch", show=optional),
        Column(key="hosts", title="hosts", show=whole),
    )
    return _without_empty(
        Table(
            name="projection",
            title="Measured and projected, 90 % intervals",
            columns=columns,
            rows=tuple(_row(row) for row in found.rows),
        )
    )


def offer_table(found: Projection) -> Table | None:
    """Return the offers side by side; None without any."""
    if not found.offers:
        return None
    goal = found.goal.words if found.goal else ""
    columns = (
        Column(key="offer", title="offer", text=True),
        Column(key="workers", title="workers", show=whole),
        Column(key="hosts", title="hosts", show=whole),
        Column(key="link", title="link", text=True),
        Column(key="speed", title="computes", show=times),
        Column(key="throughput", title=found.unit, interval=True),
        Column(key="time_s", title=f"time {goal}".strip(), show=seconds, interval=True),
        Column(key="cost", title="cost", show=number, interval=True),
        Column(key="metric", title=found.metric or "metric", interval=True),
        Column(key="limited_by", title="limited by", text=True),
    )
    rows = tuple(
        (
            one.name,
            one.outlook.workers,
            one.outlook.hosts,
            one.outlook.link or "",
            one.speed,
            _estimate(one.outlook.throughput),
            _estimate(one.outlook.time_s),
            _estimate(one.outlook.cost),
            _estimate(one.outlook.metric),
            _limited(one.outlook),
        )
        for one in found.offers
    )
    table = Table(name="offers", title="Offers, 90 % intervals", columns=columns, rows=rows)
    return _without_empty(table)


def fleet_table(found: Projection) -> Table | None:
    """Return what a fleet does with jobs of every size; None when nobody asked."""
    if not found.fleet:
        return None
    goal = found.goal.words if found.goal else ""
    columns = (
        Column(key="workers_per_job", title="workers per job", show=whole),
        Column(key="jobs", title="jobs at once", show=whole),
        Column(key="link", title="link", text=True),
        Column(key="time_s", title=f"one job {goal}".strip(), show=seconds, interval=True),
        Column(key="jobs_per_day", title="jobs a day", interval=True),
        Column(key="cost", title="cost of one", interval=True),
    )
    rows = tuple(
        (
            row.workers,
            row.jobs,
            row.link or "",
            _estimate(row.time_s),
            _estimate(row.per_day),
            _estimate(row.cost),
        )
        for row in found.fleet
    )
    table = Table(name="fleet", title="A fleet shared out", columns=columns, rows=rows)
    return _without_empty(table)


def _row(row: ProjectionRow) -> tuple[Any, ...]:
    origin = "measured" if row.measured else "projected"
    if row.indicative and not row.measured:
        origin = "indicative"
    return (
        row.workers,
        origin,
        row.link or "",
        _estimate(row.time_s),
        _estimate(row.cost),
        _estimate(row.metric),
        _estimate(row.epochs),
        _estimate(row.speedup),
        _limited(row),
        _estimate(row.epoch_s),
        _estimate(row.throughput),
        _estimate(row.step_s),
        row.global_batch,
        row.hosts,
    )


def _estimate(figure: Prediction | None) -> Estimate | None:
    """Return a figure for a table; one that is only indicative has no value, but bounds."""
    if figure is None:
        return None
    value = math.nan if figure.indicative else figure.value
    return Estimate(value=value, low=figure.low, high=figure.high)


def _limited(row: ProjectionRow) -> str:
    if row.indicative:
        return ""
    return _LIMITS.get(row.limited_by, row.limited_by)


def _sentences(found: Projection) -> tuple[str, ...]:
    extra = (found.offers_sentence, found.fleet_sentence)
    return (*found.sentences, *(said for said in extra if said and said != found.headline))


# What a terminal can do without: the page and the files have it.
_LONG = {"hosts", "global_batch", "step_s", "epoch_s"}


def _short(table: Table, goal: Goal | None) -> Table:
    """Leave out columns; where epochs differ they say more than the speedup."""
    dropped = set(_LONG)
    if goal is not None:
        varies = goal.kind in ("target", "stable")
        dropped |= {"throughput"} | ({"speedup"} if varies else {"epochs"})
    places = [place for place, column in enumerate(table.columns) if column.key not in dropped]
    return _kept(table, places)


def _without_empty(table: Table) -> Table:
    return _kept(
        table,
        [
            place
            for place in range(len(table.columns))
            if any(row[place] not in (None, "") for row in table.rows)
        ],
    )


def _kept(table: Table, places: list[int]) -> Table:
    return replace(
        table,
        columns=tuple(table.columns[place] for place in places),
        rows=tuple(tuple(row[place] for place in places) for row in table.rows),
    )
