"""A real SLURM on this machine: a controller and nodes of its own, all of it in one folder.

Debian's slurm-wlm can run several slurmd beside each other, each with its own name and port, so
that one machine stands for a cluster. Nothing of it is configured or left anywhere else.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from farandole.errors import StartError, UsageError

_DAEMONS = ("munged", "slurmctld", "slurmd")
_CLIENTS = ("sbatch", "srun", "scancel", "scontrol", "sinfo", "squeue")
_PACKAGES = "apt-get install slurm-wlm munge"
# Debian puts daemons where a user's PATH does not lead.
_PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"
_START_S = 60.0
_END_S = 20.0
_KEY_BYTES = 1024

_CONF = """\
ClusterName=farandole
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
# More CPUs than the machine has may be declared.
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
ReturnToService=2
KillWait=5
InactiveLimit=0
{nodes}
PartitionName=main Nodes={names} Default=YES MaxTime=INFINITE State=UP
"""


@functools.cache
def why_not() -> str:
    """Say why there can be no SLURM here; "" when there can."""
    if sys.platform != "linux":
        return "SLURM needs Linux"
    for program in (*_DAEMONS, *_CLIENTS):
        if shutil.which(program, path=_PATH) is None:
            return f"there is no {program}: {_PACKAGES}"
    if os.geteuid() != 0:
        return "SLURM's daemons need root"
    return ""


class SlurmCluster:
    """Nodes n1, n2, ... with a controller, while the context lasts."""

    def __init__(self, folder: Path, *, num_nodes: int = 2, cpus: int = 4) -> None:
        """Prepare; nothing is started.

        Args:
            folder: Where keys, state and logs go; an empty one.
            num_nodes: How many nodes.
            cpus: How many CPUs each of them says it has.

        Raises:
            UsageError: This machine cannot run SLURM.
        """
        if reason := why_not():
            raise UsageError(f"SLURM cannot be started: {reason}.")
        self.nodes = tuple(f"n{number + 1}" for number in range(num_nodes))
        self.environ: Mapping[str, str] = {"SLURM_CONF": str(folder / "slurm.conf")}
        """What programs of SLURM's need to find this cluster."""
        self._folder, self._cpus = folder, cpus
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> SlurmCluster:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(StartError, OSError, subprocess.SubprocessError):
            self.cancel_all()
        self._end()

    def call(self, program: str, *arguments: str) -> str:
        """Run a program of SLURM's and return what it wrote.

        Raises:
            StartError: It failed.
        """
        done = subprocess.run(
            [program, *arguments],
            env={**os.environ, **self.environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_START_S,
            check=False,
        )
        if done.returncode:
            raise StartError(f"{program} failed: {done.stderr.strip()}")
        return done.stdout

    def cancel_all(self) -> None:
        """End all jobs, and wait until none is left."""
        self.call("scancel", f"--user={_user()}")
        self._await(lambda: not self.call("squeue", "--noheader").strip(), "jobs do not end")

    def _start(self) -> None:
        folder = self._folder
        (folder / "state").mkdir(parents=True)
        key = folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(_KEY_BYTES))
        Path(self.environ["SLURM_CONF"]).write_text(self._conf())
        self._spawn(
            "munged",
            "--foreground",
            # pytest's folders are private, which munged takes for a mistake.
            "--force",
            f"--key-file={key}",
            f"--socket={folder}/munge.socket",
            f"--pid-file={folder}/munged.pid",
            f"--seed-file={folder}/munged.seed",
            f"--log-file={folder}/munged.log",
        )
        self._await((folder / "munge.socket").exists, "munged does not answer")
        self._spawn("slurmctld", "-D", "-i")
        for node in self.nodes:
            self._spawn("slurmd", "-D", "-N", node)
        self._await(self._all_idle, "the nodes do not come up")

    def _conf(self) -> str:
        host = socket.gethostname().partition(".")[0]
        ports = _free_ports(len(self.nodes) + 1)
        nodes = [
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
            f"CPUs={self._cpus} RealMemory=1000 State=UNKNOWN"
            for name, port in zip(self.nodes, ports[1:], strict=True)
        ]
        return _CONF.format(
            host=host,
            controller_port=ports[0],
            folder=self._folder,
            nodes="\n".join(nodes),
            names=",".join(self.nodes),
        )

    def _spawn(self, program: str, *arguments: str) -> None:
        found = shutil.which(program, path=_PATH)
        assert found is not None
        with (self._folder / f"{program}.out").open("ab") as output:
            self._processes.append(
                subprocess.Popen(
                    [found, *arguments],
                    env={**_without_jobs(os.environ), **self.environ},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _all_idle(self) -> bool:
        try:
            states = self.call("sinfo", "--noheader", "--Node", "--format=%T").split()
        except StartError:
            return False  # the controller is not up yet
        return len(states) == len(self.nodes) and all(state == "idle" for state in states)

    def _await(self, condition: Callable[[], bool], trouble: str) -> None:
        deadline = time.monotonic() + _START_S
        while not condition():
            ended = [process for process in self._processes if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                raise StartError(f"SLURM: {trouble}. {self._last_words()}")
            time.sleep(0.1)

    def _last_words(self) -> str:
        words = []
        for file in sorted((*self._folder.glob("*.out"), *self._folder.glob("*.log"))):
            lines = file.read_text(errors="replace").strip().splitlines()
            words += [f"{file.name}: {line}" for line in lines[-3:]]
        return "\n".join(words)

    def _end(self) -> None:
        # The nodes first, while the controller can still hear of it.
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()


def _without_jobs(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which nobody finds an outer job."""
    return {name: text for name, text in environ.items() if not name.startswith("SLURM")}


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


def _free_ports(count: int) -> Sequence[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]
