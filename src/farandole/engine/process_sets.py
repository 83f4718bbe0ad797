"""Process sets: some of the workers that run operations of their own, apart from the others.

Each set has an engine with a transport and a coordinator of its own, on the one progress loop, so
that no set waits for another. All workers make and remove sets together, also those outside.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from farandole.engine.engine import Engine
from farandole.engine.signature import named
from farandole.errors import FarandoleError, MismatchError, StartError, UsageError
from farandole.transport.choose import open_transport
from farandole.world.environment import World

_MEETING = "farandole.process_sets"
_DONE = b"done"
_STEP = b"step:"
_FAILED = b"failed:"


class ProcessSet:
    """Some of the workers, by their ranks; `init` and `add_process_set` make it usable."""

    def __init__(self, ranks_or_comm: Iterable[int]) -> None:
        """Name the ranks.

        Args:
            ranks_or_comm: ranks among all workers. Horovod also takes communicators of mpi4py.
        """
        if hasattr(ranks_or_comm, "Get_rank") or not isinstance(ranks_or_comm, Iterable):
            raise UsageError(
                f"ProcessSet({ranks_or_comm!r}): give a list of ranks. Communicators of MPI are "
                "not taken here."
            )
        ranks = list(ranks_or_comm)
        if any(not isinstance(rank, int) or isinstance(rank, bool) for rank in ranks):
            raise UsageError(f"ProcessSet({ranks}): ranks are whole numbers, such as [0, 2].")
        self.process_set_id: int | None = None
        self.ranks = sorted(ranks)
        self.mpi_comm = None
        self._me: int | None = None

    def size(self) -> int | None:
        """Return the number of ranks in the set; None while it is not in use."""
        return None if self._me is None else len(self.ranks)

    def rank(self) -> int | None:
        """Return this worker's place in the set, -1 outside; None while it is not in use."""
        if self._me is None:
            return None
        return self.ranks.index(self._me) if self._me in self.ranks else -1

    def included(self) -> bool | None:
        """Say whether this worker is in the set; None while it is not in use."""
        return None if self._me is None else self._me in self.ranks

    def bind(self, number: int, ranks: Sequence[int], me: int) -> None:
        """Take it into use."""
        self.process_set_id, self.ranks, self._me = number, list(ranks), me

    def release(self) -> None:
        """Take it out of use; it may be given to `init` or `add_process_set` again."""
        self._me = None
        if self is not global_process_set:
            self.process_set_id = None

    def __str__(self) -> str:
        return (
            f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, "
            f"mpi_comm={self.mpi_comm})"
        )

    __repr__ = __str__


global_process_set = ProcessSet([])
"""All workers."""
global_process_set.process_set_id = 0


class _SetNotOpenedError(StartError):
    """All workers have heard that a set could not be opened."""


