"""What a rank says about an operation before any data moves, and when two such words agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from farandole.transport.reduction import Reduction

# The first dimension may differ between ranks: it says how much each of them brings.
_FIRST_DIMENSION_IS_FREE = frozenset({"allgather", "alltoall"})


class Signature(NamedTuple):
    """Kind, type, shape and options of a submitted operation."""

    kind: str
    dtype: str
    shape: tuple[int, ...]
    op: str = ""
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = -1
    device: str = "cpu"

    @classmethod
    def reducing(
        cls, kind: str, dtype: str, shape: tuple[int, ...], how: Reduction, device: str = "cpu"
    ) -> Signature:
        """Describe an operation that combines values."""
        return cls(kind, dtype, shape, how.op, how.prescale, how.postscale, device=device)

    @classmethod
    def parse(cls, fields: Sequence[Any]) -> Signature:
        """Rebuild a signature from the list that JSON made of it."""
        kind, dtype, shape, *rest = fields
        return cls(kind, dtype, tuple(shape), *rest)

    def essence(self) -> tuple[Any, ...]:
        """Return the part in which all ranks must agree."""
        if self.kind in _FIRST_DIMENSION_IS_FREE:
            return (*self._replace(shape=()), len(self.shape), self.shape[1:])
        return tuple(self)

    def describe(self) -> str:
        """Return the words that an error shows."""
        text = f"{self.kind} of {self.dtype}{list(self.shape)}"
        if self.op:
            text += f", {self.op}"
        if (self.prescale, self.postscale) != (1.0, 1.0):
            text += f" scaled by {self.prescale:g} before and {self.postscale:g} after"
        if self.root >= 0:
            text += f", root {self.root}"
        if self.device != "cpu":
            text += f", on {self.device}"
        return text


def mismatch(name: str, signatures: Sequence[Signature]) -> str:
    """Return what to tell all ranks if `signatures`, in rank order, do not agree, else ''."""
    if len({signature.essence() for signature in signatures}) == 1:
        return ""
    ranks: dict[str, list[int]] = {}
    for rank, signature in enumerate(signatures):
        ranks.setdefault(signature.describe(), []).append(rank)
    said = "; ".join(
        f"rank{'s' if len(who) > 1 else ''} {', '.join(map(str, who))}: {what}"
        for what, who in ranks.items()
    )
    return (
        f"The ranks submitted different things under the name {name!r}: {said}. Nothing was "
        "exchanged; make them equal, or give them different names."
    )
