"""Warm starts: workers that are forked from a process which has imported their frameworks already.

Importing torch and its compiler takes several seconds of every launch. `WarmServer` is
this file run as a program: it imports what it is told and then forks a worker per request, which
becomes what a fresh interpreter would have been: environment, descriptors, session, life line,
`sys.argv`, `sys.path` and `__main__` are the request's. The server has one thread and runs none of
the user's code. Each worker has a keeper, a fork of the server that waits for the worker's end,
since only a parent can.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from farandole.launch.lifeline import Lifeline, tie

# Variables that differ between launches and ranks; imports do not read them.
_PER_LAUNCH = re.compile(
    r"(FARANDOLE|HOROVOD|TORCHELASTIC)_\w+|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME"
    r"|MASTER_(ADDR|PORT)|TENSORBOARD_LOGDIR|WANDB_DIR|MLFLOW_TRACKING_URI|PWD|OLDPWD|_"
)
_PRELOAD_TIMEOUT_S = 120.0
_FORK_TIMEOUT_S = 20.0
_END_TIMEOUT_S = 5.0
_LENGTH_BYTES = 8
_MOST_FDS = 64


def lasting(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that all launches of a server have in common."""
    return {name: value for name, value in environ.items() if not _PER_LAUNCH.fullmatch(name)}


class WarmServer:
    """The process that workers are forked from, seen from the launcher; started when it is used."""

    def __init__(self, modules: Sequence[str]) -> None:
        """Begin without a process.

        Args:
            modules: What it imports, in this order.
        """
        self.mark = secrets.token_hex(8)
        """The value of FARANDOLE_LAUNCH, by which leftovers of workers are found."""
        self._modules = tuple(modules)
        self._environ: dict[str, str] = {}
        self._popen: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._children: list[WarmChild] = []

    @property
    def pid(self) -> int | None:
        """The number of the process, and of the group that it and the keepers are in."""
        return None if self._popen is None else self._popen.pid

    def prepare(self, argv: Sequence[str], environ: Mapping[str, str]) -> bool:
        """Start the process if there is none; return whether this worker can be forked from it."""
        if not runs_python(argv):
            return False
        if self._popen is None:
            self._start(lasting(environ))
        assert self._popen is not None
        ready = self._socket is not None and self._popen.poll() is None
        return ready and lasting(environ) == self._environ

    def fork(
        self,
        argv: Sequence[str],
        *,
        environ: Mapping[str, str],
        lifeline: Lifeline,
        pass_fds: Sequence[int],
        cwd: Path | None,
    ) -> WarmChild:
        """Fork a worker in a session of its own that ends with the life line.

        Raises:
            OSError: It could not be forked.
        """
        assert self._socket is not None
        status, their_status = socket.socketpair()
        out, their_out = os.pipe()
        err, their_err = os.pipe()
        request = {
            "argv": list(argv),
            "environ": dict(environ),
            "cwd": str(cwd or Path.cwd()),
            "numbers": [lifeline.read_end, *pass_fds],
        }
        fds = [their_status.fileno(), their_out, their_err, lifeline.read_end, *pass_fds]
        try:
            _send(self._socket, request, fds)
            their_status.close()
            answer = _receive(status, _FORK_TIMEOUT_S)
        finally:
            their_status.close()
            os.close(their_out)
            os.close(their_err)
            lifeline.let_go()
        child = WarmChild(status, os.fdopen(out, "rb", 0), os.fdopen(err, "rb", 0))
        if answer is None:
            child.close()
            raise OSError("no process could be forked")
        child.pid = answer["pid"]
        self._children.append(child)
        return child

    def cpu_s(self) -> float:
        """Return the CPU time of the process and of its workers that have ended."""
        own_s = 0.0
        if self._popen is not None:
            with contextlib.suppress(OSError, IndexError):
                fields = Path(f"/proc/{self._popen.pid}/stat").read_text().rpartition(")")[2]
                ticks = sum(map(int, fields.split()[11:13]))
                own_s = ticks / os.sysconf("SC_CLK_TCK")
        return own_s + sum(child.cpu_s for child in self._children)

    def close(self) -> None:
        """End the process; its workers go on."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._popen is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(_END_TIMEOUT_S)
            self._popen.kill()
            self._popen.wait()
            self._popen = None

    def _start(self, environ: dict[str, str]) -> None:
        """Start the process and wait until all has been imported."""
        self._environ = environ
        ours, theirs = socket.socketpair()
        me = (sys.executable, "-m", "farandole.launch.warm")
        with theirs:
            self._popen = subprocess.Popen(
                [*me, str(theirs.fileno()), *self._modules],
                env={**environ, "FARANDOLE_LAUNCH": self.mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        # A fork of a process with threads may find their locks taken for ever.
        if _receive(ours, _PRELOAD_TIMEOUT_S) == {"threads": 1}:
            self._socket = ours
        else:
            ours.close()


class WarmChild:
    """A forked worker, with what the launcher uses of subprocess.Popen."""

    def __init__(self, status: socket.socket, stdout: IO[bytes], stderr: IO[bytes]) -> None:
        self.pid = 0
        self.stdout, self.stderr = stdout, stderr
        self.cpu_s = 0.0
        """CPU time of the worker and of what it has waited for, known when it was reaped."""
        self._status = status
        self._code: int | None = None

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when the worker has ended."""
        return self._status.fileno()

    def poll(self, timeout_s: float = 0.0) -> int | None:
        """Return how the worker ended (minus the signal where one ended it), or None."""
        if self._code is None and select.select([self._status], [], [], timeout_s)[0]:
            answer = _receive(self._status, _END_TIMEOUT_S)
            # Without its keeper nobody knows how it ended; the launcher ends its group.
            self._code = -signal.SIGKILL if answer is None else int(answer["code"])
        return self._code

    def wait(self) -> None:
        """Wait for the end and have the worker reaped."""
        if self.poll(_END_TIMEOUT_S) is not None:
            with contextlib.suppress(OSError):
                self._status.shutdown(socket.SHUT_WR)
            answer = _receive(self._status, _END_TIMEOUT_S)
            self.cpu_s = 0.0 if answer is None else float(answer["cpu_s"])
        self._status.close()

    def close(self) -> None:
        """Close all descriptors."""
        for one in (self._status, self.stdout, self.stderr):
            one.close()


