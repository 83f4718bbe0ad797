"""One progress loop per process: whoever waits for anything advances everything.

A thread of its own steps in only while operations are under way and nobody waits for any.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Protocol

from farandole.engine.handle import Handle
from farandole.errors import CollectiveError, FarandoleError, ForkedProcessError, PeerDiedError

if TYPE_CHECKING:
    from farandole.stalls.inspector import LongWait

# How a rank waits for its peers: spin a little, yield a little, then sleep.
#
# Pure spinning starves the peer that is waited for when ranks share cores; sleeping from the start
# costs tens of microseconds where the peer is only two away.

SPINS = 60
YIELDS = 300
# A network takes longer than all of these would; whoever looks all the time keeps the threads that
# serve it from running.
DISTANT_YIELDS = 2
DISTANT_SLEEP_S = 100e-6
DISTANT_LONGEST_SLEEP_S = 2e-3
SHORTEST_SLEEP_S = 20e-6
LONGEST_SLEEP_S = 500e-6

# With the default slack of 50 us a sleep of 20 us takes 70 us or more.
_PR_SET_TIMERSLACK = 29
_TIMER_SLACK_NS = 1_000


class Backoff:
    """Counts fruitless looks at shared memory and pauses longer the more there were."""

    __slots__ = ("_distant", "_longest_s", "_looks", "_shortest_s", "_sleep_s", "_spins", "_yields")

    def __init__(self, *, crowded: bool = False, distant: bool = False) -> None:
        """Start afresh.

        Args:
            crowded: more ranks than cores: whoever spins keeps a peer from running.
            distant: what is waited for comes over a network.
        """
        self._spins = 2 if crowded or distant else SPINS
        self._yields = self._spins + (DISTANT_YIELDS if distant else YIELDS)
        self._shortest_s = DISTANT_SLEEP_S if distant else SHORTEST_SLEEP_S
        self._longest_s = DISTANT_LONGEST_SLEEP_S if distant else LONGEST_SLEEP_S
        self._distant = distant
        self._looks, self._sleep_s = 0, self._shortest_s

    def reset(self) -> None:
        """Begin again with a short pause: something has moved.

        Over a network the next thing takes about as long as the last, so that the pauses before it
        are not all gone through again.
        """
        self._looks = 0
        self._sleep_s = (
            max(self._shortest_s, self._sleep_s / 4) if self._distant else self._shortest_s
        )

    def pause(self) -> bool:
        """Pause once; return whether the wait has become long enough to look for dead peers."""
        self._looks += 1
        if self._looks < self._spins:
            return False
        if self._looks < self._yields:
            os.sched_yield()
            return False
        time.sleep(self._sleep_s)
        self._sleep_s = min(self._sleep_s * 1.5, self._longest_s)
        return self._sleep_s >= self._longest_s


def sharpen_sleep() -> None:
    """Let short sleeps of the calling thread be short (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, _TIMER_SLACK_NS, 0, 0, 0)


# How often the thread looks while nobody waits: often enough for peers, seldom enough for the
# training thread, from which each look takes the interpreter for some 10 us.
_TICK_S = 0.0005
# The same while nothing is pressing: only a peer that goes another way needs an answer then.
_EASY_TICK_S = 0.02
# While somebody waits, and advances everything, the thread would only take the interpreter away.
_ATTENDED_S = 0.005
# Looks at what is waited for, before anything else is: a peer in step is some microseconds away.
_EARLY_LOOKS = 20
# How often somebody who polls looks for dead peers.
_PEER_CHECK_S = 0.1


class Advancing(Protocol):
    """Something that the loop advances."""

    @property
    def busy(self) -> bool:
        """Whether anything is under way."""

    @property
    def pressing(self) -> bool:
        """Whether any of it stands still unless it is advanced."""

    def advance(self) -> bool:
        """Go as far as possible without blocking; return whether something moved."""

    def check_peers(self) -> None:
        """Raise PeerDiedError if a peer that is needed is gone."""


