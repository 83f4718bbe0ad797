"""A run that is watched: each finding once, from files that grow."""

from __future__ import annotations

from pathlib import Path

from farandole.doctor.check import Finding
from farandole.doctor.watch import Watcher
from farandole.study.attempt import _mistakes
from tests.doctor.facts import line, rank


def write(folder: Path, *weights: str, more: str = "") -> None:
    for number, hashed in enumerate(weights):
        state = line("state", step=0, weights=[hashed])
        (folder / f"rank-{number}.jsonl").write_text(rank(number, state) + "\n" + more)


def test_a_finding_is_told_of_once(tmp_path: Path) -> None:
    told: list[Finding] = []
    watcher = Watcher(tmp_path, workers=2, tell=told.append)
    watcher.look()
    assert told == []
    write(tmp_path, "a", "b")
    watcher.look()
    watcher.look(ended="ok")
    assert [one.id for one in told] == ["FD103"]


def test_half_a_line_is_read_with_the_next_look(tmp_path: Path) -> None:
    told: list[Finding] = []
    watcher = Watcher(tmp_path, workers=2, tell=told.append)
    write(tmp_path, "a", "a", more='{"kind": "state", "step": 1, "wei')
    watcher.look()
    for number, hashed in enumerate("ab"):
        with (tmp_path / f"rank-{number}.jsonl").open("a") as file:
            file.write(f'ghts": ["{hashed}"]}}\n')
    watcher.look()
    assert [(one.id, one.step) for one in told] == [("FD104", 1)]


def test_a_study_keeps_the_errors_of_a_launch(tmp_path: Path) -> None:
    for number, rate in enumerate((0.1, 0.2)):
        lines = rank(number, line("learning_rate", step=0, value=rate))
        (tmp_path / f"rank-{number}.jsonl").write_text(lines + "\n")
    assert [one.id for one in _mistakes(tmp_path, 2, "ok")] == ["FD107"]
    assert _mistakes(tmp_path, 1, "ok") == ()