def runs_python(argv: Sequence[str]) -> bool:
    """Say whether a command is this interpreter with a script or a module, and no options."""
    if len(argv) < 2 or not argv[0].rpartition("/")[2].startswith("python"):
        return False
    with contextlib.suppress(OSError):
        if not os.path.samefile(argv[0], sys.executable):  # noqa: PTH121
            return False
        return (argv[1] == "-m" and len(argv) > 2) or not argv[1].startswith("-")
    return False


# Messages: a length, then JSON; descriptors travel with the length.


def _send(to: socket.socket, message: Any, fds: Sequence[int] = ()) -> None:
    data = json.dumps(message).encode()
    socket.send_fds(to, [len(data).to_bytes(_LENGTH_BYTES, "big")], list(fds))
    to.sendall(data)


def _receive(
    source: socket.socket, timeout_s: float | None, fds: list[int] | None = None
) -> dict[str, Any] | None:
    """Return the next message; None when the other side is gone or silent."""
    source.settimeout(timeout_s)
    try:
        head, received, _, _ = socket.recv_fds(source, _LENGTH_BYTES, _MOST_FDS)
        if len(head) < _LENGTH_BYTES:
            return None
        if fds is not None:
            fds += received
        data, length = b"", int.from_bytes(head, "big")
        while len(data) < length:
            part = source.recv(length - len(data))
            if not part:
                return None
            data += part
    except OSError:
        return None
    found: dict[str, Any] = json.loads(data)
    return found


# The server's side.


def main() -> None:
    """Import what the command line names, then fork workers until the launcher is gone."""
    import gc
    import importlib

    control = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        with contextlib.suppress(Exception):  # the worker imports it again, and says what is wrong
            importlib.import_module(name)
    # What is collected no more is copied no more.
    gc.collect()
    gc.freeze()
    # OpenBLAS ends its threads when its process forks, and starts them again when they are needed.
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)
    _send(control, {"threads": len(os.listdir("/proc/self/task"))})  # noqa: PTH208
    signal.signal(signal.SIGCHLD, _reap_keepers)
    request = _serve(control)
    if request is not None:
        _become(request)


