"""Listening sockets on one address for torch's store, which would listen on all interfaces."""

from __future__ import annotations

import os
import socket


def master_listener(address: str, port: int) -> socket.socket | None:
    """Get a socket for a port: the launcher's where it was inherited, or a new one.

    None when the port cannot be had: most often because this very process serves it already.
    """
    return inherited_listener(address, port) or bound_listener(port, address)


def inherited_listener(address: str, port: int) -> socket.socket | None:
    """Take the launcher's socket for this port; None when it is not here (a wrapper closed it).

    It is duplicated, never used up: a second init_process_group finds it as the first did.
    """
    try:
        copy = socket.socket(fileno=os.dup(int(os.environ["FARANDOLE_MASTER_FD"])))
    except (KeyError, ValueError, OSError):
        return None
    try:
        # The number may by now stand for something else.
        if copy.getsockname()[:2] == (address, port):
            return copy
    except OSError:
        pass
    copy.close()
    return None


def bound_listener(port: int, address: str = "127.0.0.1") -> socket.socket | None:
    """Bind the port anew (0: any free one); None when it cannot be had."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(1024)
    except OSError:
        listener.close()
        return None
    return listener
