"""What starts agents (launch.agent) on hosts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from farandole.errors import UsageError
from farandole.launch.lifeline import Lifeline


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
