"""Making one study of a lab, by the command that a user would type."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from farandole.errors import FarandoleError
from farandole.labs.budget import written
from farandole.labs.lab import Planned
from farandole.labs.scripts import examples_path, published_path
from farandole.study import folder
from farandole.study.attempt import Interrupted
from farandole.study.folder import shown
from farandole.study.read import is_study, read_head, read_launch

Command = Callable[[Sequence[str]], int]
"""`farandole.cli.main.main`: runs a command line, and returns its exit code."""
Say = Callable[[str], None]

# Beyond, an exit code tells of a signal: Ctrl-C, or whatever ended the study.
_SIGNALLED = 128


def study_argv(
    one: Planned, path: Path, *, limit_s: float | None, here: Path, extend: bool = False
) -> list[str]:
    """Return the command line of a study; one that has been begun is gone on with.

    Args:
        one: The study.
        path: Its folder.
        limit_s: How long it may take; None: as long as it does.
        here: Where the command is given; paths below it are written short.
        extend: Whether more is asked for than the folder's study was begun with.
    """
    limit = () if limit_s is None else ("--time-limit", written(limit_s))
    if is_study(path) and not extend:
        return ["study", "--resume", shown(path, here), *limit, "--no-report"]
    return [
        *("study", *one.flags, *limit, "--label", one.title, "--out", shown(path, here)),
        *("--no-report", "--"),
        # Without "python": the first one on PATH need not be the one that has Farandole.
        *(shown(examples_path(one.script), here), *one.arguments),
    ]


def make_study(
    one: Planned,
    path: Path,
    *,
    run: Command,
    say: Say,
    limit_s: float | None = None,
    extend: bool = False,
) -> str:
    """Make a study, or the rest of it; return why it has no figures, "" when it has some.

    Raises:
        Interrupted: Somebody ended it; what is finished of it is kept.
    """
    # A study is extended from where it was begun: elsewhere its command would be another.
    here = Path(read_head(path).spec["folder"]) if extend else Path.cwd()
    argv = study_argv(one, path, limit_s=limit_s, here=here, extend=extend)
    say(f"$ {command_line(argv, dict(one.environ))}")
    try:
        with _environ(dict(one.environ)), _in_folder(here):
            # Its errors are raised, not printed: the report of the lab tells of them, too.
            code = run(["--debug", *argv])
    except FarandoleError as error:
        say(f"farandole: {error}")
        return str(error)
    if code > _SIGNALLED:
        raise Interrupted(code - _SIGNALLED)
    return "" if code == 0 else _why(path)


def is_complete(path: Path) -> bool:
    """Tell whether all launches of a study have been made."""
    return is_study(path) and read_head(path).complete


def import_published(name: str, path: Path, *, run: Command, say: Say) -> None:
    """Make a study of a published table, unless it is there.

    Raises:
        FarandoleError: The table cannot be used.
    """
    import hashlib

    table = published_path(name)
    if is_complete(path):
        imported: Mapping[str, Any] = read_head(path).spec.get("imported", {})
        if imported.get("sha256") == hashlib.sha256(table.read_bytes()).hexdigest():
            return
    # Half of one, or that of an earlier version's table.
    shutil.rmtree(path, ignore_errors=True)
    here = Path.cwd()
    argv = ["study", "import", shown(table, here), "--out", shown(path, here)]
    say(f"$ {command_line(argv, {})}")
    # How columns are taken is told to whoever imports a table of their own; ours are known.
    with contextlib.redirect_stderr(io.StringIO()):
        run(["--debug", "study", "--no-report", *argv[1:]])


def command_line(argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """Write a command as one would type it."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in environ.items()]
    return " ".join([*variables, "farandole", shlex.join(argv)])


def _why(path: Path) -> str:
    """Return why no launch of a study ended well."""
    for place in folder.finished_folders(path):
        launch = read_launch(place, ranks=False)
        if launch.reason:
            # From the lab's folder: its report lies there.
            output = (place / folder.OUTPUT_FILE).relative_to(path.parent.parent)
            return f"{launch.reason.rstrip('.')}. See {output}"
    return "No launch was made in the time that there was"


@contextlib.contextmanager
def _environ(changes: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _in_folder(folder: Path) -> Iterator[None]:
    """Go there, and come back: `study --resume` goes on to where the study was begun."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
