"""The report of a lab as one JSON document: docs/labs-report.md has its schema."""

from __future__ import annotations

from typing import Any

from farandole.report.document import head, plain
from farandole.report.lab import words
from farandole.report.lab.published import table as published_table
from farandole.report.lab.record import LabReport
from farandole.report.table import Table

SCHEMA = 1


def to_json(report: LabReport) -> dict[str, Any]:
    """Return questions, answers and tables; None stands for "not measured"."""
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
        "choices": plain(report.plan.choices),
        "data": plain(report.data),
        "questions": {
            one.question.key: {
                "question": one.question.text,
                "answer": list(one.sentences),
                "table": _table(one.tables[0]) if one.tables else None,
                "tables": {table.name: _table(table) for table in one.tables[1:]},
            }
            for one in report.answered
        },
        "corrections": plain(report.corrections),
        "published": {
            name: {"label": info.label, "table": _table(published_table(name, info))}
            for name, info in report.published.items()
        },
        "studies": {
            name: {"headline": info.answer.headline, **head(info.answer), "complete": info.complete}
            for name, info in report.studies.items()
        },
        "notes": list(report.notes),
        "machine": plain(words.machine(report)),
    }


def _table(table: Table) -> dict[str, Any]:
    return {
        "name": table.name,
        "title": table.title,
        "columns": [column.key for column in table.columns],
        "titles": [column.title for column in table.columns],
        "rows": plain(table.rows),
        "notes": list(table.notes),
    }
