"""The report of one study, or of several side by side: as a document, as JSON, on a terminal."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from farandole.format import brief, interval, listed, moment, number, percent, plural, seconds
from farandole.model.analyse import Comparison, ScalingInfo
from farandole.model.answer import Answer
from farandole.model.rows import CellRow
from farandole.model.statistics import Estimate
from farandole.model.verdicts import Verdict
from farandole.report import figures, render, tables
from farandole.report.document import (
    Block,
    Bullets,
    Commands,
    Document,
    Figure,
    Figures,
    Finding,
    Findings,
    Heading,
    Opening,
    Prose,
    Section,
    Tables,
    Tile,
)
from farandole.report.escape import plain, visible
from farandole.report.figures import Missing, studies
from farandole.report.projection import projection_section
from farandole.report.table import Table, to_lines
from farandole.report.words import commands, machine_facts, paragraph
from farandole.version import __version__

SCHEMA = 1
_PARTS = {
    "splits": "split",
    "communication": "communication",
    "apart": "contention",
    "utilisation": "utilisation",
    "job_times": "job",
    "metrics": "metrics",
    "metric_curves": "metric_curves",
    "costs": "cost",
    "noise": "noise",
}
"""Keys in report.json of what cells' rows hold."""
_LINKS = {"speed": "figures", "method": "method", "cells": "cells", "commands": "commands"}
"""Names in the page's contents by the keys of sections."""
_FIRST = ("speedup", "step-split")
# Findings, and limits of the answer, that open a section.
_OPENED_BY = {
    "Where the time goes": {"fixed_cost", "flat_jobs", "pauses"},
    "Communication": {"communication"},
    "Use of the machine": {"uneven_utilisation", "uneven_memory", "oversubscription"},
    "Accuracy": {"worse", "better", "diverged", "instability", "not_stable"},
}
_SEVERITIES = ("void", "warn", "note", "good")
_MOST_EVIDENCE = 8
_TERMINAL_VERDICTS = 3

Infos = Sequence[ScalingInfo]
Parts = Sequence[Figure | Missing]


def write(
    found: ScalingInfo | Comparison,
    folder: str | os.PathLike[str],
    *,
    figures: Sequence[str] = ("png",),
    tables: Sequence[str] = ("csv", "md"),
) -> Path:
    """Write a report as `render.write` does, and return the page's path."""
    return render.write(document(found, os.fspath(folder)), folder, figures=figures, tables=tables)


def document(found: ScalingInfo | Comparison, folder: str = "DIR") -> Document:
    """Return everything that a report shows; commands to copy name the study's folder."""
    comparison = found if isinstance(found, Comparison) else None
    infos = studies(found)
    planned = figures.sections(infos)
    drawn = [one for _, parts in planned for one in parts if isinstance(one, Figure) and one.spec]
    first = [] if comparison else [one for one in drawn if one.name in _FIRST]
    telling = {one.kind for info in infos for one in info.verdicts if one.severity != "good"}
    telling |= {info.answer.limited_by for info in infos}
    projected = projection_section(infos[0]) if comparison is None else None
    left_out = tables.launches_left_out(infos)
    side = tables.comparison(comparison) if comparison else ()
    sections = [
        _section("verdicts", "What it means", _findings(infos, comparison), folded=False),
        _section("side", "Side by side", Tables(side, titled=True) if side else None, folded=False),
        *([projected] if projected else []),
        *(
            _section(
                f"section-{index}" if index else "speed",
                title,
                *_drawn(parts, first),
                folded=bool(first) and not telling & _OPENED_BY.get(title, set()),
            )
            for index, (title, parts) in enumerate(planned)
        ),
        _section("cost", "Cost", _tables(tables.costs(infos))),
        _section("missing", "Not shown", _not_shown(infos, planned)),
        _section(
            "method",
            "Method",
            *_each(infos, lambda info: Prose((paragraph(info),))),
            _tables(tables.contention(infos)),
        ),
        _section("machine", "Machine", *_each(infos, lambda info: machine_facts(info.machine))),
        _section("cells", "Every cell", _tables(tables.cells(infos))),
        _section(
            "left-out",
            "Launches left out",
            _tables(left_out) or Prose(("None: every launch counts.",)),
        ),
        _section(
            "commands",
            "Commands that reproduce it",
            *_each(infos, lambda info: Commands(tuple(commands(info)))),
        ),
    ]
    paste = figures.scaling(infos)
    names = listed([info.label for info in infos])
    caption = (
        f"Speedup of {names} against the number of workers. Bars are 95 % intervals over launches; "
        "the dashed line is ideal scaling."
    )
    about = "\n\n".join([caption, *map(paragraph, infos)]) + "\n"
    return Document(
        title=infos[0].answer.headline,
        openings=tuple(_opening(info, first, folder) for info in infos),
        sections=tuple(section for section in sections if section.blocks),
        extra_figures=(replace(paste, caption=caption),) if paste else (),
        csv_only=(
            tables.launches(infos),
            tables.metrics(infos),
            figures.utilisation_over_time(infos),
            tables.noise(infos),
        ),
        extra_files={"figures/scaling.txt": about} if paste else {},
    )


