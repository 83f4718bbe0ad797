"""The random number generators of all ranks, so that a rank's successor draws what it would have.

Those of Python, and of NumPy and torch where the script has imported them.
"""

from __future__ import annotations

import random
import struct
import sys
from typing import Any

from farandole import wire
from farandole.engine import context


class RandomStates:
    """What every rank's generators were at the last commit; each rank knows it of all."""

    def __init__(self) -> None:
        self.by_rank: list[bytes] = []
        self._dealt = False

    def gather(self, own: Any = None) -> None:
        """Learn the states of all ranks; all call it together.

        Args:
            own: Those of this rank's generators that are not known here; plain data.
        """
        engine = context.current().engine
        mine, known = _read(own), self.by_rank
        unchanged = engine.rank < len(known) and known[engine.rank] == mine
        answers = engine.exchange(b"" if unchanged else mine, "elastic.random")
        self.by_rank = [answer or known[rank] for rank, answer in enumerate(answers)]
        self._dealt = False

    def deal(self) -> Any:
        """Give each rank the state of the one that had its number; all call it together.

        A rank with a number that nobody had goes on with its own.

        Returns:
            What that one has given to `gather` as its own; None where nobody has.
        """
        engine = context.current().engine
        told = wire.encode(self.by_rank, allow_pickle=False) if engine.rank == 0 else b""
        told = engine.exchange(told, "elastic.random.deal")[0]
        self.by_rank = wire.decode(told, allow_pickle=False)
        self._dealt = True
        return self.again()

    def again(self) -> Any:
        """Have once more what was dealt, unless there was a commit since; returns what deal does.

        For what draws random numbers while it begins anew, as Keras' fit does.
        """
        rank = context.rank()
        if not self._dealt or rank >= len(self.by_rank):
            return None
        return _write(self.by_rank[rank])


def _read(own: Any) -> bytes:
    version, words, gauss = random.getstate()
    python = [version, struct.pack(f"{len(words)}I", *words), gauss]
    states: dict[str, Any] = {"own": own, "python": python}
    if (numpy := sys.modules.get("numpy")) is not None:
        states["numpy"] = numpy.random.get_state()
    if (torch := sys.modules.get("torch")) is not None:
        states["torch"] = torch.get_rng_state()
        if torch.cuda.is_initialized():
            states["cuda"] = torch.cuda.get_rng_state_all()
    return wire.encode(states, allow_pickle=False)


def _write(state: bytes) -> Any:
    states = wire.decode(state, allow_pickle=False)
    version, words, gauss = states["python"]
    random.setstate((version, struct.unpack(f"{len(words) // 4}I", words), gauss))
    if "numpy" in states and (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.set_state(states["numpy"])
    if "torch" in states and (torch := sys.modules.get("torch")) is not None:
        torch.set_rng_state(states["torch"])
        if "cuda" in states and torch.cuda.is_initialized():
            torch.cuda.set_rng_state_all(states["cuda"][: torch.cuda.device_count()])
    return states["own"]
