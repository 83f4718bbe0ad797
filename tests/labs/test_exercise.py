"""A lab as an exercise: its notebook, run from end to end with the studies of a recorded lab."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from farandole.errors import UsageError
from farandole.labs.exercise import write_notebook
from farandole.labs.lab import load_lab
from tests.frozen import freeze


def outputs(cell: Any) -> str:
    return "\n".join(
        output.get("text", "") + output.get("data", {}).get("text/markdown", "")
        for output in cell["outputs"]
    )


@pytest.mark.timeout(300)
def test_the_notebook_predicts_runs_and_compares(tmp_path: Path) -> None:
    lab = load_lab("mnist")
    path = write_notebook(lab, tmp_path / "mnist-exercise.ipynb")
    with pytest.raises(UsageError, match="is there already"):
        write_notebook(lab, path)
    freeze.unpack_lab("mnist", tmp_path / "lab-mnist-exercise")
    before = sorted((tmp_path / "lab-mnist-exercise").glob("studies/*/launches/*"))
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    for cell in book.cells:
        if cell.source.startswith('lab.predict("workers"'):
            cell.source = 'lab.predict("workers", 2.0)'
        elif cell.source.startswith('lab.predict("two_nodes"'):
            cell.source = 'lab.predict("two_nodes", "twice the batch")'
    NotebookClient(book, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    results = {
        json.loads(cell.source[11:-1]): cell for cell in code if "lab.result(" in cell.source
    }
    assert list(results) == [question.key for question in lab.questions]
    shown = outputs(results["workers"])
    assert "You predicted 2; speedup is " in shown
    assert "| measured |" in shown
    assert "data:image/png;base64," in shown
    assert "You predicted: twice the batch." in outputs(results["two_nodes"])
    assert "You predicted nothing." in outputs(results["steps"])
    assert outputs(code[-1]).count("You predicted") == len(lab.questions)
    # All of its studies were there: nothing was launched.
    assert sorted((tmp_path / "lab-mnist-exercise").glob("studies/*/launches/*")) == before
