"""The report of a lab: its questions answered, as a document, as JSON and on a terminal."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole.format import known, moment, number, percent, plural, seconds, whole
from farandole.labs.lab import Answered, Choice, Correction, Found, Lab
from farandole.labs.questions import sentences
from farandole.labs.rows import LAB, Row, absent, busy_sentence, cell_rows, column, columns, text
from farandole.report import render, words
from farandole.report.anonymous import Scrub, anonymous_study, scrubbed, secrets_of
from farandole.report.document import (
    Block,
    Bullets,
    Commands,
    Document,
    Figures,
    Heading,
    Names,
    Opening,
    Picture,
    Prose,
    Section,
    Tables,
)
from farandole.report.escape import plain, visible
from farandole.report.study import answer_json
from farandole.report.table import Column, Table, tabulate
from farandole.report.words import machine_facts
from farandole.version import __version__

if TYPE_CHECKING:
    from farandole.model.analyse import ScalingInfo

SCHEMA = 1
QUICK = "Quick: one run per setting, no intervals. Differences may be noise."
_MOST_LEADING = 3
_MOST_SKIPPED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LabReport:
    """Everything that the report of one lab shows."""

    lab: Lab
    found: Found
    answered: tuple[Answered, ...]
    """In the lab's order."""
    corrections: tuple[Correction, ...] = ()
    method: tuple[Choice, ...] = ()
    """Rows "what / lab / here" beyond the plan's choices."""
    conclusion: tuple[str, ...] = ()
    created: str
    """ISO 8601, UTC."""
    samples: bytes = b""
    """A picture of some of the training samples, PNG."""
    busy: str = ""
    """What other programs took of the machine, in a sentence; empty when none did."""

    @property
    def headline(self) -> tuple[str, ...]:
        """The first sentence of each of the most important answers."""
        by_key = {one.question.key: one for one in self.answered}
        chosen = [by_key[key] for key in self.lab.leading if key in by_key]
        chosen = chosen or [one for one in self.answered if one.sentences][:_MOST_LEADING]
        return tuple(one.sentences[0] for one in chosen if one.sentences)

    @property
    def subtitle(self) -> str:
        """Which lab this is, at which size and when."""
        asked = self.found.asked
        size = {"quick": QUICK.partition(".")[0].lower(), "full": "the lab's literal protocol"}
        minutes = (asked.budget_s or 0.0) / 60
        given = plural(int(minutes), "minute") if minutes.is_integer() else seconds(60 * minutes)
        parts = (f"Lab {self.lab.name}", size.get(asked.size, f"planned to fit {given}"))
        return ", ".join(part for part in (*parts, moment(self.created)) if part)

    @property
    def machine(self) -> Mapping[str, object]:
        """What the lab ran on: its studies were made one after the other on one machine."""
        return next((info.machine for info in self.found.studies.values()), {})

    @property
    def titles(self) -> dict[str, str]:
        """What each study is for."""
        return {one.name: one.title for one in self.found.plan.studies}

    @property
    def notes(self) -> list[str]:
        """What is not shown, in sentences."""
        found, titles = self.found, self.titles
        failed = [
            f"The study {name} ({titles[name]}) has no figures: {why.rstrip('.')}."
            for name, why in found.failed.items()
        ]
        lost = [name for name in titles if name not in {**found.studies, **found.failed}]
        return [*failed, *(f"Not made: {titles[name]}" for name in lost)]


def lab_report(lab: Lab, found: Found, *, created: str) -> LabReport:
    """Answer a lab's questions and put together what its report shows."""
    from farandole.labs.data import draw_samples

    answered = lab.answer(found)
    by_key = {one.question.key: one for one in answered}
    return LabReport(
        lab=lab,
        found=found,
        answered=answered,
        corrections=lab.corrections(found),
        method=tuple(Choice(what=what, lab=there, here=here) for what, there, here in lab.method),
        conclusion=sentences(lab.conclusion, found=found, answers=by_key),
        created=created,
        samples=draw_samples(lab.name, found.asked.data),
        busy=busy_sentence(found),
    )


def write_lab(
    report: LabReport,
    folder: str | os.PathLike[str],
    *,
    figures: Sequence[str] = ("png",),
    tables: Sequence[str] = ("csv", "md"),
) -> Path:
    """Write report.html, report.md, report.json, figures/ and tables/; return the page's path.

    The folder is made, and what an earlier report left there is replaced. Pictures are png, svg or
    pdf, tables csv, md or tex.

    Raises:
        UsageError: An ending is not known.
        StoreError: The folder cannot be written to.
    """
    # ASCII: names of files need not be UTF-8, and escapes keep them.
    content = json.dumps(to_json(report), indent=1, allow_nan=False).encode() + b"\n"
    more = {"report.json": content}
    return render.write(document(report), folder, figures=figures, tables=tables, more=more)


