"""Options of sbatch as users write them: `--sbatch account=abc,partition=gpu,time=1:00:00`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from farandole.errors import UsageError

_NAME = re.compile(r"[a-z][a-z0-9-]*")
# A line of the script that begins with #SBATCH is read by SLURM, not by a shell.
_VALUE = re.compile(r"[^\s\"'\\#][^\n\r\"'\\#]*")
# Options without a value; after a comma, other words without `=` belong to the value before them.
_BARE = {
    *("contiguous", "exclusive", "hold", "ignore-pbs", "kill-on-invalid-dep", "no-kill"),
    *("no-requeue", "overcommit", "oversubscribe", "reboot", "requeue", "spread-job"),
    *("test-only", "use-min-nodes", "verbose"),
}
# What the flags of farandole say, and what the job cannot do without.
_OURS = {
    "nodes": "use -N for this",
    "ntasks": "use -np for this",
    "ntasks-per-node": "use --ntasks-per-node, without --sbatch, for this",
    "array": "leave it away, a job has one launch",
    "chdir": "leave it away, the job runs in the folder in which it is submitted",
    "error": "leave it away, errors go to the job's one output file",
    "input": "leave it away, workers read no input",
    "open-mode": "leave it away, each job has its own output file",
    "output": "leave it away, the output is followed, and kept in farandole-JOB.out",
    "parsable": "leave it away, it is set",
    "test-only": "use --script-only to see what would be submitted",
    "wait": "leave it away, the job is followed to its end",
    "wrap": "write the command behind --",
}

Options = tuple[tuple[str, str | None], ...]
"""Names with their values, in the order in which they were given; None: an option without one."""


def parse_options(texts: Iterable[str]) -> Options:
    """Read `--sbatch` flags; an option that comes twice has the value of the last.

    Raises:
        UsageError: A part cannot be read, or is for a flag of Farandole to say.
    """
    found: dict[str, str | None] = {}
    for text in texts:
        for name, value in _parts(text):
            if name in _OURS:
                raise UsageError(f"--sbatch {name}: {_OURS[name]}.")
            found.pop(name, None)
            found[name] = value
    return tuple(found.items())


def _parts(text: str) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []
    for part in _split(text):
        name, equals, value = part.partition("=")
        name = name.strip().removeprefix("--").replace("_", "-")
        if not equals and name not in _BARE and found and found[-1][1] is not None:
            # nodelist=n1,n2 and mail-type=END,FAIL
            found[-1] = (found[-1][0], f"{found[-1][1]},{part.strip()}")
            continue
        if not _NAME.fullmatch(name) or (not equals and name not in _BARE):
            raise UsageError(
                f"--sbatch {text}: {part!r} is not an option with a value. Write long names of "
                "sbatch's options, as --sbatch account=abc,partition=gpu,time=1:00:00."
            )
        found.append((name, value.strip() if equals else None))
    for name, given in found:
        if given is not None and not _VALUE.fullmatch(given):
            raise UsageError(
                f"--sbatch {name}={given}: a value must not be empty, nor have quotes, #, "
                "backslashes or line breaks."
            )
    return found


def _split(text: str) -> list[str]:
    """Split at commas outside of brackets: nodelist=n[1,3],time=5 has two parts."""
    parts, depth, part = [], 0, ""
    for letter in text:
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if letter == "," and depth <= 0:
            parts.append(part)
            part = ""
        else:
            part += letter
    return [part for part in (*parts, part) if part.strip()]
