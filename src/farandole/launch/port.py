"""The port of torch's store: found free, and held until rank 0 listens on it."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from farandole.errors import UsageError


def hold_port(environ: Mapping[str, str], address: str = "127.0.0.1") -> socket.socket:
    """Bind a port of an address and keep it, so that no other launch can be given the same.

    The user's MASTER_PORT is taken when it is set. The socket does not listen: rank 0 inherits it
    and lets torch listen on it, and a program that binds MASTER_PORT by itself still can.

    Raises:
        UsageError: MASTER_PORT is no port, or another program has it.
    """
    text = environ.get("MASTER_PORT", "").strip()
    if "TORCHELASTIC_RUN_ID" in environ:
        # A launch inside a worker: the port is the outer launch's, not the user's wish.
        text = ""
    if text and not (text.isdecimal() and int(text) < 65536):
        raise UsageError(f"MASTER_PORT={text} is not a port. Unset it to have a free one found.")
    port = int(text or 0)
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if port:
            # A port that was used a minute ago may be taken again.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((address, port))
    except OSError as error:
        held.close()
        raise UsageError(
            f"MASTER_PORT={text} is set, but port {port} cannot be used ({error.strerror}). "
            "Unset MASTER_PORT to have a free one found."
        ) from error
    # Only after binding: the kernel then gave a port that nobody had, and lets a program which
    # asks for this very port have it beside us.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return held
