"""Every worker starts from the root's weights and optimizer state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import keras

from farandole.engine import context
from farandole.engine.arguments import check_root
from farandole.engine.objects import allgather_object
from farandole.errors import MismatchError
from farandole.keras.collectives import broadcast_variables

Outline = tuple[str, tuple[int, ...], str]
"""A variable's path, shape and type."""


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Give every worker the root's weights and optimizer state when training begins.

    States of random generators stay each worker's own: with the root's, dropout would drop the
    same units everywhere.

    On TensorFlow a model without an Input is built by its first batch; it is broadcast right after
    that batch then.
    """

    def __init__(
        self, root_rank: int, device: str = "", local_variables: Iterable[Any] | None = None
    ) -> None:
        """Prepare.

        Args:
            root_rank: whose values count.
            device: Horovod's, without effect.
            local_variables: variables that stay each worker's own, and with them their part of
                the optimizer's state.
        """
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.local_variables = list(local_variables or ())
        self.broadcast_done = False
        self._batches = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Broadcast what is built."""
        check_root(self.root_rank)
        self.broadcast_done = context.size() == 1
        self._batches = 0
        self._broadcast()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Broadcast what the first batch has built.

        Not at that batch's end: a callback with something to do there would slow all batches down,
        as Keras then waits for each of them.
        """
        if not self.broadcast_done and self._batches:
            self._broadcast()
        self._batches += 1

    def on_test_begin(self, logs: Any = None) -> None:
        """Broadcast before validation if the first epoch had one batch only."""
        self._after_batches()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Broadcast at last if the first epoch had one batch only."""
        self._after_batches()

    def _after_batches(self) -> None:
        if not self.broadcast_done and self._batches:
            self._broadcast()

    def _broadcast(self) -> None:
        if self.broadcast_done:
            return
        model = self.model
        variables = (
            global_variables(model, self.local_variables) if build_optimizer(model) else None
        )
        outlines = allgather_object(
            None if variables is None else [_outline(v) for v in variables],
            name="keras.broadcast.outlines",
        )
        # A worker that has loaded its model may be ahead of others, which build theirs later.
        if variables is None or any(outline is None for outline in outlines):
            return
        check_outlines(outlines, self.root_rank)
        broadcast_variables(variables, self.root_rank)
        self.broadcast_done = True


def global_variables(model: Any, local: Sequence[Any] = ()) -> list[Any]:
    """Return a model's weights and its optimizer's variables, without local ones."""
    # Not `variables`, which has its seed generators: with the root's, every worker would drop the
    # same units.
    found = list(model.weights)
    optimizer = model.optimizer
    left = {id(variable) for variable in local}
    if optimizer is not None:
        found += optimizer.variables
        left |= {id(slot) for slot in _slots(optimizer, left)}
    unique = {id(variable): variable for variable in found}
    return [variable for key, variable in unique.items() if key not in left]


def check_outlines(outlines: Sequence[Sequence[Outline]], root: int) -> None:
    """Raise MismatchError, on every rank the same, if a rank has another model than the root.

    Paths may differ: Keras counts names up by what a process has made before.
    """
    wanted = outlines[root]
    for rank, outline in enumerate(outlines):
        if len(outline) != len(wanted):
            raise MismatchError(
                f"Rank {rank} has a model and optimizer with {len(outline)} variables, and rank "
                f"{root}, whose values shall count, {len(wanted)}. Build the same on every rank."
            )
        for theirs, roots in zip(outline, wanted, strict=True):
            if theirs[1:] != roots[1:]:
                raise MismatchError(
                    f"The variable {theirs[0]!r} is {_describe(theirs)} on rank {rank}, and "
                    f"{_describe(roots)} on rank {root}, whose values shall count. Build the same "
                    "model on every rank, or name it in local_variables."
                )


def build_optimizer(model: Any) -> bool:
    """Make sure that the optimizer has its variables; return False if the model has none yet."""
    if not all(layer.built for layer in model._flatten_layers()):
        return False
    optimizer = model.optimizer
    if optimizer is not None and not optimizer.built:
        # On TensorFlow only: the other backends have done so before any callback is called.
        optimizer.build(model.trainable_variables)
    return True


def _slots(optimizer: Any, local: set[int]) -> list[Any]:
    """Return what an optimizer keeps for these variables: its lists run along the trained ones."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    trained = list(getattr(inner, "_trainable_variables", ()))
    places = [place for place, variable in enumerate(trained) if id(variable) in local]
    lists = [
        kept
        for name, kept in vars(inner).items()
        if isinstance(kept, list) and len(kept) == len(trained) and name != "_trainable_variables"
    ]
    return [kept[place] for kept in lists for place in places]


def _outline(variable: Any) -> Outline:
    return variable.path, tuple(int(n) for n in variable.shape), str(variable.dtype)


def _describe(outline: Outline) -> str:
    return f"{outline[2]} of shape {outline[1]}"
