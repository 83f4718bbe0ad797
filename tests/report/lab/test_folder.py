"""Files of a lab's report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from farandole.errors import UsageError
from farandole.report.lab import write_lab
from tests.report.lab.builders import lab


def test_everything_is_there_and_replaced(tmp_path: Path) -> None:
    page = write_lab(lab(), tmp_path / "out", figures=("svg",), tables=("csv", "md"))
    assert page == tmp_path / "out" / "report.html"
    names = {str(path.relative_to(page.parent)) for path in page.parent.rglob("*.*")}
    assert names == {
        "report.html",
        "report.md",
        "report.json",
        *(
            f"figures/{name}.svg"
            for name in ("speedup", "epoch", "bytes", "accuracy-by-epoch", "beside-tiny_speedup")
        ),
        *(
            f"tables/{name}.{ending}"
            for name in (
                "speedup",
                "bytes",
                "accuracy-by-epoch",
                "corrections",
                "choices",
                "published-tiny_speedup",
                "beside-tiny_speedup",
            )
            for ending in ("csv", "md")
        ),
    }
    assert json.loads((page.parent / "report.json").read_text())["kind"] == "farandole-lab"
    write_lab(replace(lab(), published={}, answered=()), page.parent, figures=(), tables=("csv",))
    assert not list((page.parent / "figures").iterdir())
    assert {path.name for path in (page.parent / "tables").iterdir()} == {
        "corrections.csv",
        "choices.csv",
    }


def test_an_unknown_ending(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--figures gif is not known"):
        write_lab(lab(), tmp_path, figures=("gif",))
