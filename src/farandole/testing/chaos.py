"""Random faults in jobs: does everything end in time, and is the first named?

On several hosts, which are network namespaces (testing.hosts), a rank is killed, or an agent, or a
link is cut, while workers train for real or start. On one host a rank fails in any of the ways that
testing.faults has, anywhere between its start and its last exit handler.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from farandole.errors import StartError
from farandole.testing.faults import Mode
from farandole.testing.hosts import NamespaceHosts

PROMISE_S = 10.0
"""Within this time after a death everything has to have ended, everywhere."""

_START_TIMEOUT_S = 120.0
_END_TIMEOUT_S = 60.0
_LOOK_S = 0.02
_TRAIN = """
import os, sys
from pathlib import Path
here, rank = Path(sys.argv[1]), os.environ["RANK"]
(here / f"pid{rank}.new").write_text(f"{os.getpid()} {os.getppid()}")
(here / f"pid{rank}.new").rename(here / f"pid{rank}")
import torch
import farandole.torch as hvd
hvd.init()
model = torch.nn.Linear(64, 8)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), 0.01), model.named_parameters()
)
for step in range(100_000):
    optimizer.zero_grad()
    model(torch.randn(16, 64)).square().mean().backward()
    optimizer.step()
    if step == 5:
        (here / f"trains{rank}").touch()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """Who dies, how and when."""

    kind: Literal["rank", "agent", "link"]
    host: int
    rank: int
    """Of that host; who it is that dies when the kind is rank."""
    training: bool
    """Whether all ranks train by then; otherwise they are on their way there."""
    delay_s: float
    """How long after that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a run with a death ended."""

    death: Death
    exit_code: int
    head_s: float
    """From the death to the end of `farandole run`."""
    all_s: float
    """From the death until no process was left on any host."""
    named: bool
    """Whether what was said named the one who died."""
    left: tuple[str, ...]
    """What was left behind: files in the folder for temporary ones."""
    said: str
    """What `farandole run` itself said at the end."""

    @property
    def clean(self) -> bool:
        """Say whether it failed as it should, in time, leaving nothing."""
        return self.exit_code != 0 and self.all_s <= PROMISE_S and not self.left


def random_death(chance: random.Random, *, hosts: int, workers: int) -> Death:
    """Choose a death."""
    host = chance.randrange(hosts)
    training = chance.random() < 0.7
    return Death(
        kind=chance.choice(["rank", "agent", "link"]),
        host=host,
        rank=host * workers + chance.randrange(workers),
        training=training,
        delay_s=chance.uniform(0.0, 0.5 if training else 3.0),
    )


def die_once(hosts: NamespaceHosts, death: Death, folder: Path, *, workers: int = 2) -> Ending:
    """Make one run in which somebody dies, and see how it ends.

    Args:
        hosts: Where it runs; all links are whole again afterwards.
        death: Who dies.
        folder: An empty folder.
        workers: How many on each host.
    """
    script, temporary = folder / "train.py", folder / "tmp"
    script.write_text(_TRAIN)
    temporary.mkdir()
    size = workers * len(hosts.names)
    argv = [sys.executable, "-m", "farandole.cli.main", "run", "--rsh", hosts.rsh]
    argv += ["-H", hosts.flag(workers), "--threads", "1", "--start-timeout", "120"]
    # Agents inherit the head's environment only by what is passed on.
    argv += ["--env", "TMPDIR", str(script), str(folder)]
    errors = (folder / "errors").open("w+")
    with (
        errors,
        subprocess.Popen(
            hosts.command(argv),
            env={**os.environ, "TMPDIR": str(temporary)},
            stdout=subprocess.DEVNULL,
            stderr=errors,
        ) as head,
    ):
        try:
            marks = "trains" if death.training else "pid"
            _wait(lambda: len(_files(folder, marks)) == size, head, _START_TIMEOUT_S)
            time.sleep(death.delay_s)
            began = time.monotonic()
            _die(hosts, death, folder)
            exit_code = head.wait(_END_TIMEOUT_S)
            head_s = time.monotonic() - began
            deadline = began + _END_TIMEOUT_S
            while _running(hosts) and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
            all_s = time.monotonic() - began
        finally:
            head.kill()
            for pid in _running(hosts):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for number in range(len(hosts.names)):
                hosts.mend(number)
    lines = (folder / "errors").read_text().splitlines()
    said = [line for line in lines if line.startswith("farandole: ")]
    name = hosts.names[death.host]
    expected = (
        f"farandole: rank {death.rank} on host {name}"
        if death.kind == "rank"
        else f"farandole: host {name} "
    )
    return Ending(
        death=death,
        exit_code=exit_code,
        head_s=head_s,
        all_s=all_s,
        named=any(line.startswith(expected) for line in said),
        left=tuple(sorted(path.name for path in temporary.iterdir())),
        said="\n".join(lines[-30:]),
    )


