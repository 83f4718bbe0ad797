"""What a submitter holds on to: whether an operation is done, how it failed, what it gave.

`Handle` is that of whoever finishes operations himself. `Pending` is a named operation's, and
`Advancing` a bucket's: both complete what they wait for when somebody looks. `HandleTable` turns
them into the numbers that Horovod's programs hold.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from farandole.engine.coordinator import size_of
from farandole.recorder.recorder import current

if TYPE_CHECKING:
    from farandole.engine.engine import Engine
    from farandole.engine.loop import Lane, Loop
    from farandole.engine.named import NamedLane
    from farandole.engine.operations import Operation
    from farandole.transport.shm.eager import Place


class Handle:
    """The future of one operation."""

    __slots__ = ("_polled", "done", "error", "result", "value")

    def __init__(self) -> None:
        """Begin unfinished."""
        self.done = False
        self.error: Exception | None = None
        self.result: Any = None
        self.value: Any = None
        """What a front door gives its user for it."""
        self._polled = False

    def finish(self, result: Any = None) -> None:
        """Mark as done."""
        self.result = result
        self.done = True

    def fail(self, error: Exception) -> None:
        """Mark as failed: whoever waits gets `error`."""
        self.error = error
        self.done = True

    def check(self) -> bool:
        """Return whether it is done, completing it if that is all it takes."""
        return self.done

    def poll(self) -> bool:
        """Like check, but False the first time: programs written for Horovod count on it."""
        if not self._polled:
            self._polled = True
            return False
        return self.check()


class Pending(Handle):
    """A named operation that has not ended; one that waits for an earlier of its name is not begun.

    Its place is that on the eager board, and None while the coordinator has it or nobody does.
    """

    __slots__ = ("_lane", "name", "operation", "place", "turn")

    def __init__(
        self,
        lane: NamedLane,
        name: str,
        operation: Operation,
        place: Place | None = None,
        turn: int = 0,
    ) -> None:
        """Begin; `turn` is that of the place."""
        # Handle's own __init__ written out: a call less for every operation.
        self.done = self._polled = False
        self.error = self.result = self.value = None
        self._lane, self.name, self.operation = lane, name, operation
        self.place, self.turn = place, turn

    def check(self) -> bool:
        """Return whether it is done; on the eager board whoever asks completes it."""
        return self.done or self._lane.complete(self)


class Advancing(Handle):
    """What goes on whenever somebody looks: a peer in step is not far away."""

    __slots__ = ("_lane", "_loop")

    def __init__(self, loop: Loop, lane: Lane) -> None:
        """Begin; `lane` is one of the loop's."""
        # As in Pending.
        self.done = self._polled = False
        self.error = self.result = self.value = None
        self._loop, self._lane = loop, lane

    def check(self) -> bool:
        """Return whether it is done, after a step towards it."""
        if not self.done:
            driving = self._loop.exclusive()
            if driving.acquire(blocking=False):
                try:
                    self._lane.advance()
                finally:
                    driving.release()
        return self.done


_UNNAMED = 16
"""Names that operations without one take in turn; each is agreed on only once."""
_numbers = itertools.count(1)
"""Of all tables: a number that an earlier one gave out is unknown to a later one."""


class HandleTable:
    """The open operations of one engine and of its process sets'; it goes with the engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._open: dict[int, Handle] = {}
        self._submitted: dict[tuple[int, str], int] = {}

    def name(self, kind: str, given: str | None, process_set: int = 0) -> str:
        """Return the full name of an operation.

        Those that were given none are counted in the order of their submission, as Horovod does:
        all ranks of a process set count alike if they submit alike there.
        """
        if given is not None:
            return f"{kind}.{given}"
        counted = (process_set, kind)
        self._submitted[counted] = number = self._submitted.get(counted, -1) + 1
        return f"{kind}.noname.{number % _UNNAMED}"

    def count_anew(self, process_set: int = 0) -> None:
        """Forget how many operations had no name: ranks that sat some out come back."""
        for counted in [each for each in self._submitted if each[0] == process_set]:
            del self._submitted[counted]

    def run(
        self,
        kind: str,
        name: str | None,
        operation: Operation,
        payload: str = "other",
        engine: Engine | None = None,
    ) -> None:
        """Submit an operation and wait for it.

        Args:
            kind: the beginning of its full name.
            name: what ties the ranks' calls together; None to count them.
            operation: what to do.
            payload: the kind of bytes that it is recorded as.
            engine: of the process set; by default that of all workers.
        """
        engine = engine or self._engine
        full = self._note(kind, name, operation, payload, engine)
        engine.run(full, operation, queues=name is None)

    def begin(
        self,
        kind: str,
        name: str | None,
        operation: Operation,
        result: Any,
        payload: str = "other",
        engine: Engine | None = None,
    ) -> int:
        """Submit an operation (see `run`); return the handle that `synchronize` makes a result of.

        Args:
            result: what the operation writes to, or a function that returns it once that is done.
        """
        engine = engine or self._engine
        full = self._note(kind, name, operation, payload, engine)
        return self.add(engine.submit(full, operation, queues=name is None), result)

    def _note(
        self, kind: str, name: str | None, operation: Operation, payload: str, engine: Engine
    ) -> str:
        """Return the full name of an operation that is recorded."""
        if (recorder := current()) is not None:
            recorder.sent(payload, nbytes := size_of(operation.signature))
            if recorder.calls is not None:
                recorder.calls.called(kind, f"{nbytes} bytes")
        return self.name(kind, name, engine.number)

    def add(self, handle: Handle, result: Any) -> int:
        """Keep an operation, with its result or a function that returns that; return its handle."""
        handle.value = result
        number = next(_numbers)
        self._open[number] = handle
        return number

    def poll(self, number: int) -> bool:
        """Say whether an operation is done; False at least once."""
        handle = self._open.get(number)
        return handle is None or self._engine.poll(handle)

    def synchronize(self, number: int) -> Any:
        """Wait for an operation and return its result; None for a handle that is not known.

        Raises:
            CollectiveError: the operation failed, on every rank alike.
        """
        handle = self._open.get(number)
        if handle is None:
            return None
        try:
            if not (handle.done or handle.check()) or handle.error is not None:
                self._engine.wait(handle)
        finally:
            if handle.done:
                del self._open[number]
        value = handle.value
        return value() if callable(value) else value
