"""The link's calibration: real launches, and machines that cannot."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from farandole.study.calibrate import SIZES, calibrate, memcpy_bytes_per_s
from farandole.study.calibration_worker import measure


class Alone:
    """A channel on which rank 0 hears itself; keeps what was asked for."""

    rank = 0

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def allreduce(self, nbytes: int) -> Callable[[], object]:
        return lambda: self.asked.append(("allreduce", nbytes))

    def there_and_back(self, nbytes: int) -> Callable[[], object]:
        return lambda: self.asked.append(("there and back", nbytes))

    def largest(self, value: float) -> float:
        # A slow peer decides how often everybody repeats.
        return 1e6

    def close(self) -> None:
        pass


def test_the_sizes_go_from_4_kib_to_64_mib_by_four() -> None:
    assert (SIZES[0], SIZES[-1]) == (4 << 10, 64 << 20)
    assert {after // before for before, after in itertools.pairwise(SIZES)} == {4}


def test_all_workers_repeat_alike() -> None:
    channel = Alone()
    found = measure(channel, [4096, 16384], budget_s=1.0)
    # Once to warm up, once to see how long it takes, and the least number that gives a median.
    assert channel.asked.count(("allreduce", 4096)) == 2 + 3
    assert channel.asked.count(("there and back", 4)) == 2 + 3
    assert [nbytes for nbytes, _ in found["allreduce"]] == [4096, 16384]
    assert found["stream_s"] > 0


def test_memory_is_copied_faster_than_a_disk_and_slower_than_light() -> None:
    speed = memcpy_bytes_per_s()
    assert speed is not None
    assert 1e8 < speed < 1e12


@pytest.mark.ranks
@pytest.mark.parametrize("transport", ["shm", "gloo"])
def test_a_link_is_measured(transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A study's variables around it do not make workers of the user's of its workers.
    monkeypatch.setenv("FARANDOLE_RECORD_DIR", "/nonexistent")
    link = calibrate([1, 2], transport, threads=1, budget_s=0.2)
    assert [(workers, nbytes) for workers, nbytes, _ in link.allreduce] == [
        (2, nbytes) for nbytes in SIZES
    ]
    assert all(seconds > 0 for *_, seconds in link.allreduce)
    assert link.peak_bytes_per_s is not None
    assert link.latency_s is not None
    assert link.latency_s < SIZES[-1] / link.peak_bytes_per_s
    assert link.memcpy_bytes_per_s is not None


@pytest.mark.ranks
def test_a_machine_that_cannot_gets_what_it_has() -> None:
    # There is no GPU here, or no two of them: the workers fail.
    link = calibrate([2], "no such transport", threads=1)
    assert link.allreduce == ()
    assert link.peak_bytes_per_s is link.latency_s is None
    assert link.memcpy_bytes_per_s is not None


def test_one_worker_has_nobody_to_talk_to() -> None:
    assert calibrate([1], "auto", threads=1).allreduce == ()
