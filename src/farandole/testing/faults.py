"""Faults on purpose: fail on one rank at one step, in one of the ways that workers fail."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Literal, get_args

from farandole.errors import UsageError

Mode = Literal["exception", "exit", "kill", "stop", "segfault"]


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
        signum = {
            "kill": signal.SIGKILL,
            "stop": signal.SIGSTOP,
            "segfault": signal.SIGSEGV,
        }[self.mode]
        os.kill(os.getpid(), signum)
