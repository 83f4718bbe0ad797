"""The report as one HTML file that works offline and loads nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files

from farandole.model.info import ScalingInfo, Verdict
from farandole.report import answer, method, reproduce
from farandole.report.contents import Contents
from farandole.report.escape import html, script_json
from farandole.report.figure import Figure
from farandole.report.table import Table, to_html
from farandole.report.text import brief, moment
from farandole.report.theme import page_config
from farandole.version import __version__

_MARKS = {"void": "Void", "warn": "Warning", "note": "Note", "good": "Good"}
_CLASSES = {"void": "problem", "warn": "problem", "note": "", "good": "good"}
_MOST_ROWS = 300
_MOST_SENTENCES = 5
_MOST_EVIDENCE = 8
_CREDIT = (
    "Charts by Vega, Vega-Lite and Vega-Embed, copyright of their authors (University of "
    "Washington Interactive Data Lab), BSD 3-clause licence."
)


def page(contents: Contents, *, scripts: str) -> str:
    """Return the whole page.

    Args:
        contents: What to show.
        scripts: Vega, Vega-Lite and Vega-Embed in one, as `render.bundle` gives it.
    """
    drawing = _own("page.js")
    body = "\n".join(
        [
            _answers(contents),
            _verdicts(contents),
            _side_by_side(contents),
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
    specs = {figure.name: _for_page(figure) for figure in contents.figures()}
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy(scripts, drawing)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="Farandole {html(__version__)}">
<title>{html(contents.infos[0].answer.headline)}</title>
<style>
{_own("page.css")}</style>
</head>
<body>
{body}
<footer><p>Made by Farandole {html(__version__)}. {_CREDIT}</p></footer>
<script type="application/json" id="chart-config">{script_json(page_config())}</script>
<script type="application/json" id="chart-specs">{script_json(specs)}</script>
<script>{scripts}</script>
<script>{drawing}</script>
</body>
</html>
"""


def _policy(*scripts: str) -> str:
    """Return a policy under which only these very scripts run, and nothing is fetched."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _own(name: str) -> str:
    return files("farandole.report").joinpath(name).read_text(encoding="utf-8")


def _for_page(figure: Figure) -> dict[str, object]:
    # A single view fills its column; panels have their own width.
    return figure.spec if "facet" in figure.spec else {**figure.spec, "width": "container"}


def _answers(contents: Contents) -> str:
    several = len(contents.infos) > 1
    parts = [_answer(info) for info in contents.infos]
    inside = f"<div class=answers>{''.join(parts)}</div>" if several else "".join(parts)
    names = [
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
        to_html(table, limit=_MOST_ROWS) for table in contents.side_by_side
    )


def _figures(contents: Contents) -> list[str]:
    parts = []
    for index, section in enumerate(contents.sections):
        anchor = "speed" if index == 0 else f"section-{index}"
        figures = "\n".join(_figure(figure) for figure in section.figures)
        parts.append(
            f"<h2 id={anchor}>{html(section.title)}</h2>\n<div class=figures>\n{figures}\n</div>"
        )
    if contents.sections:
        parts.append("<noscript><p>The charts need JavaScript; their tables do not.</p></noscript>")
    return parts


def _figure(figure: Figure) -> str:
    wide = " class=wide" if figure.wide else ""
    return (
        f"<figure{wide}><h3><bdi>{html(figure.title)}</bdi></h3>\n"
        f'<div class=chart id="chart-{figure.name}" role=img aria-label="{html(figure.alt)}">'
        "</div>\n"
        f"<figcaption>{html(figure.caption)}</figcaption>\n"
        f"{_folded('Table', figure.table)}</figure>"
    )


def _folded(title: str, table: Table) -> str:
    return f"<details><summary>{title}</summary>{to_html(table, limit=_MOST_ROWS)}</details>"


def _costs(contents: Contents) -> str:
    if contents.costs is None:
        return ""
    return f"<h2 id=cost>Cost</h2>\n{to_html(contents.costs, limit=_MOST_ROWS)}"


def _missing(contents: Contents) -> str:
    lines = [f"<li>{html(title)}: {html(hint)}</li>" for title, hint in contents.hints()]
    lines += [f"<li>{html(note)}</li>" for info in contents.infos for note in info.notes]
    if not lines:
        return ""
    return f"<h2 id=missing>Not shown</h2>\n<ul class=missing>{''.join(lines)}</ul>"


def _method(contents: Contents) -> str:
    parts = [f"<p>{html(method.paragraph(info))}</p>" for info in contents.infos]
    return "<h2 id=method>Method</h2>\n" + "\n".join(_headed(contents, parts))


def _machines(contents: Contents) -> str:
    parts = []
    for info in contents.infos:
        rows = "".join(
            f"<dt>{html(key)}</dt><dd><bdi>{html(value)}</bdi></dd>"
            for key, value in method.machine_rows(info.machine)
        )
        parts.append(f"<dl>{rows}</dl>" if rows else "<p>Not recorded.</p>")
    return "<h2 id=machine>Machine</h2>\n" + "\n".join(_headed(contents, parts))


def _cells(contents: Contents) -> str:
    return f"<h2 id=cells>Every cell</h2>\n{to_html(contents.cells, limit=_MOST_ROWS)}"


def _left_out(contents: Contents) -> str:
    heading = "<h2 id=left-out>Launches left out</h2>\n"
    if contents.left_out is None:
        return heading + "<p>None: every launch counts.</p>"
    return heading + to_html(contents.left_out, limit=_MOST_ROWS)


def _commands(contents: Contents) -> str:
    parts = [
        "<pre><code>" + "\n".join(html(line) for line in reproduce.commands(info)) + "</code></pre>"
        for info in contents.infos
    ]
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
