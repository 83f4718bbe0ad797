"""What starts agents (launch.agent) on hosts: ssh, other remote shells, and srun."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Protocol

from farandole.errors import UsageError
from farandole.launch.lifeline import Lifeline
from farandole.launch.slurm_jobs import refusal
from farandole.world.slurm import network_name


class RunningAgents(Protocol):
    """What carries the agents of one or more hosts: a process of a remote shell, a job step."""

    hosts: Sequence[str]
    """The hosts whose agents it carries."""

    def poll(self) -> str | None:
        """Say why the process has ended, with the last lines of its errors; None while it runs.

        '' when it ended as it should.
        """

    def close(self) -> None:
        """End the process, and let go of everything."""


class Starter(Protocol):
    """Starts an agent on every host."""

    name: str
    """What users call it: `--launcher NAME`."""

    def network_name(self, host: str) -> str:
        """Return the name or address under which the network knows a host (an alias's target)."""

    def start(
        self, hosts: Sequence[str], argv: Sequence[str], greeting: bytes
    ) -> list[RunningAgents]:
        """Start the agents, and return without waiting for them.

        Args:
            hosts: The hosts in order.
            argv: The agent's command. A starter that starts each host by itself appends
                `--host NUMBER`; one that starts all at once leaves that to SLURM_NODEID.
            greeting: One line of JSON with the secret, for each agent's standard input; it must
                show neither on a command line nor in an environment.

        Raises:
            UsageError: The remote shell cannot be started here.
        """


class OneByOne(Protocol):
    """Starts agents one by one, also later: for runs whose hosts come and go."""

    def network_name(self, host: str) -> str:
        """Return the name or address under which the network knows a host."""

    def start_one(
        self, host: str, number: int, argv: Sequence[str], greeting: bytes
    ) -> RunningAgents:
        """Start the agent of one host, which has this number (see Starter.start)."""


Explain = Callable[[int, str, Sequence[str]], str]
"""Gets an exit code, the last of the errors and the hosts; says why it ended, '' if all is well."""

_LAST_BYTES = 4096
# What it gets to end by itself; a command of a scheduler has to call its daemons first.
_PATIENCE_S = 3.0


class AgentProcess:
    """A process that carries the agents of hosts (see protocol.RunningAgents)."""

    def __init__(
        self,
        hosts: Sequence[str],
        argv: Sequence[str],
        greeting: bytes,
        *,
        environ: Mapping[str, str] | None = None,
        explain: Explain,
    ) -> None:
        """Start it.

        Args:
            hosts: The hosts whose agents it carries.
            argv: What to start.
            greeting: What its standard input gets.
            environ: Its environment; this process's when None.
            explain: Says why it ended.

        Raises:
            UsageError: It cannot be started.
        """
        self.hosts: Sequence[str] = tuple(hosts)
        self._explain = explain
        self._errors = b""
        self._lifeline = Lifeline()
        try:
            self._process = self._lifeline.start(
                argv,
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                bufsize=0,
            )
        except OSError as error:
            self._lifeline.cut()
            raise UsageError(f"{argv[0]} cannot be started: {error.strerror}.") from error
        assert self._process.stdin is not None
        assert self._process.stderr is not None
        os.set_blocking(self._process.stderr.fileno(), False)
        # One that has failed already says why itself.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(greeting)
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def poll(self) -> str | None:
        """Say why it has ended; None while it runs, '' when all went well."""
        code = self._process.poll()
        self._read()
        if code is None:
            return None
        return self._explain(code, self._errors.decode(errors="replace"), self.hosts)

    def close(self) -> None:
        """End it."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        self._lifeline.cut()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def _read(self) -> None:
        assert self._process.stderr is not None
        if self._process.stderr.closed:
            return
        while True:
            data = self._process.stderr.read(_LAST_BYTES)
            if not data:
                return
            self._errors = (self._errors + data)[-_LAST_BYTES:]


# Agents by ssh, or by another remote shell that is called in the same way.

# No question is asked that nobody would answer, and a dead connection does not linger.
_SSH_OPTIONS = (
    *("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15"),
    *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=2"),
)
_SSH_FAILED, _NOT_EXECUTABLE, _NOT_FOUND = 255, 126, 127
_LAST_LINES = 3


class SshStarter:
    """Starts an agent on each host by `ssh HOST COMMAND`; on this one directly."""

    name = "ssh"

    def __init__(self, rsh: str | None = None, *, environ: Mapping[str, str]) -> None:
        """Prepare.

        Args:
            rsh: Another remote shell with its flags (`--rsh`), which gets a host and a command
                as one argument, as ssh does.
            environ: The head's environment.

        Raises:
            UsageError: There is no such program.
        """
        try:
            self._rsh = shlex.split(rsh or "ssh")
        except ValueError as error:
            raise UsageError(f"--rsh {rsh}: it cannot be read ({error}).") from error
        if not self._rsh or shutil.which(self._rsh[0], path=environ.get("PATH")) is None:
            raise UsageError(
                f"--rsh {rsh}: there is no such program."
                if rsh
                else "There is no ssh here. Install it, or give another remote shell: --rsh PROGRAM"
            )
        self._is_ssh = PurePath(self._rsh[0]).name == "ssh"
        # What a user types to try it.
        self._by_hand = shlex.join(self._rsh) if self._is_ssh else ""
        if self._is_ssh:
            self._rsh += _SSH_OPTIONS
        self._environ = environ

    def network_name(self, host: str) -> str:
        """Return the name that ssh's configuration gives a host; the host's own otherwise."""
        name = host.rpartition("@")[2]
        if not self._is_ssh or is_here(host):
            return name
        done = subprocess.run(
            [*self._rsh, "-G", host],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        for line in done.stdout.splitlines():
            key, _, value = line.partition(" ")
            if key == "hostname":
                return value.strip()
        return name

    def start(
        self, hosts: Sequence[str], argv: Sequence[str], greeting: bytes
    ) -> list[RunningAgents]:
        """Start the agents."""
        started: list[RunningAgents] = []
        try:
            for number, host in enumerate(hosts):
                started.append(self.start_one(host, number, argv, greeting))
        except BaseException:
            for process in started:
                process.close()
            raise
        return started

    def start_one(
        self, host: str, number: int, argv: Sequence[str], greeting: bytes
    ) -> RunningAgents:
        """Start the agent of one host, which has this number."""
        command = [*argv, "--host", str(number)]
        if not is_here(host):
            command = [*self._rsh, host, shlex.join(self._with_path(command))]
        return AgentProcess([host], command, greeting, explain=self._explain)

    def _with_path(self, command: list[str]) -> list[str]:
        """Let the agent's Python find Farandole where this one does."""
        path = self._environ.get("PYTHONPATH")
        return ["env", f"PYTHONPATH={path}", *command] if path else command

    def _explain(self, code: int, errors: str, hosts: Sequence[str]) -> str:
        return explain_ssh(code, errors, hosts[0], ssh=self._by_hand)


def explain_ssh(code: int, errors: str, host: str, *, ssh: str) -> str:
    """Say why an agent's process ended, with the last lines that it or its process wrote.

    Args:
        code: Its exit code.
        errors: What it wrote.
        host: Where it was to go.
        ssh: The user's ssh with its flags; "" where another remote shell was called.
    """
    if code == 0:
        return ""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    said = " / ".join(line.removeprefix("farandole: ") for line in lines[-_LAST_LINES:])
    if code == _SSH_FAILED and ssh:
        return f"ssh did not get there ({said or 'without a word'}). Try: {ssh} {host} true"
    if code in (_NOT_FOUND, _NOT_EXECUTABLE):
        return (
            f"the Python of this host is not there ({said}). Install the same environment under "
            "the same path"
        )
    if "No module named" in errors and "farandole" in errors:
        return f"its Python has no farandole ({said}). Install it there: pip install farandole"
    how = f"ended with code {code}" if code > 0 else f"was ended by signal {-code}"
    return f"its agent {how}" + (f": {said}" if said else "")


def is_here(host: str) -> bool:
    """Say whether a host's name means this machine, so that no remote shell is needed."""
    return host in ("localhost", "127.0.0.1", platform.node())


# Agents by srun: one step of the job around us, with one task on each of its hosts.

# What the job was submitted with says how its tasks are laid out; agents are one per node, with all
# that the job has there. srun takes these variables for its own flags.
_LAYOUT = re.compile(
    r"SLURM_(N?TASKS\w*|NPROCS|N?NODES|JOB_NUM_NODES|DISTRIBUTION|CPUS_PER_\w+|CPU_BIND\w*|"
    r"MEM_BIND\w*|MEM_PER_\w+|GPU_BIND|GPUS_PER_\w+|NTASKS_PER_\w+|THREADS_PER_CORE|"
    r"THREAD_SPEC|CORE_SPEC|HINT|EXCLUSIVE|EXACT|OVERCOMMIT|OPEN_MODE|STDIO_MODE|STDINMODE|"
    r"STDOUTMODE|STDERRMODE|LABELIO|UNBUFFEREDIO|WCKEY|RESV_PORTS|STEP_\w+|TRES_PER_TASK)"
    r"|SRUN_\w+"
)
_SRUN_ERROR = re.compile(r"^srun: (?:error: |fatal: )?(?!Job step aborted|launch/slurm)")


class SrunStarter:
    """Starts all agents by one srun, inside of an allocation."""

    name = "slurm"

    def __init__(self, *, environ: Mapping[str, str]) -> None:
        """Prepare.

        Args:
            environ: The head's environment, with the job's variables.

        Raises:
            UsageError: There is no srun here.
        """
        if shutil.which("srun", path=environ.get("PATH")) is None:
            raise UsageError(
                "This process is part of a SLURM job, but there is no srun on PATH to start "
                "workers with. Add SLURM's programs to PATH, or use --launcher local."
            )
        self._environ = {
            name: text for name, text in environ.items() if not _LAYOUT.fullmatch(name)
        }

    def network_name(self, host: str) -> str:
        """Return the name or address under which the network knows a node."""
        return network_name(host)

    def start(
        self, hosts: Sequence[str], argv: Sequence[str], greeting: bytes
    ) -> list[RunningAgents]:
        """Start the agents, which are numbered by SLURM_NODEID."""
        return [self._started(hosts, argv, greeting)]

    def start_one(
        self, host: str, number: int, argv: Sequence[str], greeting: bytes
    ) -> RunningAgents:
        """Start the agent of one node, which has this number."""
        return self._started([host], [*argv, "--host", str(number)], greeting)

    def _started(self, hosts: Sequence[str], argv: Sequence[str], greeting: bytes) -> RunningAgents:
        command = [*step_argv(hosts), *argv]
        return AgentProcess(hosts, command, greeting, environ=self._environ, explain=explain_srun)


def step_argv(hosts: Sequence[str]) -> list[str]:
    """Return srun and its flags for one task on each of these hosts."""
    return [
        "srun",
        f"--nodes={len(hosts)}",
        f"--ntasks={len(hosts)}",
        "--ntasks-per-node=1",
        f"--nodelist={','.join(hosts)}",
        # The batch script is a step too, and keeps what it has.
        "--overlap",
        "--mem=0",
        "--cpu-bind=none",
        "--mpi=none",
        # The greeting goes to all; agents end by themselves, and say why.
        "--input=all",
        "--kill-on-bad-exit=0",
        "--export=ALL",
    ]


def explain_srun(code: int, errors: str, hosts: Sequence[str]) -> str:
    """Say why srun ended: by what an agent said, or by SLURM's own message."""
    if code == 0:
        return ""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    said = [line.removeprefix("farandole: ") for line in lines if line.startswith("farandole: ")]
    if said:
        return said[-1]
    own = [line for line in lines if _SRUN_ERROR.match(line)]
    text = refusal("\n".join(own or lines), "srun")
    return f"srun ended with code {code}: {text}"
