"""One training step in gradient buckets, the same for every framework.

A front door fills `buckets.arrays` and reads them. What ranks say to each other about a step goes
through here: which gradients each has, who wants another plan, who is between two steps, and who
has joined and only brings zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from farandole.engine.buckets import FULL, REPLAN, BucketSet, Plan, open_buckets
from farandole.engine.engine import Engine
from farandole.engine.handle import Handle
from farandole.errors import StepsDifferError
from farandole.transport.reduction import Array, Reduction

# Marks of training: what ranks say between steps, so that a difference is found and named.
#
# A rank that has ended its epoch waits for something else than a rank that trains on, and both
# would wait for ever. So a mark travels where a gradient would: whoever is in a step meets it.

MARK = 4 | REPLAN
"""Flags of a bucket that carries a mark: odd, so that nothing is reduced."""
MARK_NOTE_BYTES = 16
"""Room that a mark needs in a bucket's note."""

_SAYS = (
    "at the begin of epoch {}",
    "at the end of the epoch, after {} steps",
    "done, after {} epochs",
)
BEGIN_EPOCH, END_EPOCH, END = range(3)


class Mark(NamedTuple):
    """Where a rank stands."""

    kind: int
    """BEGIN_EPOCH, END_EPOCH or END."""
    number: int
    """Of the epoch, of steps or of epochs."""

    def encode(self, note_bytes: int) -> Array:
        """Return it as a bucket's note."""
        note = np.zeros(note_bytes, np.uint8)
        note[:MARK_NOTE_BYTES] = np.array(self, np.int64).view(np.uint8)
        return note


def marks_of(answers: Sequence[tuple[int, Array]]) -> list[Mark | None] | None:
    """Return every rank's mark from a bucket's answers; None if nobody gave one."""
    if not any(flags & ~REPLAN & MARK for flags, _ in answers):
        return None
    return [_decode(note) if flags & ~REPLAN & MARK else None for flags, note in answers]


def check_marks(marks: Sequence[Sequence[int] | None]) -> None:
    """Compare every rank's mark; None stands for a rank that goes on training.

    Raises:
        StepsDifferError: they are not all the same.
    """
    said = [None if mark is None else Mark(*mark) for mark in marks]
    if len(set(said)) == 1:
        return
    ranks: dict[str, list[int]] = {}
    for rank, mark in enumerate(said):
        text = "in another training step" if mark is None else _SAYS[mark.kind].format(mark.number)
        ranks.setdefault(text, []).append(rank)
    words = "; ".join(
        f"rank{'s' if len(who) > 1 else ''} {', '.join(map(str, who))}: {text}"
        for text, who in ranks.items()
    )
    raise StepsDifferError(
        f"The workers are not at the same point of training: {words}. Give every worker equally "
        "many batches (hvd.shard does, or steps_per_epoch=) and let all stop at the same epoch "
        "(hvd.callbacks.standard does)."
    )


def _decode(note: Array) -> Mark:
    kind, number = note[:MARK_NOTE_BYTES].view(np.int64).tolist()
    return Mark(kind, number)


def mark_as_json(kind: int, number: int) -> dict[str, Any]:
    """Return a mark as a message to a meeting of all ranks."""
    return {"mark": [kind, number]}


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
        self._note_bytes = note_bytes = max(bits, MARK_NOTE_BYTES)
        self.buckets: BucketSet = open_buckets(engine, name, plan.shapes, note_bytes, device=device)
        self._all_present = [_bits(range(len(each)), note_bytes) for each in plan.members]
        self._all_full = [FULL] * engine.size
        self.number = 1
        """Of the current step."""
        self._handles: list[Handle | None] = [None] * len(plan.members)
        self.said: list[int] = []
        """Every rank's flags of the bucket that was waited for last."""
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
        self.said = said = [flags for flags, _ in answers]
        if said == self._all_full:
            return members
        if any(flags & REPLAN for flags in said):
            if (found := marks_of(answers)) is not None:
                check_marks(found)
            return None
        return self.noted(bucket, [note for _, note in answers])

    def noted(self, bucket: int, notes: Sequence[Array]) -> list[int]:
        """Return which gradients of a bucket any rank has, by everybody's notes."""
        bits = np.unpackbits(np.bitwise_or.reduce(notes))
        return [i for position, i in enumerate(self.plan.members[bucket]) if bits[position]]

    def end(self) -> None:
        """Go on to the next step: all buckets of this one have been waited for."""
        self.skip()
        self._handles = [None] * len(self._handles)

    def skip(self) -> None:
        """Leave out a step's number, as all do when all have joined."""
        self.number += 1

    def mark(self, mark: Mark) -> None:
        """Say where this rank stands between two steps, in the place of the first bucket.

        Raises:
            StepsDifferError: another rank stands elsewhere.
        """
        note = mark.encode(self._note_bytes)
        handle = self.buckets.submit(0, self.number, self._how, MARK, note)
        self.skip()
        check_marks(marks_of(self._engine.wait(handle)) or ())  # type: ignore[arg-type]

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


# Whether buckets are reduced while backward still runs: tried both ways, then decided.
#
# Overlap needs somebody to do it: a core that no worker uses, or a GPU that does the computing.
# Where all cores are taken the progress thread would only slow the training thread down.

WARM_UP_STEPS = 3
BLOCK_STEPS = 5
BLOCKS = 4
"""Off, on, off, on: interleaved, so that drift does not decide."""

# What overlap must gain before a thread is kept busy for it.
_LEAST_GAIN = 0.02


class OverlapTrial:
    """Decides from step times; pure: the caller brings the clock and the other ranks' figures."""

    def __init__(self, setting: str, *, spare_cores: bool) -> None:
        """Begin.

        Args:
            setting: "on", "off" or "auto" (try both if there are spare cores).
            spare_cores: whether the host has more cores than workers.
        """
        self.on = setting == "on"
        self._deciding = setting == "auto" and spare_cores
        self._steps = 0
        self._last_s: float | None = None
        self._times_s: dict[bool, list[float]] = {False: [], True: []}

    @property
    def trying(self) -> bool:
        """Whether both ways are tried: on all ranks or on none, as they decide together."""
        return self._deciding

    def step(self, now_s: float) -> bool:
        """Take note of the end of a step; return whether it is time to decide together."""
        if not self._deciding:
            return False
        if self._last_s is not None and self._steps >= WARM_UP_STEPS:
            self._times_s[self.on].append(now_s - self._last_s)
        self._last_s = now_s
        self._steps += 1
        done = self._steps - WARM_UP_STEPS
        if done >= BLOCK_STEPS * BLOCKS:
            return True
        self.on = done >= 0 and (done // BLOCK_STEPS) % 2 == 1
        return False

    def stop(self) -> None:
        """End the trial without overlap: the ranks cannot decide on it together."""
        self.on = self.on and not self._deciding
        self._deciding = False

    def figures(self) -> tuple[float, float]:
        """Return my median step time without and with overlap."""
        return median(self._times_s[False]), median(self._times_s[True])

    def decide(self, everyone: Sequence[Sequence[float]]) -> None:
        """Settle it by the slowest rank's figures, the same on every rank."""
        off_s = max(off for off, _ in everyone)
        on_s = max(on for _, on in everyone)
        self.on = on_s < off_s * (1 - _LEAST_GAIN)
        self._deciding = False
