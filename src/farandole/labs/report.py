"""The report of a lab: its questions answered, as a document, as JSON and on a terminal."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole.format import known, moment, number, percent, plural, seconds, times, whole
from farandole.labs.lab import Answered, Asked, Choice, Correction, DataFacts, Found, Lab, Plan
from farandole.labs.questions import sentences
from farandole.model.curves import Curve, CurvePoint
from farandole.report import render, words
from farandole.report.anonymous import Scrub, anonymous_study, scrubbed, secrets_of
from farandole.report.charts import MOST_SERIES, lines
from farandole.report.document import (
    Block,
    Bullets,
    Commands,
    Document,
    Figure,
    Figures,
    Heading,
    Names,
    Opening,
    Picture,
    Prose,
    Section,
    Tables,
    unlike,
)
from farandole.report.escape import plain, visible
from farandole.report.study import answer_json, machine_facts
from farandole.report.table import Column, Table, tabulate
from farandole.version import __version__

if TYPE_CHECKING:
    from farandole.model.analyse import ScalingInfo
    from farandole.model.rows import CellRow

SCHEMA = 1
QUICK = "Quick: one run per setting, no intervals. Differences may be noise."
_SIZES = {
    "quick": "quick: one run per setting, no intervals",
    "budget": "in the time given",
    "full": "the lab's literal protocol",
}
_MOST_LEADING = 3
_MOST_SKIPPED = 100
_MOST_PUBLISHED = MOST_SERIES // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LabReport:
    """Everything that the report of one lab shows."""

    name: str
    title: str
    asked: Asked
    data: DataFacts
    plan: Plan
    answered: tuple[Answered, ...]
    """In the lab's order."""
    corrections: tuple[Correction, ...]
    published: Mapping[str, ScalingInfo]
    """By the name of the file in labs/published/."""
    studies: Mapping[str, ScalingInfo]
    """By `Planned.name`; one that could not be made is not there."""
    created: str
    """ISO 8601, UTC."""
    command: tuple[str, ...]
    """`farandole lab ...` as the user gave it."""
    leading: tuple[str, ...] = ()
    """Keys of the questions whose first sentence opens the report; empty: the first three."""
    beside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By name of a published file: the studies to draw beside it. For one that is not named:
    those whose name its own ends with ("cifar10_speedup": "speedup"), or else all."""
    notes: tuple[str, ...] = ()
    """What could not be made or was left out, in sentences."""
    introduction: str = ""
    original_data: Mapping[str, str] = field(default_factory=dict)
    """The lab's own data by row of the table of data."""
    method: tuple[tuple[str, str, str], ...] = ()
    """Rows "what / lab / here" beyond the plan's choices."""
    conclusion: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    samples: bytes = b""
    """A picture of some of the training samples, PNG."""
    version: str = __version__

    @property
    def headline(self) -> tuple[str, ...]:
        """The first sentence of each of the most important answers."""
        by_key = {one.question.key: one for one in self.answered}
        chosen = [by_key[key] for key in self.leading if key in by_key]
        chosen = chosen or [one for one in self.answered if one.sentences][:_MOST_LEADING]
        return tuple(one.sentences[0] for one in chosen if one.sentences)

    @property
    def subtitle(self) -> str:
        """Which lab this is, at which size and when."""
        size, budget_s = _SIZES[self.asked.size], self.asked.budget_s
        if self.asked.size == "budget" and budget_s is not None:
            minutes = budget_s / 60
            given = plural(int(minutes), "minute") if minutes.is_integer() else seconds(budget_s)
            size = f"planned to fit {given}"
        return ", ".join(part for part in (f"Lab {self.name}", size, moment(self.created)) if part)

    @property
    def machine(self) -> Mapping[str, object]:
        """What the lab ran on: its studies were made one after the other on one machine."""
        return next((info.machine for info in self.studies.values()), {})

    def title_of(self, study: str) -> str:
        """Return what a study is for."""
        return {one.name: one.title for one in self.plan.studies}.get(study, study)

    def missing(self) -> list[str]:
        """Return what is not shown, in sentences."""
        lost = [one.title for one in self.plan.studies if one.name not in self.studies]
        # A note says why, which is better.
        lost = [title for title in lost if not any(title in note for note in self.notes)]
        return [*self.notes, *(f"Not made: {title}" for title in lost)]


