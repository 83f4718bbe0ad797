"""What init() sets up and shutdown() takes down: one per process, as Horovod's API has it."""

from __future__ import annotations

import atexit
import ctypes
import functools
import json
import operator
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from farandole.engine import tracing
from farandole.engine.clean_stop import SOURCES, CleanStop, LinkNotes, StopTraining, hear
from farandole.engine.engine import Engine
from farandole.engine.handle import HandleTable
from farandole.engine.loop import process_loop, sharpen_sleep
from farandole.engine.process_sets import ProcessSet, ProcessSets, global_process_set
from farandole.engine.signature import check_same
from farandole.errors import (
    CollectiveError,
    ForkedProcessError,
    NotInitializedError,
    NotNeededError,
    StartError,
    UsageError,
)
from farandole.stalls.inspector import open_watch
from farandole.transport.choose import open_transport
from farandole.transport.protocol import Link
from farandole.version import __version__
from farandole.world.board import Board
from farandole.world.cores import allowed_processors, host_cores, read_cores
from farandole.world.environment import World, read_world
from farandole.world.generations import GenerationBoard, membership
from farandole.world.rendezvous import BoardRendezvous, Rendezvous, SoloRendezvous, connect
from farandole.world.stored_state import restarts


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """An initialised process."""

    world: World
    engine: Engine
    handles: HandleTable
    rendezvous: Rendezvous
    pid: int
    """Where init() was called."""
    spare_cores: bool
    """Whether this host has more cores than workers."""
    sets: ProcessSets
    homogeneous: bool
    """Whether all hosts have equally many workers."""
    clean_stop: CleanStop | None = None
    """Says when all stop, where somebody may ask for it."""
    faults: tuple[Any, ...] = ()
    """Planted by `farandole run --inject` (testing.faults.FailAt)."""

    def note_step(self, step: int) -> None:
        """Let the launcher know how far training is, should this worker fail."""
        if isinstance(self.rendezvous, BoardRendezvous):
            self.rendezvous.board.note_step(self.world.rank, step)
        for fault in self.faults:
            fault.maybe(self.world.rank, step)

    def count_step(self) -> None:
        """Count a step towards the one at which all ranks stop.

        Called when gradients have been combined, and not before: a step that failed, and after
        which the script went on, may have begun on some ranks only.
        """
        if self.clean_stop is not None:
            self.clean_stop.count()

    def stop_if_asked(self) -> None:
        """Leave the script if the last step that was counted is the one at which all ranks stop.

        Called where it can be left: in a step, or behind one that was compiled.

        Raises:
            StopTraining: It is.
        """
        if self.stopping:
            raise StopTraining

    @property
    def stopping(self) -> bool:
        """Whether the last step that was counted is the one at which all ranks stop."""
        return self.clean_stop is not None and self.clean_stop.reached


_current: Context | None = None
_forked = ""
"""In a child that was forked from an initialised process: why it takes no part."""
# Rounds of a rendezvous are counted over the life of the process, so that it outlives shutdown().
_rendezvous: Rendezvous | None = None


_dynamic_since = False
"""Whether process sets may be added in later generations of an elastic run, too."""
_first = 0
"""The first generation of this process, in an elastic run."""


def init(
    comm: Any = None, process_sets: str | Sequence[ProcessSet | Sequence[int]] | None = None
) -> None:
    """Meet the other workers. A second call without shutdown() changes nothing.

    Args:
        comm: Horovod's: all ranks, or a communicator of mpi4py that has all. Nothing else is taken.
        process_sets: sets to make at once, the same on every worker; "dynamic" lets
            `add_process_set` make some later.

    Raises:
        UsageError: a ValueError: sets that cannot be, or are there twice.
        ForkedProcessError: this process was forked from one that has called init().
    """
    global _dynamic_since
    _refuse_if_forked()
    dynamic = process_sets == "dynamic"
    if isinstance(process_sets, str) and not dynamic:
        raise UsageError(f'process_sets={process_sets!r}: give a list of sets, or "dynamic".')
    given = () if process_sets is None or isinstance(process_sets, str) else process_sets
    # The generations of an elastic run go on as the script has begun.
    _dynamic_since = _dynamic_since or (dynamic and membership() is not None)
    dynamic = dynamic or _dynamic_since
    if _current is not None:
        _current.sets.find(given)
        return
    while True:
        try:
            _open(comm, given, dynamic=dynamic)
        except (CollectiveError, StartError, OSError):
            # In an elastic run a worker may be lost while they meet: a later generation does.
            member = membership()
            if member is None or not member.outdated():
                raise
            leave_generation()
        else:
            return


