"""One launch: start a contestant's processes, wait, gather, and leave nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from farandole.bench.contestant import Command, Contestant, commands
from farandole.bench.workers.meeting import LINE_BYTES
from farandole.model.statistics import launch_value, slowest_rank
from farandole.world.foreign import Disturbance, disturbance, read_cpu

KEPT = "FARANDOLE_TRANSPORT"
"""The one variable of Farandole's that a launch inherits."""
TAG = "FARANDOLE_BENCH_SCRATCH"
"""Environment variable by which every process of a launch is known, whoever its parent is."""

_POLL_S = 0.02
_GRACE_S = 3.0
_LAST_LINES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRecord:
    """What one launch gave."""

    contestant: str
    round: int
    values: Mapping[str, float] = field(default_factory=dict)
    """One number per series: seconds, or bytes for memory."""
    disturbance: Disturbance
    wall_s: float
    timed: bool = True
    facts: Mapping[str, Any] = field(default_factory=dict)
    failure: str | None = None
    missing: str | None = None
    """Why the contestant could not even be started here."""

    @property
    def void(self) -> bool:
        """Whether others took so much of the machine that these values say nothing."""
        return self.timed and self.disturbance.voids

    @property
    def counts(self) -> bool:
        return self.failure is None and self.missing is None and not self.void


class _FailedError(Exception):
    """Why a launch gave no value; kept in its record, never shown as a traceback."""


def launch(contestant: Contestant, *, round_number: int, time_limit_s: float) -> LaunchRecord:
    """Run one launch of `contestant` to its end.

    A failing worker is a result, not an exception; Ctrl-C ends all processes and passes on.
    """
    num_cores = available_cores()
    values: Mapping[str, float] = {}
    facts: Mapping[str, Any] = {}
    failure = None
    with tempfile.TemporaryDirectory(prefix="farandole-bench-") as folder:
        scratch = Path(folder)
        before = read_cpu()
        try:
            _run(contestant, scratch, time_limit_s=time_limit_s)
            reports = read_reports(scratch, num_ranks=contestant.num_ranks)
            values = series_values(reports, started_monotonic_s=before.wall_s)
            facts = reports[0].get("facts", {})
            check_weights(contestant, reports)
        except _FailedError as error:
            failure = str(error)
        after = read_cpu()
    return LaunchRecord(
        contestant=contestant.name,
        round=round_number,
        values=values if failure is None else {},
        disturbance=disturbance(before, after, num_cores=num_cores),
        wall_s=after.wall_s - before.wall_s,
        timed=contestant.timed,
        facts=facts,
        failure=failure,
    )


def available_cores() -> int:
    """Return how many cores the processes of a launch may use."""
    return len(os.sched_getaffinity(0))


def read_reports(scratch: Path, *, num_ranks: int) -> list[dict[str, Any]]:
    """Return the ranks' reports in rank order, all of them or an error."""
    reports = []
    for rank in range(num_ranks):
        path = scratch / f"rank-{rank}.json"
        if not path.exists():
            raise _FailedError(f"rank {rank} of {num_ranks} ended without a report")
        reports.append(json.loads(path.read_text()))
    return reports


def series_values(
    reports: Sequence[Mapping[str, Any]], *, started_monotonic_s: float
) -> dict[str, float]:
    """Return the launch's one number per series; of several ranks the slowest or largest counts."""
    values = {}
    for name in reports[0].get("series", {}):
        values[name] = launch_value(slowest_rank([report["series"][name] for report in reports]))
    if "reached_monotonic_s" in reports[0]:
        # CLOCK_MONOTONIC is one clock for all processes of a Linux machine.
        last_s = max(report["reached_monotonic_s"] for report in reports)
        values["start"] = last_s - started_monotonic_s
    if "memory_kb" in reports[0]:
        kinds = [report["memory_kb"] for report in reports]
        values["pss"] = 1024.0 * max(kind["pss"] for kind in kinds)
        # Pages of libraries are shared with whatever else runs torch on this machine; what a
        # library allocates is anonymous memory and memory files.
        values["own_pss"] = 1024.0 * max(kind["pss_anon"] + kind["pss_shmem"] for kind in kinds)
    return values