def lab_report(lab: Lab, found: Found, *, created: str) -> LabReport:
    """Answer a lab's questions and put together what its report shows."""
    from farandole.labs.data import draw_samples

    answered = lab.answer(found)
    by_key = {one.question.key: one for one in answered}
    titles = {study.name: study.title for study in found.plan.studies}
    return LabReport(
        name=lab.name,
        title=lab.title,
        asked=found.asked,
        data=found.data,
        plan=found.plan,
        answered=answered,
        corrections=lab.corrections(found),
        published=found.published,
        studies=found.studies,
        created=created,
        command=found.asked.command(lab.name),
        leading=lab.leading,
        beside=lab.beside,
        notes=tuple(
            f"The study {name} ({titles[name]}) has no figures: {why.rstrip('.')}."
            for name, why in found.failed.items()
        ),
        introduction=lab.introduction,
        original_data=lab.original_data,
        method=tuple(lab.method(found) if callable(lab.method) else lab.method),
        conclusion=sentences(lab.conclusion, found=found, answers=by_key),
        references=lab.references,
        samples=draw_samples(lab.name, found.asked.data),
    )


def write_lab(
    report: LabReport,
    folder: str | os.PathLike[str],
    *,
    figures: Sequence[str] = ("png",),
    tables: Sequence[str] = ("csv", "md"),
) -> Path:
    """Write report.html, report.md, report.json, figures/ and tables/; return the page's path.

    Args:
        report: What the lab found.
        folder: Made if it is not there; what an earlier report left is replaced.
        figures: Endings of pictures: png, svg, pdf.
        tables: Endings of tables: csv, md, tex.

    Raises:
        UsageError: An ending is not known.
        StoreError: The folder cannot be written to.
    """
    # ASCII: names of files need not be UTF-8, and escapes keep them.
    content = json.dumps(to_json(report), indent=1, allow_nan=False).encode() + b"\n"
    more = {"report.json": content}
    return render.write(document(report), folder, figures=figures, tables=tables, more=more)


def missing_answers(report: LabReport) -> list[str]:
    """Return the keys of the questions whose own table is not there, or has no figure in it."""

    def answered(one: Answered) -> bool:
        rows = one.tables[0].rows if one.tables else ()
        return any(cell not in (None, "") for row in rows for cell in row)

    return [one.question.key for one in report.answered if not answered(one)]


def anonymous(report: LabReport) -> LabReport:
    """Return the same answers and figures without host, user, path, address or commit.

    Titles of studies, and what was published, are the lab's own words and stay.
    """
    secrets = {secret for info in report.studies.values() for secret in secrets_of(info)}
    studies = {name: anonymous_study(info, info.label) for name, info in report.studies.items()}
    samples = report.samples if report.asked.data is None else b""
    return scrubbed(
        replace(report, created="", studies=studies, samples=samples), Scrub(secrets, {})
    )


def terminal_lines(report: LabReport, page: str | Path | None = None) -> list[str]:
    """Return the title, one sentence per question and the report's path.

    Args:
        report: What was found.
        page: The page that was written, to be named in the last line.
    """
    lines = [visible(f"{report.title} ({report.subtitle})"), ""]
    width = max((len(visible(one.question.key)) for one in report.answered), default=0)
    for one in report.answered:
        sentence = one.sentences[0] if one.sentences else "not answered"
        lines.append(f"  {visible(one.question.key).ljust(width)}  {visible(sentence)}")
    lost = report.missing()
    if lost:
        lines += ["", *(visible(sentence) for sentence in lost)]
    if page is not None:
        lines += ["", f"report: {visible(page)}"]
    return lines