def _open(comm: Any, given: Sequence[ProcessSet | Sequence[int]], *, dynamic: bool) -> None:
    """Meet the other workers and open the engine."""
    global _current, _rendezvous
    world = _world()
    _check_comm(comm, world)
    if _rendezvous is None:
        _rendezvous = connect(world)
        # Once, however often it is called.
        atexit.unregister(shutdown)
        atexit.register(shutdown)
    processors = allowed_processors()
    if world.size > 1:
        processors = _check_settings(world, _rendezvous, given, dynamic=dynamic)
    loop = process_loop()
    cores = read_cores(affinity=processors).available
    loop.crowded, loop.distant = world.sharing > cores, not world.one_host
    sharpen_sleep()
    keep_freed_memory(os.environ)
    # Who has met the others over a network has an address that leads to them.
    met_at = getattr(_rendezvous, "local_address", "")
    opened = open_transport(world, _rendezvous.exchange, address=met_at)
    if opened.remark and world.rank == 0:
        sys.stderr.write(f"farandole: {opened.remark}\n")
    try:
        loop.watch = open_watch(world, _rendezvous, opened.address) if world.size > 1 else None
    except BaseException:
        opened.transport.close()
        raise
    engine = Engine(opened.transport, loop, _rendezvous.exchange, address=opened.address)
    _current = Context(
        world=world,
        engine=engine,
        handles=HandleTable(engine),
        rendezvous=_rendezvous,
        pid=os.getpid(),
        spare_cores=world.sharing < cores,
        sets=ProcessSets(engine, world, dynamic=dynamic or world.dynamic_sets),
        homogeneous=True,
        clean_stop=_clean_stop(world, _rendezvous, opened.transport.link),
        faults=_planted(world),
    )
    try:
        if not world.one_host:
            _current = replace(_current, homogeneous=_all_alike(engine, world))
        tracing.begin_from(os.environ, world)
        _current.sets.begin_with(given)
    except BaseException:
        shutdown()
        raise


def _world() -> World:
    """Return this worker's place: the launcher's variables say it, or the generation it is in."""
    world = read_world(os.environ, cores=host_cores())
    member = membership()
    if member is None:
        return world
    try:
        return member.join().world(member.worker, world)
    except NotNeededError:
        # It came too late, or its host has gone again: nothing that its script could do.
        raise SystemExit(0) from None


def _planted(world: World) -> tuple[Any, ...]:
    """Return the faults that are planted in this job: those who take somebody's place have none."""
    global _first
    _first = (_first or world.generation) if world.generation else 1
    if not world.inject or _first > 1 or restarts():
        return ()
    from farandole.testing.faults import faults_of

    return faults_of(world.inject)


def leave_generation() -> None:
    """Leave the others for good: the next init() is that of another generation (elastic runs)."""
    global _rendezvous
    shutdown()
    _rendezvous = None
    member = membership()
    if member is not None:
        member.leave()


def _check_settings(
    world: World,
    rendezvous: Rendezvous,
    given: Sequence[ProcessSet | Sequence[int]],
    *,
    dynamic: bool,
) -> frozenset[int]:
    """Return the processors that the ranks of this host have together, whatever each is bound to.

    Raises:
        MismatchError: on all ranks, if they would not open the same things.
    """
    sets = [(each if isinstance(each, ProcessSet) else ProcessSet(each)).ranks for each in given]
    mine = {
        "version of farandole": __version__,
        "FARANDOLE_TRANSPORT": world.transport,
        "number of hosts (one or several)": "one" if world.one_host else "several",
        "process sets of init()": sets,
        "HOROVOD_DYNAMIC_PROCESS_SETS": dynamic or world.dynamic_sets,
    }
    # A post on the board is short: processors go as the bits of one number.
    bound = {
        "host": world.hostname,
        "processors": hex(sum(1 << number for number in allowed_processors())),
    }
    everyone = rendezvous.exchange(json.dumps([mine, bound]).encode())
    settings, places = zip(*map(json.loads, everyone), strict=True)
    check_same(dict(enumerate(settings)), "their")
    here = [
        int(place["processors"], 16)
        for place in places
        if world.one_machine or place["host"] == world.hostname
    ]
    bits = functools.reduce(operator.or_, here)
    return frozenset(number for number in range(bits.bit_length()) if bits >> number & 1)


def _clean_stop(world: World, rendezvous: Rendezvous, link: Link) -> CleanStop | None:
    """Find out by whom this job may be asked to stop; None: by nobody."""
    warned = world.source in SOURCES
    notes: Board | GenerationBoard | LinkNotes
    if isinstance(rendezvous, BoardRendezvous) and (warned or world.source == "farandole"):
        notes = rendezvous.board
    elif warned and link.last_step is not None:
        notes = LinkNotes(link)
    else:
        return None
    if warned:
        # All get the signal, which would end them; what rank 0 says counts.
        hear(notes.ask_stop if world.rank == 0 else lambda: None)
    at_once = world.one_host or isinstance(notes, LinkNotes)
    return CleanStop(notes, rank=world.rank, size=world.size, at_once=at_once)