def _die(hosts: NamespaceHosts, death: Death, folder: Path) -> None:
    if death.kind == "link":
        hosts.cut(death.host)
        return
    worker, agent = map(int, (folder / f"pid{death.rank}").read_text().split())
    os.kill(worker if death.kind == "rank" else agent, signal.SIGKILL)


def _running(hosts: NamespaceHosts) -> list[int]:
    return [pid for number in range(len(hosts.names)) for pid in hosts.processes(number)]


def _files(folder: Path, marks: str) -> list[Path]:
    return [path for path in folder.glob(f"{marks}*") if path.suffix != ".new"]


def _wait(condition: Callable[[], bool], head: subprocess.Popen[bytes], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if head.poll() is not None or time.monotonic() > deadline:
            raise StartError("The run ended, or took too long, before anybody died.")
        time.sleep(_LOOK_S)


# One host

Moment = Literal["before init", "in init", "in a collective", "at exit", "in atexit"]

_STALL_S, _SILENCE_S, _EXIT_S = 4.0, 2.0, 5.0
_FAULT_TIMEOUT_S = 180.0
_FAIL = """
import atexit, os, sys, time
from pathlib import Path
from farandole.testing import FailAt
here, mode, moment, victim, last, with_torch = sys.argv[1:]
me = int(os.environ["RANK"])
fault = FailAt(rank=int(victim), step=0, mode=mode)
def fail_if(now):
    if now == moment and me == fault.rank:
        Path(here, "failed").touch()
        fault.maybe(me, 0)
from farandole.engine import context
if with_torch == "True":
    import torch
    import farandole.torch
Path(here, f"arrived{me}").touch()
fail_if("before init")
before = context.open_transport
def open_transport(*args, **options):
    fail_if("in init")
    return before(*args, **options)
context.open_transport = open_transport
context.init()
atexit.register(fail_if, "in atexit")
engine = context.current().engine
for step in range(int(last)):
    if with_torch == "True":
        farandole.torch.allreduce(torch.ones(1000), name=f"step{step % 3}")
    else:
        engine.exchange(b"x" * 1000, f"step{step % 3}")
fail_if("in a collective")
engine.exchange(b"last", "last")
engine.exchange(b"after", "after")
fail_if("at exit")
"""
_CODES: dict[Mode, int] = {
    "exception": 1,
    "exit": 3,
    "leave": 1,
    "kill": 128 + signal.SIGKILL,
    "stop": 1,
    "segfault": 128 + signal.SIGSEGV,
    "abort": 128 + signal.SIGABRT,
    "memory": 1,
    "hang": 1,
}
# Leaving is no fault once all is done; nor can work after the last collective be told from a hang.
# What exit handlers raise is Python's to print, and changes no exit code.
_NONE = {
    *(("leave", "at exit"), ("hang", "at exit")),
    *((mode, "in atexit") for mode in ("exception", "leave", "memory")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Which rank of a job on one host fails, how and when."""

    mode: Mode
    moment: Moment
    rank: int
    size: int
    steps: int
    """Collectives that all take part in before that."""
    torch: bool

    @property
    def exit_code(self) -> int:
        """What `farandole run` has to exit with."""
        return _CODES[self.mode]

    @property
    def wait_s(self) -> float:
        """How long such a fault may go unnoticed, by the time-outs of the run."""
        if self.mode == "stop":
            return _SILENCE_S
        if self.mode != "hang":
            return 0.0
        in_start = self.moment in ("before init", "in init")
        return self.start_timeout_s if in_start else max(_STALL_S, _EXIT_S)

    @property
    def start_timeout_s(self) -> float:
        """What ranks wait for each other in init: torch takes its time on a busy machine."""
        return 25.0 if self.torch else 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultEnding:
    """How a run with a fault ended."""

    fault: Fault
    exit_code: int
    end_s: float
    """From the fault, or the arrival of the last rank if that is later, to the end of the run."""
    named: bool
    """Whether the rank that failed is the one that the launcher names."""
    left: tuple[str, ...]
    """What was left behind: processes, files."""
    said: str
    """What `farandole run` wrote to its error output."""
    crowding: float = 1.0
    """How much longer things may take because other programs use the cores too."""

    @property
    def clean(self) -> bool:
        """Say whether it ended with the right code, in time, leaving nothing."""
        return (
            self.exit_code == self.fault.exit_code
            and self.end_s <= self.fault.wait_s + PROMISE_S * self.crowding
            and not self.left
        )


def random_fault(chance: random.Random, *, torch: bool) -> Fault:
    """Choose a fault."""
    size = chance.choice([2, 3])
    while True:
        mode: Mode = chance.choice(get_args(Mode))
        moment: Moment = chance.choice(get_args(Moment))
        if (mode, moment) not in _NONE:
            break
    return Fault(
        mode=mode,
        moment=moment,
        rank=chance.randrange(size),
        size=size,
        steps=chance.randrange(20),
        torch=torch,
    )


def fail_once(fault: Fault, folder: Path) -> FaultEnding:
    """Make one run with a fault in an empty folder, and see how it ends."""
    script, temporary, mark = folder / "fail.py", folder / "tmp", uuid.uuid4().hex
    script.write_text(_FAIL)
    temporary.mkdir()
    argv = [sys.executable, "-m", "farandole.cli.main", "run", "-np", str(fault.size)]
    argv += ["--threads", "1", "--start-timeout", str(fault.start_timeout_s)]
    argv += ["--stall-warning", str(_STALL_S / 2), "--stall-shutdown", str(_STALL_S)]
    argv += ["--silence-timeout", str(_SILENCE_S), "--exit-timeout", str(_EXIT_S)]
    argv += [str(script), str(folder), fault.mode, fault.moment, str(fault.rank)]
    argv += [str(fault.steps), str(fault.torch)]
    environ = {**os.environ, "TMPDIR": str(temporary), "FARANDOLE_CHAOS": mark}
    with (folder / "errors").open("w") as errors:
        try:
            done = subprocess.run(
                argv,
                env=environ,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                timeout=_FAULT_TIMEOUT_S,
                check=False,
            )
            code, ended_s = done.returncode, time.time()
        except subprocess.TimeoutExpired:
            code, ended_s = -1, float("inf")
    failed = [path.stat().st_mtime for path in folder.glob("failed")]
    arrived = [path.stat().st_mtime for path in folder.glob("arrived*")]
    said = (folder / "errors").read_text(errors="replace")
    verdict = [line for line in said.splitlines() if line.startswith("farandole: rank ")]
    named = [line for line in verdict if " failed first" in line or "ended." in line]
    left = [path.name for path in temporary.iterdir()]
    for pid in _marked(mark):
        left.append(f"process {pid}")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return FaultEnding(
        fault=fault,
        exit_code=code,
        end_s=ended_s - max(*failed, *arrived) if failed else float("inf"),
        named=bool(named) and named[0].split()[2].rstrip(",") == str(fault.rank),
        left=tuple(sorted(left)),
        said=said,
        crowding=min(3.0, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))),
    )


def _marked(mark: str) -> list[int]:
    """List the processes of a run, by what they have in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"FARANDOLE_CHAOS={mark}".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found
