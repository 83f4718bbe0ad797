"""A lab as an exercise: a notebook that asks for a prediction, runs the studies, and compares."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from farandole.errors import UsageError
from farandole.labs.lab import Answered, Asked, Lab, load_lab
from farandole.labs.questions import drawn
from farandole.labs.report import LabReport
from farandole.labs.rows import HERE
from farandole.model.statistics import Estimate
from farandole.report.render import pictures
from farandole.report.table import to_markdown
from farandole.study.folder import write_text
from farandole.study.progress import Listener
from farandole.world.cores import read_cores

_INTRODUCTION = """\
# {lab.title}

{lab.introduction}

Every part asks for a prediction first. Write it down, run the cells, and compare. The studies \
are made once, at quick size, in the folder `{out}` beside this notebook; a second run reuses \
them. One run per setting has no intervals: differences may be noise.
"""
_QUESTION = """\
## {number}. {question.text}

Your prediction: a number or a few words.{hint}
"""


def write_notebook(lab: Lab, path: Path) -> Path:
    """Write the notebook of a lab.

    Raises:
        UsageError: There is one already, perhaps with somebody's predictions.
        StoreError: The folder cannot be written to.
    """
    if path.exists():
        raise UsageError(f"{path} is there already. Name another folder with --out.")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(notebook(lab), indent=1) + "\n")
    return path


def notebook(lab: Lab) -> dict[str, Any]:
    """Return a notebook (nbformat 4.5) with two cells of code per question."""
    out = f"lab-{lab.name}-exercise"
    start = "from farandole.labs.exercise import Exercise\n\n"
    cells = [
        _cell("markdown", _INTRODUCTION.format(lab=lab, out=out)),
        _cell("code", f'{start}lab = Exercise("{lab.name}", out="{out}")'),
    ]
    for number, question in enumerate(lab.questions, 1):
        y = question.figures[0].options.get("y") if question.figures else None
        x = question.figures[0].options.get("x") if question.figures else None
        hint = f" For a number: `{y}` at the largest `{x}` measured here." if x and y else ""
        text = _QUESTION.format(number=number, question=question, hint=hint)
        cells += [
            _cell("markdown", text),
            _cell("code", f'lab.predict("{question.key}", ...)  # replace the dots'),
            _cell("code", f'lab.result("{question.key}")'),
        ]
    cells += [_cell("markdown", "## What you predicted, and what came out")]
    cells += [_cell("code", "lab.comparison()")]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": cells}


def _cell(kind: str, source: str) -> dict[str, Any]:
    code: dict[str, Any] = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, "source": source, **code}


@dataclass(frozen=True, slots=True)
class Markdown:
    """Text that a notebook shows formatted."""

    text: str

    def _repr_markdown_(self) -> str:
        return self.text


@dataclass(slots=True)
class Exercise:
    """A lab in a notebook."""

    lab: str
    out: str
    predictions: dict[str, Any] = field(default_factory=dict)
    _report: LabReport | None = None

    def predict(self, key: str, value: Any) -> None:
        """Keep a prediction for a question: a number, or words."""
        self.predictions[key] = None if value is ... else value

    def result(self, key: str) -> Markdown:
        """Answer a question from the lab's studies, which are made on the first call."""
        one = self._answered(key)
        parts = [self._compared(one), *one.sentences]
        parts += [to_markdown(table) for table in one.tables[:1] if table.rows]
        for figure in one.figures:
            if figure.spec:
                png = b64encode(pictures(figure, ["png"])["png"]).decode()
                parts.append(f"![{figure.alt}](data:image/png;base64,{png})")
        return Markdown("\n\n".join(parts))

    def comparison(self) -> Markdown:
        """Return every prediction beside what came out."""
        lines = [
            f"- **{one.question.text}** {self._compared(one)} "
            f"{one.sentences[0] if one.sentences else 'Not answered.'}"
            for one in self._all().answered
        ]
        return Markdown("\n".join(lines))

    def _compared(self, one: Answered) -> str:
        value = self.predictions.get(one.question.key)
        if value is None:
            return "You predicted nothing."
        measured = measured_at_most(one)
        if not isinstance(value, int | float) or measured is None:
            return f"You predicted: {value}."
        title, figure = measured
        off = f", {abs(value / figure - 1):.0%} off" if figure else ""
        return f"You predicted {value:g}; {title} is {figure:.3g}{off}."

    def _answered(self, key: str) -> Answered:
        by_key = {one.question.key: one for one in self._all().answered}
        if key not in by_key:
            raise UsageError(f"There is no question {key!r}. There are {', '.join(by_key)}.")
        return by_key[key]

    def _all(self) -> LabReport:
        if self._report is None:
            from farandole.labs.run import run_lab

            asked = Asked(
                size="quick",
                budget_s=None,
                data=None,
                workers=(),
                recipes=(),
                cores=read_cores().available,
            )
            self._report = run_lab(
                load_lab(self.lab),
                asked,
                Path(self.out).absolute(),
                listening=lambda: nullcontext(Listener()),
                say=print,
            )
        return self._report


def measured_at_most(one: Answered) -> tuple[str, float] | None:
    """Return what a question's figure shows at the largest x here; None without one."""
    found = drawn(one, HERE)
    if found is None:
        return None
    column, cells = found
    cell = cells[-1][1]
    return column.title, float(cell.value if isinstance(cell, Estimate) else cell)
