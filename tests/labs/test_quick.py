"""The labs as a user runs them: about a minute each, every question answered with a table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from farandole.labs import listing
from tests.conftest import run_cli


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", listing.names())
def test_a_quick_lab_answers_every_question(name: str, tmp_path: Path) -> None:
    done = run_cli("lab", name, "--quick", "--out", "out", "--json", cwd=tmp_path, timeout_s=580)
    assert done.returncode == 0, done.stderr
    assert "has no figures" not in (tmp_path / "out" / "report.md").read_text()
    content = json.loads((tmp_path / "out" / "report.json").read_text())
    assert json.loads(done.stdout) == content
    questions = [question.key for question in listing.load(name).questions]
    tables = {key: one["table"] for key, one in content["questions"].items()}
    assert list(tables) == questions
    assert [key for key, table in tables.items() if not (table and table["rows"])] == []
