"""What happens in a worker before its script: a failure note, a life line, torch on loopback.

Every import here is paid for by every worker's start, so that most are made on use.
"""

from __future__ import annotations

import atexit
import itertools
import os
import sys
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


# What modules a script imports: which take long, and doing something once some are there.

SLOW_IMPORTS = (
    *("numpy", "scipy", "pandas", "PIL.Image", "h5py", "sklearn", "sklearn.datasets"),
    # The compiler: optimizers import it at their first step.
    *("torch", "torch._dynamo", "torch.utils.data", "torchvision", "accelerate", "transformers"),
    *("lightning", "pytorch_lightning", "tensorflow", "jax", "keras"),
)
"""Modules that take long to import, and that can be imported before a process forks."""


def after_import(names: Sequence[str], action: Callable[[], None]) -> None:
    """Call the action as soon as all these modules have been imported completely."""
    missing = {name for name in names if name not in sys.modules}
    if missing:
        sys.meta_path.insert(0, _Watcher(missing, action))
    else:
        action()


class _Watcher:
    """Sees modules come, and lets the other finders find them.

    A finder by its method, not by its base class: importing that takes 20 ms of a worker's start.
    """

    def __init__(self, missing: set[str], action: Callable[[], None]) -> None:
        self._missing = missing
        self._action = action

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname not in self._missing:
            return None
        # Out of the way while the others look, or they would ask here again.
        sys.meta_path.remove(self)
        try:
            spec = find_spec(fullname)
        finally:
            sys.meta_path.insert(0, self)
        loader = spec.loader if spec else None
        if loader is None or not hasattr(loader, "exec_module"):
            return spec
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            # The loader is as it was before the module's own code sees it.
            loader.__dict__.pop("exec_module", None)
            execute(module)
            self._arrived(fullname)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _arrived(self, name: str) -> None:
        self._missing.discard(name)
        if not self._missing:
            sys.meta_path.remove(self)
            self._action()


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
    from farandole.launch.startup import after_import, prepare_torch

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
        number = int(os.environ["FARANDOLE_RANK"])
        culprit = getattr(error, "culprit", None)
        if "FARANDOLE_WORKER" in os.environ:
            from farandole.world.generations import membership

            member = membership()
            assert member is not None
            number = member.worker
            culprit = None if culprit is None else member.worker_of(culprit)
        with Board.open(os.environ["FARANDOLE_BOARD"]) as board:
            board.note_failure(
                number,
                describe(error, trace),
                time_ns=time_ns(),
                secondary=isinstance(error, PeerDiedError),
                culprit=culprit,
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


# torch's store on one address, and for as long as its process lives.
#
# torch serves the store of `init_process_group` on all interfaces, unless it is handed a socket.
# Rank 0 inherits one from the launcher, bound to MASTER_PORT and held since the start: on loopback,
# or with workers on several hosts on the address that leads to the others.
#
# torch also ends the store with its group. A script that makes a second group after the first one
# would lose the ranks that are there before rank 0 has let go of the first, with its old store. So
# rank 0 keeps its store, and every further group has keys of its own in it.


def prepare_torch() -> None:
    """Change what is needed in torch.distributed, which has just been imported."""
    import torch.distributed

    if hasattr(torch.distributed, "rendezvous") and torch.distributed.is_available():
        rendezvous = sys.modules["torch.distributed.rendezvous"]
        listen_on_one_address(rendezvous)
        keep_the_store(rendezvous)
    _adopt(torch.distributed)


def listen_on_one_address(rendezvous: Any) -> None:
    """Make torch's env:// and tcp:// rendezvous serve an address of this host on that only."""
    create = getattr(rendezvous, "_create_c10d_store", None)
    if create is None:
        return  # a torch that does it in another way is left alone

    def create_on_one_address(
        hostname: str,
        port: int,
        rank: int,
        world_size: int,
        timeout: Any,
        use_libuv: bool = True,
    ) -> Any:
        from farandole.world.environment import is_loopback
        from farandole.world.store import master_listener

        agent_serves = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        own = is_loopback(hostname) or hostname == os.environ.get("FARANDOLE_ADDRESS")
        if rank != 0 or agent_serves or not port or not own:
            return create(hostname, port, rank, world_size, timeout, use_libuv)
        listener = master_listener("127.0.0.1" if is_loopback(hostname) else hostname, port)
        if listener is None:
            return create(hostname, port, rank, world_size, timeout, use_libuv)
        return rendezvous.TCPStore(
            host_name=hostname,
            port=port,
            world_size=world_size,
            is_master=True,
            timeout=timeout,
            multi_tenant=True,
            # torch owns the descriptor from here on.
            master_listen_fd=listener.detach(),
            use_libuv=use_libuv,
        )

    rendezvous._create_c10d_store = create_on_one_address


def keep_the_store(rendezvous: Any) -> None:
    """Let the store at MASTER_PORT outlive its first group, and tell each group's keys apart."""
    create = getattr(rendezvous, "_create_c10d_store", None)
    if create is None:
        return
    kept: list[Any] = []
    further = itertools.count(2)

    def create_once(
        hostname: str,
        port: int,
        rank: int,
        world_size: int,
        timeout: Any,
        use_libuv: bool = True,
    ) -> Any:
        masters = str(port) == os.environ.get("MASTER_PORT")
        if not (kept and masters):
            store = create(hostname, port, rank, world_size, timeout, use_libuv)
            if masters:
                # Its keys stay torch's own, for whoever else may join.
                kept.append(store)
            return store
        from torch.distributed import PrefixStore  # type: ignore[attr-defined]

        store = rendezvous.TCPStore(
            host_name=hostname, port=port, world_size=world_size, is_master=False, timeout=timeout
        )
        return PrefixStore(f"group_{next(further)}", store)

    rendezvous._create_c10d_store = create_once


def _adopt(distributed: Any) -> None:
    """Offer torch.distributed to the front door, which may answer the script's own groups."""
    from importlib import import_module
    from pathlib import Path

    if not (Path(__file__).parent.parent / "torch" / "adopt.py").is_file():
        return
    import_module("farandole.torch.adopt").install(distributed)