def anonymous(report: LabReport) -> LabReport:
    """Return the same answers and figures without host, user, path, address or commit.

    Titles of studies, and what was published, are the lab's own words and stay.
    """
    found = report.found
    secrets = {secret for info in found.studies.values() for secret in secrets_of(info)}
    studies = {name: anonymous_study(info, info.label) for name, info in found.studies.items()}
    samples = report.samples if found.asked.data is None else b""
    found = replace(found, studies=studies, records={}, published_records={})
    shown = replace(report, found=found, created="", samples=samples)
    bare: LabReport = scrubbed(shown, Scrub(secrets, {}))
    return replace(bare, lab=report.lab)


def terminal_lines(report: LabReport, page: str | Path | None = None) -> list[str]:
    """Return the title, one sentence per question and the path of the page that was written."""
    lines = [visible(f"{report.lab.title} ({report.subtitle})"), ""]
    width = max((len(visible(one.question.key)) for one in report.answered), default=0)
    for one in report.answered:
        sentence = one.sentences[0] if one.sentences else "not answered"
        lines.append(f"  {visible(one.question.key).ljust(width)}  {visible(sentence)}")
    notes = [*([report.busy] if report.busy else []), *report.notes]
    lines += ["", *map(visible, notes)] if notes else []
    return [*lines, "", f"report: {visible(page)}"] if page is not None else lines


