"""Which epoch an order belongs to: as fit says, or counted where nobody says."""

from __future__ import annotations


class Epochs:
    """Numbers the passes over sharded data.

    Keras looks at a first batch before it trains and makes iterators that it never uses, so that
    asking for data is no measure. `fit` is made to say which epoch begins, and that is exact: what
    was read in between, by such a look or an evaluation, does not matter. In loops of one's own,
    a pass that was seen to its end is an epoch.
    """

    def __init__(self, initial: int = 0) -> None:
        self.current = initial
        self._next = initial
        self._told: int | None = None
        self._shift = 0

    def tell(self, epoch: int) -> None:
        """Begin the epoch that fit calls so.

        Numbers that start again go on from here: programs that call `fit(epochs=1)` in a loop
        shall not get the same order each time. Those that give `initial_epoch` to `shard` only,
        not to `fit`, get what they asked for in the same way.
        """
        if self._told is None or epoch <= self._told:
            self._shift = max(self._next - epoch, 0)
        self._told = epoch
        self.current = self._next = epoch + self._shift

    def finish(self) -> None:
        """End the pass that is under way."""
        self.current += 1
        if self._told is not None:
            self._next = self.current
