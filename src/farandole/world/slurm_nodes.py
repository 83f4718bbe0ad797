"""Where a node of SLURM's is on the network: by its name, or as SLURM's own table has it."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Callable

from farandole.errors import StartError

_ADDRESS = re.compile(r"\bNodeAddr=(\S+)")
_LIMIT_S = 10.0


def network_name(node: str, *, ask: Callable[[str], str] | None = None) -> str:
    """Return a name or address that the network knows for a node.

    Most clusters call nodes by their host names. Where NodeName and host name differ, SLURM's
    controller knows the address.

    Args:
        node: A name from SLURM's node list.
        ask: Returns what `scontrol show node` says; the program itself when None.

    Raises:
        StartError: Neither the network nor SLURM knows it.
    """
    if _resolves(node):
        return node
    found = _ADDRESS.search((ask or _scontrol)(node))
    if found is None or not _resolves(found[1]):
        raise StartError(
            f"The network does not know the node {node}, and SLURM has no address for it that it "
            "does. Set MASTER_ADDR to the address of the first node."
        )
    return found[1]


def _resolves(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError):
        return False


def _scontrol(node: str) -> str:
    try:
        return subprocess.run(
            ["scontrol", "show", "node", "--oneliner", node],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""  # said above: nobody knows it
