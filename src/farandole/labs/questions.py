"""Questions as data: rows, a table, figures and a template for the sentences.

A lab's question names where its rows come from, which columns its table has, what is drawn from
it, and the sentences of its answer as a template. `answer` puts them together. What does not fit
this shape is a function of its own (`Question.build`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from string import Formatter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

from farandole import format
from farandole.labs.lab import Answered, Found
from farandole.labs.lab import Question as Asked
from farandole.labs.settings import settings_of
from farandole.model.statistics import Estimate
from farandole.report.document import Figure
from farandole.report.table import Column, Table, shown, tabulate

if TYPE_CHECKING:
    from jinja2 import Environment

    from farandole.model.analyse import ScalingInfo

HERE, LAB = "here", "the lab"
"""Where a row's figures come from."""


class Row(SimpleNamespace):
    """One setting with everything known about it; an attribute that is not known is None."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    def but(self, **changes: Any) -> Row:
        """Return the row with changes."""
        return Row(**{**vars(self), **changes})


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """A line chart of a question's table; the rest goes to `charts.lines` as it is."""

    name: str
    title: str
    caption: str
    options: Mapping[str, Any]
    rows: Callable[[Sequence[Row]], Iterable[Row]] | None = None
    """Which rows are drawn, with a table of their own; None: the question's table as a whole."""
    columns: tuple[Column, ...] = ()
    """Of that table."""
    kind: ClassVar[str] = "lines"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars(Lines):
    """A bar chart of a question's table; the rest goes to `charts.bars` as it is."""

    kind: ClassVar[str] = "bars"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One thing that a lab asks, and how it is answered."""

    key: str
    """In report.json and file names: "batch", "communication"."""
    text: str
    title: str = ""
    """Of its table."""
    rows: Callable[[Found], Sequence[Row]] | None = None
    columns: tuple[Column, ...] = ()
    say: str = ""
    """A jinja2 template; every line that is not empty is a sentence. It sees `rows`, `here` and
    `lab` (the rows by source), `found`, and what `facts` returns."""
    facts: Callable[[Found, Sequence[Row]], Mapping[str, Any]] | None = None
    figures: tuple[Lines, ...] = ()
    notes: tuple[str, ...] | Callable[[Sequence[Row]], Sequence[str]] = ()
    """Below the table; a function where they depend on the rows."""
    tables: Callable[[Found, Sequence[Row]], Sequence[Table]] | None = None
    """Further tables."""
    build: Callable[[Found], Answered] | None = None
    """Answers a question that is too special for rows, columns and a template."""

    @property
    def asked(self) -> Asked:
        """The question as the report shows it."""
        return Asked(key=self.key, text=self.text)


def answer(question: Question, found: Found) -> Answered:
    """Answer one question from what the studies found."""
    if question.build is not None:
        return question.build(found)
    assert question.rows is not None
    rows = list(question.rows(found))
    notes = question.notes(rows) if callable(question.notes) else question.notes
    table = tabulate(question.key, question.title, rows, question.columns, notes)
    facts = question.facts(found, rows) if question.facts else {}
    further = question.tables(found, rows) if question.tables else ()
    return Answered(
        question=question.asked,
        sentences=sentences(question.say, found=found, rows=rows, **facts),
        tables=(table, *further),
        figures=tuple(_figure(one, rows, table) for one in question.figures),
    )


def sentences(template: str, *, rows: Sequence[Row] = (), **facts: Any) -> tuple[str, ...]:
    """Return the sentences of a template: its lines that are not empty."""
    here = [row for row in rows if row.source == HERE]
    lab = [row for row in rows if row.source == LAB]
    text = _environment().from_string(template).render(rows=rows, here=here, lab=lab, **facts)
    return tuple(" ".join(line.split()) for line in text.splitlines() if line.strip())


def cell_rows(info: ScalingInfo | None, source: str = HERE) -> list[Row]:
    """Return one row per cell of a study, with everything that is known about the cell."""
    if info is None:
        return []
    rows = []
    for one in info.rows:
        cell, job, use, point = one.cell, one.job, one.utilisation, one.point
        counts = point is not None and point.valid
        main = one.metric(info.main_metric)
        rows.append(
            Row(**dict(cell.params)).but(
                source=source,
                cell=cell,
                label=one.label,
                workers=cell.workers,
                hosts=cell.hosts,
                threads=cell.threads,
                batch=cell.batch,
                device=cell.device,
                today=cell.today,
                throughput=one.throughput,
                unit=one.unit,
                step_s=one.step_s,
                steps_per_epoch=one.steps_per_epoch,
                launches=one.launches,
                attempts=one.attempts,
                failed=one.failed,
                note=one.failed or one.void_for_speed,
                parameters=one.parameters,
                speedup=point.speedup if point and counts else None,
                efficiency=point.efficiency if point and counts else None,
                job_s=job.job_s if job else None,
                epoch_s=job.epoch_s if job else None,
                epochs=job.epochs if job else None,
                startup_s=job.startup_s if job else None,
                cpu=use.cpu if use else None,
                gpu=use.gpu if use else None,
                memory_bytes=use.memory_bytes if use else None,
                final=main.final if main else None,
                seeds=main.seeds if main else None,
                metrics={found.metric: found for found in one.metrics},
                metric_curves=one.metric_curves,
                job=job,
                use=use,
                point=point,
                split=one.split,
                communication=one.communication,
            )
        )
    return rows


def setting_rows(found: Found, *studies: str, metric: str) -> list[Row]:
    """Return one row per way in which the script was run, with all that is known about its cell.

    `final` is the metric at the end of training, over the seeds that ran to their end.
    """
    cells = {
        (name, row.cell): row for name in studies for row in cell_rows(found.studies.get(name))
    }
    names = [
        *("study", "workers", "batch", "recipe", "samples", "test_samples", "epochs", "rate"),
        *("global_batch", "steps", "whole_steps", "counted", "seeds"),
    ]
    return [
        cells.get((one.study, one.launches[0].cell), Row()).but(
            source=HERE,
            setting=one,
            final=one.final(metric),
            **{name: getattr(one, name) for name in names},
        )
        for one in settings_of(found, *studies)
    ]


def choose(known: Iterable[Column], keys: str) -> tuple[Column, ...]:
    """Return columns by their keys: "source workers accuracy"."""
    by_key = {column.key: column for column in known}
    return tuple(by_key[key] for key in keys.split())


def estimate(value: float | None) -> Estimate | None:
    """Return a figure without an interval."""
    return None if value is None else Estimate(value=value, low=None, high=None)


def interval(value: Any, show: Callable[[Any], str] = format.number) -> str:
    """Return "1.83x (1.79 to 1.87)", or the figure alone where there is no interval."""
    return shown(Column(key="", title="", show=show, interval=True), value)


def each(rows: Iterable[Any], sentence: str = "%s", *, caller: Callable[[Any], str]) -> str:
    """List what a block of a template says of every row, inside a sentence; empty without rows.

    {% call(row) each(rows, "Losses: %s.") %}{{ row.loss }} on {{ row.workers }}{% endcall %}
    """
    parts = [" ".join(caller(row).split()) for row in rows]
    return sentence % format.listed(parts) if parts else ""


def _figure(one: Lines, rows: Sequence[Row], table: Table) -> Figure:
    if one.rows is not None:
        table = tabulate(one.name, one.title, one.rows(rows), one.columns)
    from farandole.report import charts  # imports Altair

    draw: Callable[..., Figure] = getattr(charts, one.kind)
    return draw(one.name, one.title, one.caption, table, **one.options)


class _Parts(Formatter):
    """Writes rows into a sentence: `rows | each("{model} {speedup.value:times}")`."""

    filters: Mapping[str, Callable[[Any], str]]

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return a value by the filter of this name, or else as Python formats it."""
        show = self.filters.get(format_spec)
        return show(value) if show else super().format_field(value, format_spec)


@cache
def _environment() -> Environment:
    """Return the environment of the sentences: the one formatter as filters."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(undefined=StrictUndefined, trim_blocks=True, autoescape=False)
    parts = _Parts()
    parts.filters = environment.filters
    names = ("number", "percent", "times", "seconds", "size", "rate", "whole", "brief", "listed")
    environment.filters |= {name: getattr(format, name) for name in names}
    environment.filters |= {
        "count": format.plural,
        "interval": interval,
        "interval_times": lambda value: interval(value, format.times),
        "interval_seconds": lambda value: interval(value, format.seconds),
        "four": lambda value: f"{value:.4f}",
        "each": lambda rows, pattern: format.listed(
            [parts.vformat(pattern, (), vars(row)) for row in rows]
        ),
    }
    environment.globals["each"] = each
    return environment
