"""Names that have a place on the eager board, and how their data are combined there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from farandole.engine.coordinator import Ticket
from farandole.engine.operations import Allreduce, Broadcast, Operation
from farandole.engine.signature import Signature
from farandole.transport.reduction import Array, small_fold
from farandole.transport.shm.eager import EagerBoard, Place


@dataclass(slots=True)
class Ticketed:
    """A name that has a place on the eager board."""

    number: int
    turn: int = 0
    variants: dict[Signature, Place] = field(default_factory=dict)
    last_signature: Signature | None = None
    """What was looked for last: mostly the same object is, and needs neither hash nor search."""
    last_place: Place | None = None

    def place(self, signature: Signature) -> Place | None:
        """Return the place of operations of this signature, if they have one."""
        place = self.variants.get(signature)
        if place is not None:
            self.last_signature, self.last_place = signature, place
        return place

    def signatures(self) -> dict[int, Signature]:
        """Return what the variants stand for."""
        return {place.variant: signature for signature, place in self.variants.items()}


def place_of(
    board: EagerBoard, ticket: Ticket, operation: Operation, *, rank: int, size: int
) -> Place:
    """Return where the next turns of an operation meet."""
    assert isinstance(operation, Allreduce | Broadcast)
    source, root = operation.source, operation.signature.root
    return board.place(
        *ticket,
        source.nbytes,
        source.data.dtype,
        combine=(
            small_fold(source.dtype, operation.how, size)
            if isinstance(operation, Allreduce)
            else _copy_of(root)
        ),
        sends=root in (-1, rank),
    )


# One for each root: operations of one kind have the same, and can be combined together.
@lru_cache(maxsize=256)
def _copy_of(root: int) -> Callable[[Sequence[Array], Array], None]:
    return lambda slots, out: np.copyto(out, slots[root])
