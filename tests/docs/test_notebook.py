"""The quickstart notebook runs from top to bottom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "quickstart.ipynb"


@pytest.mark.ranks
@pytest.mark.filterwarnings("default")
def test_the_quickstart_runs(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="needs pip install nbclient ipykernel")
    from nbclient import NotebookClient

    notebook = nbformat.reads(NOTEBOOK.read_text(), as_version=4)
    client = NotebookClient(notebook, timeout=110, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    outputs = json.dumps([cell.get("outputs", []) for cell in notebook.cells])
    assert "2 workers" in outputs
    assert (tmp_path / "quickstart-study" / "report.html").exists()
