from __future__ import annotations

import os
from pathlib import Path

from farandole.study.limits import MemoryGuard
from farandole.study.progress import Now, Tail
from farandole.study.watch import Watch


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def make(
    clock: Clock, shown: list[Now], *, limit: int = 1 << 40, left_s: float | None = None
) -> Watch:
    return Watch(
        timeout_s=30.0,
        left_s=left_s,
        guard=MemoryGuard(limit, caps_requests=False),
        tail=Tail(Path("nowhere"), workers=1),
        show=shown.append,
        clock=clock,
    )


def test_time_passes() -> None:
    clock, shown = Clock(), list[Now]()
    watch = make(clock, shown)
    for _ in range(300):
        clock.now += 0.1
        assert not watch([]) or clock.now > 130
    assert 49 <= len(shown) <= 60, "twice a second is enough to see"
    clock.now = 130.2
    assert watch([])
    assert watch.outcome == "timeout"
    assert "30 s" in watch.reason


def test_the_studys_own_time_makes_the_launch_void() -> None:
    clock = Clock()
    watch = make(clock, [], left_s=5.0)
    assert not watch([])
    clock.now += 5.1
    assert watch([])
    assert watch.outcome == "interrupted"


def test_a_job_that_waits_in_a_queue_does_not_begin(tmp_path: Path) -> None:
    clock = Clock()
    file = tmp_path / "rank-0.jsonl"
    watch = Watch(
        timeout_s=30.0,
        left_s=1000.0,
        guard=MemoryGuard(1 << 40, caps_requests=False),
        tail=Tail(file, workers=1),
        show=lambda now: None,
        waits=True,
        clock=clock,
    )
    clock.now = 500.0
    assert not watch([])
    assert watch.begin_s is None
    file.touch()
    assert not watch([])
    assert watch.begin_s == 500.0
    clock.now = 531.0
    assert watch([])
    assert watch.outcome == "timeout"


def test_memory() -> None:
    watch = make(Clock(), [], limit=1000)
    assert watch([os.getpid()])
    assert watch.outcome == "out_of_memory"
    assert "--memory" in watch.reason
