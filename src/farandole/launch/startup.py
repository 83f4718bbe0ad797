"""What happens in a worker before its script: a failure note, a life line, torch on loopback.

Every import here is paid for by every worker's start, so that most are made on use.
"""

from __future__ import annotations

import atexit
import os
import sys
from types import TracebackType
from typing import Any

_HOOKED = "FARANDOLE_HOOKED"


def install() -> None:
    """Prepare this process: as a worker of ours, and for the recorder, whoever launched it."""
    if os.environ.get("FARANDOLE_RANK"):
        _install_worker()
    else:
        if os.environ.get("TORCHELASTIC_RUN_ID"):
            _end_with_torchrun()
        alias = os.environ.get("FARANDOLE_HOROVOD_ALIAS")
        # A task of srun's that `farandole run` has made a worker is one of ours.
        if alias == "missing" or (alias == "on" and os.environ.get("FARANDOLE_STEP")):
            from farandole.launch import horovod_alias

            horovod_alias.install(if_missing=alias == "missing")
    if os.environ.get("FARANDOLE_RECORD_DIR"):
        from farandole.recorder import install as let_the_recorder_in

        let_the_recorder_in()


def _install_worker() -> None:
    """Prepare a worker, or a helper that a worker has started."""
    outermost = os.environ.setdefault(_HOOKED, str(os.getpid())) == str(os.getpid())
    if outermost:
        # A helper's failure is not its worker's, which may well handle it.
        _note_failures()
        _note_exit()
        _end_with_launcher()
    from farandole.launch.import_hook import after_import
    from farandole.launch.loopback import prepare_torch

    after_import(("torch", "torch.distributed"), prepare_torch)
    if os.environ.get("FARANDOLE_HOROVOD_ALIAS") != "off":
        from farandole.launch import horovod_alias

        horovod_alias.install()


def note_failure(error: BaseException, trace: TracebackType | None) -> None:
    """Write on the launcher's board why this worker is about to end."""
    from time import time_ns

    from farandole.errors import FarandoleError, PeerDiedError
    from farandole.world.board import Board

    try:
        with Board.open(os.environ["FARANDOLE_BOARD"]) as board:
            board.note_failure(
                int(os.environ["FARANDOLE_RANK"]),
                describe(error, trace),
                time_ns=time_ns(),
                secondary=isinstance(error, PeerDiedError),
                culprit=getattr(error, "culprit", None),
            )
    except (FarandoleError, KeyError, ValueError):
        pass  # without the launcher there is nobody to tell; the traceback is printed anyway


def describe(error: BaseException, trace: TracebackType | None) -> str:
    """Put an exception into one line: `ValueError: bad loss (train.py:12)`."""
    text = str(error).strip().partition("\n")[0][:300]
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    place = _place(error, trace)
    return f"{line} ({place})" if place else line


def _place(error: BaseException, trace: TracebackType | None) -> str | None:
    """Find the innermost line of the user's own code; a library's line where there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{os.path.basename(error.filename)}:{error.lineno}"  # noqa: PTH119
    own, innermost = None, None
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        innermost = f"{os.path.basename(file)}:{trace.tb_lineno}"  # noqa: PTH119
        if not _is_library(file):
            own = innermost
        trace = trace.tb_next
    return own or innermost


def _is_library(file: str) -> bool:
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    library = os.path.dirname(os.__file__)  # noqa: PTH120
    return file.startswith((package + os.sep, library + os.sep, "<frozen")) or (
        f"{os.sep}site-packages{os.sep}" in file
    )


def _note_failures() -> None:
    before, pid = sys.excepthook, os.getpid()

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        # The failure of a process that was forked from this one is not its own.
        if os.getpid() == pid:
            note_failure(error, trace)
        before(kind, error, trace)

    sys.excepthook = hook

    def at_exit() -> None:
        # A library may have put its own hook in the place of ours; what ended the script is
        # still known here. A note that was made already stays.
        error = getattr(sys, "last_value", None)
        if isinstance(error, BaseException) and os.getpid() == pid:
            note_failure(error, error.__traceback__)

    atexit.register(at_exit)


def _note_exit() -> None:
    """Let the launcher know when exit handlers begin: from there on nobody trains or saves.

    What was registered last runs first. So this is registered only when the script has ended, and
    runs when Python has waited for all threads.
    """
    import threading

    place = os.environ.get("FARANDOLE_EXITING_AT")
    # Private, but there since Python 3.9; concurrent.futures needs it too.
    register = getattr(threading, "_register_atexit", None)
    if place is None or register is None:
        return
    board, me = os.environ.get("FARANDOLE_BOARD", ""), os.getpid()

    def note() -> None:
        if os.getpid() != me:
            return  # a fork, whose end is not its worker's
        try:
            fd = os.open(board, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return  # without the launcher there is nobody to tell
        os.pwrite(fd, b"\1", int(place))
        os.close(fd)

    register(lambda: atexit.register(note))


def _end_with_launcher() -> None:
    """Ask to be ended with the launcher, as the second line after the life line."""
    launcher = int(os.environ.get("FARANDOLE_LAUNCHER_PID", "0"))
    if sys.platform == "linux":
        if os.getppid() == launcher:
            _end_with(launcher)
    elif line := os.environ.get("FARANDOLE_LIFELINE_FD"):
        _watch(int(line))


def _end_with_torchrun() -> None:
    """Ask to be ended with torchrun, whose workers would go on after a SIGKILL of it.

    In a study only: its launches end with it. Workers are started by torchrun's main thread; what
    they start themselves finds the mark.
    """
    outermost = os.environ.setdefault(_HOOKED, str(os.getpid())) == str(os.getpid())
    if outermost and sys.platform == "linux" and os.environ.get("FARANDOLE_RECORD_DIR"):
        _end_with(os.getppid())


def _end_with(parent: int) -> None:
    """Ask the kernel for SIGKILL when the thread that started this process has ended."""
    import ctypes
    import signal

    prctl_set_pdeathsig = 1
    prctl: Any = ctypes.CDLL(None).prctl
    prctl(prctl_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the kernel knew of our wish
        os.kill(os.getpid(), signal.SIGKILL)


def _watch(line: int) -> None:
    """Watch the life line by a thread, where the kernel cannot (macOS)."""
    import signal
    import threading

    def wait() -> None:
        try:
            os.read(line, 1)
        except OSError:
            return  # a wrapper closed it: there is nothing to watch
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, name="farandole-lifeline", daemon=True).start()
