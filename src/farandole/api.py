"""`farandole.study(...)`: a study from Python, of a command or of a function, and in a notebook."""

from __future__ import annotations

import functools
import html
import inspect
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from farandole.errors import UsageError
from farandole.study.ask import Asked, make_spec
from farandole.study.command import (
    name_of_command,
    new_folder,
    read_room,
    script_reader,
    shell_script,
)
from farandole.study.progress import Listener, Silent
from farandole.study.records import Study

_PAGE = "report.html"


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
    from farandole.study.command import command_of
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
    from farandole.study.command import Function, call_with_params

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


def inline(study: Study) -> str:
    """Return the report's page as a frame; it is written first where it is missing."""
    page = Path(study.path) / _PAGE
    if not page.is_file():
        page = write_report(study)
    text = html.escape(page.read_text(errors="replace"), quote=True)
    # Scripts draw the charts; without allow-same-origin they cannot touch the notebook.
    return (
        f'<iframe sandbox="allow-scripts" srcdoc="{text}" title="report of the study" '
        'style="width: 100%; height: 720px; border: 0"></iframe>'
    )


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
