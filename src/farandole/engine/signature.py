"""What a rank says about an operation before any data moves, and when two such words agree."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from farandole.errors import MismatchError
from farandole.transport.reduction import Reduction

# The first dimension may differ between ranks: it says how much each of them brings.
_FIRST_DIMENSION_IS_FREE = frozenset({"allgather", "alltoall", "meeting", "sparse gradient"})
# An error shows so many members of a group; of a larger one it has a digest besides.
_SHOWN = 8


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
    members: tuple[Signature, ...] = ()
    """Those of a group, which is agreed on as one; dtype and shape are then all their bytes."""

    @classmethod
    def reducing(
        cls, kind: str, dtype: str, shape: tuple[int, ...], how: Reduction, device: str = "cpu"
    ) -> Signature:
        """Describe an operation that combines values."""
        return cls(kind, dtype, shape, how.op, how.prescale, how.postscale, device=device)

    @classmethod
    def parse(cls, fields: Sequence[Any]) -> Signature:
        """Rebuild a signature from the list that JSON made of it."""
        *plain, members = fields
        signature = cls(*plain)
        return signature._replace(
            shape=tuple(signature.shape), members=tuple(map(cls.parse, members))
        )

    def essence(self) -> tuple[Any, ...]:
        """Return the part in which all ranks must agree."""
        if self.members:
            return (self.kind, *(member.essence() for member in self.members))
        if self.kind in _FIRST_DIMENSION_IS_FREE:
            return (*self._replace(shape=()), len(self.shape), self.shape[1:])
        return tuple(self)

    def describe(self, ranks: Sequence[int] = ()) -> str:
        """Return the words that an error shows; `ranks` are the numbers that users know."""
        if self.members:
            return f"{self.kind} of {_listed([each.describe(ranks) for each in self.members])}"
        text = f"{self.kind} of {self.dtype}{list(self.shape)}"
        if self.op:
            text += f", {self.op}"
        if (self.prescale, self.postscale) != (1.0, 1.0):
            text += f" scaled by {self.prescale:g} before and {self.postscale:g} after"
        if self.root >= 0:
            text += f", root {ranks[self.root] if ranks else self.root}"
        if self.device != "cpu":
            text += f", on {self.device}"
        return text


def mismatch(name: str, signatures: Sequence[Signature | None], ranks: Sequence[int] = ()) -> str:
    """Return what to tell all ranks if they do not agree, else ''.

    Args:
        name: of the operation.
        signatures: in rank order; None for a rank that has joined and submits nothing.
        ranks: the numbers that users know the ranks by, where these are others.
    """
    submitted = {rank: each for rank, each in enumerate(signatures) if each is not None}
    if len({signature.essence() for signature in submitted.values()}) == 1:
        return ""
    who: dict[str, list[int]] = {}
    for rank, signature in submitted.items():
        who.setdefault(signature.describe(ranks), []).append(ranks[rank] if ranks else rank)
    said = "; ".join(f"{named(numbers)}: {what}" for what, numbers in who.items())
    return (
        f"The ranks submitted different things under the name {name!r}: {said}. Nothing was "
        "exchanged; make them equal, or give them different names."
    )


def check_same(options: Mapping[int, Mapping[str, Any]], whose: str) -> None:
    """Compare what ranks have set, by rank and by the names of the options.

    Raises:
        MismatchError: they differ; the message says who has what.
    """
    for option in next(iter(options.values())):
        who: dict[str, list[int]] = {}
        for rank, values in options.items():
            who.setdefault(str(values.get(option)), []).append(rank)
        if len(who) > 1:
            said = "; ".join(f"{named(ranks)}: {value}" for value, ranks in who.items())
            raise MismatchError(
                f"The ranks differ in {whose} {option}: {said}. Make it the same on all ranks."
            )


def named(ranks: Sequence[int]) -> str:
    """Return ranks as a sentence has them."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _listed(members: Sequence[str]) -> str:
    if len(members) <= _SHOWN:
        return f"{len(members)} ({'; '.join(members)})"
    digest = hashlib.blake2b("; ".join(members).encode(), digest_size=6).hexdigest()
    return f"{len(members)} ({'; '.join(members[:_SHOWN])}; ..., digest of all {digest})"