def to_json(report: LabReport) -> dict[str, Any]:
    """Return questions, answers and tables; None stands for "not measured".

    docs/reference/labs-report.md has the schema.
    """
    asked = report.asked
    return {
        "schema": SCHEMA,
        "kind": "farandole-lab",
        "lab": report.name,
        "title": report.title,
        "headline": list(report.headline),
        "version": report.version,
        "created": report.created,
        "command": list(report.command),
        "size": asked.size,
        "budget_s": plain(asked.budget_s),
        "introduction": report.introduction,
        "choices": plain(report.plan.choices),
        "method": [dict(zip(("what", "lab", "here"), row, strict=True)) for row in report.method],
        "data": plain(report.data),
        "original_data": dict(report.original_data),
        "questions": {
            one.question.key: {
                "question": one.question.text,
                "answer": list(one.sentences),
                "table": _table_json(one.tables[0]) if one.tables else None,
                "tables": {table.name: _table_json(table) for table in one.tables[1:]},
            }
            for one in report.answered
        },
        "conclusion": list(report.conclusion),
        "references": list(report.references),
        "corrections": plain(report.corrections),
        "published": {
            name: {"label": info.label, "table": _table_json(published_table(name, info))}
            for name, info in report.published.items()
        },
        "studies": {
            name: {
                "headline": info.answer.headline,
                **answer_json(info.answer),
                "complete": info.complete,
            }
            for name, info in report.studies.items()
        },
        "notes": list(report.notes),
        "machine": plain(report.machine),
    }


def _table_json(table: Table) -> dict[str, Any]:
    return {
        "name": table.name,
        "title": table.title,
        "columns": [column.key for column in table.columns],
        "titles": [column.title for column in table.columns],
        "rows": plain(table.rows),
        "notes": list(table.notes),
    }


def document(report: LabReport) -> Document:
    """Return everything that the report of a lab shows: the report itself, then its appendix."""
    names = Names("corrections", "choices", "data")
    questions = [_question(number, one, names) for number, one in enumerate(report.answered, 1)]
    further = [block for _, blocks in questions for block in blocks]
    undrawn = [figure.title for one in report.answered for figure in one.figures if not figure.spec]
    lost = [*report.missing(), *(f"Nothing to draw: {title}" for title in dict.fromkeys(undrawn))]
    quick = (QUICK,) if report.asked.size == "quick" else ()
    introduction = [Prose((report.introduction,))] if report.introduction else []
    references = [Bullets(report.references)] if report.references else []
    sections = [
        _section("introduction", "Introduction", introduction),
        _section("data", "Data", _data(report), link="data"),
        _section("choices", "Method", _choices(report), link="method"),
        *(section for section, _ in questions),
        _section("conclusion", "Conclusion", _conclusion(report), link="conclusion"),
        _section("references", "References", references),
        _section(
            "corrections", "What the original got wrong", _corrections(report), "appendix", True
        ),
        _section("tables", "Further tables", further, appendix=True),
        _section("published", "The lab's own figures", _published(report, names), appendix=True),
        _section("missing", "Not shown", [Bullets(tuple(lost))] if lost else [], appendix=True),
        _section("method", "How it was measured", _studies(report), appendix=True),
        _section("machine", "Machine", [machine_facts(report.machine)], appendix=True),
        _section("commands", "Commands that reproduce it", _commands(report), appendix=True),
    ]
    return Document(
        title=f"{report.name}: {report.title}",
        openings=(
            Opening(
                label=report.subtitle,
                note=", ".join(words.machine_parts(report.machine)),
                headline=report.title,
                sentences=(*report.headline, *quick),
            ),
        ),
        sections=tuple(section for section in sections if section.blocks),
        extra_tables=tuple(names.table(table) for one in report.answered for table in one.tables),
    )


