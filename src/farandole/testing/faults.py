"""Faults on purpose: fail on one rank at one step, in one of the ways that workers fail."""

from __future__ import annotations

import ctypes
import os
import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from farandole.errors import UsageError

Mode = Literal["exception", "exit", "leave", "kill", "stop", "segfault", "abort", "memory", "hang"]
_BEYOND_BYTES = 64 << 20


class InjectedFault(Exception):  # noqa: N818 - it is a fault on purpose, not an error of Farandole
    """What `FailAt` raises in mode "exception"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailAt:
    """Fail on one rank at one step.

    Example:
        >>> fault = FailAt(rank=1, step=3, mode="kill")
        >>> fault.maybe(rank=0, step=3)  # another rank: nothing happens
    """

    rank: int
    step: int
    mode: Mode = "exception"
    exit_code: int = 3
    """The code of mode "exit"."""

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise UsageError(
                f"mode={self.mode!r} is not a way to fail. Choose from {', '.join(get_args(Mode))}."
            )

    def maybe(self, rank: int, step: int) -> None:
        """Fail, if this is the rank and the step."""
        if (rank, step) != (self.rank, self.step):
            return
        if self.mode == "exception":
            raise InjectedFault(f"injected on rank {rank} at step {step}")
        if self.mode == "exit":
            os._exit(self.exit_code)
        if self.mode == "leave":
            raise SystemExit(0)  # as a script does that has nothing more to do
        if self.mode == "memory":
            _run_out_of_memory()
        if self.mode == "hang":
            # In native code that keeps Python's lock: no thread of this process goes on. A read
            # is taken up again after a signal's handler, pause() is not.
            empty, _ = os.pipe()
            ctypes.PyDLL(None).read(empty, ctypes.create_string_buffer(1), 1)
        signum = {
            "kill": signal.SIGKILL,
            "stop": signal.SIGSTOP,
            "segfault": signal.SIGSEGV,
            "abort": signal.SIGABRT,
        }[self.mode]
        os.kill(os.getpid(), signum)


# Faults that `farandole run --inject` plants: text on the command line, and in a variable.

_INJECT_USAGE = (
    "Give one as 'kill rank=1 step=120', with a range to choose from (step=50-150) where it shall "
    f"be random; rank=random chooses one of all. Ways to fail: {', '.join(get_args(Mode))}."
)


def parse_fault(text: str, *, size: int, chance: random.Random) -> FailAt:
    """Read a fault from a command line, and choose what it leaves to chance.

    Args:
        text: A way to fail, and where: `kill rank=1 step=120`.
        size: The number of workers.
        chance: Chooses ranks and steps.

    Raises:
        UsageError: It is not understood, or there is no such rank.
    """
    mode, *settings = text.split() or [""]
    given = dict(setting.partition("=")[::2] for setting in settings)
    rank, step = given.pop("rank", "random"), given.pop("step", "1")
    low, dash, high = step.partition("-")
    numbers = (low, high if dash else low)
    if mode not in get_args(Mode) or given or not all(number.isdecimal() for number in numbers):
        raise UsageError(f"--inject {text!r} is not a fault. {_INJECT_USAGE}")
    if rank == "random":
        rank = str(chance.randrange(size))
    first, last = map(int, numbers)
    if not rank.isdecimal() or int(rank) >= size or not 1 <= first <= last:
        raise UsageError(
            f"--inject {text!r}: ranks go from 0 to {size - 1}, and steps are counted from 1."
        )
    return FailAt(rank=int(rank), step=chance.randint(first, last), mode=mode)  # type: ignore[arg-type]


def faults_text(faults: Sequence[FailAt]) -> str:
    """Return faults as the value of FARANDOLE_INJECT."""
    return ",".join(f"{fault.mode}:{fault.rank}:{fault.step}" for fault in faults)


def faults_of(text: str) -> tuple[FailAt, ...]:
    """Read what `faults_text` has written.

    Raises:
        UsageError: It has not.
    """
    found = []
    for each in text.split(",") if text else ():
        mode, rank, step = (*each.split(":"), "", "")[:3]
        if mode not in get_args(Mode) or not rank.isdecimal() or not step.isdecimal():
            raise UsageError(
                f"FARANDOLE_INJECT={text!r} is not what `farandole run --inject` sets."
            )
        found.append(FailAt(rank=int(rank), step=int(step), mode=mode))  # type: ignore[arg-type]
    return tuple(found)


def _run_out_of_memory() -> None:
    """Ask for more memory than this process may have, which raises MemoryError."""
    import resource

    with open("/proc/self/statm") as file:  # noqa: PTH123
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _BEYOND_BYTES, resource.RLIM_INFINITY))
    bytearray(2 * _BEYOND_BYTES)
