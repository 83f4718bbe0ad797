"""The worker's side of generations: which one this is, what has changed, and how to join the next.

A generation is a set of workers that train together. The launcher forms it and gives every worker
in it a rank; it ends when a worker is lost, or when all leave it because hosts have come or gone.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MethodType

from farandole.errors import CollectiveError, UsageError
from farandole.world.generations import membership
from farandole.world.stored_state import restarts as count_restarts
from farandole.world.stored_state import stored_state


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsChanged:
    """What has changed since this generation was formed."""

    time_ns: int
    """Wall-clock time of the latest change. It differs from change to change."""
    added: bool
    """Workers can be added."""
    removed: bool
    """Workers of this generation are to leave it."""


def is_elastic() -> bool:
    """Say whether the launcher forms generations: a worker of an elastic run."""
    return membership() is not None


def number() -> int:
    """Return the number of this generation, counted from 1; 0 where the run is not elastic."""
    member = membership()
    return 0 if member is None else member.number


def hosts_changed() -> HostsChanged | None:
    """Return what has changed on the hosts in this generation; None for nothing.

    It reads a word of shared memory. Ranks see a change at different times: rank 0's answer, sent
    to all, is what they agree on.
    """
    member = membership()
    if member is None or (change := member.change) is None:
        return None
    time_ns, added, removed = change
    return HostsChanged(time_ns=time_ns, added=added, removed=removed)


def next_generation(timeout_s: float | None = None) -> None:
    """Leave this generation, and return as a worker of the next one, initialised anew.

    It closes the engine, waits for the launcher's next assignment and calls init(), with the new
    rank and size. What was registered by `on_new_generation` is called last. A generation that
    breaks while it is formed is given up for the one after it. Without an elastic launcher it is
    shutdown() and init() with the same workers.

    Args:
        timeout_s: How long to wait; by default for as long as the launcher lets this worker run: it
            ends the job when fewer than `--min-np` workers come together in time.

    Raises:
        NotNeededError: This worker is not part of the next generation: its host was removed, or
            the job is over. Leave the script with exit code 0.
        StartError: There was no new generation within `timeout_s`.
        UsageError: Something in this process cannot be made anew, such as the script's own
            torch.distributed group.
    """
    from farandole.engine import context

    member = membership()
    if member is None:
        context.shutdown()
        context.init()
        _call_registered()
        return
    _refuse_own_groups()
    while True:
        context.leave_generation()
        member.join(timeout_s)
        context.init()
        try:
            _call_registered()
            return
        except CollectiveError:
            if not member.outdated():
                raise


def _refuse_own_groups() -> None:
    """Raise UsageError if the script has a process group of torch's, which has its ranks in it."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        raise UsageError(
            "This script has called torch.distributed.init_process_group(), whose groups (and the "
            "DistributedDataParallel models in them) cannot go on with other ranks. Leave it out "
            "and use hvd.DistributedOptimizer, or let all workers start again after a failure: "
            "farandole run --max-restarts N, without --min-np."
        )


def note_state() -> None:
    """Let the launcher know that this worker has the state of training, and can hand it on.

    Called whenever it has got it from another, in a generation that it has joined. If all that have
    it are lost, those that have joined since do not go on from nothing.
    """
    member = membership()
    if member is not None:
        member.board.note_state(member.worker)


_registered: list[Callable[[], Callable[[], None] | None]] = []


def on_new_generation(callback: Callable[[], None]) -> None:
    """Have something called in every new generation, right after init(), in order of registration.

    For what is bound to an engine: gradient reducers, optimizers. A method's object is not kept
    alive by it. All ranks register alike, since callbacks may call collective operations.
    """
    if isinstance(callback, MethodType):
        _registered.append(weakref.WeakMethod(callback))
    else:
        _registered.append(lambda: callback)


def _call_registered() -> None:
    # What this worker has used up, and nobody else has, must not take part.
    gc.collect()
    for reference in list(_registered):
        callback = reference()
        if callback is None:
            _registered.remove(reference)
        else:
            callback()


def keeps() -> bool:
    """Say whether the launcher keeps what is stored (`--max-restarts`)."""
    return stored_state() is not None


def store(parts: Sequence[bytes | memoryview]) -> None:
    """Have the launcher keep these bytes, in place of those before, beyond this process's end.

    Each process has its own; a death in the middle of it leaves what was stored before. Does
    nothing unless `--max-restarts` is given, and over several hosts.

    Raises:
        OSError: There is no memory for them; what was stored before is still there.
    """
    mine = stored_state()
    if mine is not None:
        mine.write(parts)


def stored() -> memoryview | None:
    """Return what this rank had stored when all workers were started again, in one piece.

    None where nothing is stored, and in a process that has stored something itself. Copy what is
    needed before anything is stored again.
    """
    mine = stored_state()
    return None if mine is None or mine.written else mine.read()


def restarts() -> int:
    """Return how often all workers of this job have been started again (`--max-restarts`)."""
    return count_restarts()
