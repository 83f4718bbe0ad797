"""What init() sets up and shutdown() takes down: one per process, as Horovod's API has it."""

from __future__ import annotations

import atexit
import os
import sys
from dataclasses import dataclass

from farandole.engine.clean_stop import CleanStop, StopTraining
from farandole.engine.engine import Engine
from farandole.engine.loop import process_loop
from farandole.errors import NotInitializedError
from farandole.transport.choose import open_transport
from farandole.transport.waiting import sharpen_sleep
from farandole.world.cores import read_cores
from farandole.world.environment import read_world
from farandole.world.rendezvous import BoardRendezvous, Rendezvous, connect
from farandole.world.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """An initialised process."""

    world: World
    engine: Engine
    rendezvous: Rendezvous
    pid: int
    """Where init() was called: a forked child must not act for its parent."""
    spare_cores: bool
    """Whether this host has more cores than workers."""
    clean_stop: CleanStop | None = None
    """Says when all stop, where a launcher of ours may ask for it."""

    def note_step(self, step: int) -> None:
        """Let the launcher know how far training is, should this worker fail."""
        if isinstance(self.rendezvous, BoardRendezvous):
            self.rendezvous.board.note_step(self.world.rank, step)

    def stop_if_asked(self) -> None:
        """Leave the script if this is the step at which all ranks stop.

        Raises:
            StopTraining: It is.
        """
        if self.clean_stop is not None and self.clean_stop.reached():
            raise StopTraining


_current: Context | None = None
# Rounds of a rendezvous are counted over the life of the process, so that it outlives shutdown().
_rendezvous: Rendezvous | None = None


def init() -> None:
    """Meet the other workers. A second call without shutdown() changes nothing."""
    global _current, _rendezvous
    if _current is not None and _current.pid == os.getpid():
        return
    world = read_world(os.environ)
    if _rendezvous is None:
        _rendezvous = connect(world)
        atexit.register(shutdown)
    loop = process_loop()
    cores = read_cores().available
    loop.crowded, loop.distant = world.local_size > cores, not world.one_host
    sharpen_sleep()
    # Who has met the others over a network has an address that leads to them.
    met_at = getattr(_rendezvous, "local_address", "")
    opened = open_transport(world, _rendezvous.exchange, address=met_at)
    if opened.remark and world.rank == 0:
        sys.stderr.write(f"farandole: {opened.remark}\n")
    engine = Engine(opened.transport, loop, _rendezvous.exchange, address=opened.address)
    _current = Context(
        world=world,
        engine=engine,
        rendezvous=_rendezvous,
        pid=os.getpid(),
        spare_cores=world.local_size < cores,
        clean_stop=_clean_stop(world, _rendezvous),
    )


def _clean_stop(world: World, rendezvous: Rendezvous) -> CleanStop | None:
    if not isinstance(rendezvous, BoardRendezvous) or world.source != "farandole":
        return None
    return CleanStop(rendezvous.board, rank=world.rank, one_host=world.one_host)


def shutdown() -> None:
    """Leave the others; without init() it does nothing."""
    global _current
    context, _current = _current, None
    if context is not None and context.pid == os.getpid():
        context.engine.close()


def is_initialized() -> bool:
    """Say whether init() was called."""
    return _current is not None


def current() -> Context:
    """Return what init() set up.

    Raises:
        NotInitializedError: init() was not called.
    """
    if _current is None:
        raise NotInitializedError("Horovod has not been initialized; use hvd.init().")
    return _current


def rank() -> int:
    """Return this worker's rank among all workers."""
    return current().world.rank


def size() -> int:
    """Return the number of workers."""
    return current().world.size


def local_rank() -> int:
    """Return this worker's rank among those on its host."""
    return current().world.local_rank


def local_size() -> int:
    """Return the number of workers on this host."""
    return current().world.local_size


def cross_rank() -> int:
    """Return the number of this worker's host."""
    return current().world.cross_rank


def cross_size() -> int:
    """Return the number of hosts."""
    return current().world.cross_size