def body_words(found: Document) -> int:
    """Count the words of a report without tables, captions and appendix."""
    texts = [sentence for one in found.openings for sentence in (one.headline, *one.sentences)]
    for section in found.sections:
        if not section.appendix:
            texts.append(section.title)
            for block in section.blocks:
                if isinstance(block, Prose | Bullets):
                    texts += block.sentences if isinstance(block, Prose) else block.items
    return sum(len(text.split()) for text in texts)


def _section(
    key: str, title: str, blocks: Sequence[Block], link: str = "", appendix: bool = False
) -> Section:
    return Section(key=key, title=title, link=link, blocks=tuple(blocks), appendix=appendix)


def _question(number: int, one: Answered, names: Names) -> tuple[Section, list[Block]]:
    """Return a question's section, and the tables that are for the appendix."""
    drawn = Figures(
        tuple(names.figure(figure) for figure in one.figures if figure.spec),
        table="auto",
        alone=True,
    )
    tables = {table.name: table for table in map(names.table, one.tables) if table.rows}
    here = [figure.table for figure in drawn.figures if drawn.place(figure) == "elsewhere"]
    here = here if drawn.figures else list(tables.values())[:1]
    shown = {table.name: table for table in here}
    drawn_from = {figure.table.name for figure in drawn.figures}
    further = [one for name, one in tables.items() if name not in shown.keys() | drawn_from]
    blocks: list[Block] = [Prose(one.sentences[: one.lead] or ("Not answered.",))]
    blocks += [drawn] if drawn.figures else []
    blocks += [Tables(tuple(shown.values()), titled=True)] if shown else []
    blocks += [Prose(one.sentences[one.lead :])] if one.sentences[one.lead :] else []
    title = f"{number}. {one.question.text}"
    section = _section(f"question-{number}", title, blocks, one.question.key.replace("_", " "))
    return section, [Heading(title), Tables(tuple(further), titled=True)] if further else []


def _words_table(name: str, title: str, rows: Iterable[Any], **titles: str) -> list[Block]:
    """Return a table of sentences; nothing without rows."""
    columns = [Column(key=key, title=word, text=True) for key, word in titles.items()]
    table = tabulate(name, title, rows, columns).without_empty()
    return [Tables((table,), wordy=True)] if table.rows else []


def _corrections(report: LabReport) -> list[Block]:
    return _words_table(
        "corrections",
        "What was said, what is right, and what shows it",
        report.corrections,
        said="the lab said",
        right="right is",
        shown_by="shown by",
    )


def _choices(report: LabReport) -> list[Block]:
    more = [Choice(what=what, lab=lab, here=here) for what, lab, here in report.method]
    title = "The lab's method, and where this run differs from it"
    rows = (*report.plan.choices, *more)
    return _words_table("choices", title, rows, what="", lab="lab", here="here", why="why")


def _data(report: LabReport) -> list[Block]:
    """Return the lab's data beside those at hand, and some of their samples as a picture."""
    data, lab = report.data, dict(report.original_data)
    counts = [train for train, _ in data.class_counts.values()]
    here = {
        "source": data.source,
        "training samples": whole(data.train),
        "test samples": whole(data.test),
        "classes": whole(len(counts)) if counts else "",
        "training samples per class": _spread(counts) if counts else "",
        "image size": _sides(data.sides),
        "as trained": data.sample,
        "skipped": plural(len(data.skipped), "file") if data.skipped else "nothing",
    }
    rows = [
        Choice(what=key, lab=lab.get(key, ""), here=here.get(key, ""))
        for key in {**here, **lab}
        if here.get(key) or lab.get(key)
    ]
    title = "The lab's data, and those at hand"
    blocks = _words_table("data", title, rows, what="", lab="lab", here="here")
    if report.samples:
        caption = f"Training samples: {data.source}."
        blocks.append(Picture("samples", caption, "Some of the training samples", report.samples))
    if data.skipped:
        more = len(data.skipped) - _MOST_SKIPPED
        rest = (f"and {more:,} more, in report.json",) if more > 0 else ()
        blocks.append(Bullets((*data.skipped[:_MOST_SKIPPED], *rest), folded="Skipped files"))
    return blocks


