"""Files that a script writes, and the machine and software it runs on."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Callable
from typing import Any

from farandole.recorder.checkpoints import writes
from farandole.recorder.detail import call_site, is_users
from farandole.recorder.recorder import Recorder, current, when_opened, wrap

MOST_FILES = 200
_WRITING = os.O_WRONLY | os.O_RDWR
# Not the script's results: devices, pipes, caches, bytecode, locks.
_PASSED_OVER = ("/dev/", "/proc/", "/sys/", "/memfd:")
_HIDDEN = os.sep + "."  # settings and caches of libraries, such as ~/.keras
_ENDINGS = (".pyc", ".lock", ".jsonl.tmp")
_VERSIONS = ("torch", "numpy", "keras", "tensorflow", "jax", "lightning", "accelerate")
_MOST_MODULES = 50


class Files:
    """Tells of each file that the script opens for writing, once."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()
        self._kept: list[dict[str, Any]] = []
        self._recorder: Recorder | None = None
        self._pid = os.getpid()
        self._inside = False
        self._own = os.environ.get("FARANDOLE_RECORD_DIR", "/dev/")

    def opened(self, recorder: Recorder) -> None:
        """Tell from now on, beginning with what was kept."""
        self._recorder = recorder
        for fields in self._kept:
            recorder.tell("file", **fields)

    def writes(self, path: Any, mode: str) -> None:
        """Take note of a file that is opened for writing."""
        if self._inside or os.getpid() != self._pid:
            return
        self._inside = True  # what is called here may open files itself
        try:
            name = os.path.realpath(os.fsdecode(path))
            passed_over = name.startswith((*_PASSED_OVER, self._own)) or name.endswith(_ENDINGS)
            hidden = _HIDDEN in name.removeprefix(os.getcwd())  # noqa: PTH109
            passed_over |= os.path.isdir(name)  # noqa: PTH112  a file without a name (O_TMPFILE)
            if passed_over or hidden or (name, mode) in self._seen or len(self._seen) >= MOST_FILES:
                return
            where = call_site(sys._getframe(2))
            if not where:
                return
            self._seen.add((name, mode))
            steps = 0 if self._recorder is None else self._recorder.steps
            fields = {"path": name, "mode": mode, "where": where, "step": steps}
            if self._recorder is None:
                self._kept.append(fields)
            else:
                self._recorder.tell("file", **fields)
        except Exception:
            pass  # whatever fails here must not fail the user's open()
        finally:
            self._inside = False


_files: Files | None = None
_joined: dict[str, Any] = {}
"""Of the last process group, which is gone when a short script's machine is told of."""


def _begin() -> None:
    global _files
    if _files is not None:
        return
    files = _files = Files()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open":
            return
        path, mode, flags = arguments
        if not isinstance(path, str | bytes | os.PathLike):
            return
        if bool(flags & _WRITING) if mode is None else writes(str(mode)):
            files.writes(path, "a" if mode and "a" in str(mode) else "w")

    sys.addaudithook(hook)
    when_opened(files.opened)
    when_opened(_tell_machine)


def install_torch(torch: Any) -> None:
    """Follow files, torch.save, whose own code opens them, and who joins which job."""
    _begin()
    distributed = torch.distributed
    if distributed.is_available():

        @wrap(distributed, "init_process_group")
        def init(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            original(*args, **kwargs)
            _joined["backend"] = str(distributed.get_backend())
            _joined["world"] = [distributed.get_rank(), distributed.get_world_size()]

    @wrap(torch, "save")
    def save(original: Callable[..., Any], obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(f, str | os.PathLike) and _files is not None and current() is not None:
            _files.writes(f, "w")
        return original(obj, f, *args, **kwargs)


def install_keras(keras: Any) -> None:
    """Follow files."""
    _begin()


def _tell_machine(recorder: Recorder) -> None:
    """Tell of the machine with the first block behind a step, when threads are set."""
    told = False
    # It is gone when an exit hook asks.
    script = str(getattr(sys.modules.get("__main__"), "__file__", None) or "")

    def once(*, final: bool = False) -> dict[str, Any] | None:
        nonlocal told
        if told or not (recorder.steps or final):
            return None
        told = True
        return {"kind": "machine", **_machine(script)}

    def at_the_end() -> dict[str, Any]:
        if (fields := once(final=True)) is not None:
            recorder.tell(**fields)
        return {}

    recorder.add_source(once)
    recorder.add_ending(at_the_end)


def _machine(script: str) -> dict[str, Any]:
    from farandole.world.cores import read_cores

    torch: Any = sys.modules.get("torch")
    script = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    found: dict[str, Any] = {
        "threads": None if torch is None else int(torch.get_num_threads()),
        "affinity": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [],
        "cores": float(read_cores().available),
        "cpus": os.cpu_count(),
        "versions": _versions(),
        "script": script,
        "files": _file_hashes(script),
        "open_files": _most_open_files(),
        "shm_free_bytes": _free_bytes("/dev/shm"),
        "interface": os.environ.get("GLOO_SOCKET_IFNAME")
        or os.environ.get("NCCL_SOCKET_IFNAME")
        or "",
        "address": os.environ.get("MASTER_ADDR", ""),
        "device": "cpu",
    }
    found |= _joined
    context = getattr(sys.modules.get("farandole.engine.context"), "_current", None)
    if context is not None:
        found["world"] = [context.world.rank, context.world.size]
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        number = torch.cuda.current_device()
        found["device"] = (
            f"cuda:{getattr(torch.cuda.get_device_properties(number), 'uuid', number)}"
        )
    return found


def _versions() -> dict[str, str]:
    from farandole.version import __version__

    found = {"python": platform.python_version(), "farandole": __version__}
    for name in _VERSIONS:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)
    return found


def _file_hashes(script: str) -> dict[str, str]:
    """Return hashes of the script and of the user's modules, by file."""
    modules = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    files = sorted({file for file in modules if file.endswith(".py") and is_users(file)})
    found = {}
    for file in dict.fromkeys([script, *files[:_MOST_MODULES]]):
        try:
            with open(file, "rb") as opened:  # noqa: PTH123
                found[file] = hashlib.blake2b(opened.read(), digest_size=8).hexdigest()
        except OSError:
            continue
    return found


def _most_open_files() -> int | None:
    from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit

    soft = getrlimit(RLIMIT_NOFILE)[0]
    return None if soft == RLIM_INFINITY else int(soft)


def _free_bytes(folder: str) -> int | None:
    try:
        stats = os.statvfs(folder)
    except OSError:
        return None
    return stats.f_bavail * stats.f_frsize
