"""What starts agents (launch.agent) on hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Started(Protocol):
    """What carries the agents of one or more hosts: a process of a remote shell, a job step."""

    hosts: Sequence[str]
    """The hosts whose agents it carries."""

    def poll(self) -> str | None:
        """Say why the carrier has ended, with the last lines of its errors; None while it runs.

        '' when it ended as it should.
        """

    def close(self) -> None:
        """End the carrier, and let go of everything."""


class Starter(Protocol):
    """Starts an agent on every host."""

    name: str
    """What users call it: `--launcher NAME`."""

    def network_name(self, host: str) -> str:
        """Return the name or address under which the network knows a host (an alias's target)."""

    def start(self, hosts: Sequence[str], argv: Sequence[str], greeting: bytes) -> list[Started]:
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