def check_weights(contestant: Contestant, reports: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a training whose ranks ended with different weights: they did not train together."""
    if not contestant.synchronized:
        return
    checksums = {report["facts"]["weights_crc"] for report in reports}
    if len(checksums) > 1:
        raise _FailedError("the ranks ended with different weights: they did not train together")


def _run(contestant: Contestant, scratch: Path, *, time_limit_s: float) -> None:
    """Start the processes, wait for them, and end what is left of them on any way out."""
    barrier_fd = os.memfd_create("farandole-bench-barrier")
    processes: list[subprocess.Popen[bytes]] = []
    try:
        os.ftruncate(barrier_fd, contestant.num_ranks * LINE_BYTES)
        for index, command in enumerate(
            commands(contestant, scratch=scratch, barrier_fd=barrier_fd)
        ):
            processes.append(_start(command, scratch, index, barrier_fd))
        _wait(processes, scratch, deadline_s=time.monotonic() + time_limit_s)
    finally:
        os.close(barrier_fd)
        end_launch(processes, scratch)


def worker_environment(around: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a launch: the caller's, less what would favour or mislead one.

    PYTHONPATH and its like could lead the limit to farandole, and no contestant may find itself
    in a world that the caller happens to be a rank of. The choice of a transport stays.
    """
    kept = {
        name: value
        for name, value in around.items()
        if name == KEPT or not name.startswith(("PYTHON", "FARANDOLE", "HOROVOD", "OMPI_", "PMIX_"))
    }
    # One thread each, and sockets on loopback, for everybody alike.
    return kept | {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }


def _start(command: Command, scratch: Path, index: int, barrier_fd: int) -> subprocess.Popen[bytes]:
    environment = {
        **worker_environment(os.environ),
        TAG: str(scratch),
        **command.environment,
    }
    with (scratch / f"output-{index}.txt").open("wb") as output:
        return subprocess.Popen(
            command.argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(barrier_fd,) if command.inherits_barrier else (),
            # Ctrl-C at the terminal reaches this process alone, which then ends the others.
            start_new_session=True,
        )


def _wait(
    processes: Sequence[subprocess.Popen[bytes]], scratch: Path, *, deadline_s: float
) -> None:
    running = dict(enumerate(processes))
    while running:
        for index, process in list(running.items()):
            code = process.poll()
            if code is None:
                continue
            del running[index]
            if code != 0:
                raise _FailedError(f"exit code {code}: {_last_lines(scratch, index)}")
        if time.monotonic() > deadline_s:
            raise _FailedError("did not end within the time limit")
        time.sleep(_POLL_S)


def _last_lines(scratch: Path, index: int) -> str:
    text = (scratch / f"output-{index}.txt").read_text(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-_LAST_LINES:]) or "it printed nothing"


def end_launch(processes: Sequence[subprocess.Popen[bytes]], scratch: Path) -> None:
    """End every process of a launch: politely those that we started, then all that bear its tag."""
    # A second Ctrl-C says that there is no more patience, not that something may stay behind.
    with contextlib.suppress(KeyboardInterrupt):
        if _end_politely(processes, scratch):
            return
    for pid in tagged(scratch):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for process in processes:
        process.wait()


def _end_politely(processes: Sequence[subprocess.Popen[bytes]], scratch: Path) -> bool:
    """Ask those that we started to end; return whether nobody is left."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    deadline_s = time.monotonic() + _GRACE_S
    while time.monotonic() < deadline_s:
        if all(process.poll() is not None for process in processes) and not tagged(scratch):
            return True
        time.sleep(_POLL_S)
    return False


def tagged(scratch: Path) -> list[int]:
    """Return the live processes that a launch in `scratch` started, at whatever remove."""
    mark = f"{TAG}={scratch}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            # A process that has ended but was not waited for has an empty environment here.
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found
