"""Which of this host's addresses the others reach: the routing table knows, names of devices lie.

A connected UDP socket sends nothing; the kernel only looks up the way and fills in the address that
packets would leave from.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

from farandole.errors import StartError

# Any port will do: nothing is sent there.
_DISCARD_PORT = 9


def address_towards(host: str) -> str:
    """Return this host's own address on the way to another one.

    Args:
        host: a name or an IPv4 address.

    Raises:
        StartError: the name is unknown, or no route leads there.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, _DISCARD_PORT))
            address: str = probe.getsockname()[0]
        except OSError as error:
            raise StartError(
                f"This host finds no way to {host} ({error.strerror or error}). Give a name or "
                "IPv4 address that it can reach, or set FARANDOLE_ADDRESS to the address of this "
                "host that the others can."
            ) from error
    return address


def wished_address(environ: Mapping[str, str]) -> str:
    """Return the address of this host that its user has chosen; "" without one."""
    # Inside of a worker it is what the outer launch has found.
    return "" if "FARANDOLE_JOB" in environ else environ.get("FARANDOLE_ADDRESS", "")


def interface_of(address: str) -> str:
    """Return the name of the network device that has an address; "" when none has."""
    import psutil

    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address == address for each in addresses):
            return str(name)
    return ""
