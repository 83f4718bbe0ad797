"""`farandole.study(...)`: a study from Python, of a command or of a function."""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from farandole.errors import UsageError
from farandole.study.ask import Asked, make_spec
from farandole.study.progress import Listener, Silent
from farandole.study.records import Study
from farandole.study.spec import Room

# Scripts are small; what is larger is data.
_MOST_SCRIPT_BYTES = 2_000_000
_SHELL = re.compile(r"#!\s*\S*/(?:env\s+)?(?:ba|da|k|z)?sh(?:\s|$)")


def study(
    what: Callable[..., Any] | Sequence[str],
    workers: Sequence[int] | int | str | None = None,
    params: Mapping[str, Sequence[Any]] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    scaling: str | None = None,
    threads: Sequence[int] | int | None = None,
    transport: str | None = None,
    measure: str | None = None,
    seeds: int | None = None,
    repeats: int | None = None,
    steps: int | None = None,
    epochs: int | None = None,
    precision: float | None = None,
    time_limit: str | float | None = None,
    memory: str | int | None = None,
    env: Mapping[str, str] | None = None,
    label: str | None = None,
    report: bool = True,
    listener: Listener | None = None,
    **flags: Any,
) -> Study:
    """Measure how a script or a function scales, and return the study with all its launches.

    Args:
        what: A command as a list, with placeholders; or a function, which each worker calls with
            those of the launch's values that it has parameters for (`def train(batch, lr): ...`).
        workers: Numbers of workers, or a text such as "1,2,2x4" with hosts x workers; 1, 2, 4,
            ... up to the cores or GPUs when None.
        params: Factors and their values, as `-L` has them: {"batch": [32, 64], "lr": [0.1]}.
        out: The study's folder; a new one in the working directory when None. The same folder
            with more values extends a study.
        scaling: "weak", "strong" or "both".
        threads: Threads per worker; shared out alike in all cells when None.
        transport: "auto", "shm", "gloo" or "nccl".
        measure: "speed", "accuracy" or "both".
        seeds: Launches per cell for accuracy.
        repeats: Launches per cell for speed.
        steps: Steps per launch, instead of a precision.
        epochs: Epochs per launch, instead of a precision.
        precision: To which the median step time is to be known within a launch.
        time_limit: What all may take, such as "20m".
        memory: Limit of memory per worker, such as "2G".
        env: Variables to set for the workers.
        label: What the study is called.
        report: Whether to write report.html and its like into the folder at the end.
        listener: Who is told of progress.
        **flags: Further flags of `farandole study`, with underscores.

    Raises:
        UsageError: An argument cannot be used as given.
        StudyRefusedError: The first launch showed that the study would measure something else.
        KeyboardInterrupt: The user stopped it; `farandole study --resume` goes on.

    Example:
        >>> farandole.study(["python", "train.py"], workers=[1, 2])  # doctest: +SKIP
    """
    from farandole.study.attempt import Setting
    from farandole.study.function import command_of
    from farandole.study.hosts import hosts_around
    from farandole.study.read import read_study
    from farandole.study.runner import Run, extended

    if sys.platform == "win32":
        raise UsageError("Workers cannot be started on Windows itself: use WSL2.")
    known = set(inspect.signature(Asked).parameters)
    unknown = sorted(set(flags) - known)
    if unknown:
        raise UsageError(f"study() has no argument {unknown[0]!r}.")
    factors = {name: _texts(values) for name, values in (params or {}).items()}
    function = None
    if callable(what):
        function = make_function(what, tuple(factors))
        command: Sequence[str] = command_of(what)
    else:
        command = list(what)
    asked = Asked(
        command=command,
        workers=_listed(workers),
        factors=factors,
        scaling=scaling,
        threads=_listed(threads),
        transport=transport,
        measure=measure,
        seeds=_text(seeds),
        repeats=_text(repeats),
        steps=_text(steps),
        epochs=_text(epochs),
        precision=_text(precision),
        time_limit=_text(time_limit),
        memory=_text(memory),
        environ=dict(env or {}),
        **flags,
    )
    # A function is handed down to children, which workers on other hosts are not.
    hosts = None if function is not None else hosts_around(os.environ)
    spec, notes = make_spec(
        asked,
        room=read_room(os.environ) if hosts is None else hosts.room,
        folder=str(Path.cwd()),
        reads=(lambda name: True) if function else script_reader(command),
        script=shell_script(command),
    )
    path = Path(out) if out is not None else new_folder(_name_of(what), Path.cwd())
    path = path.absolute()
    spec = extended(path, spec)
    told = listener or Silent()
    for line in notes.lines:
        told.say(line)
    setting = Setting(spec=spec, environ=os.environ, listener=told, function=function, hosts=hosts)
    Run(path, setting, label=label or "", begin_s=time.monotonic()).go()
    found = read_study(path)
    if report:
        write_report(found)
    return found


