"""Files of a report."""

from __future__ import annotations

import csv
import struct
from pathlib import Path

import pytest

from farandole.errors import StoreError, UsageError
from farandole.report import terminal_lines, to_json, write
from farandole.report.anonymous import anonymous
from farandole.report.folder import write as write_again
from tests.report.builders import bare, speedup, study


def test_everything_is_there(tmp_path: Path) -> None:
    page = write(study(), tmp_path / "out", figures=("png", "svg", "pdf"), tables=("csv", "tex"))
    assert page == tmp_path / "out" / "report.html"
    names = {str(path.relative_to(page.parent)) for path in page.parent.rglob("*.*")}
    for ending in ("png", "svg", "pdf", "txt"):
        assert f"figures/scaling.{ending}" in names
    assert {"report.md", "tables/speedup.csv", "tables/cells.tex", "tables/launches.csv"} <= names
    assert not [name for name in names if name.endswith(".tmp")]
    assert 500_000 < page.stat().st_size < 1_500_000
    png = (page.parent / "figures/scaling.png").read_bytes()
    width, height = struct.unpack(">II", png[16:24])
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert 600 < width < 1400
    assert 400 < height < 1200
    assert (page.parent / "figures/scaling.pdf").read_bytes().startswith(b"%PDF")
    assert "<svg" in (page.parent / "figures/scaling.svg").read_text()
    with (page.parent / "tables/speedup.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert float(rows[1]["speedup"]) == pytest.approx(speedup(2))
    assert float(rows[1]["speedup_low"]) == pytest.approx(0.98 * speedup(2))


def test_a_second_report_replaces_the_first(tmp_path: Path) -> None:
    write(study(), tmp_path, figures=("svg",), tables=("csv",))
    (tmp_path / "figures" / "mine.jpg").write_bytes(b"kept")
    write(bare(), tmp_path, figures=("svg",), tables=("csv",))
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["mine.jpg"]
    assert not (tmp_path / "tables" / "speedup.csv").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"figures": ("gif",)}, "--figures gif is not known. Choose from png, svg, pdf."),
        ({"tables": ("xls",)}, "--tables xls is not known. Choose from csv, md, tex."),
    ],
)
def test_unknown_endings(tmp_path: Path, given: dict[str, tuple[str]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        write_again(study(), tmp_path, **given)


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        write(bare(), tmp_path / "file", figures=(), tables=())


def test_the_room_gives_functions_whatever_was_imported_before() -> None:
    import farandole.report.document
    import farandole.report.folder
    import farandole.report.terminal  # noqa: F401

    assert all(callable(one) for one in (write, terminal_lines, to_json))


def test_an_anonymous_study_is_written_without_names(tmp_path: Path) -> None:
    page = write(anonymous(study()), tmp_path, figures=(), tables=())
    assert "tangram" not in page.read_text()
    assert "tangram" not in (tmp_path / "report.md").read_text()
