from __future__ import annotations

import json

import pytest

from farandole.cli.env import collect, render
from farandole.cli.main import main
from farandole.version import __version__
from tests.conftest import run_cli


def test_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert main(["env", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["schema"], facts["farandole"]) == (1, __version__)
    assert facts["cores"]["available"] >= 1
    assert facts["variables"]["OMP_NUM_THREADS"] == "3"
    names = [one["name"] for one in facts["technologies"]]
    assert names[:4] == ["shared memory", "Gloo", "NCCL", "MPI"]


def test_what_is_missing_says_so() -> None:
    facts = collect()
    facts["packages"] = {"torch": None}
    facts["technologies"] = [{"name": "NCCL", "found": None, "remark": "comes with torch"}]
    facts["cores"]["quota"] = 2.5
    text = "\n".join(render(facts))
    assert "no: comes with torch" in text
    assert "not installed" in text
    assert "quota 2.5 cores" in text


@pytest.mark.ranks
def test_check_verifies_this_machine() -> None:
    ended = run_cli("env", "--check", "--json")
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)["check"]
    assert found["right"]
    assert found["wrong"] == {}
    assert len(found["devices"]) >= 2
    assert found["ratio_to_ddp"] == pytest.approx(found["ddp_step_ms"] / found["step_ms"])


def test_a_wrong_value_is_named() -> None:
    found = {
        "right": False,
        "wrong": {"values, rank 1": "allreduce of 1 x torch.float16 is wrong"},
        "devices": ["cpu", "cpu"],
        "step_ms": 10.0,
        "ddp_step_ms": 20.0,
        "ratio_to_ddp": 2.0,
    }
    text = "\n".join(render(collect() | {"check": found}))
    assert "WRONG" in text
    assert "rank 1" in text
    assert "2.00 times" in text
