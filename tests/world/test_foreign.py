"""What others took of the machine, from clocks that are written down here."""

from __future__ import annotations

import pytest

from farandole.world.machine import (
    CpuReading,
    disturbance,
    parse_kernel_thread,
    parse_stat,
    read_cpu,
    wait_until_quiet,
)

_STAT = """\
cpu  9600 10 3500 152632 2251 7 55 606 400 0
cpu0 1490 0 1056 81265 194 0 9 308 0 0
"""


def _reading(wall_s: float, busy_s: float, own_s: float, steal_s: float = 0.0) -> CpuReading:
    return CpuReading(wall_s=wall_s, busy_s=busy_s, own_s=own_s, steal_s=steal_s)


def test_busy_is_user_nice_and_system_and_guests_are_not_counted_twice() -> None:
    assert parse_stat(_STAT, ticks_per_s=100) == (131.1, 6.06)


def test_an_old_kernel_without_steal_reads_as_none_stolen() -> None:
    assert parse_stat("cpu 100 0 50 1 2 3 4\n", ticks_per_s=100) == (1.5, 0.0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15 (rcu_preempt) I 2 0 0 0 -1 2129984 0 0 0 0 3 114 0 0 20 0 1 0 9 0 0", 1.17),
        ("99 (a) b) (c) I 2 0 0 0 -1 2129984 0 0 0 0 100 0 0 0 20 0 1 0 9 0 0", 1.0),
        ("4259 (python) S 4255 0 0 0 -1 2129984 0 0 0 0 300 200 0 0 20 0 1 0 9 0 0", 0.0),
    ],
)
def test_only_kernel_threads_are_taken_out(text: str, seconds: float) -> None:
    assert parse_kernel_thread(text, ticks_per_s=100) == pytest.approx(seconds)


def test_foreign_is_what_ran_and_was_not_ours() -> None:
    found = disturbance(_reading(0, 100, 10), _reading(10, 118, 27), num_cores=2)
    assert found.foreign_share == pytest.approx(0.05)  # 18 s ran, 17 were ours, of 20
    assert found.steal_share == 0.0


def test_our_own_time_beyond_the_ticks_is_not_negative_company() -> None:
    found = disturbance(_reading(0, 0, 0), _reading(10, 9.9, 10.0), num_cores=1)
    assert found.foreign_share == 0.0


@pytest.mark.parametrize(
    ("foreign_s", "steal_s", "voids"),
    [(0.0, 0.0, False), (0.99, 0.99, False), (1.01, 0.0, True), (0.0, 1.01, True)],
)
def test_more_than_five_percent_of_either_voids(
    foreign_s: float, steal_s: float, voids: bool
) -> None:
    after = _reading(10, foreign_s, 0.0, steal_s)
    assert disturbance(_reading(0, 0, 0), after, num_cores=2).voids is voids


def test_the_clocks_of_this_machine_do_not_run_backwards() -> None:
    before, after = read_cpu(), read_cpu()
    assert after.wall_s >= before.wall_s
    assert after.own_s >= before.own_s


def test_a_machine_that_never_gets_quiet_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter(_reading(i, 2.0 * i, 0.0) for i in range(100))
    monkeypatch.setattr("farandole.world.machine.read_cpu", lambda: next(readings))
    assert not wait_until_quiet(limit_s=0.0, num_cores=2, window_s=0.001)


def test_a_quiet_machine_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter(_reading(i, 0.0, 0.0) for i in range(2))
    monkeypatch.setattr("farandole.world.machine.read_cpu", lambda: next(readings))
    assert wait_until_quiet(limit_s=0.0, num_cores=2, window_s=0.001)