def to_json(found: ScalingInfo | Comparison) -> dict[str, Any]:
    """Return everything that is known, the answer first; None stands for "not measured"."""
    infos = studies(found)
    comparison = None
    if isinstance(found, Comparison):
        comparison = plain(found)
        del comparison["infos"]
    return {
        "answer": answer_json(infos[0].answer),
        "headline": infos[0].answer.headline,
        "schema": SCHEMA,
        "kind": "farandole-report",
        "version": __version__,
        "studies": [_study_json(info) for info in infos],
        "comparison": comparison,
    }


def answer_json(answer: Answer) -> dict[str, Any]:
    """Return an answer as programs read it."""
    keys = ("workers", "speedup", "interval", "accuracy", "limited_by", "void", "next")
    return {key: plain(getattr(answer, key)) for key in keys}


def _study_json(info: ScalingInfo) -> dict[str, Any]:
    content: dict[str, Any] = plain(replace(info, rows=()))
    del content["rows"]
    # Series of utilisation are drawn and in tables/, but too long for what is read as a whole.
    parts = {*_PARTS.values(), "measured", "point", "utilisation_series"}
    names = [field.name for field in fields(CellRow) if field.name not in parts]
    content["cells"] = [{name: plain(getattr(row, name)) for name in names} for row in info.rows]
    content |= {key: plain(info.each(part)) for key, part in _PARTS.items()}
    content["answer"] = answer_json(info.answer) | content["answer"]
    return content | {"method": paragraph(info), "commands": commands(info)}


def terminal_lines(found: ScalingInfo | Comparison, report: str | Path | None = None) -> list[str]:
    """Return the answer's sentence, a table, the weightiest verdicts and the report's path."""
    lines: list[str] = []
    if isinstance(found, Comparison):
        lines += [visible(f"{info.label}: {info.answer.headline}") for info in studies(found)]
        lines += ["", *to_lines(tables.comparison(found)[0])]
        if found.refused:
            lines += ["", visible(found.refused)]
    else:
        lines += _terminal_study(found)
    return lines if report is None else [*lines, "", f"report: {visible(report)}"]


def _terminal_study(info: ScalingInfo) -> list[str]:
    answer = info.answer
    failed = [one.text for one in info.checks if one.passed is False]
    passed = sum(one.passed is True for one in info.checks)
    counted = f"{passed} of {len(info.checks)} passed" if info.checks else ""
    labelled = {
        "limit": answer.limit,
        "accuracy": answer.accuracy_words.removeprefix("accuracy "),
        "checks": failed[0] if failed else counted,
    }
    lines = [visible(answer.headline)]
    lines += [f"  {name:9} {visible(text)}" for name, text in labelled.items() if text]
    table = tables.answer_curve(info)
    lines += ["", *to_lines(table)] if table is not None else []
    # The headline has said why a void study is void, and that a machine was busy.
    news: dict[str, str] = {}  # the first of each kind
    for one in _verdicts(info):
        said = one.sentence in answer.headline or one.kind in ("disturbed", "too_noisy")
        if one.severity in ("void", "warn") and not said:
            action = "" if one.action == answer.next else one.action
            news.setdefault(one.kind, visible(f"{one.sentence} {action}".rstrip()))
    lines += ["", *[*news.values()][:_TERMINAL_VERDICTS]] if news else []
    if not info.complete:
        lines += ["", "The study is not complete. Continue it with farandole study --resume DIR."]
    return [*lines, "", f"next: {visible(answer.next)}"]


