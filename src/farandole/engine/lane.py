"""A sequence of operations under way, advanced a little at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from farandole.engine.handle import Handle
from farandole.errors import CollectiveError

Running = Generator[bool, None, Any]


class Lane:
    """Operations that run in the order of their start, or all at once."""

    def __init__(self, *, in_order: bool, check_peers: Callable[[], None]) -> None:
        """Begin empty.

        Args:
            in_order: only the oldest advances (they share a channel); else all of them do.
            check_peers: raises if a peer is gone.
        """
        self._in_order = in_order
        self._running: list[tuple[Running, list[Handle], bool]] = []
        self.check_peers = check_peers

    @property
    def busy(self) -> bool:
        """Whether anything is under way."""
        return bool(self._running)

    pressing = busy

    def start(self, steps: Running, *handles: Handle, overlaps: bool = False) -> None:
        """Append an operation.

        Args:
            steps: what it does.
            handles: are finished with it.
            overlaps: it may go on while one before it, that also may, is not done; they mind
                their order themselves.
        """
        self._running.append((steps, list(handles), overlaps))

    def advance(self) -> bool:
        """Let operations go as far as they can; return whether one has moved."""
        any_moved = False
        at = 0
        while at < len(self._running):
            if self._in_order and at and not self._overlap(at - 1, at):
                break
            steps, handles, _ = self._running[at]
            moved = self._step(steps, handles)
            any_moved |= moved is not False
            if moved is None:
                del self._running[at]
            else:
                at += 1
        return any_moved

    def fail(self, error: Exception) -> None:
        """Give up all that is under way."""
        while self._running:
            steps, handles, _ = self._running.pop()
            steps.close()
            for handle in handles:
                handle.fail(error)

    def _overlap(self, before: int, after: int) -> bool:
        return self._running[before][2] and self._running[after][2]

    @staticmethod
    def _step(steps: Running, handles: list[Handle]) -> bool | None:
        """Let one go on; return whether it moved, or None if it has ended."""
        try:
            return next(steps)
        except StopIteration as stop:
            for handle in handles:
                handle.finish(stop.value)
        except Exception as error:
            for handle in handles:
                handle.fail(error)
        except BaseException:
            # Ctrl-C ends the generator, which must not look as if it had done its work.
            for handle in handles:
                handle.fail(CollectiveError("This operation was interrupted on this rank."))
            raise
        return None