class Loop:
    """Advances lanes on behalf of whoever waits."""

    def __init__(self, *, crowded: bool = False, distant: bool = False) -> None:
        """Begin with no lanes.

        Args:
            crowded: ranks outnumber cores.
            distant: peers are reached over a network, and take their time.
        """
        self._lanes: list[Advancing] = []
        self._driving = threading.Lock()
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self.awake = False
        """Whether the thread looks after what is under way."""
        self._peers_checked_s = time.monotonic()
        self._attended_s = 0.0
        """When somebody who waits has last advanced everything."""
        self.crowded = crowded
        self.distant = distant
        self.watch: LongWait | None = None
        """Is told when waiting takes long."""
        self.forked = ""
        """In a child that was forked from the loop's process: why it may not use it."""

    def refuse_if_forked(self) -> None:
        """Raise ForkedProcessError in a process that was forked from this loop's.

        Peers would take it for its parent, whose thread and locks it does not have either.
        """
        if self.forked:
            raise ForkedProcessError(self.forked)

    def add(self, lane: Advancing) -> None:
        """Advance this one, too."""
        with self._driving:
            self._lanes.append(lane)

    def remove(self, lane: Advancing) -> None:
        """Forget a lane; the thread ends with the last one."""
        with self._driving:
            self._lanes.remove(lane)
        if not self._lanes:
            self._stop_thread()

    def advance(self) -> bool:
        """Advance everything once, unless somebody else is at it."""
        self.refuse_if_forked()
        if not self._driving.acquire(blocking=False):
            return False
        try:
            return self._advance_all()
        finally:
            self._driving.release()

    def exclusive(self) -> threading.Lock:
        """Return the lock under which lanes are advanced."""
        self.refuse_if_forked()
        return self._driving

    def wait(self, done: Callable[[], bool]) -> None:
        """Advance everything until `done()`."""
        for _ in range(_EARLY_LOOKS):
            if done():
                return
            if self.crowded:
                # The peer that is waited for may need this very core.
                os.sched_yield()
        backoff = Backoff(crowded=self.crowded, distant=self.distant)
        watch = self.watch
        try:
            while not done():
                if self.advance():
                    backoff.reset()
                elif backoff.pause():
                    self._check_peers(done)
                    if watch is not None:
                        watch.look(blocked=True)
                self._attended_s = time.monotonic()
        finally:
            if watch is not None:
                watch.leave()

    def poll(self, handle: Handle) -> bool:
        """Say whether an operation is done, helping it on; False the first time.

        Who polls until it is done would never hear of a peer that died, were it not looked for.
        """
        self.refuse_if_forked()
        if handle.poll():
            return True
        self.advance()
        now_s = time.monotonic()
        if now_s - self._peers_checked_s > _PEER_CHECK_S:
            self._peers_checked_s = now_s
            self._check_peers(handle.check)
        return False

    def result(self, handle: Handle) -> object:
        """Wait for an operation; return its result or raise its error."""
        self.refuse_if_forked()
        if not handle.check():
            self.wait(handle.check)
        if handle.error is not None:
            raise self._explained(handle.error)
        return handle.result

    def nobody_waits(self) -> None:
        """Say that something was submitted which nobody waits for yet.

        What is not pressing can do without where the thread is `awake`.
        """
        if self._thread is not None and self._wanted.is_set():
            # The thread has not even seen the last one.
            return
        if self._thread is None or not self._thread.is_alive():
            self._stopping = False
            self._thread = threading.Thread(
                target=self._run, name="farandole-progress", daemon=True
            )
            self._thread.start()
        # Who comes next need not call it again; the thread says when it does not look any more.
        self.awake = True
        self._wanted.set()

    def _run(self) -> None:
        sharpen_sleep()
        idle = threading.Event()
        while not self._stopping:
            self._wanted.wait()
            # Parked again at once: on a virtual machine every wake-up takes tens of microseconds
            # from the training thread.
            while self._has_work():
                if not self._pressing():
                    self._wanted.wait(_EASY_TICK_S)
                if self._pressing():
                    idle.wait(_TICK_S)
                if time.monotonic() - self._attended_s < _ATTENDED_S:
                    idle.wait(_ATTENDED_S)
                    continue
                try:
                    self.advance()
                    if self.watch is not None:
                        self.watch.look(blocked=False)
                except FarandoleError:
                    # Whoever waits next meets it too, and can say so.
                    self.awake = False
                    break

    def _has_work(self) -> bool:
        # In this order: who submits something meanwhile either is seen here or sees us asleep.
        self._wanted.clear()
        self.awake = False
        if self._stopping or not any(lane.busy for lane in self._lanes):
            return False
        self.awake = True
        return True

    def _pressing(self) -> bool:
        return any(lane.pressing for lane in self._lanes)

    def _advance_all(self) -> bool:
        moved = False
        for lane in self._lanes:
            moved |= lane.advance()
        return moved

    def _stop_thread(self) -> None:
        thread, self._thread = self._thread, None
        self._stopping = True
        self._wanted.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _check_peers(self, done: Callable[[], bool]) -> None:
        """Raise if a peer that is needed is gone; whoever drives is not disturbed."""
        if self._lost(advancing=False) is None:
            return
        # The peer may have gone after it did its part of all that is under way here.
        error = self._lost(advancing=True)
        if error is not None and not done():
            raise self._explained(error)

    def _lost(self, *, advancing: bool) -> FarandoleError | None:
        """Return why a lane has lost a peer, after advancing everything or without a wait."""
        if not self._driving.acquire(blocking=advancing):
            return None
        try:
            if advancing:
                self._advance_all()
            for lane in self._lanes:
                if lane.busy:
                    lane.check_peers()
        except FarandoleError as error:
            return error
        finally:
            self._driving.release()
        return None

    def _explained(self, error: Exception) -> Exception:
        if self.watch is not None and isinstance(error, PeerDiedError):
            return self.watch.explain(error)
        return error


_loops: dict[int, Loop] = {}


def _in_forked_child() -> None:
    """Let nobody drive what is the parent's."""
    for pid, loop in _loops.items():
        # The thread may have held it, which has no part in the child.
        loop._driving = threading.Lock()
        loop.forked = loop.forked or (
            f"Process {os.getpid()} was forked from worker process {pid}, and cannot take part in "
            "its operations: the other ranks would take it for its parent. Call them in that "
            "process."
        )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)


def process_loop() -> Loop:
    """Return this process's loop (a forked child has its own)."""
    return _loops.setdefault(os.getpid(), Loop())


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
