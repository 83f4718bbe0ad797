"""Questions as data: rows, a table, figures and a template for the sentences.

A lab's question names where its rows come from, which columns its table has, what is drawn from
it, and the sentences of its answer as a template. `answer` puts them together. Questions that
several labs ask are at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from statistics import fmean
from string import Formatter
from typing import TYPE_CHECKING, Any

from farandole import format
from farandole.labs.lab import Answered, Correction, Found
from farandole.labs.rows import (
    HERE,
    LAB,
    Row,
    absent,
    cell_rows,
    column,
    columns,
    compared,
    exchange_words,
    exchanged,
    first,
    four,
    having,
    in_points,
    limits,
    measure,
    points,
    relation_words,
    setting_rows,
    signed,
    split_words,
    text,
    use_words,
)
from farandole.model.statistics import Estimate
from farandole.report import charts
from farandole.report.document import Figure
from farandole.report.table import Column, Table, shown, tabulate

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One figure of a question; `lines`, `bars` and `boxes` make them."""

    kind: str
    """The function of `report.charts` that draws it."""
    name: str
    title: str
    caption: str
    parts: tuple[str | Column, ...]
    """Its columns: by their keys those of the question or shared ones, others as they are."""
    rows: Callable[[Sequence[Row]], Iterable[Row]] | None
    """Which rows are drawn, with a table of their own; None: the question's table as a whole."""
    options: Mapping[str, Any]
    """What else `report.charts` is given."""


def _chart(
    kind: str,
    name: str,
    title: str,
    caption: str,
    *parts: str | Column,
    rows: Callable[[Sequence[Row]], Iterable[Row]] | None = None,
    **options: Any,
) -> Chart:
    """Draw the last column over the one before it, by the first where there are three.

    Rows without that figure are left out. Without `rows`, and by keys alone, the question's own
    table is drawn.
    """
    split = [each for part in parts for each in (part.split() if isinstance(part, str) else [part])]
    keys = [part if isinstance(part, str) else part.key for part in reversed(split)]
    own = any(isinstance(part, Column) for part in split)
    if kind != "boxes":
        options = dict(zip(("y", "x", "series"), keys, strict=False)) | options
    return Chart(
        kind=kind,
        name=name,
        title=title,
        caption=caption,
        parts=tuple(split),
        rows=rows or (list if own else None),
        options=options,
    )


