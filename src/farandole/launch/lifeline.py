"""The life line: when the launcher dies, however it dies, the kernel ends every worker.

Each worker inherits the read end of a pipe whose write end only the launcher has. The read end
is set to send SIGKILL to the worker's process group when something happens on it; nothing ever
does, until the launcher is gone and the kernel closes the write end. No guardian process, no
thread, nothing that a busy worker would have to look at; shells and loader processes are in the
group and end with it.

The new process sets this up itself before it becomes the worker's program, and then looks whether
the launcher is still there: there is no moment at which the launcher could die unnoticed.

Run as a program, `lifeline.py READ_END COMMAND ...` does this and becomes the command.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

# Python does not name it; the number is the same on all of Linux's processors.
_F_SETSIG = 10
# Elsewhere the worker watches the pipe by a thread (startup.py).
_LINUX = sys.platform == "linux"


class Lifeline:
    """One worker's life line, seen from the launcher."""

    def __init__(self) -> None:
        self.read_end, self._write_end = os.pipe()

    def start(
        self, argv: Sequence[str], *, pass_fds: Sequence[int] = (), **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start a process in a session of its own that ends with this one; call once.

        Args:
            argv: The command.
            pass_fds: Descriptors that it inherits, besides the line's.
            options: More of Popen's.

        Raises:
            OSError: It cannot be started. (Where this process has several threads, that the
                program is no program is said by the new process, which ends with code 126.)
        """
        prepare = None
        if _LINUX and _has_one_thread():
            prepare = self._tie
        elif _LINUX:
            # A copy of a process with several threads may find locks taken for ever: it runs no
            # Python.
            _check_name(argv[0], options.get("env") or os.environ)
            # Without site and the environment's options this is up in some 10 ms.
            argv = [sys.executable, "-I", "-S", __file__, str(self.read_end), *argv]
        process = subprocess.Popen(
            argv,
            # Then a terminal's Ctrl-C reaches the launcher only, which decides; and all that the
            # process starts can be ended with it.
            start_new_session=True,
            pass_fds=(self.read_end, *pass_fds),
            preexec_fn=prepare,
            **options,
        )
        self.let_go()
        return process

    def let_go(self) -> None:
        """Close the read end here, once the process has it."""
        os.close(self.read_end)
        self.read_end = -1

    def cut(self) -> None:
        """Close the line; what is left of the group ends with it."""
        for end in (self.read_end, self._write_end):
            if end >= 0:
                with contextlib.suppress(OSError):
                    os.close(end)
        self.read_end = self._write_end = -1

    def _tie(self) -> None:
        # A copy of the launcher's end: as long as this process had it, the line could not end.
        os.close(self._write_end)
        tie(self.read_end)


def _check_name(program: str, environ: Mapping[str, str]) -> None:
    import shutil

    if os.sep not in program and shutil.which(program, path=environ.get("PATH")) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)


def _has_one_thread() -> bool:
    try:
        return len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208
    except OSError:
        return False


def tie(read_end: int) -> None:
    """Have the kernel send SIGKILL to this process's group when the line ends."""
    fcntl.fcntl(read_end, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(read_end, _F_SETSIG, signal.SIGKILL)
    flags = fcntl.fcntl(read_end, fcntl.F_GETFL)
    fcntl.fcntl(read_end, fcntl.F_SETFL, flags | os.O_ASYNC)
    # Only what happens from now on is told. The launcher may have died before.
    poll = select.poll()
    poll.register(read_end, 0)
    if poll.poll(0):
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    tie(int(sys.argv[1]))
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        sys.stderr.write(f"farandole: {sys.argv[2]} cannot be started: {error.strerror}.\n")
        raise SystemExit(126) from None  # as shells do