def shutdown() -> None:
    """Leave the others; without init(), and in a forked process, it does nothing."""
    global _current
    if _forked:
        return
    context, _current = _current, None
    if context is not None:
        tracing.end()
        context.sets.close()
        context.engine.close()
        loop = context.engine.loop
        if loop.watch is not None:
            loop.watch.close()
            loop.watch = None


def is_initialized() -> bool:
    """Say whether init() was called."""
    return _current is not None


def current() -> Context:
    """Return what init() set up, to do something with the other workers.

    Raises:
        NotInitializedError: init() was not called.
        ForkedProcessError: this process was forked from the one that called it.
    """
    _refuse_if_forked()
    return known()


def known() -> Context:
    """Return what init() set up, to look at: a forked process may do so, too.

    Raises:
        NotInitializedError: init() was not called.
    """
    if _current is None:
        raise NotInitializedError("Horovod has not been initialized; use hvd.init().")
    return _current


def _refuse_if_forked() -> None:
    if _forked:
        raise ForkedProcessError(_forked)


def _in_forked_child() -> None:
    """Take no part any more: the other workers would take this process for its parent."""
    global _forked
    if _rendezvous is None or _forked:
        return
    if _current is None and isinstance(_rendezvous, SoloRendezvous):
        return
    who = "a worker"
    if _current is not None:
        who = f"rank {_current.world.rank} (process {_current.pid})"
    _forked = (
        f"Process {os.getpid()} was forked from {who} after hvd.init(), and cannot take part in "
        "operations: the other ranks would take it for its parent. Call them in the process that "
        "called hvd.init(); in a forked one, such as a DataLoader's worker, call only hvd.rank(), "
        "hvd.size() and the like. A process that shall call hvd.init() itself must be started anew "
        "(spawn, not fork)."
    )
    if _current is not None:
        _current.engine.loop.forked = _forked


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)


def rank() -> int:
    """Return this worker's rank among all workers."""
    return known().world.rank


def size() -> int:
    """Return the number of workers."""
    return known().world.size


def local_rank() -> int:
    """Return this worker's rank among those on its host."""
    return known().world.local_rank


def local_size() -> int:
    """Return the number of workers on this host."""
    return known().world.local_size


def cross_rank() -> int:
    """Return the number of this worker's host."""
    return known().world.cross_rank


def cross_size() -> int:
    """Return the number of hosts."""
    return known().world.cross_size


def is_homogeneous() -> bool:
    """Say whether all hosts have equally many workers."""
    return known().homogeneous


def engine_of(process_set: ProcessSet | int | None) -> Engine:
    """Return the engine of a process set that this worker is in; None stands for all workers."""
    now = current()
    if process_set is None or process_set is global_process_set:
        return now.engine
    return now.sets.engine_of(process_set)


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Make a process set after init(); all workers call this together, also those outside.

    Args:
        process_set: the set, or its ranks.

    Returns:
        The set, ready for use.

    Raises:
        UsageError: a ValueError: it cannot be, is there already, or sets are not dynamic.
    """
    return current().sets.add(process_set)


def remove_process_set(process_set: ProcessSet) -> bool:
    """Take a process set out of use; all workers call this together.

    Returns:
        Whether that was done; not for the set of all workers, nor for one that is not in use.
    """
    return current().sets.remove(process_set)


def _check_comm(comm: Any, world: World) -> None:
    if comm is None:
        return
    if hasattr(comm, "Get_size"):
        fits = (comm.Get_rank(), comm.Get_size()) == (world.rank, world.size)
    else:
        fits = not len(comm) or sorted(comm) == list(range(world.size))
    if not fits:
        raise UsageError(
            f"init(comm={comm!r}) is not all {world.size} workers in their order. Leave comm out, "
            "and use init(process_sets=[...]) for operations among some of them."
        )


def _all_alike(engine: Engine, world: World) -> bool:
    return len(set(engine.exchange(str(world.local_size).encode()))) == 1


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 1 << 30
# The most that glibc takes. It gets there by itself, unless the other limit is set.
_LARGEST_ON_HEAP_BYTES = 32 << 20


def keep_freed_memory(environ: Mapping[str, str]) -> bool:
    """Let malloc keep up to a gigabyte of freed memory; say whether it does.

    Who has set glibc's own variables has decided, and other allocators decide for themselves.
    """
    if sys.platform != "linux" or tuned_by_user(environ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is None:
        return False
    kept = mallopt(_M_MMAP_THRESHOLD, _LARGEST_ON_HEAP_BYTES)
    return bool(kept and mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))


def tuned_by_user(environ: Mapping[str, str]) -> bool:
    """Say whether the environment already tells glibc how to allocate."""
    return "glibc.malloc." in environ.get("GLIBC_TUNABLES", "") or any(
        name.startswith("MALLOC_") and name.endswith("_") for name in environ
    )
