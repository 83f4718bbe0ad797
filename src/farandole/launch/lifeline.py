"""The life line: when the launcher dies, however it dies, the kernel ends every worker.

Each worker inherits the read end of a pipe whose write end only the launcher has. The read end
is set to send SIGKILL to the worker's process group when something happens on it; nothing ever
does, until the launcher is gone and the kernel closes the write end. No guardian process, no
thread, nothing that a busy worker would have to look at; shells and loader processes are in the
group and end with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys

# Python does not name it; the number is the same on all of Linux's processors.
_F_SETSIG = 10
_LINUX = sys.platform == "linux"


class Lifeline:
    """One worker's life line, seen from the launcher."""

    def __init__(self) -> None:
        self.read_end, self._write_end = os.pipe()

    def tie(self, group: int) -> None:
        """Tie the started worker's process group to this line; call once, after its start."""
        if _LINUX:
            fcntl.fcntl(self.read_end, fcntl.F_SETOWN, -group)
            fcntl.fcntl(self.read_end, _F_SETSIG, signal.SIGKILL)
            flags = fcntl.fcntl(self.read_end, fcntl.F_GETFL)
            fcntl.fcntl(self.read_end, fcntl.F_SETFL, flags | os.O_ASYNC)
        # Elsewhere the worker watches the pipe by a thread (startup.py).
        os.close(self.read_end)
        self.read_end = -1

    def cut(self) -> None:
        """Close the line; what is left of the group ends with it."""
        for end in (self.read_end, self._write_end):
            if end >= 0:
                with contextlib.suppress(OSError):
                    os.close(end)
        self.read_end = self._write_end = -1