def _reap_keepers(*_: object) -> None:
    """Reap keepers that have ended, so that what their workers used counts for who waits for us."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _serve(control: socket.socket) -> dict[str, Any] | None:
    """Return the request in a forked worker; None in the server, when the launcher is gone."""
    while True:
        fds: list[int] = []
        request = _receive(control, None, fds)
        if request is None:
            return None
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            if (worker := _fork_worker(request, fds)) is not None:
                _keep(worker, fds)
            return request
        for fd in fds:
            os.close(fd)


def _fork_worker(request: dict[str, Any], fds: list[int]) -> int | None:
    """Fork; return the worker's number in its keeper, None in the worker when it is set up."""
    ready, set_up = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.close(ready)
        os.setsid()
        _take_descriptors(fds, request["numbers"], set_up)
        return None
    os.close(set_up)
    if os.read(ready, 1) != b"1":
        os._exit(1)
    os.close(ready)
    return worker


def _take_descriptors(fds: Sequence[int], numbers: Sequence[int], set_up: int) -> None:
    """Give the descriptors of a request the numbers that they are to have; tie the life line."""
    import fcntl

    # First out of the way of the numbers that are to be had.
    above = max(numbers) + 1
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in (*fds[1:], set_up)]
    for fd in (*fds, set_up):
        os.close(fd)
    for fd, number in zip(high, (1, 2, *numbers), strict=False):
        os.dup2(fd, number, inheritable=True)
    tie(numbers[0])
    os.write(high[-1], b"1")
    for fd in high:
        os.close(fd)


def _keep(worker: int, fds: Sequence[int]) -> None:
    """Tell the launcher the worker's number and its end; reap it when the launcher has let go."""
    for fd in fds[1:]:
        os.close(fd)
    with socket.socket(fileno=fds[0]) as status, contextlib.suppress(OSError):
        _send(status, {"pid": worker})
        # Not reaped yet: so long its number is not given to another process.
        ended = os.waitid(os.P_PID, worker, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        exited = ended.si_code == os.CLD_EXITED
        _send(status, {"code": ended.si_status if exited else -ended.si_status})
        status.settimeout(None)
        status.recv(1)
        _, _, used = os.wait4(worker, 0)
        _send(status, {"cpu_s": used.ru_utime + used.ru_stime})
    os._exit(0)


def _become(request: dict[str, Any]) -> None:
    """Run the request's command as a fresh interpreter would."""
    os.environ.clear()
    os.environ.update(request["environ"])
    os.chdir(request["cwd"])
    sys.orig_argv[:] = request["argv"]
    # Every interpreter draws its own seeds, and so does every fork. (`random` does it by itself.)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()
    import runpy
    import types
    from importlib.machinery import SourceFileLoader

    from farandole.launch import startup

    program, arguments = request["argv"][1], request["argv"][2:]
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    if program == "-m":
        name, *arguments = arguments
        first = request["cwd"]

        def run() -> None:
            runpy._run_module_as_main(name)  # type: ignore[attr-defined]
    else:
        first = os.path.dirname(os.path.realpath(program))  # noqa: PTH120
        loader = SourceFileLoader("__main__", program)
        module.__dict__.update(__file__=program, __loader__=loader, __builtins__=__builtins__)

        def run() -> None:
            code = compile(Path(program).read_bytes(), program, "exec", dont_inherit=True)
            exec(code, module.__dict__)

    sys.argv[:] = [program, *arguments]
    sys.path[0] = first
    startup.install()
    _as_main(run)


def _as_main(run: Callable[[], None]) -> None:
    """Run a program; report an uncaught exception as the interpreter does, without our frames."""
    try:
        run()
    except SystemExit:
        raise
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        error.__traceback__ = trace
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
        sys.excepthook(type(error), error, trace)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
