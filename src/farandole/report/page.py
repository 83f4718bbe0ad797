"""The report as one HTML file that works offline and loads nothing from anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from farandole.model.info.scaling import ScalingInfo
from farandole.model.info.verdict import Verdict
from farandole.report import answer, blocks, method, reproduce
from farandole.report.contents import Contents
from farandole.report.escape import html
from farandole.report.frame import frame
from farandole.report.projection import Shown
from farandole.report.text import brief, moment

_MARKS = {"void": "Void", "warn": "Warning", "note": "Note", "good": "Good"}
_CLASSES = {"void": "problem", "warn": "problem", "note": "", "good": "good"}
_MOST_SENTENCES = 5
_MOST_EVIDENCE = 8


def page(contents: Contents, *, scripts: str) -> str:
    """Return the whole page.

    Args:
        contents: What to show.
        scripts: Vega, Vega-Lite and Vega-Embed in one, as `render.bundle` gives it.
    """
    body = "\n".join(
        [
            _answers(contents),
            _verdicts(contents),
            _side_by_side(contents),
            _projection(contents.projection),
            *_figures(contents),
            _costs(contents),
            _missing(contents),
            _method(contents),
            _machines(contents),
            _cells(contents),
            _left_out(contents),
            _commands(contents),
        ]
    )
    title = contents.infos[0].answer.headline
    return frame(body, title=title, figures=contents.figures(), scripts=scripts)


def _answers(contents: Contents) -> str:
    several = len(contents.infos) > 1
    parts = [_answer(info) for info in contents.infos]
    inside = f"<div class=answers>{''.join(parts)}</div>" if several else "".join(parts)
    names = [
        *([("projection", "more workers")] if contents.projection else []),
        ("speed", "figures"),
        ("method", "method"),
        ("cells", "cells"),
        ("commands", "commands"),
    ]
    links = "".join(f'<li><a href="#{anchor}">{title}</a></li>' for anchor, title in names)
    return f"<header>{inside}<nav aria-label=Contents><ul>{links}</ul></nav></header>\n<main>"


def _answer(info: ScalingInfo) -> str:
    void = " void" if info.answer.void else ""
    incomplete = "" if info.complete else " The study is not complete: --resume goes on with it."
    created = f", {html(moment(info.created))}" if info.created else ""
    lines = _sentences(answer.sentences(info))
    return (
        f'<section class="answer{void}"><p class=study><bdi>{html(info.label)}</bdi>{created}.'
        f'{incomplete}</p><h1 class="{void.strip()}">{html(info.answer.headline)}</h1>'
        f"{lines}<p class=next>Next: {html(info.answer.next)}</p></section>"
    )


def _sentences(sentences: Sequence[str]) -> str:
    parts = [f"<p>{html(sentence)}</p>" for sentence in sentences]
    first, rest = parts[:_MOST_SENTENCES], parts[_MOST_SENTENCES:]
    if not rest:
        return "".join(first)
    folded = f"<details><summary>and {len(rest)} more</summary>{''.join(rest)}</details>"
    return "".join(first) + folded


def _verdicts(contents: Contents) -> str:
    several = len(contents.infos) > 1
    items = [
        _verdict(verdict, info.label if several else "")
        for info in contents.infos
        for verdict in answer.verdicts(info)
    ]
    if contents.comparison is not None:
        items = [_verdict(verdict, "") for verdict in contents.comparison.verdicts] + items
    if not items:
        return ""
    return f"<h2 id=verdicts>What it means</h2>\n<ul class=verdicts>{''.join(items)}</ul>"


def _verdict(verdict: Verdict, study: str) -> str:
    prefix = f"<bdi>{html(study)}</bdi>: " if study else ""
    action = f" {html(verdict.action)}" if verdict.action else ""
    evidence = _evidence(verdict.evidence)
    return (
        f'<li class="{_CLASSES[verdict.severity]}"><span class=mark>'
        f"{_MARKS[verdict.severity]}.</span> {prefix}{html(verdict.sentence)}{action}"
        f"{f'<br><span class=more>{evidence}</span>' if evidence else ''}</li>\n"
    )


def _evidence(evidence: Mapping[str, float | str]) -> str:
    parts = [
        f"{html(key.replace('_', ' '))} {html(value if isinstance(value, str) else brief(value))}"
        for key, value in list(evidence.items())[:_MOST_EVIDENCE]
    ]
    more = len(evidence) - len(parts)
    return "; ".join([*parts, *([f"and {more} more"] if more else [])])


def _side_by_side(contents: Contents) -> str:
    if not contents.side_by_side:
        return ""
    return "<h2 id=side>Side by side</h2>\n" + "\n".join(
        blocks.tabulated(table) for table in contents.side_by_side
    )


def _projection(found: Shown | None) -> str:
    if found is None:
        return ""
    said = "".join(f"<p>{html(sentence)}</p>" for sentence in found.sentences)
    granted = "".join(f"<li>{html(sentence)}</li>" for sentence in found.assumptions)
    taken = f"<details><summary>Taken for granted</summary><ul>{granted}</ul></details>"
    tables = "\n".join(blocks.tabulated(table) for table in found.tables())
    figures = "\n".join(blocks.figure(one, table="elsewhere") for one in found.figures)
    return (
        f"<h2 id=projection>More workers</h2>\n<p><strong>{html(found.headline)}</strong></p>"
        f"{said}<div class=tables>{tables}</div>\n<div class=figures>\n{figures}\n</div>\n"
        f"{taken if granted else ''}<p>{html(found.track_record)}</p>\n"
        f"<p>Next: {html(found.next)}</p>{blocks.commands([found.command])}"
    )


def _figures(contents: Contents) -> list[str]:
    parts = []
    for index, section in enumerate(contents.sections):
        anchor = "speed" if index == 0 else f"section-{index}"
        figures = "\n".join(blocks.figure(figure) for figure in section.figures)
        parts.append(
            f"<h2 id={anchor}>{html(section.title)}</h2>\n<div class=figures>\n{figures}\n</div>"
        )
    if contents.sections:
        parts.append(blocks.NEEDS_SCRIPT)
    return parts


def _costs(contents: Contents) -> str:
    if contents.costs is None:
        return ""
    return f"<h2 id=cost>Cost</h2>\n{blocks.tabulated(contents.costs)}"


def _missing(contents: Contents) -> str:
    lines = [f"<li>{html(title)}: {html(hint)}</li>" for title, hint in contents.hints()]
    lines += [f"<li>{html(note)}</li>" for info in contents.infos for note in info.notes]
    if not lines:
        return ""
    return f"<h2 id=missing>Not shown</h2>\n<ul class=missing>{''.join(lines)}</ul>"


def _method(contents: Contents) -> str:
    parts = [f"<p>{html(method.paragraph(info))}</p>" for info in contents.infos]
    apart = blocks.tabulated(contents.apart) if contents.apart is not None else ""
    return "<h2 id=method>Method</h2>\n" + "\n".join(_headed(contents, parts)) + apart


def _machines(contents: Contents) -> str:
    parts = [blocks.machine(info.machine) for info in contents.infos]
    return "<h2 id=machine>Machine</h2>\n" + "\n".join(_headed(contents, parts))


def _cells(contents: Contents) -> str:
    return f"<h2 id=cells>Every cell</h2>\n{blocks.tabulated(contents.cells)}"


def _left_out(contents: Contents) -> str:
    heading = "<h2 id=left-out>Launches left out</h2>\n"
    if contents.left_out is None:
        return heading + "<p>None: every launch counts.</p>"
    return heading + blocks.tabulated(contents.left_out)


def _commands(contents: Contents) -> str:
    parts = [blocks.commands(reproduce.commands(info)) for info in contents.infos]
    heading = "<h2 id=commands>Commands that reproduce it</h2>\n"
    return heading + "\n".join(_headed(contents, parts)) + "\n</main>"


def _headed(contents: Contents, parts: list[str]) -> list[str]:
    """Return one part per study, each under its label where there are several."""
    if len(contents.infos) < 2:
        return parts
    return [
        f"<h3><bdi>{html(info.label)}</bdi></h3>{part}"
        for info, part in zip(contents.infos, parts, strict=True)
    ]
