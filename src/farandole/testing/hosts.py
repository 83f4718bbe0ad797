"""Hosts that are network namespaces of this machine: real links between them, and real cuts.

Each namespace belongs to a process that holds it, and ends with the process that made these hosts,
however that ends; the kernel then takes devices and addresses away. Processes of all hosts see the
same files. `farandole run` reaches them by a remote shell of ours, which enters the namespace.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from farandole.errors import UsageError
from farandole.testing.shaped import why_not

# Of a range for documentation, which nobody routes; these never leave the namespaces anyway.
_NETWORK = "198.51.100"
_HEAD = 254
_MOST_HOSTS = 200
_DEVICE = "eth0"
_TIMEOUT_S = 30.0
_TOOLS = f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin{os.pathsep}/sbin"


class NamespaceHosts:
    """So many hosts, and one more for the head of a job.

    Example:
        >>> with NamespaceHosts(2, folder) as hosts:  # doctest: +SKIP
        ...     hosts.run(["farandole", "run", "--rsh", hosts.rsh, "-H", hosts.flag(2), "train.py"])
    """

    def __init__(self, count: int, folder: Path) -> None:
        """Make the namespaces and connect them.

        Args:
            count: How many hosts.
            folder: Where the remote shell's script goes.

        Raises:
            UsageError: This machine cannot; `farandole.testing.shaped.why_not()` says so.
        """
        if reason := why_not():
            raise UsageError(f"There are no namespaces as hosts here: {reason}.")
        if not 1 <= count <= _MOST_HOSTS:
            raise UsageError(f"You asked for {count} hosts: use 1 to {_MOST_HOSTS}.")
        self.names = tuple(f"{_NETWORK}.{number + 1}" for number in range(count))
        """The hosts' addresses, which are their names."""
        self._holders: list[subprocess.Popen[bytes]] = []
        try:
            self._head = self._hold()
            # An address of its own: a bridge takes one of a port's otherwise, and another one when
            # that is cut off, and then the hosts that are not cut off do not find the head either.
            own = ("address", "02:00:00:00:00:fe")
            self._ip(self._head, "link", "add", "bridge", *own, "type", "bridge")
            self._ip(self._head, "addr", "add", f"{_NETWORK}.{_HEAD}/24", "dev", "bridge")
            self._ip(self._head, "link", "set", "bridge", "up")
            self._ip(self._head, "link", "set", "lo", "up")
            self._pids = [self._hold() for _ in self.names]
            for number in range(count):
                self._connect(number)
            self.rsh = self._write_shell(folder)
            """For `--rsh`."""
        except BaseException:
            self.close()
            raise

    def flag(self, workers: int) -> str:
        """Return what `-H` gets for so many workers on each host."""
        return ",".join(f"{name}:{workers}" for name in self.names)

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return a command that runs on the head's host."""
        return _enter(self._head, argv)

    def cut(self, number: int) -> None:
        """Cut a host off: nothing passes any more, and nobody is told."""
        self._ip(self._head, "link", "set", f"port{number}", "nomaster")

    def mend(self, number: int) -> None:
        """Connect a host again."""
        self._ip(self._head, "link", "set", f"port{number}", "master", "bridge", "up")

    def processes(self, number: int) -> list[int]:
        """Return the processes that run on a host."""
        network = Path(f"/proc/{self._pids[number]}/ns/net").readlink()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != self._pids[number]:
                # It may end while it is looked at; a zombie has no network any more.
                with contextlib.suppress(OSError):
                    if (entry / "ns/net").readlink() == network:
                        found.append(int(entry.name))
        return found

    def close(self) -> None:
        """End the holders, and with them the namespaces."""
        for holder in self._holders:
            assert holder.stdin is not None
            assert holder.stdout is not None
            holder.stdin.close()
            holder.stdout.close()
        for holder in self._holders:
            holder.wait(_TIMEOUT_S)
        self._holders.clear()

    def __enter__(self) -> NamespaceHosts:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _hold(self) -> int:
        """Start a process with a network of its own, which ends with its standard input."""
        holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; read line"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._holders.append(holder)
        assert holder.stdout is not None
        if not holder.stdout.readline():
            raise UsageError("A network namespace could not be made here.")
        return holder.pid

    def _connect(self, number: int) -> None:
        pid, port = self._pids[number], f"port{number}"
        self._ip(
            pid,
            *("link", "add", _DEVICE, "type", "veth"),
            *("peer", "name", port, "netns", str(self._head)),
        )
        self._ip(pid, "addr", "add", f"{self.names[number]}/24", "dev", _DEVICE)
        for device in ("lo", _DEVICE):
            self._ip(pid, "link", "set", device, "up")
        self.mend(number)

    def _write_shell(self, folder: Path) -> str:
        """Write a remote shell: `rsh HOST COMMAND`."""
        cases = [
            f'{name}) exec nsenter --net=/proc/{pid}/ns/net -- sh -c "$2" ;;'
            for name, pid in zip(self.names, self._pids, strict=True)
        ]
        lines = [
            "#!/bin/sh",
            'case "$1" in',
            *cases,
            "esac",
            'echo "rsh: $1: no such host" >&2',
            "exit 255",
        ]
        script = folder / "rsh"
        script.write_text("\n".join(lines) + "\n")
        script.chmod(0o700)
        return shlex.quote(str(script))

    def _ip(self, pid: int, *arguments: str) -> None:
        tool = shutil.which("ip", path=_TOOLS) or "ip"
        done = subprocess.run(
            _enter(pid, [tool, *arguments]),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise UsageError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def _enter(pid: int, argv: Sequence[str]) -> list[str]:
    return ["nsenter", f"--net=/proc/{pid}/ns/net", "--", *argv]
