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
    sources = [
        ("markdown", _INTRODUCTION.format(lab=lab, out=out)),
        ("code", f'{start}lab = Exercise("{lab.name}", out="{out}")'),
    ]
    for number, question in enumerate(lab.questions, 1):
        axes = question.figures[0].options if question.figures else {}
        x, y = axes.get("x"), axes.get("y")
        hint = f" For a number: `{y}` at the largest `{x}` measured here." if x and y else ""
        sources += [
            ("markdown", _QUESTION.format(number=number, question=question, hint=hint)),
            ("code", f'lab.predict("{question.key}", ...)  # replace the dots'),
            ("code", f'lab.result("{question.key}")'),
        ]
    sources += [("markdown", "## What you predicted, and what came out")]
    sources += [("code", "lab.comparison()")]
    cells: list[dict[str, Any]] = []
    for number, (kind, source) in enumerate(sources):
        cell = {"id": f"cell-{number}", "cell_type": kind, "metadata": {}, "source": source}
        cells.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": cells}


class Markdown(str):
    """Text that a notebook shows formatted."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        return self


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
        value, found = self.predictions.get(one.question.key), drawn(one, HERE)
        if value is None:
            return "You predicted nothing."
        if not isinstance(value, int | float) or found is None:
            return f"You predicted: {value}."
        column, cells = found
        last = cells[-1][1]  # at the largest x
        figure = float(last.value if isinstance(last, Estimate) else last)
        off = f", {abs(value / figure - 1):.0%} off" if figure else ""
        return f"You predicted {value:g}; {column.title} is {figure:.3g}{off}."

    def _answered(self, key: str) -> Answered:
        by_key = {one.question.key: one for one in self._all().answered}
        if key not in by_key:
            raise UsageError(f"There is no question {key!r}. There are {', '.join(by_key)}.")
        return by_key[key]

    def _all(self) -> LabReport:
        if self._report is None:
            from farandole.labs.run import run_lab

            cores = read_cores().available
            asked = Asked(
                size="quick", budget_s=None, data=None, workers=(), recipes=(), cores=cores
            )
            self._report = run_lab(
                load_lab(self.lab),
                asked,
                Path(self.out).absolute(),
                listening=lambda: nullcontext(Listener()),
                say=print,
            )
        return self._report
