"""Copies of a script that compute alone, then all at once, then load."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from farandole.recorder.contention import MEASURED, WARMUP, Contention
from farandole.recorder.ending import Control

STEP_S = 0.125
(LEAST_STEPS, _), (FEWEST_STEPS, _) = MEASURED
(WARMUP_STEPS, _), _ = WARMUP
ENOUGH = 1_000_000
"""Steps after which a copy that nobody ends gives up."""


class Copies:
    """Copies in threads, each with a clock of its own that goes on with its steps."""

    def __init__(self, tmp_path: Path, size: int) -> None:
        self._path, self._size = str(tmp_path / "control"), size
        self.told: list[dict[str, Any]] = [{} for _ in range(size)]
        self.steps: list[int] = []
        """Which copy ended a step, in the order in which they did."""
        self.loading: list[int] = []

    def run(self, *lengths: int) -> list[int]:
        """Let each copy train so many steps at most; return how many each made."""
        made = [0] * self._size
        copies = [
            threading.Thread(target=self._train, args=(copy, lengths[copy], made))
            for copy in range(self._size)
        ]
        for copy in copies:
            copy.start()
        for copy in copies:
            copy.join()
        return made

    def _train(self, copy: int, length: int, made: list[int]) -> None:
        now_s = 0.0
        apart = Contention(
            copy=copy,
            copies=self._size,
            control=Control(self._path, rank=copy, size=self._size),
            tell=lambda **figures: self.told[copy].update(figures),
            load=self._loader(copy),
            sleep=lambda _: None,
            clock=lambda: now_s,
        )
        for number in range(1, length + 1):
            now_s += STEP_S
            self.steps.append(copy)
            made[copy] = number
            if apart.step(number, now_s, 0):
                break
        apart.close()

    def _loader(self, copy: int) -> Callable[[float], float | None]:
        rates = count(1)

        def load(_seconds: float) -> float:
            self.loading.append(copy)
            return 1000.0 * next(rates)

        return load


def test_one_computes_alone_and_then_all_do(tmp_path: Path) -> None:
    copies = Copies(tmp_path, 2)
    made = copies.run(ENOUGH, ENOUGH)
    assert max(made) < ENOUGH
    first, other = copies.told
    assert "alone" not in other
    assert first["alone"][0] > WARMUP_STEPS
    for begin, end in (first["alone"], first["together"], other["together"]):
        assert end - begin >= LEAST_STEPS
    # While the first computes alone, the other waits where its warm-up ended.
    waited = other["together"][0] - 1
    order = [at for at, copy in enumerate(copies.steps) if copy == 1]
    before, after = order[waited - 1], order[waited]
    alone = copies.steps[before:after].count(0)
    assert alone >= LEAST_STEPS


def test_then_one_loads_alone_and_then_all_do(tmp_path: Path) -> None:
    copies = Copies(tmp_path, 3)
    copies.run(ENOUGH, ENOUGH, ENOUGH)
    assert copies.loading[0] == 0
    assert sorted(copies.loading[1:]) == [0, 1, 2]
    first, *others = copies.told
    assert (first["loaded_alone"], first["loaded_together"]) == (1000.0, 2000.0)
    assert [other["loaded_together"] for other in others] == [1000.0, 1000.0]
    assert not any("loaded_alone" in other for other in others)


def test_nobody_waits_for_a_copy_that_has_ended(tmp_path: Path) -> None:
    copies = Copies(tmp_path, 2)
    made = copies.run(ENOUGH, WARMUP_STEPS - 1)
    assert made[0] < ENOUGH
    assert copies.told == [{}, {}]


def test_what_was_alone_in_the_end_is_no_figure(tmp_path: Path) -> None:
    copies = Copies(tmp_path, 2)
    # The second leaves in the middle of computing together, and the first does not go on.
    made = copies.run(ENOUGH, 8)
    assert made[0] < ENOUGH
    assert "alone" in copies.told[0]
    assert "together" not in copies.told[1]
    assert copies.loading == []


def alone(tmp_path: Path, step_s: float) -> dict[str, Any]:
    """Return what the only copy tells whose steps take so long."""
    told: dict[str, Any] = {}
    now_s, number = 0.0, 0
    apart = Contention(
        copy=0,
        copies=1,
        control=Control(str(tmp_path / f"control-{step_s}"), rank=0, size=1),
        tell=lambda **figures: told.update(figures),
        load=lambda _: None,
        clock=lambda: now_s,
    )
    ended = False
    while not ended:
        number += 1
        now_s += step_s
        ended = apart.step(number, now_s, 0)
    apart.close()
    return told


def test_the_step_that_waited_for_the_others_does_not_count(tmp_path: Path) -> None:
    told = alone(tmp_path, STEP_S)
    # Half a second lies behind the first step when 5 have ended. The next one began before the
    # others were there: the seventh is the first that counts, and its row is the one at 6.
    assert told["alone"] == [6, 6 + LEAST_STEPS]
    assert told["together"][0] == told["alone"][1] + 1
    assert told["loaded_alone"] is None


def test_few_steps_will_do_where_they_take_seconds(tmp_path: Path) -> None:
    told = alone(tmp_path, 3.0)
    for begin, end in (told["alone"], told["together"]):
        assert end - begin == FEWEST_STEPS
    assert told["together"][1] < 10
