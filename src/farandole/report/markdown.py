"""The report as Markdown, with the figures beside it, for a repository or a wiki."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from farandole.model.info.scaling import ScalingInfo
from farandole.model.info.verdict import Verdict
from farandole.report import answer, method, reproduce
from farandole.report.contents import Contents
from farandole.report.escape import code_block, markdown
from farandole.report.figure import Figure
from farandole.report.projection import Shown
from farandole.report.table import Table, to_markdown
from farandole.version import __version__

_MARKS = {"void": "Void", "warn": "Warning", "note": "Note", "good": "Good"}
_MOST_ROWS = 60


def document(contents: Contents, *, picture: str | None) -> str:
    """Return the whole of report.md.

    Args:
        contents: What to show.
        picture: Ending of the pictures in figures/ to show; None when there are none.
    """
    blocks = [*_answers(contents), *_verdicts(contents)]
    for table in contents.side_by_side:
        blocks += [f"## {markdown(table.title)}", to_markdown(table, limit=_MOST_ROWS)]
    blocks += _projection(contents.projection, picture)
    if contents.paste is not None:
        blocks += ["## To paste into a report", *picture_line(contents.paste, picture)]
        blocks += [markdown(method.caption(contents.infos))]
    for section in contents.sections:
        blocks.append(f"## {section.title}")
        for figure in section.figures:
            blocks += [f"### {markdown(figure.title)}", *picture_line(figure, picture)]
            blocks += [markdown(figure.caption), to_markdown(figure.table, limit=_MOST_ROWS)]
    if contents.costs is not None:
        blocks += ["## Cost", to_markdown(contents.costs, limit=_MOST_ROWS)]
    blocks += _missing(contents)
    blocks += ["## Method", *_each(contents, [[_method(info)] for info in contents.infos])]
    if contents.apart is not None:
        blocks.append(to_markdown(contents.apart, limit=_MOST_ROWS))
    blocks += [
        "## Machine",
        *_each(contents, [machine_block(info.machine) for info in contents.infos]),
    ]
    blocks += ["## Every cell", to_markdown(contents.cells, limit=_MOST_ROWS)]
    blocks += ["## Launches left out", _left_out(contents.left_out)]
    commands = [["\n".join(code_block(reproduce.commands(info)))] for info in contents.infos]
    blocks += ["## Commands that reproduce it", *_each(contents, commands)]
    blocks.append(f"Made by Farandole {__version__}.")
    return joined(blocks)


def joined(blocks: Sequence[str]) -> str:
    """Return blocks as one document, empty ones left out."""
    return "\n\n".join(block.rstrip("\n") for block in blocks if block) + "\n"


def _answers(contents: Contents) -> list[str]:
    blocks = []
    for info in contents.infos:
        state = "" if info.complete else " (not complete)"
        blocks += [
            f"# {markdown(info.label)}{state}",
            f"**{markdown(info.answer.headline)}**",
            *(markdown(sentence) for sentence in answer.sentences(info)),
            f"Next: {markdown(info.answer.next)}",
        ]
    return blocks


def _verdicts(contents: Contents) -> list[str]:
    several = len(contents.infos) > 1
    lines = [
        _verdict(verdict, f"{info.label}: " if several else "")
        for info in contents.infos
        for verdict in answer.verdicts(info)
    ]
    if contents.comparison is not None:
        lines = [_verdict(verdict, "") for verdict in contents.comparison.verdicts] + lines
    return ["## What it means", "\n".join(lines)] if lines else []


def _projection(found: Shown | None, picture: str | None) -> list[str]:
    if found is None:
        return []
    blocks = ["## More workers", f"**{markdown(found.headline)}**"]
    blocks += [markdown(sentence) for sentence in found.sentences]
    blocks += [to_markdown(table, limit=_MOST_ROWS) for table in found.tables()]
    for figure in found.figures:
        blocks += [f"### {markdown(figure.title)}", *picture_line(figure, picture)]
        blocks.append(markdown(figure.caption))
    if found.assumptions:
        taken = "\n".join(f"- {markdown(sentence)}" for sentence in found.assumptions)
        blocks += ["### Taken for granted", taken]
    blocks += [markdown(found.track_record), f"Next: {markdown(found.next)}"]
    return [*blocks, "\n".join(code_block([found.command]))]


def _verdict(verdict: Verdict, study: str) -> str:
    text = markdown(f"{study}{verdict.sentence} {verdict.action}".rstrip())
    return f"- **{_MARKS[verdict.severity]}.** {text}"


def picture_line(figure: Figure, ending: str | None) -> list[str]:
    """Return the line that shows a figure's picture; none where there are no pictures."""
    return [] if ending is None else [f"![{markdown(figure.alt)}](figures/{figure.name}.{ending})"]


def _missing(contents: Contents) -> list[str]:
    lines = [f"- {markdown(title)}: {markdown(hint)}" for title, hint in contents.hints()]
    lines += [f"- {markdown(note)}" for info in contents.infos for note in info.notes]
    return ["## Not shown", "\n".join(lines)] if lines else []


def _method(info: ScalingInfo) -> str:
    return markdown(method.paragraph(info))


def machine_block(machine: Mapping[str, object]) -> list[str]:
    """Return what is known of a machine as a list."""
    rows = method.machine_rows(machine)
    return ["\n".join(f"- {markdown(key)}: {markdown(value)}" for key, value in rows)]


def _left_out(table: Table | None) -> str:
    return "None: every launch counts." if table is None else to_markdown(table, limit=_MOST_ROWS)


def _each(contents: Contents, parts: list[list[str]]) -> list[str]:
    """Return the studies' parts, each under its label where there are several."""
    if len(contents.infos) < 2:
        return parts[0]
    blocks = []
    for info, part in zip(contents.infos, parts, strict=True):
        blocks += [f"### {markdown(info.label)}", *part]
    return blocks
