"""The clock of a loop that is not ours: what it times, and in which order it waits and meets."""

from __future__ import annotations

import pytest

from farandole.bench.workers import pace as pace_module
from farandole.bench.workers.pace import Pace


class _Played:
    """A loop whose every step takes one second of a played clock, and what it was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.calls: list[tuple[str, int]] = []
        self.index = 0
        monkeypatch.setattr(pace_module.time, "perf_counter", lambda: self.now_s)
        monkeypatch.setattr(pace_module.time, "process_time", lambda: self.now_s / 2)

    def finish(self) -> None:
        self.calls.append(("finish", self.index))

    def meet(self) -> None:
        self.calls.append(("meet", self.index))

    def run(self, pace: Pace, seconds: list[float] | None = None) -> None:
        for self.index in range(pace.num_steps):
            pace.begin(self.index)
            self.now_s += seconds[self.index] if seconds else 1.0


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> _Played:
    return _Played(monkeypatch)


def test_the_warm_up_and_the_step_that_ends_the_last_are_not_timed(played: _Played) -> None:
    pace = Pace(warmup=2, steps=3)
    assert pace.num_steps == 6
    played.run(pace, [50.0, 40.0, 1.0, 2.0, 3.0, 60.0])
    assert pace.times_s == [1.0, 2.0, 3.0]


def test_a_block_gives_its_mean_step(played: _Played) -> None:
    pace = Pace(warmup=1, steps=4, block=2)
    played.run(pace, [9.0, 1.0, 3.0, 5.0, 6.0, 9.0])
    assert pace.times_s == [2.0, 5.5]


def test_a_block_is_waited_for_once(played: _Played) -> None:
    played.run(Pace(warmup=1, steps=4, block=2, finish=played.finish))
    assert played.calls == [("finish", 1), ("finish", 3), ("finish", 5)]


def test_free_ranks_meet_at_the_start_and_where_timing_starts(played: _Played) -> None:
    played.run(Pace(warmup=2, steps=2, meet=played.meet))
    assert played.calls == [("meet", 0), ("meet", 2)]


def test_ranks_that_meet_after_each_step_wait_for_its_result_first(played: _Played) -> None:
    pace = Pace(
        warmup=1, steps=2, block=2, finish=played.finish, meet=played.meet, meet_each_step=True
    )
    played.run(pace)
    both = [(word, index) for index in (1, 2, 3) for word in ("finish", "meet")]
    assert played.calls == [("meet", 0), *both]
    assert pace.times_s == [1.0]


def test_the_cores_that_a_process_uses(played: _Played) -> None:
    pace = Pace(warmup=1, steps=4)
    played.run(pace)
    assert pace.cores_used == 0.5


@pytest.mark.parametrize(("warmup", "steps", "block"), [(1, 5, 2), (0, 4, 2)])
def test_what_cannot_be_timed_is_refused(warmup: int, steps: int, block: int) -> None:
    with pytest.raises(ValueError, match=f"{steps} steps in blocks of {block}"):
        Pace(warmup=warmup, steps=steps, block=block)
