"""The report of one study, or of several side by side: as a document, as JSON, on a terminal."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from farandole.format import brief, listed
from farandole.model.analyse import Comparison, ScalingInfo
from farandole.model.answer import Answer
from farandole.model.rows import CellRow
from farandole.model.verdicts import Verdict
from farandole.report import figures, render, tables, words
from farandole.report.document import (
    Block,
    Bullets,
    Commands,
    Document,
    Facts,
    Figure,
    Figures,
    Finding,
    Findings,
    Heading,
    Prose,
    Section,
    Tables,
)
from farandole.report.escape import plain, visible
from farandole.report.figures import Missing, studies
from farandole.report.opening import opening
from farandole.report.projection import projection_section
from farandole.report.table import Table, to_lines
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
_MOST_EVIDENCE = 8
_TERMINAL_VERDICTS = 3


def write(
    found: ScalingInfo | Comparison,
    folder: str | os.PathLike[str],
    *,
    figures: Sequence[str] = ("png",),
    tables: Sequence[str] = ("csv", "md"),
    drawn_since: float | None = None,
) -> Path:
    """Write report.html, report.md, figures/ and tables/, and return the page's path.

    Args:
        found: One study, or several side by side.
        folder: Made if it is not there; what an earlier report left is replaced.
        figures: Endings of pictures: png, svg, pdf.
        tables: Endings of tables: csv, md, tex.
        drawn_since: Keep pictures that are there and younger than this Unix time, but for those of
            a projection: drawing takes most of the time, and the study has not changed.

    Raises:
        UsageError: An ending is not known.
        StoreError: The folder cannot be written to.
    """
    shown = document(found, os.fspath(folder))
    projected = [
        figure
        for section in shown.sections
        if section.key == "projection"
        for block in section.blocks
        if isinstance(block, Figures)
        for figure in block.figures
    ]
    return render.write(
        shown, folder, figures=figures, tables=tables, drawn_since=drawn_since, redraw=projected
    )


def document(found: ScalingInfo | Comparison, folder: str = "DIR") -> Document:
    """Return everything that a report on one study, or on several, shows.

    Args:
        found: One study, or several side by side.
        folder: Of the study, for commands to copy.
    """
    comparison = found if isinstance(found, Comparison) else None
    infos = studies(found)
    planned = figures.sections(infos)
    left_out = _tables(tables.launches_left_out(infos)) or Prose(("None: every launch counts.",))
    first = [] if comparison else _first_screen(planned)
    telling = {one.kind for info in infos for one in info.verdicts if one.severity != "good"}
    telling |= {info.answer.limited_by for info in infos}
    drawn = [
        _section(
            f"section-{index}" if index else "speed",
            title,
            _figures(parts, first),
            folded=bool(first) and not telling & _OPENED_BY.get(title, set()),
        )
        for index, (title, parts) in enumerate(planned)
    ]
    sections = [
        _section("verdicts", "What it means", _findings(infos, comparison)),
        _section("side", "Side by side", _side_by_side(comparison)),
        projection_section(infos[0]) if comparison is None else None,
        *drawn,
        _section("cost", "Cost", _tables(tables.costs(infos)), folded=True),
        _section("missing", "Not shown", _not_shown(infos, planned), folded=True),
        _section(
            "method",
            "Method",
            *_each(infos, lambda info: Prose((words.paragraph(info),))),
            _tables(tables.contention(infos)),
            folded=True,
        ),
        _section(
            "machine",
            "Machine",
            *_each(infos, lambda info: machine_facts(info.machine)),
            folded=True,
        ),
        _section("cells", "Every cell", _tables(tables.cells(infos)), folded=True),
        _section("left-out", "Launches left out", left_out, folded=True),
        _section(
            "commands",
            "Commands that reproduce it",
            *_each(infos, lambda info: Commands(tuple(words.commands(info)))),
            folded=True,
        ),
    ]
    paste = figures.scaling(infos)
    caption = words.caption(infos)
    about = [caption, *(words.paragraph(info) for info in infos)]
    return Document(
        title=infos[0].answer.headline,
        openings=tuple(
            opening(info, Figures(tuple(first)) if first else None, folder) for info in infos
        ),
        sections=tuple(section for section in sections if section is not None),
        extra_figures=(replace(paste, caption=caption),) if paste else (),
        csv_only=(
            tables.launches(infos),
            tables.metrics(infos),
            figures.utilisation_over_time(infos),
            tables.noise(infos),
        ),
        extra_files={"figures/scaling.txt": "\n\n".join(about) + "\n"} if paste else {},
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
    return content | {"method": words.paragraph(info), "commands": words.commands(info)}


def terminal_lines(found: ScalingInfo | Comparison, report: str | Path | None = None) -> list[str]:
    """Return the answer's sentence, a table, the weightiest verdicts and the report's path.

    Args:
        found: One study, or several side by side.
        report: The page that was written, to be named in the last line.
    """
    lines: list[str] = []
    if isinstance(found, Comparison):
        lines += [visible(f"{info.label}: {info.answer.headline}") for info in studies(found)]
        lines += ["", *to_lines(tables.comparison_rows(found))]
        if found.refused:
            lines += ["", visible(found.refused)]
    else:
        lines += _terminal_study(found)
    if report is not None:
        lines += ["", f"report: {visible(report)}"]
    return lines


def _terminal_study(info: ScalingInfo) -> list[str]:
    answer = info.answer
    lines = [visible(answer.headline)]
    lines += [f"  {name:9} {visible(text)}" for name, text in labelled(info) if text]
    table = tables.answer_curve(info)
    if table is not None:
        lines += ["", *to_lines(table)]
    pressing = [one for one in words.verdicts(info) if one.severity in ("void", "warn")]
    # The headline has said why a void study is void, and that a machine was busy.
    news: dict[str, str] = {}  # the first of each kind
    for one in pressing:
        if one.sentence not in answer.headline and one.kind not in ("disturbed", "too_noisy"):
            news.setdefault(one.kind, f"{one.sentence} {one.action}".rstrip())
    if news:
        shown = [*news.values()][:_TERMINAL_VERDICTS]
        lines += ["", *map(visible, shown)]
    if not info.complete:
        lines += ["", "The study is not complete: farandole study --resume DIR goes on with it."]
    return [*lines, "", f"next: {visible(answer.next)}"]


def labelled(info: ScalingInfo) -> tuple[tuple[str, str], ...]:
    """Return what stands under the headline: what limits, accuracy, and the checks."""
    failed = [one.text for one in info.checks if one.passed is False]
    unseen = [one.text for one in info.checks if one.passed is None]
    passed = f"{len(info.checks) - len(failed) - len(unseen)} of {len(info.checks)} passed"
    return (
        ("limit", info.answer.limit),
        ("accuracy", info.answer.accuracy_words),
        ("checks", failed[0] if failed else passed if info.checks else ""),
    )


def machine_facts(machine: Mapping[str, object]) -> Block:
    """Return what is known of a machine."""
    pairs = tuple(words.machine_rows(machine))
    return Facts(pairs) if pairs else Prose(("Not recorded.",))


def _section(key: str, title: str, *blocks: Block | None, folded: bool = False) -> Section | None:
    """Return a section of the blocks that are there; None where there are none."""
    there = tuple(block for block in blocks if block is not None)
    if not there:
        return None
    return Section(key=key, title=title, link=_LINKS.get(key, ""), blocks=there, folded=folded)


def _each(infos: Sequence[ScalingInfo], make: Callable[[ScalingInfo], Block]) -> Iterator[Block]:
    """Return a block per study, each under its label where there are several."""
    for info in infos:
        if len(infos) > 1:
            yield Heading(info.label)
        yield make(info)


def _tables(table: Table | None) -> Tables | None:
    return None if table is None else Tables((table,))


def _figures(parts: Sequence[Figure | Missing], elsewhere: Sequence[Figure]) -> Figures | None:
    drawn = tuple(one for one in parts if isinstance(one, Figure) and one not in elsewhere)
    return Figures(drawn) if drawn else None


def _first_screen(planned: Sequence[tuple[str, Sequence[Figure | Missing]]]) -> list[Figure]:
    """Return the charts of the first screen: speedup, and where a step goes."""
    drawn = [one for _, parts in planned for one in parts if isinstance(one, Figure)]
    return [one for one in drawn if one.name in _FIRST] if drawn else []


def _findings(infos: Sequence[ScalingInfo], comparison: Comparison | None) -> Findings | None:
    found = [("", verdict) for verdict in (comparison.verdicts if comparison else ())]
    for info in infos:
        study = info.label if len(infos) > 1 else ""
        found += [(study, verdict) for verdict in words.verdicts(info)]
    items = tuple(
        Finding(
            severity=verdict.severity,
            study=study,
            sentence=f"{verdict.sentence} {verdict.action}".rstrip(),
            evidence=_evidence(verdict),
        )
        for study, verdict in found
    )
    return Findings(items) if items else None


def _evidence(verdict: Verdict) -> str:
    parts = [
        f"{key.replace('_', ' ')} {value if isinstance(value, str) else brief(value)}"
        for key, value in list(verdict.evidence.items())[:_MOST_EVIDENCE]
    ]
    more = len(verdict.evidence) - len(parts)
    return "; ".join([*parts, *([f"and {more} more"] if more else [])])


def _side_by_side(comparison: Comparison | None) -> Tables | None:
    if comparison is None:
        return None
    shown = (tables.comparison_rows(comparison), tables.comparison_ratios(comparison))
    return Tables(tuple(table for table in shown if table is not None), titled=True)


def _not_shown(
    infos: Sequence[ScalingInfo], planned: Sequence[tuple[str, Sequence[Figure | Missing]]]
) -> Bullets | None:
    """Return what figures need that have no data, one line per need, and the studies' notes."""
    titles: dict[str, list[str]] = {}
    for one in (one for _, parts in planned for one in parts):
        if isinstance(one, Missing):
            titles.setdefault(one.hint, []).append(one.title)
    lines = [f"{listed(names)}: {hint}" for hint, names in titles.items()]
    lines += [note for info in infos for note in info.notes]
    return Bullets(tuple(lines)) if lines else None