# The first screen.


def _opening(info: ScalingInfo, first: Sequence[Figure], folder: str) -> Opening:
    """Return what a reader sees before anything else."""
    answer, machine = info.answer, info.machine
    cores = machine.get("physical_cores") or machine.get("cores")
    busy = any(one.kind == "disturbed" for one in info.verdicts)
    circumstances = (
        str(machine.get("cpu") or ""),
        plural(int(cores), "core") if isinstance(cores, int | float) else "",
        moment(info.created),
        "" if info.complete else "not complete: continue with farandole study --resume",
        "not quotable: the machine was busy" if busy else "",
    )
    lead = [f"{one[0].upper()}{one[1:]}." for one in (answer.limit, answer.accuracy_words) if one]
    today = [] if info.today is None or answer.void is not None else [info.today.sentence]
    said = dict.fromkeys([*lead, *answer.sentences[:1], *today, *answer.sentences[1:]])
    return Opening(
        label=info.label,
        note=", ".join(filter(None, circumstances)),
        headline=answer.headline,
        sentences=tuple(said),
        next="" if info.command else f"Next: {answer.next}",
        void=answer.void is not None,
        tiles=_tiles(info),
        figures=Figures(tuple(first)) if first else None,
        checks=info.checks,
        commands=_next_commands(info, shlex.quote(folder)),
    )


def _tiles(info: ScalingInfo) -> tuple[Tile, ...]:
    """Return throughput, epoch, job and accuracy of the chosen workers beside the fewest."""
    points = [point for point in info.curves[0].points if point.valid] if info.curves else []
    chosen = next((one for one in points if one.workers == info.answer.workers), None)
    if chosen is None or info.answer.void is not None:
        return ()
    rows = {row.cell: row for row in info.rows}
    base, row = rows[points[0].cell], rows[chosen.cell]
    fewest = plural(points[0].workers, "worker")
    gain = chosen.speedup if row is not base else None

    def tile(title: str, show: Callable[[float | None], str], *ends: Any) -> Tile:
        here, there = ends
        both = here is not None and there is not None and row is not base
        change = f"{show(there.value)} with {fewest}" if both else ""
        return Tile(title=title, value=show(here.value if here else None), change=change)

    metrics = [one.metric(info.main_metric) for one in (row, base)]
    final: list[Estimate | None] = [one.final if one else None for one in metrics]
    accuracy = Tile(title="Accuracy", value="not measured", change="--measure both measures it")
    if metrics[0] is not None and final[0] is not None:
        accuracy = tile(metrics[0].metric, number, *final)
    jobs = row.job, base.job
    return (
        Tile(
            title=f"Throughput, {plural(chosen.workers, 'worker')}",
            value=f"{number(chosen.throughput.value)} {info.curves[0].unit}",
            change=f"{interval(gain)} that of {fewest}" if gain else "",
        ),
        tile("Time per epoch", seconds, *(getattr(job, "epoch_s", None) for job in jobs)),
        tile("Job time", seconds, *(getattr(job, "job_s", None) for job in jobs)),
        accuracy,
    )


def _next_commands(info: ScalingInfo, folder: str) -> tuple[str, ...]:
    """Return at most three commands: use the answer, look further, measure what is missing."""
    answer, command = info.answer, info.command
    if not command or answer.workers is None or answer.void is not None:
        return ()
    most = max(row.cell.workers for row in info.rows)
    found = [f"farandole project {folder} -np {2 * most},{4 * most}"]
    if answer.workers > 1 and not any("{" in word for word in command):
        found.insert(0, f"farandole run -np {answer.workers} {shlex.join(command)}")
    if answer.accuracy == "not_measured":
        found.append("farandole study --measure both --seeds 3 -- " + shlex.join(command))
    return tuple(found[:3])


