"""Guards of the house: after a test no process, thread, descriptor or variable is left behind."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import psutil
import pytest

from farandole.testing import Nursery

if TYPE_CHECKING:
    from tests.checking import Outcomes

# A crowded machine takes its time; what hangs has pytest's time-out.
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")

# What an ended process or thread gets to vanish on a crowded machine.
_PATIENCE_S = 5.0
# A launcher's variables around the tests would make every test a worker.
_LAUNCHER_PREFIXES = ("FARANDOLE_", "HOROVOD_", "OMPI_", "PMI", "SLURM_", "MV2_", "TORCHELASTIC_")
_LAUNCHER_NAMES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    # Which backend the tests' own process has is not for those that it starts.
    "KERAS_BACKEND",
)
# Spares every Python that tests start imports that take seconds.
_LEAN = str(Path(__file__).parent / "lean")
# Not every kernel is built to say which processes a thread has started.
_LISTS_CHILDREN = Path("/proc/self/task", str(threading.get_native_id()), "children").exists()
# Where tests launch TensorFlow, JAX or Keras.
_FRAMEWORKS = ("bench/test_keras", "keras/", "recorder/keras/", "tensorflow/")


def eventually(condition: Callable[[], Any], timeout_s: float = 20.0) -> Any:
    """Poll until the condition is true and return what it gave; fail at the deadline."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not true within {timeout_s} s: {condition}")
        time.sleep(0.01)


# First: xdist reads the groups in a hook of the same name.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give xdist a group for each file, and one for all launches of TensorFlow, JAX and Keras.

    Checks of several files share those launches, and two of them at once on two cores take several
    times as long as one after the other. They come first, then files that launch something, then
    those that do not.
    """
    here = Path(__file__).parent
    files = {item: item.path.relative_to(here).as_posix() for item in items}
    launches = {item: item.get_closest_marker("ranks") is not None for item in items}
    heavy = {
        item
        for item in items
        if launches[item]
        and (files[item].startswith(_FRAMEWORKS) or "outcomes" in getattr(item, "fixturenames", ()))
    }
    launching = {files[item] for item in items if launches[item]}
    for item in items:
        group = "frameworks" if item in heavy else files[item]
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: (item not in heavy, files[item] not in launching))


@pytest.fixture(scope="session", autouse=True)
def _surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the tests out of the user's cache, and what they start lean."""
    base = tmp_path_factory.getbasetemp()
    # One for all processes of xdist, whose folders lie beside each other: the report's scripts take
    # seconds to put together.
    cache = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    cache.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        patch.setenv("PYTHONPATH", _LEAN, prepend=os.pathsep)
        # Where it is set, every process compiles all that it imports.
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield


def clean_environ(**changes: str) -> dict[str, str]:
    """This process's environment without any launcher's variables, and with these changes."""
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_LAUNCHER_PREFIXES) and name not in _LAUNCHER_NAMES
    }
    if "PYTHONPATH" in changes:
        changes["PYTHONPATH"] += os.pathsep + _LEAN
    return environ | changes


def keras_on(backend: str, *needed: str) -> dict[str, str]:
    """The variables of a Keras that imports its backend and nothing else but what is needed.

    It imports what it finds installed, on every backend: TensorFlow, JAX, pandas, scikit-learn and
    IPython take longer than all that most tests do.
    """
    unused = {"tensorflow", "jax", "pandas", "sklearn", "IPython"} - {backend, *needed}
    return {"KERAS_BACKEND": backend, "TESTS_WITHOUT": ",".join(sorted(unused))}


def run_cli(
    *arguments: str | Path,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float = 60.0,
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own and return what it said."""
    return subprocess.run(
        [*cli_argv(), *map(str, arguments)],
        env=clean_environ(**(env or {})),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def cli_argv() -> Sequence[str]:
    """The command line as an argv list."""
    return (sys.executable, "-m", "farandole.cli.main")


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Where the ranks of fake worlds come from: torch is imported once for all of them."""
    # The last one stays away from what tests start (see lean), but comes with whatever is compiled.
    with Nursery(preload=("farandole.torch", "pytest", "torch._decomp")) as nursery:
        yield nursery


@pytest.fixture(scope="session")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """What the checks gave of which there is a test in this session."""
    from tests.checking import Check, Outcomes

    calls = [getattr(item, "callspec", None) for item in request.session.items]
    found = [call.params.get("check") for call in calls if call is not None]
    wanted = [check for check in found if isinstance(check, Check)]
    return Outcomes(wanted, tmp_path_factory.mktemp("checks"))


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    environ = dict(os.environ)
    children, threads, descriptors = _children(), _threads(), _descriptors()
    yield
    # PYTEST_CURRENT_TEST is pytest's own, and changes by itself.
    changed = {
        name
        for name in environ.keys() | os.environ.keys()
        if environ.get(name) != os.environ.get(name) and name != "PYTEST_CURRENT_TEST"
    }
    _gone("processes", lambda: _described(_children() - children))
    _gone("threads", lambda: _threads() - threads)
    _gone("descriptors", lambda: _descriptors() - descriptors)
    # Importing torch or tensorflow sets variables of its own; ours and the launchers' matter.
    ours = {name for name in changed if name.startswith(_LAUNCHER_PREFIXES)}
    assert not ours, f"variables were left changed: {sorted(ours)}"


def _gone(what: str, left: Callable[[], set[Any]]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while left():
        assert time.monotonic() < deadline, f"{what} were left behind: {left()}"
        time.sleep(0.01)


def _children() -> set[int]:
    """Return the processes that this one has started, and those that they have."""
    if not _LISTS_CHILDREN:
        return {child.pid for child in psutil.Process().children(recursive=True)}
    # psutil reads every process of the machine, which takes longer than most tests.
    found: set[int] = set()
    parents = [os.getpid()]
    while parents:
        threads = f"/proc/{parents.pop()}/task"
        for thread in _entries(threads):
            with contextlib.suppress(OSError), open(f"{threads}/{thread}/children") as file:  # noqa: PTH123
                fresh = {int(pid) for pid in file.read().split()}
                parents += fresh
                found |= fresh
    return found


def _entries(folder: str) -> list[str]:
    """Return the names in a folder; none if it has just gone."""
    # Not by pathlib, here and around: these run twice for each of thousands of tests.
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []


def _described(pids: set[int]) -> set[str]:
    """Return processes with their commands, but for those that have just ended."""
    found = set()
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            command = " ".join(psutil.Process(pid).cmdline())
            # multiprocessing's resource tracker stays until Python ends, by design.
            if "resource_tracker" not in command:
                found.add(f"{pid} {command}")
    return found


def _threads() -> set[threading.Thread]:
    return {
        thread
        for thread in threading.enumerate()
        if not thread.daemon or thread.name.startswith("farandole")
    }


def _descriptors() -> set[tuple[str, str]]:
    """Our own kinds of descriptors; other libraries open files of theirs when they please."""
    found = set()
    for name in _entries("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
        except OSError:
            continue
        if target.startswith("/memfd:farandole") or "pidfd" in target:
            found.add((name, target))
    return found
