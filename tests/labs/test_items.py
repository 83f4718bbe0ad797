"""What the labs' authors did, asked and found, item by item, in reports of recorded runs.

`items/*.csv` names for each of the 141 items where a report covers it: `lab` is a fixture of
tests/frozen/labs, `section` the key of a question or of a section ("data", "corrections"), or
"opening", and `text` stands there in a sentence, a cell of a table or a caption.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path

import pytest

from farandole.labs import report as reports
from farandole.labs.report import LabReport, document
from farandole.report.document import Bullets, Prose
from farandole.report.table import Table
from tests.frozen import freeze

ITEMS = 141
LEAST_WORDS, MOST_WORDS = 1_000, 1_500


def rows() -> list[dict[str, str]]:
    found = []
    for path in sorted((Path(__file__).parent / "items").glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            found += [row | {"file": path.stem} for row in csv.DictReader(file)]
    return sorted(found, key=lambda row: int(row["item"]))


@cache
def frozen_report(fixture: str) -> LabReport:
    """Return the report of a recorded lab, without files and pictures."""
    found: list[LabReport] = []

    def keep(report: LabReport, folder: Path) -> Path:
        found.append(report)
        return folder / "report.html"

    with (
        tempfile.TemporaryDirectory() as place,
        pytest.MonkeyPatch.context() as patch,
        freeze.surroundings(),
    ):
        patch.setattr(reports, "write_lab", keep)
        freeze.render_lab(fixture, Path(place) / "lab")
    (report,) = found
    return report


@cache
def sections(fixture: str) -> Mapping[str, str]:
    """Return all text of a report by section; questions stand under their own keys, too."""
    report = frozen_report(fixture)
    shown = document(report)
    found = {one.key: "\n".join(texts((one.title, one.blocks))) for one in shown.sections}
    for number, one in enumerate(report.answered, 1):
        found[one.question.key] = found[f"question-{number}"]
    return found | {"opening": "\n".join(texts(shown.openings))}


def texts(value: object) -> Iterator[str]:
    """Return every text of blocks: sentences, cells as shown, titles, captions, commands."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Table):
        yield value.title
        yield from (column.title for column in value.columns)
        yield from (cell for row in value.texts() for cell in row)
        yield from value.notes
    elif isinstance(value, tuple):
        for part in value:
            yield from texts(part)
    elif is_dataclass(value):
        for field in fields(value):
            yield from texts(getattr(value, field.name))


@pytest.mark.timeout(300)  # the first one of a lab renders its report
@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row['item']}-{row['lab']}")
def test_an_item_is_covered(row: dict[str, str]) -> None:
    found = sections(row["lab"])
    assert row["section"] in found, f"sections: {', '.join(found)}"
    assert row["text"].strip()
    assert row["text"] in found[row["section"]]


def test_every_item_stands_once() -> None:
    assert [int(row["item"]) for row in rows()] == list(range(1, ITEMS + 1))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fixture", freeze.labs())
def test_a_report_has_a_length_to_hand_in(fixture: str) -> None:
    """Its body: without tables, captions and appendix."""
    shown = document(frozen_report(fixture))
    said: list[object] = [(one.headline, one.sentences) for one in shown.openings]
    for section in shown.sections:
        prose = [one for one in section.blocks if isinstance(one, Prose | Bullets)]
        said += [] if section.appendix else [section.title, *prose]
    assert LEAST_WORDS <= len(" ".join(texts(tuple(said))).split()) <= MOST_WORDS
