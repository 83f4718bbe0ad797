"""Signals to whoever supervises workers, as bytes on a socket."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator

# SIGUSR1 is a scheduler's warning before the time is over: a wish to stop, not an end.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


@contextlib.contextmanager
def caught_signals() -> Iterator[socket.socket | None]:
    """Let SIGINT, SIGTERM, SIGHUP and SIGUSR1 arrive at a socket, one byte each.

    Where they cannot be caught (not in the main thread) or somebody else catches them (a
    notebook has its own SIGINT handler), nothing is changed and there is no socket.
    """
    foreign = signal.getsignal(signal.SIGINT) not in (
        signal.default_int_handler,
        signal.SIG_DFL,
        signal.SIG_IGN,
    )
    if threading.current_thread() is not threading.main_thread() or foreign:
        yield None
        return
    receiver, sender = socket.socketpair()
    with receiver, sender:
        receiver.setblocking(False)
        sender.setblocking(False)
        before_fd = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        before = {}
        for signum in _SIGNALS:
            # `nohup farandole run` ignores SIGHUP on purpose.
            if signal.getsignal(signum) is not signal.SIG_IGN or signum == signal.SIGINT:
                before[signum] = signal.signal(signum, lambda *_: None)
        try:
            yield receiver
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)
            signal.set_wakeup_fd(before_fd)