# Sections.


def _section(key: str, title: str, *blocks: Block | None, folded: bool = True) -> Section:
    """Return a section of the blocks that are there."""
    there = tuple(block for block in blocks if block is not None)
    return Section(key=key, title=title, link=_LINKS.get(key, ""), blocks=there, folded=folded)


def _each(infos: Infos, make: Callable[[ScalingInfo], Block]) -> Iterator[Block]:
    """Return a block per study, each under its label where there are several."""
    for info in infos:
        if len(infos) > 1:
            yield Heading(info.label)
        yield make(info)


def _tables(*found: Table | None) -> Tables | None:
    there = tuple(table for table in found if table is not None)
    return Tables(there) if there else None


def _drawn(parts: Parts, elsewhere: Sequence[Figure]) -> Iterator[Block | None]:
    """Return the figures that are not elsewhere, and the tables of which nothing is drawn."""
    here = [one for one in parts if isinstance(one, Figure) and one not in elsewhere]
    drawn = tuple(one for one in here if one.spec)
    yield Figures(drawn) if drawn else None
    yield _tables(*(one.table for one in here if not one.spec))


def _verdicts(info: ScalingInfo) -> tuple[Verdict, ...]:
    """Return all verdicts, first the reasons why cells are void that the headline does not name."""
    void = [
        Verdict(
            kind=found.kind,
            severity="void",
            sentence=f"{found.label}: {found.sentence}",
            action=found.mend,
            evidence=found.evidence,
            labels=(found.label,),
        )
        for found in info.voids
        if found.sentence not in info.answer.headline
    ]
    return (*void, *info.verdicts)


def _findings(infos: Infos, comparison: Comparison | None) -> Findings | None:
    """Return the verdicts, most severe first; those of one kind and study are one finding."""
    found = [("", verdict) for verdict in (comparison.verdicts if comparison else ())]
    for info in infos:
        # The headline has the interval, and the next command what would narrow it.
        told = [one for one in _verdicts(info) if one.kind != "too_noisy"]
        found += [(info.label if len(infos) > 1 else "", one) for one in told]
    found.sort(key=lambda pair: _SEVERITIES.index(pair[1].severity))
    alike: dict[tuple[str, str, str], list[Verdict]] = {}
    for study, one in found:
        alike.setdefault((study, one.severity, one.kind), []).append(one)
    items = [
        Finding(
            severity=first.severity,
            study=study,
            sentence=f"{first.sentence} {first.action}".rstrip(),
            others=tuple(one.sentence for one in others),
            evidence=_evidence(first),
        )
        for (study, _, _), (first, *others) in alike.items()
    ]
    return Findings(tuple(items)) if items else None


def _evidence(verdict: Verdict) -> str:
    def shown(key: str, value: float | str) -> str:
        if isinstance(value, str):
            return f"{key} {value}"
        if key.endswith(" (s)"):
            return f"{key.removesuffix(' (s)')} {seconds(value)}"
        share = re.search(r"\bshare\b|^efficiency|^utilisation", key)
        return f"{key} {percent(value) if share else brief(value)}"

    parts = [
        shown(key.replace("_", " "), value)
        for key, value in list(verdict.evidence.items())[:_MOST_EVIDENCE]
    ]
    more = len(verdict.evidence) - len(parts)
    return "; ".join([*parts, *([f"and {more} more"] if more else [])])


def _not_shown(infos: Infos, planned: Sequence[tuple[str, Parts]]) -> Bullets | None:
    """Return what figures need that have no data, one line per need, and the studies' notes."""
    titles: dict[str, list[str]] = {}
    for one in (one for _, parts in planned for one in parts):
        if isinstance(one, Missing):
            titles.setdefault(one.hint, []).append(one.title)
    lines = [f"{listed(names)}: {hint}" for hint, names in titles.items()]
    lines += [note for info in infos for note in info.notes]
    return Bullets(tuple(lines)) if lines else None