def _spread(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    same = whole(low)
    return (
        same if low == high else f"{same} to {whole(high)}, mean {whole(sum(counts) / len(counts))}"
    )


def _sides(sides: Sequence[int]) -> str:
    if not sides:
        return ""
    low, mean, high = map(whole, sides)
    return f"{low} pixels a side" if low == high else f"{low} to {high} pixels a side, mean {mean}"


def _conclusion(report: LabReport) -> list[Block]:
    wrong = plural(len(report.corrections), "statement")
    corrected = (f"The appendix corrects {wrong} of the original.",) if report.corrections else ()
    said = (*report.conclusion, *corrected)
    return [Prose(said)] if said else []


def _published(report: LabReport, names: Names) -> list[Block]:
    blocks: list[Block] = []
    for name, info in report.published.items():
        blocks.append(Tables((names.table(published_table(name, info)),), titled=True))
        figure = _beside(name, info, _partners(report, name))
        if figure is not None:
            blocks.append(Figures((names.figure(figure),), table="auto", alone=True))
    return blocks


def _studies(report: LabReport) -> list[Block]:
    blocks: list[Block] = []
    for name, info in report.studies.items():
        blocks += [Heading(report.title_of(name)), Prose((words.paragraph(info),))]
    return blocks or [Prose(("No study was made.",))]


def _commands(report: LabReport) -> list[Block]:
    """Return the command of the lab, and of each study alone.

    Without a limit of time: what a study was given is what the lab had left.
    """
    command = shlex.join(report.command or ("farandole", "lab", report.name))
    blocks: list[Block] = [Commands((command,))]
    environs = {one.name: one.environ for one in report.plan.studies}
    for name, info in report.studies.items():
        unlimited = replace(info, spec={**info.spec, "time_limit_s": None})
        variables = [f"{key}={shlex.quote(value)}" for key, value in environs.get(name, {}).items()]
        line = " ".join([*variables, words.commands(unlimited)[0]])
        blocks += [Prose((report.title_of(name),)), Commands((line,))]
    return blocks


def published_table(name: str, info: ScalingInfo) -> Table:
    """Return a published study's figures by cell; columns without a figure are left out."""
    metrics = list(dict.fromkeys(row.metric for row in info.each("metrics")))
    columns = (
        Column(key="cell", title="cell", text=True),
        Column(key="workers", title="workers", show=whole),
        Column(key="batch_per_worker", title="batch per worker", show=whole),
        Column(key="job_s", title="job (s)", show=_as_published),
        Column(key="epoch_s", title="epoch (s)", show=_as_published),
        Column(key="throughput", title="throughput", show=_as_published),
        Column(key="unit", title="unit", text=True),
        Column(key="speedup", title="speedup", show=times),
        Column(key="efficiency", title="efficiency", show=percent),
        Column(key="gpu_utilisation", title="GPU in use", show=percent),
        *(Column(key=f"metric_{metric}", title=metric, show=_as_published) for metric in metrics),
        Column(key="runs", title="runs", show=whole),
        Column(key="note", title="note", text=True),
    )
    rows = tuple(_published_row(info, metrics, row) for row in info.rows)
    title = f"Published: {info.label or name}"
    return Table(name=f"published-{name}", title=title, columns=columns, rows=rows).without_empty()


def _published_row(info: ScalingInfo, metrics: Sequence[str], own: CellRow) -> tuple[Any, ...]:
    cell, job, use = own.cell, own.job, own.utilisation
    final = {row.metric: row.final for row in own.metrics}
    curve = next((one for one in info.curves if any(p.cell == cell for p in one.points)), None)
    point = None
    if curve is not None and len(_points(curve)) > 1:
        point = next(one for one in curve.points if one.cell == cell and one.valid)
    # Epochs or jobs per second are this table's times once more.
    throughput = None if own.unit in ("epochs/s", "jobs/s") else _value(own.throughput)
    return (
        own.label,
        cell.workers,
        cell.batch,
        _value(job.job_s) if job else None,
        _value(job.epoch_s) if job else None,
        throughput,
        own.unit if throughput is not None else "",
        _value(point.speedup) if point else None,
        _value(point.efficiency) if point else None,
        use.gpu if use else None,
        *(_value(final.get(metric)) for metric in metrics),
        own.attempts if own.attempts > 1 else None,
        own.failed or own.void_for_speed,
    )


def _value(estimate: Any) -> float | None:
    return estimate.value if estimate is not None and known(estimate.value) else None


def _as_published(value: float | None) -> str:
    """Return a figure with the digits that it was published with."""
    return number(value) if value is None or not known(value) else f"{value:.10g}"


def _partners(report: LabReport, name: str) -> dict[str, ScalingInfo]:
    """Return the studies of this machine that belong beside a published one."""
    if name in report.beside:
        return {key: report.studies[key] for key in report.beside[name] if key in report.studies}
    own = name.removeprefix(report.name).strip("_-")
    alike = {key: info for key, info in report.studies.items() if key == own}
    return alike or dict(report.studies)


def _beside(name: str, info: ScalingInfo, here: Mapping[str, ScalingInfo]) -> Figure | None:
    """Draw speedup by workers of both; None where either has no curve."""
    published = _curves({"": info})
    if not published:
        return None
    # Weak and strong scaling in one figure would compare what is not alike.
    scaling = published[0][1].scaling
    published = [pair for pair in published if pair[1].scaling == scaling][:_MOST_PUBLISHED]
    measured = [pair for pair in _curves(here) if pair[1].scaling == scaling]
    measured = measured[: MOST_SERIES - len(published)]
    if not measured:
        return None
    there = unlike(f"published{': ' if label else ''}{label}" for label, _ in published)
    ours = unlike(f"here{': ' if label else ''}{label}" for label, _ in measured)
    rows = [
        (series, point.workers, point.speedup, point.efficiency)
        for names, curves in ((there, published), (ours, measured))
        for series, (_, curve) in zip(names, curves, strict=True)
        for point in _points(curve)
    ]
    both = Table(
        name=f"beside-{name}",
        title="Speedup by workers: published, and measured here",
        columns=(
            Column(key="series", title="series", text=True),
            Column(key="workers", title="workers", show=whole),
            Column(key="speedup", title="speedup", show=times, interval=True),
            Column(key="efficiency", title="efficiency", show=percent, interval=True),
        ),
        rows=tuple(rows),
    )
    return lines(
        f"beside-{name}",
        f"Speedup: {info.label or name}, published and here",
        "Speedup over the fewest workers of each series. Hollow marks: published, on the lab's "
        "machines, one run each; filled marks: measured here; bars are 95 % intervals.",
        both,
        x="workers",
        y="speedup",
        series="series",
        ideal=all(curve.baseline_workers == 1 for _, curve in (*published, *measured)),
        published=there,
    )


def _curves(infos: Mapping[str, ScalingInfo]) -> list[tuple[str, Curve]]:
    """Return curves that have a speedup at two counts or more, main ones first."""
    found = [
        (", ".join(part for part in (name, curve.label) if part), curve)
        for name, info in infos.items()
        if info.answer.void is None
        for curve in info.curves
        if len(_points(curve)) > 1
    ]
    return sorted(found, key=lambda pair: not pair[1].main)


def _points(curve: Curve) -> list[CurvePoint]:
    return [
        point
        for point in curve.points
        if point.valid and point.speedup is not None and known(point.speedup.value)
    ]
