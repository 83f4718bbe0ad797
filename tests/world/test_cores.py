from __future__ import annotations

from pathlib import Path

import pytest

from farandole.world.cores import read_cores, threads_per_worker

V2 = "30 23 0:26 {root} {mount} rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"
V1 = "31 23 0:27 {root} {mount} rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
EIGHT = frozenset(range(8))


def put(root: Path, path: str, text: str) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def v2(root: Path, group: str, mounted: str = "/") -> None:
    put(root, "proc/self/mountinfo", V2.format(root=mounted, mount="/sys/fs/cgroup"))
    put(root, "proc/self/cgroup", f"0::{group}\n")


def v1(root: Path, group: str, mounted: str = "/") -> None:
    put(root, "proc/self/mountinfo", V1.format(root=mounted, mount="/sys/fs/cgroup/cpu"))
    put(root, "proc/self/cgroup", f"5:memory:/\n4:cpu,cpuacct:{group}\n0::/elsewhere\n")


def test_affinity_alone(tmp_path: Path) -> None:
    cores = read_cores(tmp_path, EIGHT)
    assert (cores.available, cores.quota, cores.physical) == (8, None, 8)


def test_quota_v2_is_found_up_the_hierarchy(tmp_path: Path) -> None:
    v2(tmp_path, "/job/worker/leaf")
    put(tmp_path, "sys/fs/cgroup/job/worker/leaf/cpu.max", "max 100000\n")
    put(tmp_path, "sys/fs/cgroup/job/worker/cpu.max", "600000 100000\n")
    put(tmp_path, "sys/fs/cgroup/job/cpu.max", "250000 100000\n")
    cores = read_cores(tmp_path, EIGHT)
    assert (cores.quota, cores.available) == (2.5, 2)


def test_quota_v2_in_a_container(tmp_path: Path) -> None:
    v2(tmp_path, "/docker/abc", mounted="/docker/abc")
    put(tmp_path, "sys/fs/cgroup/cpu.max", "50000 100000\n")
    cores = read_cores(tmp_path, EIGHT)
    assert (cores.quota, cores.available) == (0.5, 1)


def test_group_outside_of_the_mount(tmp_path: Path) -> None:
    v2(tmp_path, "/../../other")
    put(tmp_path, "sys/fs/cgroup/cpu.max", "300000 100000\n")
    assert read_cores(tmp_path, EIGHT).available == 3


def test_quota_v1_is_found_up_the_hierarchy(tmp_path: Path) -> None:
    v1(tmp_path, "/a/b")
    put(tmp_path, "sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "-1\n")
    put(tmp_path, "sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", "100000\n")
    put(tmp_path, "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "400000\n")
    put(tmp_path, "sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n")
    assert read_cores(tmp_path, EIGHT).available == 4


@pytest.mark.parametrize("text", ["", "what ever it is\n", "x 100000\n", "100000 0\n"])
def test_unknown_formats_limit_nothing(tmp_path: Path, text: str) -> None:
    v2(tmp_path, "/")
    put(tmp_path, "sys/fs/cgroup/cpu.max", text)
    assert read_cores(tmp_path, EIGHT).available == 8


def test_affinity_below_the_quota_wins(tmp_path: Path) -> None:
    v2(tmp_path, "/")
    put(tmp_path, "sys/fs/cgroup/cpu.max", "400000 100000\n")
    assert read_cores(tmp_path, frozenset({3})).available == 1


def test_hardware_threads_are_one_core(tmp_path: Path) -> None:
    for number in range(8):
        base = number % 4
        path = f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list"
        put(tmp_path, path, f"{base},{base + 4}\n")
    assert read_cores(tmp_path, EIGHT).physical == 4
    assert read_cores(tmp_path, frozenset({0, 4})).physical == 1


def test_this_machine_has_a_core() -> None:
    assert read_cores().available >= 1


@pytest.mark.parametrize(
    ("cores", "workers", "threads"), [(8, 2, 4), (8, 3, 2), (2, 4, 1), (1, 1, 1)]
)
def test_threads_per_worker(cores: int, workers: int, threads: int) -> None:
    assert threads_per_worker(cores, workers) == threads
