"""The report of a lab as Markdown, with the figures beside it."""

from __future__ import annotations

from farandole.report import method
from farandole.report.escape import code_block, markdown
from farandole.report.figure import Figure
from farandole.report.lab import words
from farandole.report.lab.contents import LabContents, Section
from farandole.report.markdown import joined, machine_block, picture_line
from farandole.report.table import Table, to_markdown

_MOST_ROWS = 60


def document(contents: LabContents, *, picture: str | None) -> str:
    """Return the whole of report.md.

    Args:
        contents: What to show.
        picture: Ending of the pictures in figures/ to show; None when there are none.
    """
    report = contents.report
    blocks = [f"# {markdown(report.title)}", f"{markdown(words.subtitle(report))}."]
    blocks += [f"**{markdown(sentence)}**" for sentence in report.headline]
    blocks += [markdown(words.QUICK)] if words.is_quick(report) else []
    for section in contents.sections:
        blocks += _section(section, picture)
    if contents.corrections is not None:
        blocks += ["## What the original got wrong", _table(contents.corrections)]
    if contents.choices is not None:
        blocks += ["## Lab / here", _table(contents.choices)]
    if contents.published:
        blocks.append("## The lab's own figures")
    for one in contents.published:
        blocks += [f"### {markdown(one.table.title)}", _table(one.table)]
        if one.figure is not None:
            blocks += _figure(one.figure, picture)
    lost = words.missing(report, contents.undrawn)
    if lost:
        blocks += ["## Not shown", "\n".join(f"- {markdown(line)}" for line in lost)]
    blocks.append("## Method")
    for name, info in report.studies.items():
        blocks += [f"### {markdown(words.title_of(report, name))}"]
        blocks += [markdown(method.paragraph(info))]
    blocks += ["## Machine", *machine_block(words.machine(report))]
    blocks += ["## Data", *_data(contents)]
    blocks += ["## Commands that reproduce it", *_commands(contents)]
    blocks.append(f"Made by Farandole {markdown(report.version)}.")
    return joined(blocks)


def _section(section: Section, picture: str | None) -> list[str]:
    blocks = [f"## {markdown(section.question)}"]
    blocks += [markdown(sentence) for sentence in section.sentences] or ["Not answered."]
    for figure in section.figures:
        blocks += _figure(figure, picture, shared=not section.under(figure))
    for table in section.further:
        blocks += [f"**{markdown(table.title)}**", _table(table)]
    return blocks


def _figure(figure: Figure, picture: str | None, *, shared: bool = False) -> list[str]:
    return [
        f"### {markdown(figure.title)}",
        *picture_line(figure, picture),
        markdown(figure.caption),
        "" if shared else _table(figure.table),
    ]


def _table(table: Table) -> str:
    return to_markdown(table, limit=_MOST_ROWS)


def _data(contents: LabContents) -> list[str]:
    data = contents.report.data
    rows = words.data_rows(data)
    blocks = ["\n".join(f"- {markdown(key)}: {markdown(value)}" for key, value in rows)]
    if data.skipped:
        shown = [f"- {markdown(line)}" for line in data.skipped[:_MOST_ROWS]]
        if len(data.skipped) > _MOST_ROWS:
            shown.append(f"- and {len(data.skipped) - _MOST_ROWS:,} more, in report.json")
        blocks += ["Skipped:", "\n".join(shown)]
    return blocks


def _commands(contents: LabContents) -> list[str]:
    report = contents.report
    blocks = ["\n".join(code_block(words.commands(report)))]
    for name, lines in words.study_commands(report).items():
        blocks += [markdown(words.title_of(report, name)), "\n".join(code_block(lines))]
    return blocks