class ProcessSets:
    """The sets that are in use, each with its engine where this worker is in it."""

    def __init__(self, engine: Engine, world: World, *, dynamic: bool) -> None:
        """Begin with all workers as the only set.

        Args:
            engine: of all workers.
            world: this worker's place.
            dynamic: whether sets may be added and removed later.
        """
        self._engine, self._world, self._dynamic = engine, world, dynamic
        self._engines: dict[int, Engine | None] = {0: engine}
        self._ranks: dict[int, list[int]] = {0: list(range(world.size))}
        self._objects: dict[int, list[ProcessSet]] = {0: [global_process_set]}
        global_process_set.bind(0, self._ranks[0], world.rank)

    def ids_and_ranks(self) -> dict[int, list[int]]:
        """Return the ranks of every set, by its number."""
        return {number: list(self._ranks[number]) for number in sorted(self._ranks)}

    def ranks_of(self, number: int) -> list[int]:
        """Return the ranks of a set.

        Raises:
            UsageError: there is no such set.
        """
        if number not in self._ranks:
            raise UsageError(f"There is no process set {number}. There are {sorted(self._ranks)}.")
        return list(self._ranks[number])

    def object_of(self, number: int) -> ProcessSet | None:
        """Return an object that stands for a set; None if there is no such set."""
        return self._objects[number][0] if number in self._objects else None

    def engine_of(self, process_set: ProcessSet | int) -> Engine:
        """Return the engine of a set that this worker is in.

        Raises:
            UsageError: there is no such set, or this worker is not in it.
        """
        number = getattr(process_set, "process_set_id", process_set)
        if not isinstance(number, int) or number not in self._engines:
            raise UsageError(
                f"process_set={process_set} is not in use. Give it to hvd.init(process_sets=[...]) "
                "or to hvd.add_process_set first."
            )
        engine = self._engines[number]
        if engine is None:
            raise UsageError(
                f"Rank {self._world.rank} is not in process set {number}, of ranks "
                f"{self._ranks[number]}. Let only these call it: if process_set.included(): ..."
            )
        return engine

    def begin_with(self, given: Sequence[ProcessSet | Sequence[int]]) -> None:
        """Make the sets that `init` was given."""
        for each in given:
            self._make(_process_set(each))

    def find(self, given: Sequence[ProcessSet | Sequence[int]]) -> None:
        """Let sets stand for those in use that have the same ranks: init() was called again."""
        for each in map(_process_set, given):
            found = [number for number, ranks in self._ranks.items() if ranks == each.ranks]
            if not found:
                raise UsageError(
                    f"init() was called again, with a new process set of ranks {each.ranks}. Call "
                    "shutdown() before, or hvd.add_process_set."
                )
            self._take(each, found[0])

    def add(self, given: ProcessSet | Sequence[int]) -> ProcessSet:
        """Make a set; all workers call this together."""
        self._need_dynamic("add_process_set")
        made = _process_set(given)
        self._make(made)
        return made

    def remove(self, process_set: ProcessSet) -> bool:
        """Take a set out of use; all workers call this together. False if it cannot be done."""
        number = process_set.process_set_id
        if number is None or number == 0 or number not in self._engines:
            return False
        self._need_dynamic("remove_process_set")
        everyone = self._engine.exchange(str(number).encode(), _MEETING)
        if len(set(everyone)) > 1:
            raise MismatchError(_differ("remove", [answer.decode() for answer in everyone]))
        engine = self._engines.pop(number)
        del self._ranks[number]
        for each in self._objects.pop(number):
            each.release()
        if engine is not None:
            engine.close()
        return True

    def close(self) -> None:
        """Leave all sets but that of all workers, whose engine somebody else closes."""
        for number, engine in self._engines.items():
            if engine is not None and number:
                engine.close()
        for objects in self._objects.values():
            for each in objects:
                each.release()
        self._engines.clear()

    def _need_dynamic(self, function: str) -> None:
        if not self._dynamic:
            raise UsageError(
                f"{function} changes the process sets of a running job, which was not asked for. "
                'Set HOROVOD_DYNAMIC_PROCESS_SETS=1, or call hvd.init(process_sets="dynamic").'
            )

    def _fault(self, ranks: list[int]) -> str:
        """Return why there cannot be a set of these ranks, or ''."""
        size = self._world.size
        if not ranks or len(set(ranks)) < len(ranks) or not 0 <= ranks[0] <= ranks[-1] < size:
            return (
                f"A process set of ranks {ranks} cannot be: it needs one or more different ranks "
                f"from 0 to {size - 1}."
            )
        if ranks in self._ranks.values():
            return f"There is a process set of ranks {ranks} already. Use that, or remove it first."
        return ""

    def _make(self, made: ProcessSet) -> None:
        ranks = made.ranks
        hello = {"ranks": ranks, "host": self._world.hostname, "cuda": _has_gpu()}
        answers = self._engine.exchange(json.dumps(hello).encode(), _MEETING)
        everyone = [json.loads(answer) for answer in answers]
        # Compared first, so that what is wrong on one rank only is an error on all of them.
        if any(said["ranks"] != ranks for said in everyone):
            raise MismatchError(_differ("add", [str(said["ranks"]) for said in everyone]))
        if fault := self._fault(ranks):
            raise UsageError(fault)
        number = next(i for i in range(1, len(self._ranks) + 1) if i not in self._ranks)
        engine = None
        if self._world.rank in ranks:
            try:
                engine = self._open(number, ranks, [everyone[rank] for rank in ranks])
            except _SetNotOpenedError:
                raise
            except FarandoleError as error:
                # All workers hear of it in their next round, also those outside: it is the last.
                self._meet(_FAILED + str(error).encode())
                raise
        self._wait_for_all()
        self._engines[number], self._ranks[number] = engine, ranks
        self._take(made, number)

    def _take(self, process_set: ProcessSet, number: int) -> None:
        process_set.bind(number, self._ranks[number], self._world.rank)
        self._objects.setdefault(number, []).append(process_set)

    def _open(self, number: int, ranks: list[int], members: Sequence[dict[str, Any]]) -> Engine:
        world = _place_in(self._world, ranks, [member["host"] for member in members])

        def exchange(payload: bytes) -> list[bytes]:
            answers = self._meet(_STEP + payload)
            return [answers[rank].removeprefix(_STEP) for rank in ranks]

        opened = open_transport(world, exchange, address=self._engine.address, numbers=ranks)
        engine = Engine(
            opened.transport,
            self._engine.loop,
            exchange,
            address=self._engine.address,
            ranks=ranks,
            number=number,
        )
        if all(member["cuda"] for member in members):
            # Later only the members would be there, and each busy with something else.
            engine.open_device_transport()
        return engine

    def _wait_for_all(self) -> None:
        """Keep company to workers that are still opening the set's transport."""
        while any(answer != _DONE for answer in self._meet(_DONE)):
            pass

    def _meet(self, payload: bytes) -> list[bytes]:
        """Take part in one round of all workers.

        Raises:
            _SetNotOpenedError: A worker could not open the set.
        """
        answers = self._engine.exchange(payload, _MEETING)
        for answer in answers:
            if answer.startswith(_FAILED):
                raise _SetNotOpenedError(answer.removeprefix(_FAILED).decode())
        return answers


def _process_set(given: ProcessSet | Sequence[int]) -> ProcessSet:
    return given if isinstance(given, ProcessSet) else ProcessSet(given)


def _place_in(world: World, ranks: list[int], hosts: Sequence[str]) -> World:
    """Return a worker's place in a world that has only these ranks."""
    if world.one_host:
        hosts = [world.hostname] * len(ranks)
    rank = ranks.index(world.rank)
    local = [other for other, host in enumerate(hosts) if host == hosts[rank]]
    local_rank = local.index(rank)
    in_order = list(dict.fromkeys(hosts))
    cross = [host for host in in_order if hosts.count(host) > local_rank]
    return replace(
        world,
        rank=rank,
        size=len(ranks),
        local_rank=local_rank,
        local_size=len(local),
        cross_rank=cross.index(hosts[rank]),
        cross_size=len(cross),
        # Sets were tried on shared memory and gloo only.
        transport="auto" if world.transport == "mpi" else world.transport,
    )


def _has_gpu() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_available()


def _differ(verb: str, said: Sequence[str]) -> str:
    who: dict[str, list[int]] = {}
    for rank, what in enumerate(said):
        who.setdefault(what, []).append(rank)
    words = "; ".join(f"{named(ranks)}: {what}" for what, ranks in who.items())
    return (
        f"The ranks {verb} different process sets: {words}. All ranks {verb} the same ones in the "
        "same order, also those that are not in them."
    )