def write_report(found: Study) -> Path:
    """Write a study's report into its folder, and return the page's path."""
    from farandole.model.analyse import analyse
    from farandole.report import write

    return write(analyse(found), found.path)


def make_function(fn: Callable[..., Any], names: tuple[str, ...]) -> Any:
    """Return a function with the launch's values for its parameters, ready to travel."""
    from farandole.launch.function import encode_call
    from farandole.study.function import Function, call_with_params

    offered = (*names, "batch", "global_batch", "workers", "threads", "seed", "cell_dir")
    parameters = inspect.signature(fn).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        taken = names
    else:
        taken = tuple(p.name for p in parameters if p.name in offered)
    missing = [
        p.name
        for p in parameters
        if p.default is p.empty
        and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        and p.name not in offered
    ]
    if missing:
        raise UsageError(
            f"The function needs {missing[0]!r}, which no launch has a value for. Give "
            f"params={{{missing[0]!r}: [...]}}, or a default."
        )
    return Function(data=encode_call(functools.partial(call_with_params, fn, taken), (), {}))


def read_room(environ: Mapping[str, str]) -> Room:
    """Read what of this machine decides a plan."""
    from farandole.launch.gpus import count_gpus
    from farandole.world.cores import read_cores

    cores = read_cores()
    return Room(cores=cores.available, physical=cores.physical, gpus=count_gpus(environ))


def script_reader(command: Sequence[str]) -> Callable[[str], bool]:
    """Return a test whether the script of a command reads a name by `farandole.param`."""
    texts = [text for path in _scripts(command) if (text := _source(path)) is not None]

    def reads(name: str) -> bool:
        pattern = re.compile(rf"""\bparam\(\s*['"]{re.escape(name)}['"]""")
        return any(pattern.search(text) for text in texts)

    return reads


def shell_script(command: Sequence[str]) -> str:
    """Return the text of the shell script that a command runs; empty where it runs none."""
    named = Path(command[0]).name if command else ""
    rest = command[1:] if named in ("sh", "bash", "dash", "ksh", "zsh") else command
    script = next((part for part in rest if not part.startswith("-")), None)
    text = ("" if script is None else _source(Path(script))) or ""
    shebang = text.partition("\n")[0]
    if script is not None and (script.endswith(".sh") or _SHELL.match(shebang)):
        return text
    return ""


def _scripts(command: Sequence[str]) -> list[Path]:
    """Name the files of a command that may be its script."""
    found = [Path(part) for part in command if part.endswith(".py")]
    for place, part in enumerate(command[:-1]):
        if part == "-m":
            try:
                # The user's modules are found where they stand, as `python -m` would.
                sys.path.insert(0, str(Path.cwd()))
                module = find_spec(command[place + 1])
            except (ImportError, ValueError):
                continue
            finally:
                sys.path.pop(0)
            if module is not None and module.origin:
                found.append(Path(module.origin))
    return found


def _source(path: Path) -> str | None:
    try:
        if path.stat().st_size > _MOST_SCRIPT_BYTES:
            return None
        return path.read_text(errors="replace")
    except OSError:
        return None


def new_folder(name: str, parent: Path) -> Path:
    """Return a folder for a new study that is not there yet: `study-train-1`."""
    number = 1
    while (path := parent / f"study-{name}-{number}").exists():
        number += 1
    return path


def name_of_command(command: Sequence[str]) -> str:
    """Return a short name of what a command runs: its script's, its module's, its program's."""
    for place, part in enumerate(command):
        if part.endswith(".py"):
            return Path(part).stem
        if part == "-m" and place + 1 < len(command):
            module = command[place + 1]
            if module not in ("farandole", "farandole.cli.main") and not module.startswith(
                ("torch.distributed", "accelerate")
            ):
                return module.rpartition(".")[2]
    return Path(command[0]).name if command else "study"


def _name_of(what: Callable[..., Any] | Sequence[str]) -> str:
    if callable(what):
        return re.sub(r"\W", "", getattr(what, "__name__", "")) or "function"
    return name_of_command(what)


def _texts(values: Sequence[Any] | Any) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence):
        values = [values]
    return tuple(str(value) for value in values)


def _listed(values: Sequence[int] | int | str | None) -> str | None:
    if values is None or isinstance(values, str):
        return values
    return str(values) if isinstance(values, int) else ",".join(str(value) for value in values)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
