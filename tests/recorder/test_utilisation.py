"""Samples of CPU, memory and GPU."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from farandole.recorder import utilisation
from farandole.recorder.utilisation import Gpu, Sampler
from tests.conftest import eventually

BURN = """
import sys, time
while time.process_time() < 0.3:
    pass
print(flush=True)
sys.stdin.read()
"""


class Recorded:
    """A recorder that keeps what it is handed."""

    begin_s = 0.0

    def __init__(self) -> None:
        self.sources: list[Callable[[], dict[str, Any] | None]] = []
        self.endings: list[Callable[[], dict[str, Any] | None]] = []

    def add_source(self, source: Callable[[], dict[str, Any] | None]) -> None:
        self.sources.append(source)

    def add_ending(self, source: Callable[[], dict[str, Any] | None]) -> None:
        self.endings.append(source)


def test_samples_are_shares_of_the_time_between_them() -> None:
    now, cpu, gpu = [10.0], [3.0], [Gpu()]
    sampler = Sampler(
        begin_s=8.0,
        cpu_seconds=lambda: cpu[0],
        memory_bytes=lambda: 1e6,
        gpu=lambda: gpu[0],
        clock=lambda: now[0],
    )
    assert sampler.line() is None
    now[0], cpu[0] = 10.5, 3.75
    sampler.sample()
    # The script comes to its GPU: energy counts from there.
    gpu[0] = Gpu(busy=0.5, energy_j=1000.0)
    now[0], cpu[0] = 11.5, 3.75
    sampler.sample()
    gpu[0] = Gpu(busy=1.0, energy_j=1050.0)
    now[0] = 12.0
    sampler.sample()
    now[0] = 12.001
    sampler.sample()  # too soon to be divided by
    line = sampler.line()
    assert line == {
        "kind": "use",
        "columns": {
            "time_s": [2.5, 3.5, 4.0],
            "cpu": [1.5, 0.0, 0.0],
            "memory_bytes": [1e6] * 3,
            "gpu": [None, 0.5, 1.0],
            "gpu_energy_j": [None, 0.0, 50.0],
        },
    }
    json.dumps(line, allow_nan=False)
    assert sampler.line() is None


def test_processes_that_a_worker_starts_count_while_they_run_and_afterwards() -> None:
    before = utilisation.cpu_seconds()
    with subprocess.Popen(
        [sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        child.stdout.readline()
        # The kernel counts other processes in ticks of 10 ms.
        assert utilisation.cpu_seconds() - before > 0.25
    assert utilisation.cpu_seconds() - before > 0.25


@pytest.mark.skipif(sys.platform != "linux", reason="memory is compared with /proc")
def test_memory_is_this_process() -> None:
    import psutil

    block = bytearray(64 << 20)
    assert utilisation.memory_bytes() == pytest.approx(psutil.Process().memory_info().rss, rel=0.1)
    assert utilisation.memory_bytes() > len(block)


def test_the_thread_samples_until_the_recorder_closes() -> None:
    recorder = Recorded()
    utilisation.watch(recorder)
    (source,), (ending,) = recorder.sources, recorder.endings
    assert any(thread.name == "farandole-use" for thread in threading.enumerate())
    line = eventually(source)
    columns = line["columns"]
    assert columns["memory_bytes"][0] > 1e6
    assert columns["gpu"] == [None] * len(columns["time_s"])
    assert ending() is None
    assert not any(thread.name == "farandole-use" for thread in threading.enumerate())
