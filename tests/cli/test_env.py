from __future__ import annotations

import json

import pytest

from farandole.cli.env import collect, render
from farandole.cli.main import main
from farandole.version import __version__


def test_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert main(["env", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["schema"], facts["farandole"]) == (1, __version__)
    assert facts["cores"]["available"] >= 1
    assert facts["variables"]["OMP_NUM_THREADS"] == "3"


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env"]) == 0
    assert capsys.readouterr().out.startswith("farandole ")


def test_what_is_missing_says_so() -> None:
    facts = collect()
    facts["packages"] = {"torch": None}
    facts["cores"]["quota"] = 2.5
    text = "\n".join(render(facts))
    assert "not installed" in text
    assert "quota 2.5 cores" in text
