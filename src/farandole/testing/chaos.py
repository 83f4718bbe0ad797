"""Random deaths in jobs on several hosts: does everything end in time, and is the first named?

Each run trains for real on hosts that are network namespaces (testing.hosts). A rank is killed, or
an agent, or a link is cut, while workers start or while they train.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from farandole.errors import StartError
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
