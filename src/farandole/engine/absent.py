"""What a rank that has joined does in operations that only the others submit.

It moves zeros where they sum, and for the other reductions what changes nothing; where rows are
gathered it brings none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from farandole.engine.adasum import AdasumReduce
from farandole.engine.neutral import neutral
from farandole.engine.operations import Allgather, Allreduce, Grouped, Operation
from farandole.engine.signature import Signature
from farandole.transport.half import narrow
from farandole.transport.protocol import Buffer
from farandole.transport.reduction import HALF_TYPES, STORAGE, Array, Reduction


def stand_in(signature: Signature) -> Operation:
    """Return this rank's part in an operation that it has not submitted."""
    if signature.members:
        return Grouped(signature, [stand_in(member) for member in signature.members])
    if signature.kind in ("meeting", "sparse gradient"):
        return _no_rows(signature)
    how = Reduction(op=signature.op, prescale=signature.prescale, postscale=signature.postscale)
    value = neutral(signature.op, signature.dtype, signature.prescale)
    # The coordinator refuses what has none.
    assert value is not None
    buffer = _filled(signature, value)
    if signature.kind == "adasum":
        return AdasumReduce(signature, buffer, buffer, how)
    return Allreduce(signature, buffer, buffer, how)


def _filled(signature: Signature, value: float) -> Buffer:
    count = int(np.prod(signature.shape, dtype=np.int64))
    if signature.device != "cpu":
        import torch

        dtype = getattr(torch, signature.dtype)
        full = torch.full((count,), value, dtype=dtype, device=signature.device)
        return Buffer(full, signature.dtype)
    if signature.dtype not in HALF_TYPES:
        return Buffer(np.full(count, value, STORAGE[signature.dtype]), signature.dtype)
    bits: Array = np.empty(count, STORAGE[signature.dtype])
    narrow(np.full(count, value, np.float32), bits, signature.dtype)
    return Buffer(bits, signature.dtype)


def _no_rows(signature: Signature) -> Allgather:
    mine = signature._replace(shape=(0, *signature.shape[1:]))

    def allocate(rows: Sequence[Any]) -> Buffer:
        return _filled(signature._replace(shape=(sum(rows), *signature.shape[1:])), 0)

    return Allgather(mine, _filled(mine, 0), allocate)