def to_json(report: LabReport) -> dict[str, Any]:
    """Return questions, answers and tables; None stands for "not measured".

    docs/labs-report.md has the schema.
    """
    lab, found = report.lab, report.found
    return {
        "schema": SCHEMA,
        "kind": "farandole-lab",
        "lab": lab.name,
        "title": lab.title,
        "headline": list(report.headline),
        "version": __version__,
        "created": report.created,
        "command": list(found.asked.command(lab.name)),
        "size": found.asked.size,
        "budget_s": plain(found.asked.budget_s),
        "introduction": lab.introduction,
        "choices": plain(found.plan.choices),
        "method": [{"what": x.what, "lab": x.lab, "here": x.here} for x in report.method],
        "data": plain(found.data),
        "original_data": dict(lab.original_data),
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
        "references": list(lab.references),
        "corrections": plain(report.corrections),
        "published": {
            name: {"label": info.label, "table": _table_json(published_table(name, info))}
            for name, info in found.published.items()
        },
        "studies": {
            name: {
                "headline": info.answer.headline,
                **answer_json(info.answer),
                "complete": info.complete,
            }
            for name, info in found.studies.items()
        },
        "notes": report.notes,
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
    lab, found = report.lab, report.found
    names = Names("corrections", "choices", "data")
    questions = [_question(number, one, names) for number, one in enumerate(report.answered, 1)]
    undrawn = [figure.title for one in report.answered for figure in one.figures if not figure.spec]
    lost = [*report.notes, *(f"Nothing to draw: {title}" for title in dict.fromkeys(undrawn))]
    wrong = plural(len(report.corrections), "statement")
    corrected = (f"The appendix corrects {wrong} of the original.",) if report.corrections else ()
    quick = QUICK if found.asked.size == "quick" else ""
    title = "What was said, what is right, and what shows it"
    heads = {"said": "the lab said", "right": "right is", "shown_by": "shown by"}
    corrections = _words_table("corrections", title, report.corrections, **heads)
    body: list[Section] = [
        _section("introduction", "Introduction", _prose(lab.introduction)),
        _section("data", "Data", _data(report), link="data"),
        _section("choices", "Method", _method(report), link="method"),
        *(section for section, _ in questions),
        _section("conclusion", "Conclusion", _prose(*report.conclusion, *corrected), "conclusion"),
        _section("references", "References", _bullets(lab.references)),
    ]
    appendix = [
        _section("corrections", "What the original got wrong", corrections, "appendix"),
        _section("tables", "Further tables", [block for _, more in questions for block in more]),
        _section("published", "The lab's own figures", _published(report, names)),
        _section("missing", "Not shown", _bullets(lost)),
        _section("method", "How it was measured", _studies(report)),
        _section("machine", "Machine", [machine_facts(report.machine)]),
        _section("commands", "Commands that reproduce it", _commands(report)),
    ]
    opening = Opening(
        label=report.subtitle,
        note=", ".join(words.machine_parts(report.machine)),
        headline=lab.title,
        sentences=(*report.headline, *filter(None, (quick, report.busy))),
    )
    sections = (*body, *(replace(section, appendix=True) for section in appendix))
    return Document(
        title=f"{lab.name}: {lab.title}",
        openings=(opening,),
        sections=tuple(section for section in sections if section.blocks),
        extra_tables=tuple(names.table(table) for one in report.answered for table in one.tables),
    )


def _section(key: str, title: str, blocks: Sequence[Block], link: str = "") -> Section:
    return Section(key=key, title=title, link=link, blocks=tuple(blocks))


def _prose(*sentences: str) -> list[Block]:
    return [Prose(sentences)] if any(sentences) else []


def _bullets(items: Sequence[str]) -> list[Block]:
    return [Bullets(tuple(items))] if items else []


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
    blocks = _prose(*(one.sentences[: one.lead] or ("Not answered.",)))
    blocks += [drawn] if drawn.figures else []
    blocks += [Tables(tuple(shown.values()), titled=True)] if shown else []
    blocks += _prose(*one.sentences[one.lead :])
    title = f"{number}. {one.question.text}"
    section = _section(f"question-{number}", title, blocks, one.question.key.replace("_", " "))
    return section, [Heading(title), Tables(tuple(further), titled=True)] if further else []


def _words_table(name: str, title: str, rows: Iterable[Any], **titles: str) -> list[Block]:
    """Return a table of sentences; nothing without rows."""
    columns = [Column(key=key, title=word, text=True) for key, word in titles.items()]
    table = tabulate(name, title, rows, columns).without_empty()
    return [Tables((table,), wordy=True)] if table.rows else []


def _method(report: LabReport) -> list[Block]:
    title = "The lab's method, and where this run differs from it"
    rows = (*report.found.plan.choices, *report.method)
    return _words_table("choices", title, rows, what="", lab="lab", here="here", why="why")


def _data(report: LabReport) -> list[Block]:
    """Return the lab's data beside those at hand, and some of their samples as a picture."""
    data, lab = report.found.data, dict(report.lab.original_data)
    counts = [train for train, _ in data.class_counts.values()]
    spread = [min(counts), sum(counts) / len(counts), max(counts)] if counts else []
    here = {
        "source": data.source,
        "training samples": whole(data.train),
        "test samples": whole(data.test),
        "classes": whole(len(counts)) if counts else "",
        "training samples per class": _range(spread),
        "image size": _range(data.sides, " pixels a side"),
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


def _range(values: Sequence[float], unit: str = "") -> str:
    """Write the smallest, the mean and the largest of something."""
    if not values:
        return ""
    low, mean, high = map(whole, values)
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}, mean {mean}"


def _published(report: LabReport, names: Names) -> list[Block]:
    tables = [published_table(name, info) for name, info in report.found.published.items()]
    return [Tables((names.table(table),), titled=True) for table in tables]


def _studies(report: LabReport) -> list[Block]:
    blocks: list[Block] = []
    for name, info in report.found.studies.items():
        blocks += [Heading(report.titles.get(name, name)), Prose((words.paragraph(info),))]
    return blocks or [Prose(("No study was made.",))]


def _commands(report: LabReport) -> list[Block]:
    """Return the command of the lab, and of each study alone.

    Without a limit of time: what a study was given is what the lab had left.
    """
    found = report.found
    blocks: list[Block] = [Commands((shlex.join(found.asked.command(report.lab.name)),))]
    environs = {one.name: one.environ for one in found.plan.studies}
    for name, info in found.studies.items():
        unlimited = replace(info, spec={**info.spec, "time_limit_s": None})
        variables = [f"{key}={shlex.quote(value)}" for key, value in environs[name].items()]
        line = " ".join([*variables, words.commands(unlimited)[0]])
        blocks += [Prose((report.titles[name],)), Commands((line,))]
    return blocks


def published_table(name: str, info: ScalingInfo) -> Table:
    """Return a published study's figures by cell; columns without a figure are left out."""
    metrics = list(dict.fromkeys(row.metric for row in info.each("metrics")))
    alone = {
        point.cell
        for curve in info.curves
        for point in curve.points
        if sum(one.valid and one.speedup is not None for one in curve.points) < 2
    }

    def exact(key: str, title: str, get: Any) -> Column:
        return column(key, title, _as_published, lambda row: _value(get(row)))

    def ratio(one: Column) -> Column:
        def get(row: Row) -> float | None:
            return None if row.cell in alone else _value(one.cell(row))

        return replace(one, interval=False, get=get)

    shown = (
        text("cell", "cell", "label"),
        column("workers", "workers", whole),
        column("batch_per_worker", "batch per worker", whole, "batch"),
        exact("job_s", "job (s)", lambda row: row.job_s),
        exact("epoch_s", "epoch (s)", lambda row: row.epoch_s),
        exact("throughput", "throughput", lambda row: row.throughput if row.unit else None),
        text("unit", "unit"),
        *map(ratio, columns("speedup efficiency")),
        column("gpu_utilisation", "GPU in use", percent, "gpu"),
        *(exact(f"metric_{key}", key, _final_of(key)) for key in metrics),
        column("runs", "runs", whole, lambda row: row.attempts if row.attempts > 1 else None),
        text("note", "note"),
    )
    rows = [
        # Epochs or jobs per second are this table's times once more.
        row.but(unit="" if row.unit in ("epochs/s", "jobs/s") else row.unit)
        for row in cell_rows(info, LAB)
    ]
    title = f"Published: {info.label or name}"
    return tabulate(f"published-{name}", title, rows, shown, absent=absent).without_empty()


def _final_of(metric: str) -> Any:
    return lambda row: row.metrics[metric].final if metric in row.metrics else None


def _value(estimate: Any) -> float | None:
    return estimate.value if estimate is not None and known(estimate.value) else None


def _as_published(value: float | None) -> str:
    """Return a figure with the digits that it was published with."""
    return number(value) if value is None or not known(value) else f"{value:.10g}"
