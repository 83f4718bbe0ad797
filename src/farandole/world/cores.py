"""How many cores this process may use: affinity, and the quota of its control groups."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, slots=True, kw_only=True)
class Cores:
    """What limits the cores of this process."""

    affinity: int
    """Logical processors that the scheduler may put this process on."""
    quota: float | None
    """Cores' worth of time that the tightest control group allows; None without a limit."""
    physical: int
    """Distinct physical cores among those of the affinity."""

    @property
    def available(self) -> int:
        """Whole cores that can be kept busy."""
        if self.quota is None:
            return self.affinity
        return max(1, min(self.affinity, int(self.quota)))


def read_cores(root: Path = Path("/"), affinity: frozenset[int] | None = None) -> Cores:
    """Read affinity, quota and topology below a file system root.

    Args:
        root: The root of /proc and /sys; another folder in tests.
        affinity: Numbers of the allowed processors; the system's when None.
    """
    allowed = allowed_processors() if affinity is None else affinity
    return Cores(affinity=len(allowed), quota=_quota(root), physical=_physical(root, allowed))


def host_cores() -> int:
    """Return the cores that all workers of this host share, though each is bound to its own."""
    return read_cores(affinity=frozenset(range(os.cpu_count() or 1))).available


def threads_per_worker(cores: int, local_size: int) -> int:
    """Share the cores of a host among its workers; never less than one thread each."""
    return max(1, cores // local_size)


def allowed_processors() -> frozenset[int]:
    """Return the numbers of the processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def _physical(root: Path, allowed: frozenset[int]) -> int:
    """Count cores by their lists of hardware threads; where none are told, each is a core."""
    siblings = set()
    for number in allowed:
        path = root / f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list"
        siblings.add(_read(path) or f"cpu{number}")
    return len(siblings)


def _quota(root: Path) -> float | None:
    """Find the tightest limit from this process's group up to the top, in v1 and v2."""
    limits = []
    for mount, mounted_root, version in _cpu_mounts(root):
        group = _group(root, version)
        if group is None:
            continue
        for folder in _upwards(root / mount.lstrip("/"), mounted_root, group):
            limit = _limit(folder, version)
            if limit is not None:
                limits.append(limit)
    return min(limits, default=None)


def _cpu_mounts(root: Path) -> list[tuple[str, str, int]]:
    """List mount point, mounted root and version of the hierarchies that limit processor time."""
    mounts = []
    for line in (_read(root / "proc/self/mountinfo") or "").splitlines():
        before, dash, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if not dash or len(fields) < 5 or not kind:
            continue
        if kind[0] == "cgroup2":
            mounts.append((fields[4], fields[3], 2))
        elif kind[0] == "cgroup" and "cpu" in kind[-1].split(","):
            mounts.append((fields[4], fields[3], 1))
    return mounts


def _group(root: Path, version: int) -> str | None:
    """Read which group of the hierarchy this process is in."""
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if version == 2 and hierarchy == "0" and not controllers:
            return path
        if version == 1 and "cpu" in controllers.split(","):
            return path
    return None


def _upwards(mount: Path, mounted_root: str, group: str) -> list[Path]:
    """List the folders from the group up to the mount point.

    In a container the host's path of the group may lie outside of what is mounted; then only the
    mount point itself can be looked at.
    """
    inside = PurePosixPath(group)
    if mounted_root != "/" and inside.is_relative_to(mounted_root):
        inside = PurePosixPath("/") / inside.relative_to(mounted_root)
    if ".." in inside.parts:
        inside = PurePosixPath("/")
    relative = inside.relative_to("/")
    return [mount / part for part in (relative, *relative.parents)]


def _limit(folder: Path, version: int) -> float | None:
    try:
        if version == 2:
            quota, period = (_read(folder / "cpu.max") or "max 1").split()
        else:
            quota = _read(folder / "cpu.cfs_quota_us") or "-1"
            period = _read(folder / "cpu.cfs_period_us") or "1"
        if quota == "max" or int(quota) <= 0 or int(period) <= 0:
            return None
        return int(quota) / int(period)
    except ValueError:
        return None  # a format of the future limits nothing that we could know of


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
