"""The report of a lab as one HTML file that works offline and loads nothing from anywhere."""

from __future__ import annotations

from collections.abc import Sequence

from farandole.report import blocks, method
from farandole.report.escape import html
from farandole.report.figure import Figure
from farandole.report.frame import frame
from farandole.report.lab import words
from farandole.report.lab.contents import LabContents, Section
from farandole.report.table import Table

# Longer tables under a figure are folded.
_SHORT = 16
_MOST_SKIPPED = 100


def page(contents: LabContents, *, scripts: str) -> str:
    """Return the whole page.

    Args:
        contents: What to show.
        scripts: Vega, Vega-Lite and Vega-Embed in one, as `render.bundle` gives it.
    """
    body = "\n".join(
        [
            _opening(contents),
            "<main>",
            *(_section(number, section) for number, section in enumerate(contents.sections, 1)),
            blocks.NEEDS_SCRIPT,
            _titled("corrections", "What the original got wrong", contents.corrections),
            _titled("choices", "Lab / here", contents.choices),
            _published(contents),
            _missing(contents),
            _method(contents),
            f"<h2 id=machine>Machine</h2>\n{blocks.machine(words.machine(contents.report))}",
            _data(contents),
            _commands(contents),
            "</main>",
        ]
    )
    title = f"{contents.report.name}: {contents.report.title}"
    return frame(body, title=title, figures=contents.figures(), scripts=scripts)


def _opening(contents: LabContents) -> str:
    report = contents.report
    sentences = "".join(f"<p>{html(sentence)}</p>" for sentence in report.headline)
    quick = f"<p class=next>{html(words.QUICK)}</p>" if words.is_quick(report) else ""
    links = [
        (f"question-{number}", section.key.replace("_", " "))
        for number, section in enumerate(contents.sections, 1)
    ]
    links += [("corrections", "corrections")] if contents.corrections else []
    links += [("choices", "lab / here")] if contents.choices else []
    links += [("published", "published figures")] if contents.published else []
    links += [("method", "method"), ("commands", "commands")]
    items = "".join(f'<li><a href="#{anchor}">{html(title)}</a></li>' for anchor, title in links)
    return (
        "<header><section class=answer>"
        f"<p class=study>{html(words.subtitle(report))}.</p>"
        f"<h1>{html(report.title)}</h1>{sentences}{quick}</section>"
        f"<nav aria-label=Contents><ul>{items}</ul></nav></header>"
    )


def _section(number: int, section: Section) -> str:
    said = "".join(f"<p>{html(sentence)}</p>" for sentence in section.sentences)
    parts = [
        f"<h2 id=question-{number}>{number}. {html(section.question)}</h2>",
        f"<div class=said>{said or '<p class=missing>Not answered.</p>'}</div>",
    ]
    if section.figures:
        figures = "\n".join(
            _figure(figure, shared=not section.under(figure)) for figure in section.figures
        )
        parts.append(f'<div class="figures alone">\n{figures}\n</div>')
    parts.append(_tables(section.further))
    return "\n".join(parts)


def _tables(tables: Sequence[Table]) -> str:
    inside = "\n".join(blocks.tabulated(table) for table in tables)
    return f"<div class=tables>{inside}</div>" if tables else ""


def _figure(figure: Figure, *, shared: bool = False) -> str:
    if shared:
        return blocks.figure(figure, table="elsewhere")
    return blocks.figure(figure, table="open" if len(figure.table.rows) <= _SHORT else "folded")


def _titled(anchor: str, title: str, table: Table | None) -> str:
    if table is None:
        return ""
    return f"<h2 id={anchor}>{title}</h2>\n<div class=prose>{blocks.tabulated(table)}</div>"


def _published(contents: LabContents) -> str:
    if not contents.published:
        return ""
    parts = ["<h2 id=published>The lab's own figures</h2>"]
    for one in contents.published:
        parts.append(_tables([one.table]))
        if one.figure is not None:
            parts.append(f'<div class="figures alone">{_figure(one.figure)}</div>')
    return "\n".join(parts)


def _missing(contents: LabContents) -> str:
    lines = words.missing(contents.report, contents.undrawn)
    if not lines:
        return ""
    items = "".join(f"<li>{html(line)}</li>" for line in lines)
    return f"<h2 id=missing>Not shown</h2>\n<ul class=missing>{items}</ul>"


def _method(contents: LabContents) -> str:
    report = contents.report
    parts = [
        f"<h3><bdi>{html(words.title_of(report, name))}</bdi></h3>"
        f"<p>{html(method.paragraph(info))}</p>"
        for name, info in report.studies.items()
    ]
    return "<h2 id=method>Method</h2>\n" + ("\n".join(parts) or "<p>No study was made.</p>")


def _data(contents: LabContents) -> str:
    data = contents.report.data
    rows = "".join(
        f"<dt>{html(key)}</dt><dd><bdi>{html(value)}</bdi></dd>"
        for key, value in words.data_rows(data)
    )
    skipped = ""
    if data.skipped:
        items = "".join(
            f"<li><bdi>{html(line)}</bdi></li>" for line in data.skipped[:_MOST_SKIPPED]
        )
        more = len(data.skipped) - _MOST_SKIPPED
        rest = f"<li>and {more:,} more, in report.json</li>" if more > 0 else ""
        skipped = (
            "<details><summary>Skipped files</summary>"
            f"<ul class=missing>{items}{rest}</ul></details>"
        )
    return f"<h2 id=data>Data</h2>\n<dl>{rows}</dl>{skipped}"


def _commands(contents: LabContents) -> str:
    report = contents.report
    parts = [
        "<h2 id=commands>Commands that reproduce it</h2>",
        blocks.commands(words.commands(report)),
    ]
    alone = [
        f"<p>{html(words.title_of(report, name))}</p>{blocks.commands(lines)}"
        for name, lines in words.study_commands(report).items()
    ]
    if alone:
        parts.append(
            "<details><summary>Each of its studies alone</summary>" + "".join(alone) + "</details>"
        )
    return "\n".join(parts)
