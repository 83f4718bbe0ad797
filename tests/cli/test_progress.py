from __future__ import annotations

import io
import re

from farandole.cli.progress import Bars, Lines, listener
from farandole.study.plan import Planned
from farandole.study.progress import Now
from farandole.study.records import Cell, Launch

ONE = Planned(
    cell=Cell(workers=2, batch=64, params=(("name", "[red]"),)), purpose="speed", repeat=0
)
LAUNCH = Launch(
    id="a", cell=ONE.cell, repeat=0, seed=0, purpose="speed", outcome="stopped", wall_s=3.0
)


def play(shown: Lines | Bars) -> None:
    with shown:
        shown.say("[bold] is no markup")
        shown.began(ONE, number=1, total=4, seconds=10.0, left_s=200.0)
        shown.now(Now(elapsed_s=2.0, steps=40, samples_per_s=1234.5))
        shown.now(Now(elapsed_s=80.0, steps=90, samples_per_s=None))
        shown.ended(LAUNCH, number=1, total=4, left_s=30.0)


def test_a_file_has_one_line_per_launch() -> None:
    stream = io.StringIO()
    shown = listener(stream)
    assert isinstance(shown, Lines)
    play(shown)
    assert stream.getvalue().splitlines() == [
        "[bold] is no markup",
        "[1/4] 2 workers, batch 64, name=[red], repeat 1: done in 3.00 s; about 30 s left",
    ]


def test_a_terminal_has_bars() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    shown = listener(stream)
    assert isinstance(shown, Bars)
    play(shown)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert "[bold] is no markup" in text
    assert "launch 1 of 4, about 3 min left" in text
    assert "2 s, 40 steps, 1,234 samples/s" in text
    assert "name=[red]" in text
    assert "[1/4] 2 workers" in text
