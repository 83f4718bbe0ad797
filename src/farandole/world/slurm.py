"""SLURM's own notations: node lists, tasks per node, and which step this is."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Callable, Mapping

from farandole.errors import StartError, UsageError

# Steps with numbers from here up are SLURM's own: batch script, interactive shell, extern.
_SPECIAL_STEPS = 0xFFFFFFF0
_JOB_NODES = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_TASKS = re.compile(r"(\d+)(?:\(x(\d+)\))?")
_NAME = re.compile(r"[\w.-]+", re.ASCII)
# More in one name are a mistake, and would fill the memory.
_MOST_NODES = 1 << 16


def in_step(environ: Mapping[str, str]) -> bool:
    """Say whether srun started this process.

    A batch script carries SLURM_NTASKS of the whole job too, but is one process: what it starts
    by plain `python` is one worker.
    """
    step = environ.get("SLURM_STEP_ID", "")
    return step.isdecimal() and int(step) < _SPECIAL_STEPS


def slurm_hosts(environ: Mapping[str, str], *, step: bool = True) -> tuple[str, ...]:
    """Read the hosts of this step, or of the whole job, in SLURM's order; empty without any."""
    for name in (*(("SLURM_STEP_NODELIST",) if step else ()), *_JOB_NODES):
        if environ.get(name):
            return expand_nodes(environ[name], variable=name)
    return ()


def tasks_per_node(environ: Mapping[str, str]) -> tuple[int, ...]:
    """Read SLURM_STEP_TASKS_PER_NODE: `2(x3),1` gives 2, 2, 2, 1."""
    return per_node(environ, "SLURM_STEP_TASKS_PER_NODE")


def per_node(environ: Mapping[str, str], name: str) -> tuple[int, ...]:
    """Read a variable with a number for each node: `2(x3),1` gives 2, 2, 2, 1."""
    counts: list[int] = []
    for part in filter(None, environ.get(name, "").split(",")):
        match = _TASKS.fullmatch(part)
        if match is None:
            raise UsageError(
                f"{name}={environ[name]!r} cannot be read at {part!r}. "
                "SLURM writes it as 2(x3),1: start the workers with srun and leave it alone."
            )
        counts += [int(match[1])] * int(match[2] or 1)
    return tuple(counts)


def expand_nodes(text: str, *, variable: str = "node list") -> tuple[str, ...]:
    """Expand SLURM's node list: `n[1-3,7],gpu12` gives n1, n2, n3, n7, gpu12."""
    nodes = [node for part in _split(text, variable) for node in _expand(part, text, variable)]
    if not all(map(_NAME.fullmatch, nodes)):
        raise _unreadable(text, variable)
    return tuple(nodes)


def _split(text: str, variable: str) -> list[str]:
    """Split at commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if depth not in (0, 1):
            raise _unreadable(text, variable)
        if letter == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    if depth:
        raise _unreadable(text, variable)
    return [part for part in (*parts, text[start:]) if part]


def _expand(part: str, text: str, variable: str) -> list[str]:
    head, bracket, rest = part.partition("[")
    if not bracket:
        return [part]
    inside, _, tail = rest.partition("]")
    # Names may hold more than one bracket, as in rack[1-2]n[1-4].
    tails = _expand(tail, text, variable) if tail else [""]
    names = []
    for piece in inside.split(","):
        match = _RANGE.fullmatch(piece)
        if match is None:
            raise _unreadable(text, variable)
        low, high = match[1], match[2] or match[1]
        if not 0 <= int(high) - int(low) < _MOST_NODES:
            raise _unreadable(text, variable)
        # Leading zeros are part of the name: n[08-10] gives n08, n09, n10.
        width = len(low)
        names += [f"{head}{number:0{width}d}" for number in range(int(low), int(high) + 1)]
        if len(names) * len(tails) > _MOST_NODES:
            raise _unreadable(text, variable)
    return [name + end for name in names for end in tails]


def _unreadable(text: str, variable: str) -> UsageError:
    return UsageError(
        f"{variable}={text!r} is not a SLURM node list such as n[1-3,7],gpu12. "
        "Start the workers with srun and leave it alone."
    )


_ADDRESS = re.compile(r"\bNodeAddr=(\S+)")
_LIMIT_S = 10.0


def network_name(node: str, *, ask: Callable[[str], str] | None = None) -> str:
    """Return a name or address that the network knows for a node.

    Most clusters call nodes by their host names. Where NodeName and host name differ, SLURM's
    controller knows the address.

    Args:
        node: A name from SLURM's node list.
        ask: Returns what `scontrol show node` says; the program itself when None.

    Raises:
        StartError: Neither the network nor SLURM knows it.
    """
    if _resolves(node):
        return node
    found = _ADDRESS.search((ask or _scontrol)(node))
    if found is None or not _resolves(found[1]):
        raise StartError(
            f"The network does not know the node {node}, and SLURM has no address for it that it "
            "does. Set MASTER_ADDR to the address of the first node."
        )
    return found[1]


def _resolves(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError):
        return False


def _scontrol(node: str) -> str:
    try:
        return subprocess.run(
            ["scontrol", "show", "node", "--oneliner", node],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""  # said above: nobody knows it
