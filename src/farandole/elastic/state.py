"""What survives a failure: states that are copied at a commit, and the loop that trains with them.

    state = hvd.elastic.TorchState(model, optimizer, batch=0, epoch=0)

    @hvd.elastic.run
    def train(state): ...

A lost worker makes operations fail: the others go back to their last commit, meet in the next
generation and take rank 0's state. When hosts come or go, nothing is taken back.
"""

from __future__ import annotations

import copy
import functools
import os
import queue
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from farandole import wire
from farandole.elastic import generation
from farandole.elastic.checkpoint import CheckpointFiles
from farandole.elastic.random_states import RandomStates
from farandole.engine import context
from farandole.errors import (
    HorovodInternalError,
    HostsUpdatedInterrupt,
    MismatchError,
    NotNeededError,
    StepsDifferError,
    UnfitError,
    UsageError,
)


class HostUpdateResult:
    """Horovod's numbers for what has changed on the hosts: bits that are added up."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


class HostMessages(queue.Queue[tuple[float, int]]):
    """Changes of the hosts: those that a state was told of, and the launcher's in this generation.

    Scripts of Horovod's wait for `state._host_messages.empty()` to become False.
    """

    def __init__(self) -> None:
        super().__init__()
        self._noted: generation.HostsChanged | None = None

    def empty(self) -> bool:
        """Look for changes; say whether there are none."""
        change = generation.hosts_changed()
        if change is not None and change != self._noted:
            self._noted = change
            removed = HostUpdateResult.removed if change.removed else HostUpdateResult.no_update
            added = HostUpdateResult.added if change.added else HostUpdateResult.no_update
            self.put((change.time_ns, removed | added))
        return super().empty()


class State:
    """What training goes on from after a failure. Subclasses say how it is saved.

    `bcast_object` gives every rank the object of rank 0, `get_rank` returns this worker's rank.
    """

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages = HostMessages()
        self._last_updated_timestamp: float = 0
        self._reset_callbacks: list[Callable[[], None]] = []
        self._random_states = RandomStates()
        self._commits = 0
        self._files: CheckpointFiles | None = None
        self._began = False

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], None]]) -> None:
        """Have functions called in every new generation, such as one that sets a learning rate."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Get ready for a new generation."""
        self._host_messages = HostMessages()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Take note that hosts have changed (a HostUpdateResult says how)."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Save, then look for changed hosts; all ranks commit together, after the same step.

        Raises:
            HostsUpdatedInterrupt: Hosts have come or gone; `run` goes on with the new ones.
        """
        # First what needs the others: if one is lost in it, everybody has the commit before.
        if self._shares_random:
            self._random_states.gather(self.random_state())
        self.save()
        self._commits += 1
        if generation.keeps() and context.local_rank() == 0:
            # Once per host: the others take it over from there.
            wire.with_parts(self._kept(), generation.store)
        if self._files is not None and self._rank() == 0:
            self._files.committed(self._commits, self._kept())
        self.check_host_updates()

    def save_to(self, path: str | os.PathLike[str], every: int = 1, keep: int = 3) -> None:
        """Have rank 0 also write commits to files, for when all workers are lost.

        Call it on every rank, before the function with `@hvd.elastic.run`: a run whose workers all
        begin anew goes on from the newest whole file in the folder. A file is written beside
        training; while one is, no other is begun.

        Args:
            path: A folder.
            every: How many commits a file is for.
            keep: How many files stay.

        Raises:
            UsageError: The folder cannot be made, or the state's entries are not plain data.
        """
        self._files = CheckpointFiles(Path(path), every=every, keep=keep)
        wire.with_parts(self.contents(), lambda _: None)

    def contents(self) -> Any:
        """Return what was saved last, as plain data."""
        raise UsageError(
            f"A {type(self).__name__} cannot be kept beyond its process: its class has no "
            "contents() and load_contents(contents). Use hvd.elastic's own states, leave out "
            "state.save_to, and train without --max-restarts."
        )

    def load_contents(self, contents: Any) -> None:
        """Take over what `contents` has returned in another process, as saved and as now."""
        raise NotImplementedError

    def check_host_updates(self) -> None:
        """Look for changed hosts without saving; all ranks do so together.

        Raises:
            HostsUpdatedInterrupt: Hosts have come or gone; `run` goes on with the new ones.
        """
        before = last = self._last_updated_timestamp
        update = HostUpdateResult.no_update
        while not self._host_messages.empty():
            timestamp, result = self._host_messages.get()
            last = max(last, timestamp)
            update |= result
        if update and last == before:
            last += 1  # the clock was set back
        before, self._last_updated_timestamp, update = self._bcast_object((before, last, update))
        if self._last_updated_timestamp > before:
            if generation.is_elastic():
                self._random_states.gather(self.random_state())
            raise HostsUpdatedInterrupt(update == HostUpdateResult.removed)

    def enter_generation(self, *, skip_sync: bool) -> None:
        """Have what rank 0 has: called by `run` before training begins or goes on.

        Args:
            skip_sync: Whether this worker has been in the generation before, in which only workers
                were lost that nobody needs anything from.
        """
        elastic = generation.is_elastic()
        began = self._began
        if elastic or generation.restarts():
            # New workers have nothing yet, and nobody knew of them when this was decided.
            told = bytes([skip_sync, began])
            answers = context.current().engine.exchange(told, "elastic.enter")
            skip_sync = all(answer[0] for answer in answers)
            began = any(answer[1] for answer in answers)
        if not began and (found := self._find_kept()) is not None:
            self._commits = found["commits"]
            self._random_states.by_rank = found["random"]
            self.load_contents(found["contents"])
        if not skip_sync:
            self.sync()
        if self._shares_random:
            engine = context.current().engine
            # Whoever is new on a host stores commits there from now on.
            self._commits = int(engine.exchange(str(self._commits).encode(), "elastic.commits")[0])
            self._have(self._random_states.deal())
        self._began = True

    @property
    def _shares_random(self) -> bool:
        """Whether ranks may have to go on with the random numbers of others."""
        return generation.is_elastic() or generation.keeps() or self._files is not None

    def repeat_random_state(self) -> None:
        """Draw random numbers once more from where the last commit was, if there was no other."""
        self._have(self._random_states.again())

    def _have(self, random_state: Any) -> None:
        if random_state is not None:
            self.set_random_state(random_state)

    def finish_writing(self) -> None:
        """Wait for the file that is being written, if any is."""
        if self._files is not None:
            self._files.finish()

    def _kept(self) -> dict[str, Any]:
        """Return all that has to outlive this process."""
        random = self._random_states.by_rank
        return {"commits": self._commits, "random": random, "contents": self.contents()}

    def _find_kept(self) -> dict[str, Any] | None:
        """Return what training has to go on from when all workers begin anew; None: its begin."""
        if generation.restarts():
            # Whoever was rank 0 may have been lost together with its host.
            stored = generation.stored()
            mine = None if stored is None else wire.decode(bytes(stored), allow_pickle=False)
            engine = context.current().engine
            commits = str(0 if mine is None else mine["commits"]).encode()
            answers = list(map(int, engine.exchange(commits, "elastic.stored")))
            newest = answers.index(max(answers))
            if newest:
                sent = bytes(stored) if stored is not None and engine.rank == newest else b""
                sent = engine.exchange(sent, "elastic.newest")[newest]
                mine = wire.decode(sent, allow_pickle=False)
            if answers[newest]:
                return mine if engine.rank == 0 else None
        if self._files is not None and self._rank() == 0:
            return self._files.newest()
        return None

    def save(self) -> None:
        """Copy what there is now."""
        raise NotImplementedError

    def restore(self) -> None:
        """Go back to what was saved last."""
        raise NotImplementedError

    def sync(self) -> None:
        """Give every rank what rank 0 has."""
        raise NotImplementedError

    def reset(self) -> None:
        """Let go of what belongs to the workers of before."""

    def random_state(self) -> Any:
        """Return, as plain data, what this rank draws random numbers from in a way of its own.

        The generators of Python, NumPy and torch are taken care of.
        """
        return None

    def set_random_state(self, random_state: Any) -> None:
        """Draw random numbers as the rank would have that had this number before."""


class ObjectState(State):
    """Objects by name, which are attributes of the state; they are copied when they are saved."""

    def __init__(
        self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any
    ) -> None:
        super().__init__(bcast_object=bcast_object, get_rank=get_rank)
        for name, value in kwargs.items():
            setattr(self, name, value)
        self._saved_state: dict[str, Any] = dict(kwargs)
        # The state's own, and not that of a subclass which is not complete yet.
        ObjectState.save(self)

    def save(self) -> None:
        """Copy the objects."""
        self._saved_state = {name: copied(name, getattr(self, name)) for name in self._saved_state}

    def restore(self) -> None:
        """Set the objects to copies of what was saved last."""
        for name, value in self._saved_state.items():
            setattr(self, name, copied(name, value))

    def contents(self) -> Any:
        """Return the objects that were saved last."""
        return self._saved_state

    def load_contents(self, contents: Any) -> None:
        """Have objects of another process, as saved and as now."""
        check_names(contents, self._saved_state)
        self._saved_state = contents
        ObjectState.restore(self)

    def sync(self) -> None:
        """Set the objects to those of rank 0, and save them."""
        # If a worker is lost in this, what was saved before is what counts.
        mine = {name: copied(name, getattr(self, name)) for name in self._saved_state}
        if not mine:
            return
        theirs = self._bcast_object(mine)
        if self._rank() == 0:
            self._saved_state = mine
        else:
            self._saved_state = theirs
            ObjectState.restore(self)


def check_names(theirs: Iterable[str], mine: Iterable[str]) -> None:
    """Raise UsageError if a kept state has other entries than this one."""
    if set(theirs) != set(mine):
        raise UsageError(
            f"The state that was kept has the entries {', '.join(sorted(theirs)) or 'none'}, and "
            f"this script's has {', '.join(sorted(mine)) or 'none'}. Give save_to another folder, "
            "or go on with the script that wrote it."
        )


_ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes})


def copied(name: str, value: Any) -> Any:
    """Return a copy of a state's entry.

    Raises:
        UsageError: It cannot be copied.
    """
    if type(value) in _ATOMS:
        return value
    try:
        return copy.deepcopy(value)
    except Exception as error:
        raise UsageError(
            f"The state's entry {name!r}, a {type(value).__name__}, cannot be copied, which every "
            f"commit does ({type(error).__name__}: {error}). Keep it outside of the state, or put "
            "in the values that it is made from."
        ) from error


class WorkerNotificationManager:
    """Horovod's name for what tells states of changed hosts. Here, states look for themselves."""

    def __init__(self) -> None:
        self._listeners: list[Any] = []

    def init(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: there is no service to be started."""

    def register_listener(self, listener: Any) -> None:
        """Tell a state from here on."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Any) -> None:
        """Do not tell a state any more."""
        self._listeners.remove(listener)

    def handle_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Tell the states."""
        for listener in self._listeners:
            listener.on_hosts_updated(timestamp, update_res)


notification_manager = WorkerNotificationManager()

_SCRIPT_ERRORS = (MismatchError, StepsDifferError, UnfitError)
"""Failed operations that would fail again: nobody is lost, the ranks do different things."""


def run_fn(func: Callable[..., Any], reset: Callable[[], None]) -> Callable[..., Any]:
    """Return `func` as a function that is called again after every change of the workers.

    Args:
        func: Trains; its first argument is a State. It goes on from where the state says.
        reset: Leaves this generation of workers and joins the next one.
    """

    @functools.wraps(func)
    def wrapper(state: Any, *args: Any, **kwargs: Any) -> Any:
        notification_manager.init()
        notification_manager.register_listener(state)
        skip_sync = again = False
        try:
            while True:
                try:
                    if again:
                        reset()
                        state.on_reset()
                    if isinstance(state, State):
                        state.enter_generation(skip_sync=skip_sync)
                    elif not skip_sync:
                        state.sync()
                    generation.note_state()
                    return func(state, *args, **kwargs)
                except HorovodInternalError as error:
                    plain = reset is generation.next_generation and not generation.is_elastic()
                    if plain or isinstance(error, _SCRIPT_ERRORS):
                        raise
                    state.restore()
                    skip_sync = False
                except HostsUpdatedInterrupt as interrupt:
                    skip_sync = interrupt.skip_sync
                except NotNeededError:
                    raise SystemExit(0) from None
                again = True
        finally:
            notification_manager.remove_listener(state)
            if isinstance(state, State):
                state.finish_writing()

    return wrapper


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Let a training function survive lost workers, and go on when hosts come or go.

    Its first argument is a state. It is called anew in every generation of workers, and goes on
    from where the state says. Under a launcher without elastic flags it is called once.

    Example:
        @hvd.elastic.run
        def train(state):
            for state.epoch in range(state.epoch, 10):
                ...
                state.commit()

        train(state)
    """
    return run_fn(func, generation.next_generation)