lines, bars, boxes = (partial(_chart, kind) for kind in ("lines", "bars", "boxes"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One thing that a lab asks, and how it is answered."""

    key: str
    """In report.json and file names: "batch", "communication"."""
    text: str = ""
    title: str = ""
    """Of its table."""
    rows: Callable[[Found], Sequence[Row]] = lambda found: ()
    columns: tuple[Column, ...] = ()
    say: str = ""
    """A jinja2 template; every line that is not empty is a sentence. It sees `rows`, `here` and
    `lab` (the rows by source), `found`, and what `facts` returns."""
    facts: Callable[[Found, Sequence[Row]], Mapping[str, Any]] | None = None
    figures: tuple[Chart, ...] = ()
    why: str = ""
    """The usual reason, which was not measured; said after the answer."""
    study: str = ""
    """Whose limits are said at the end: workers beyond the cores, other programs, single runs."""
    notes: tuple[str, ...] = ()
    """Below the table."""
    tables: tuple[Question, ...] = ()
    """Further tables, each shown where it has rows."""


def answers(questions: Sequence[Question], found: Found) -> tuple[Answered, ...]:
    """Answer a lab's questions; what limits a study is said once, where it is first used."""
    firsts: dict[str, str] = {}
    for question in questions:
        firsts.setdefault(question.study, question.key)
    return tuple(answer(one, found, firsts[one.study] == one.key) for one in questions)


def answer(question: Question, found: Found, limited: bool = True) -> Answered:
    """Answer one question from what the studies found."""
    rows = list(question.rows(found))
    table = _table(question, rows)
    facts = question.facts(found, rows) if question.facts else {}
    further = [_table(one, own) for one in question.tables if (own := one.rows(found))]
    said = sentences(question.say, found=found, rows=rows, **facts)
    reasons = [question.why, *(limits(found, question.study) if limited else [])]
    return Answered(
        question=question,
        sentences=(*said, *filter(None, reasons)),
        lead=min(2, len(said)),
        tables=(table, *further),
        figures=tuple(_figure(one, question, rows, table) for one in question.figures),
    )


def _table(question: Question, rows: Iterable[Row]) -> Table:
    return tabulate(question.key, question.title, rows, question.columns, question.notes, absent)


def sentences(template: str, *, rows: Sequence[Row] = (), **facts: Any) -> tuple[str, ...]:
    """Return the sentences of a template: its lines that are not empty."""
    here = [row for row in rows if row.source == HERE]
    lab = [row for row in rows if row.source == LAB]
    text = _environment().from_string(template).render(rows=rows, here=here, lab=lab, **facts)
    return tuple(" ".join(line.split()) for line in text.splitlines() if line.strip())


def correct(templates: Iterable[Sequence[str]], **facts: Any) -> tuple[Correction, ...]:
    """Return corrections from templates: what was said, what is right, and what shows it."""
    texts = [[" ".join(sentences(text, **facts)) for text in one] for one in templates]
    return tuple(Correction(said=said, right=right, shown_by=by) for said, right, by in texts)


def interval(value: Any, show: Callable[[Any], str] = format.number) -> str:
    """Return "1.83x (1.79 to 1.87)", or the figure alone where there is no interval."""
    return shown(Column(key="", title="", show=show, interval=True), value)


def _figure(one: Chart, question: Question, rows: Sequence[Row], table: Table) -> Figure:
    own = {column.key: column for column in question.columns}
    parts = columns(*(own.get(part, part) if isinstance(part, str) else part for part in one.parts))
    options = dict(one.options)
    if one.rows is not None:
        rows = [
            row for row in one.rows(rows) if one.kind == "boxes" or parts[-1].cell(row) is not None
        ]
        table = tabulate(one.name, one.title, rows, parts, absent=absent)
    if "series" in options and one.kind == "lines":
        options["published"] = {parts[0].cell(row) for row in rows if row.hollow}
    draw: Callable[..., Figure] = getattr(charts, one.kind)
    return draw(one.name, one.title, one.caption, table, **options)


def drawn(answered: Answered, source: str) -> tuple[Column, list[tuple[float, Any]]] | None:
    """Return the column that a question's first such figure shows of a source, and its cells by x.

    Out of the figure's table or the question's, rather of one that names the source of its rows;
    None where neither has a number on both axes.
    """
    for spec, figure in zip(answered.question.figures, answered.figures, strict=False):
        x, y = str(spec.options.get("x")), str(spec.options.get("y"))
        tables = [figure.table, *answered.tables[:1]]
        tables.sort(key=lambda table: all(column.key != "source" for column in table.columns))
        for table in tables:
            cells = [
                (float(row[x]), row[y])
                for row in table.records()
                if str(row.get("source", HERE)).startswith(source)
                if isinstance(row.get(x), int | float)
                if isinstance(row.get(y), int | float | Estimate)
            ]
            if cells:
                return table.column(y), sorted(cells, key=lambda cell: cell[0])
    return None


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
        "exchange_words": exchange_words,
        "having": having,
        "relation": relation_words,
        "split_words": split_words,
        "use_words": use_words,
        "interval": interval,
        "interval_four": lambda value: interval(value, four),
        "interval_times": lambda value: interval(value, format.times),
        "interval_seconds": lambda value: interval(value, format.seconds),
        "four": four,
        "signed": signed,
        "points": points,
        "in_points": in_points,
        "workers": lambda number: format.plural(number, "worker"),
        "end": lambda row: format.number(row.loss.value) if row.loss else "no finite value",
        "epochs": lambda number: f"{format.brief(number)} epoch{'' if number == 1 else 's'}",
        "each": lambda rows, pattern: (
            format.listed([parts.vformat(pattern, (), vars(row)) for row in rows])
            or format.NOT_MEASURED
        ),
    }
    return environment


# Questions that several labs ask.

_RECIPES = """
{% if base and most and base.seeds < 2 %}
One seed cannot tell whether {{ most[0].workers | workers }} lose accuracy: with \
{{ base.workers | workers }} it ends at {{ base.final.value | four }}, and the difference is \
{{ most | each("{difference.value:signed} points with {recipe}{divergence}") }}.
{% elif base and most %}
{{ most[0].workers | workers }} lose {{ "accuracy with recipe %s" | format(lost | listed) if lost
   else "no accuracy that these runs can show" }}: \
{{ most | each("{recipe} {difference:points}{divergence}") }}, against {{ base.final | interval_four
}} with {{ base.workers | workers }}.
{% endif %}
{% if base and most %}
With {{ base.test_samples | whole }} test samples and {{ base.seeds | count("seed") }}, only \
differences above {{ most[0].resolvable | in_points }} points are detectable.
{% else %}
Only one number of workers ran to its end: there is nothing to compare.
{% endif %}
"""


def _recipe_facts(rows: Sequence[Row]) -> dict[str, Any]:
    others = having(rows, "difference")
    most = having(others, workers=max((row.workers for row in others), default=0))
    for row in most:
        row.divergence = f", {row.gap.diverged} of its seeds diverged" if row.gap.diverged else ""
    lost = [row.recipe for row in having(most, verdict="loses")]
    return {"base": first(rows, base=True), "most": most, "lost": lost}


def recipe_lines(rows: Sequence[Row]) -> list[Row]:
    """Return a line per recipe, each of which begins with the fewest workers."""
    base, others = having(rows, base=True), having(rows, base=False)
    return [
        row.but(recipe=name)
        for name in dict.fromkeys(row.recipe for row in others or base)
        for row in (*base, *having(others, recipe=name))
    ]


def _difference(row: Row) -> Estimate | None:
    """Return the difference to the baseline; of itself none, by definition."""
    return Estimate(value=0.0, low=0.0, high=0.0) if row.base else row.difference


def compare_recipes(
    key: str,
    text: str,
    *,
    rows: Callable[[Found], Sequence[Row]] = lambda found: compared(
        setting_rows(found, "workers", "recipes")
    ),
    facts: Callable[[Found, Sequence[Row]], Mapping[str, Any]] = lambda found, rows: {},
    say: str = "",
    figures: tuple[Chart, ...] = (),
    **given: Any,
) -> Question:
    """Ask what accuracy loses as workers are added, and which recipe keeps it.

    `rows` have the setting with the fewest workers marked as their base; `say` are further
    sentences, with what they need beside `facts`.
    """
    usual = {
        "why": "With more workers an epoch has fewer steps. A scaled rate makes up for that, a "
        "warm-up protects untrained weights from it, and more epochs add steps."
    }
    return Question(
        key=key,
        text=text,
        title="Accuracy by recipe and workers, with the difference to the fewest workers",
        rows=rows,
        columns=columns(
            "recipe workers global_batch rate epochs",
            column("steps", "steps", format.whole, "counted"),
            "accuracy",
            measure("difference", "difference (points)", signed, _difference),
            "seeds resolvable verdict",
        ),
        notes=(
            "Differences are paired by seeds, with 90 % intervals. Resolvable: the smallest "
            "difference of two such accuracies that the test samples can tell from none.",
        ),
        facts=lambda found, rows: {**_recipe_facts(rows), **facts(found, rows)},
        say=_RECIPES + say,
        figures=(
            lines(
                "accuracy-by-recipe",
                "Accuracy by recipe and workers",
                "At the end of training, over seeds. Every line begins with the fewest workers, "
                "where fixed, linear and warmup are the same.",
                "recipe workers accuracy",
                rows=recipe_lines,
                zero=False,
            ),
            *figures,
        ),
        **(usual | given),
    )


AVERAGING = Question(
    key="averaging",
    text="What is averaged over the workers, and how often?",
    title="Gradients sent per step, and different weights at the end",
    rows=lambda found: [
        row for one in setting_rows(found, "workers", "recipes") if (row := exchanged(one)).ranks
    ],
    columns=columns(
        "recipe workers epochs steps gradient_bytes",
        column("model_bytes", "all gradients once", format.size),
        column("fingerprints", "different weights", format.whole),
    ),
    notes=("Weights are compared by a fingerprint of all parameters after the last step.",),
    say="{{ rows | exchange_words }}",
    why="Weights travel once, at the start: with equal gradients they stay equal.",
)


# Utilisation over time.

_POINTS = 16
"""Of a line: each is the mean of as many samples in a row."""
_KEEPS_UP = 0.05
"""Input that takes less than this share of a step keeps up."""


def input_words(rows: Sequence[Row]) -> str:
    """Say whether samples come in time, or by how much they do not."""
    known = having(rows, "data_share")
    if not known:
        return "Waiting for data was not measured."
    most = max(known, key=lambda row: float(row.data_share))
    kept = "keeps up" if most.data_share < _KEEPS_UP else "is too slow"
    share, workers = format.percent(most.data_share), format.plural(most.workers, "worker")
    return f"Input {kept}: waiting for data takes up to {share} of a step ({workers})."


def rank_rows(found: Found) -> list[Row]:
    """Return every rank of every number of workers, with what it used of the machine."""
    rows = []
    for cell in having(cell_rows(found.studies.get("workers")), "use", today=False):
        split = cell.split or Row(compute_by_rank_s=())
        cell.setting = format.plural(cell.workers, "worker")
        cell.data_share = split.data_s / split.step_s if split.data_s is not None else None
        for rank, cpu, _, memory in cell.use.by_rank:
            row = cell.but(rank=rank, cpu=cpu, memory_bytes=memory)
            row.compute_s = dict(split.compute_by_rank_s).get(rank)
            row.sampled = [one for one in cell.utilisation_series if one.rank == rank]
            rows.append(row)
    return rows


def _over_time(rows: Sequence[Row]) -> list[Row]:
    """Return the utilisation over time of the fewest workers, and of the most that have a core."""
    fitting = [row for row in rows if row.sampled and not row.note]
    ends = {row.workers for row in (*fitting[:1], *fitting[-1:])}
    return [
        Row(series=f"{row.setting}, rank {row.rank}", time_s=at_s, cpu=cpu)
        for row in fitting
        if row.workers in ends
        for at_s, cpu in thinned(row.sampled[0].time_s, row.sampled[0].cpu)
    ]


def thinned(times_s: Sequence[float], shares: Sequence[float | None]) -> list[tuple[float, float]]:
    """Return at most 16 points of a line, each the mean of as many samples in a row."""
    pairs = zip(times_s, shares, strict=True)
    samples = [(time_s, share) for time_s, share in pairs if share is not None]
    width = max(1, math.ceil(len(samples) / _POINTS))
    parts = [samples[at : at + width] for at in range(0, len(samples), width)]
    return [(fmean(time_s for time_s, _ in part), fmean(cpu for _, cpu in part)) for part in parts]


def _use_sentences(found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    cells = [row for row in cell_rows(found.studies.get("workers")) if row.use and not row.today]
    ends = [*cells[:1], *cells[1:][-1:]]
    said = [use_words(row.use) for row in ends] or ["Utilisation was not measured."]
    said += [split_words(row.split) for row in cells[-1:] if row.split]
    return {"said": [*said, input_words(rows)]}


UTILISATION = Question(
    key="utilisation",
    text="How busy are the workers over time?",
    title="Utilisation, memory and waiting for data by worker",
    rows=rank_rows,
    columns=columns(
        "workers rank cpu memory_bytes",
        column("data_share", "step spent waiting for data", format.percent),
    ),
    notes=("Utilisation is of the cores that a worker may use, from its first step on.",),
    facts=_use_sentences,
    say='{{ said | join("\n") }}',
    figures=(
        lines(
            "utilisation-over-time",
            "CPU utilisation over time",
            "Share of its cores that each worker kept busy while it trained and validated; what "
            "comes before is start-up.",
            *(text("series", "worker"), column("time_s", "time", format.seconds), "cpu"),
            rows=_over_time,
            x_log=False,
            x_title="time since the launch (s)",
        ),
    ),
)
