"""One training step in gradient buckets, the same for every framework.

A front door fills `buckets.arrays` and reads them. What ranks say to each other about a step goes
through here: which gradients each has, who wants another plan, who is between two steps, and who
has joined and only brings zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from farandole.engine import marks
from farandole.engine.buckets import FULL, REPLAN, BucketSet, Plan, open_buckets
from farandole.engine.engine import Engine
from farandole.engine.handle import Handle
from farandole.transport.reduction import Array, Reduction


class BucketStep:
    """The buckets of one plan, and where the current step stands in them."""

    def __init__(
        self, engine: Engine, name: str, plan: Plan, how: Reduction, *, device: str = "cpu"
    ) -> None:
        """Allocate; all ranks do so together.

        Args:
            engine: reduces.
            name: of the buckets.
            plan: where each gradient lies; the same on every rank.
            how: the reduction, on every gradient.
            device: where the buckets lie.
        """
        self.plan = plan
        self._engine, self._how = engine, how
        bits = max(-(-len(members) // 8) for members in plan.members)
        self._note_bytes = note_bytes = max(bits, marks.NOTE_BYTES)
        self.buckets: BucketSet = open_buckets(engine, name, plan.shapes, note_bytes, device=device)
        self._all_present = [_bits(range(len(each)), note_bytes) for each in plan.members]
        self._all_full = [FULL] * engine.size
        self.number = 1
        """Of the current step."""
        self._handles: list[Handle | None] = [None] * len(plan.members)
        self.sitting_out = False
        """Whether this rank has joined and is in a step of the others."""

    def submitted(self, bucket: int) -> bool:
        """Say whether a bucket is on its way."""
        return self._handles[bucket] is not None

    def submit(self, bucket: int, present: Sequence[int] | None = None, flags: int = 0) -> None:
        """Let a bucket go.

        Args:
            bucket: its number.
            present: positions of the gradients that this rank has; None: all of the bucket's.
            flags: REPLAN where this rank wants another plan.
        """
        if present is None:
            note, flags = self._all_present[bucket], flags | FULL
        else:
            note = _bits(present, self._note_bytes)
        self._handles[bucket] = self.buckets.submit(bucket, self.number, self._how, flags, note)

    def wait(self, bucket: int) -> Sequence[int] | None:
        """Wait for a bucket.

        Returns:
            The gradients in it that any rank had, `plan.members[bucket]` itself if every rank had
            all of them; None if a rank wants another plan: the bucket was not reduced then.

        Raises:
            StepsDifferError: a rank is not in a step, but at the end of its epoch.
        """
        handle, members = self._handles[bucket], self.plan.members[bucket]
        assert handle is not None
        answers: list[tuple[int, Array]] = self._engine.wait(handle)  # type: ignore[assignment]
        said = [flags for flags, _ in answers]
        if said == self._all_full:
            return members
        if any(flags & REPLAN for flags in said):
            if (found := marks.marks_of(answers)) is not None:
                marks.check(found)
            return None
        bits = np.unpackbits(np.bitwise_or.reduce([note for _, note in answers]))
        return [index for position, index in enumerate(members) if bits[position]]

    def end(self) -> None:
        """Go on to the next step: all buckets of this one have been waited for."""
        self.skip()
        self._handles = [None] * len(self._handles)

    def skip(self) -> None:
        """Leave out a step's number, as all do when all have joined."""
        self.number += 1

    def mark(self, mark: marks.Mark) -> None:
        """Say where this rank stands between two steps, in the place of the first bucket.

        Raises:
            StepsDifferError: another rank stands elsewhere.
        """
        note = mark.encode(self._note_bytes)
        handle = self.buckets.submit(0, self.number, self._how, marks.MARK, note)
        self.skip()
        marks.check(marks.marks_of(self._engine.wait(handle)) or ())  # type: ignore[arg-type]

    def sit_out(self) -> bool | None:
        """Bring zeros to a step of the others, if one has begun: this rank has joined.

        To be called again and again.

        Returns:
            None unless a step has just ended; then whether a rank wanted another plan in it.
        """
        if not self.sitting_out:
            if not self.buckets.begun(self.number):
                return None
            self.sitting_out = True
            nothing = np.zeros(self._note_bytes, np.uint8)
            for bucket, handle in enumerate(self._handles):
                if handle is None:
                    self.buckets.arrays[bucket][...] = 0
                    self._handles[bucket] = self.buckets.submit(
                        bucket, self.number, self._how, FULL, nothing
                    )
        handles = [handle for handle in self._handles if handle is not None]
        if not all(handle.check() for handle in handles):
            return None
        answers: list[Any] = [self._engine.wait(handle) for handle in handles]
        self.sitting_out = False
        self.end()
        return any(flags & REPLAN for said in answers for flags, _ in said)

    def close(self) -> None:
        """Let go of the buckets."""
        self.buckets.close()


def _bits(positions: Sequence[int], nbytes: int) -> Array:
    bits = np.zeros(nbytes * 8, np.uint8)
    bits[list(positions)] = 1
    return np.packbits(bits)
