"""Agents by ssh, or by another remote shell that is called in the same way."""

from __future__ import annotations

import platform
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from farandole.errors import UsageError
from farandole.launch.starters.protocol import AgentProcess, RunningAgents

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
                command = [*argv, "--host", str(number)]
                if not is_here(host):
                    command = [*self._rsh, host, shlex.join(self._with_path(command))]
                started.append(AgentProcess([host], command, greeting, explain=self._explain))
        except BaseException:
            for process in started:
                process.close()
            raise
        return started

    def _with_path(self, command: list[str]) -> list[str]:
        """Let the agent's Python find Farandole where this one does."""
        path = self._environ.get("PYTHONPATH")
        return ["env", f"PYTHONPATH={path}", *command] if path else command

    def _explain(self, code: int, errors: str, hosts: Sequence[str]) -> str:
        return explain(code, errors, hosts[0], ssh=self._by_hand)


def explain(code: int, errors: str, host: str, *, ssh: str) -> str:
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
