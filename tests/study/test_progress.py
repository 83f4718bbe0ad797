from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from farandole.study.plan import Estimate
from farandole.study.progress import (
    cell_words,
    ended_line,
    plan_lines,
)
from farandole.study.records import Cell, Launch
from farandole.study.watch import Tail

CELL = Cell(workers=2, threads=1, batch=64, params=(("lr", "0.1"),))


def steps(*ends_s: float, samples: float = 8.0) -> str:
    columns = {"end_s": list(ends_s), "samples": [samples] * len(ends_s)}
    return json.dumps({"kind": "steps", "columns": columns}) + "\n"


def test_the_tail_follows_a_file_that_grows(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.jsonl"
    tail = Tail(path, workers=2)
    tail.look()
    assert (tail.steps, tail.samples_per_s) == (0, None)
    text = '{"kind": "begin"}\n' + steps(10.0, 10.5, 11.0)
    path.write_text(text[:-9])
    tail.look()
    assert tail.steps == 0, "a torn line is not read"
    path.write_text(text)
    tail.look()
    # Of the first step only its end is known: two steps of 8 samples on 2 workers in 1 s.
    assert (tail.steps, tail.samples_per_s) == (3, 32.0)
    path.write_text(text + "nonsense\n" + steps(11.25, 11.5))
    tail.look()
    assert (tail.steps, tail.samples_per_s) == (5, 64.0)


def test_cells_in_words() -> None:
    assert cell_words(CELL) == "2 workers, batch 64, lr=0.1"
    assert cell_words(Cell(workers=1, threads=4, today=True)) == "1 process with all 4 cores"
    assert cell_words(Cell(workers=1, transport="gloo")) == "1 worker, gloo"
    # Cells that differ only in threads are told apart.
    assert cell_words(Cell(workers=1, threads=2, batch=8)) == "1 worker, 2 threads, batch 8"
    assert cell_words(Cell(workers=2, threads=2)) == "2 workers, 2 threads each"
    assert cell_words(Cell(workers=8, hosts=2, batch=8)) == "8 workers on 2 hosts, batch 8"


def test_a_line_when_a_launch_has_ended() -> None:
    launch = Launch(
        id="a",
        cell=CELL,
        repeat=1,
        seed=0,
        purpose="speed",
        outcome="out_of_memory",
        reason="too large",
        wall_s=9.06,
        busy=True,
    )
    line = ended_line(launch, number=3, total=12, left_s=130)
    assert line == (
        "[3/12] 2 workers, batch 64, lr=0.1, repeat 2: out of memory in 9.1 s (too large); "
        "about 2 min left"
    )
    done = replace(launch, outcome="stopped", reason="")
    assert ended_line(done, number=3, total=12, left_s=0).endswith(
        "done in 9.1 s, but others used the machine"
    )


def test_the_plan_in_lines() -> None:
    whole = Estimate(launches=6, seconds=600, worker_hours=0.25, guessed=6)
    rest = Estimate(launches=4, seconds=400, worker_hours=0.2, guessed=4)
    lines = plan_lines([CELL], whole, rest)
    assert lines[0] == "1 cell:"
    assert "6 launches, 2 of them made already." in lines
    assert lines[-1].startswith("About 7 min and 0.20 worker-hours, a guess")
