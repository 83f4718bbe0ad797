from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import farandole
from farandole.recorder.recorder import current, forget
from tests.recorder.launching import read_rank


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    forget()
    monkeypatch.setattr("farandole.recorder.record._epoch", None)
    monkeypatch.setenv("FARANDOLE_RECORD_DIR", str(tmp_path))
    yield tmp_path / "rank-0.jsonl"
    forget()


def test_numbers_and_tensors_become_metrics(study: Path) -> None:
    loss = torch.tensor(0.5, requires_grad=True) * 1
    farandole.record(loss=loss, accuracy=torch.tensor([0.25]), rate=1e-3, good=True, epoch=2)
    farandole.record(loss=float("inf"), step=17)
    with torch.no_grad():
        loss += 100
    forget()
    found = read_rank(study)
    assert found.metrics("loss") == [0.5, "inf"]
    assert found.metrics("accuracy") == [0.25]
    assert found.metrics("good") == [1.0]
    # An epoch holds until another one is named.
    assert [(m["step"], m["epoch"]) for m in found.of("metric") if m["name"] == "loss"] == [
        (0, 2.0),
        (17, 2.0),
    ]


def test_samples_belong_to_the_step(study: Path) -> None:
    recorder = current()
    assert recorder is not None
    farandole.record(samples=8)
    recorder.step()
    farandole.record(samples=torch.tensor(4))
    recorder.step()
    forget()
    assert read_rank(study).steps()["samples"] == [8, 4]


@pytest.mark.parametrize("value", [torch.zeros(2), "high", None, [1, 2]])
def test_what_is_no_number_is_noted_and_left_out(study: Path, value: object) -> None:
    farandole.record(loss=value, other=1)
    farandole.record(loss=value)
    forget()
    found = read_rank(study)
    assert found.metrics("loss") == []
    assert found.metrics("other") == [1.0]
    assert [note.startswith("record(loss=...)") for note in found.notes] == [True]


def test_without_a_study_it_does_nothing_and_imports_nothing() -> None:
    program = (
        "import sys, farandole\n"
        "farandole.record(loss=object())\n"
        "assert farandole.param('batch', 3) == 3\n"
        "print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"
