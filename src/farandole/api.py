"""`farandole.study(...)`: a study from Python, of a command or of a function, and in a notebook."""

from __future__ import annotations

import functools
import html
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from farandole.errors import UsageError
from farandole.study.command import name_of_command
from farandole.study.folder import new_folder
from farandole.study.progress import Listener
from farandole.study.records import Study

_PAGE = "report.html"


def study(
    what: Callable[..., Any] | Sequence[str],
    workers: Sequence[int] | int | str | None = None,
    params: Mapping[str, Sequence[Any]] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    label: str | None = None,
    report: bool = True,
    listener: Listener | None = None,
    **options: Any,
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
        label: What the study is called.
        report: Whether to write report.html and its like into the folder at the end.
        listener: Who is told of progress.
        **options: The flags of `farandole study`, with underscores (`scaling="both"`,
            `threads=[1, 2]`, `measure="both"`, `repeats=5`, `steps=100`, `time_limit="20m"`,
            `memory="2G"`, `no_epoch=True`), and `env` with variables to set for the workers.

    Raises:
        UsageError: An argument cannot be used as given.
        StudyRefusedError: The first launch showed that the study would measure something else.
        KeyboardInterrupt: The user stopped it; `farandole study --resume` goes on.

    Example:
        >>> farandole.study(["python", "train.py"], workers=[1, 2])  # doctest: +SKIP
    """
    from farandole.study.hosts import command_of
    from farandole.study.read import read_study
    from farandole.study.runner import run_study

    if sys.platform == "win32":
        raise UsageError("Workers cannot be started on Windows itself: use WSL2.")
    path = Path(out) if out is not None else new_folder(f"study-{_name_of(what)}", Path.cwd())
    run_study(
        command_of(what) if callable(what) else list(what),
        {"workers": workers, "params": params, **options},
        path.absolute(),
        listener=listener or Listener(),
        label=label or "",
        function=make_function(what, tuple(params or ())) if callable(what) else None,
    )
    found = read_study(path.absolute())
    if report:
        write_report(found)
    return found


def write_report(found: Study) -> Path:
    """Write a study's report into its folder, and return the page's path."""
    from farandole.model.analyse import analyse
    from farandole.report.study import write

    return write(analyse(found), found.path)


def make_function(fn: Callable[..., Any], names: tuple[str, ...]) -> Any:
    """Return a function with the launch's values for its parameters, ready to travel."""
    from farandole.launch.function import encode_call
    from farandole.study.hosts import Function, call_with_params

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
