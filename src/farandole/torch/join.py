"""join(): a rank that has no more data lets the others go on without it."""

from __future__ import annotations

from dataclasses import dataclass

from farandole.engine import basics, context
from farandole.torch.reducer import GradientReducer, reducers_of


def join(device: int = -1) -> int:
    """Wait until every rank has called this, taking part in the others' steps meanwhile.

    Their all-reduces, and the gradients of their steps, go on with zeros from this rank; averages
    are still divided by the number of all ranks. Their other operations raise an error. Call
    `broadcast_parameters` afterwards from the rank that it returns: it has seen all steps.

    Args:
        device: Horovod's, the GPU that zeros would lie on; any number will do.

    Returns:
        The rank that joined last, the same on every rank.
    """
    del device
    engine = context.current().engine
    reducers = reducers_of(engine)
    for reducer in reducers:
        _leave(reducer)
    return basics.join(engine, [_Sitting(reducer) for reducer in reducers])


def _leave(reducer: GradientReducer) -> None:
    """Prepare to sit out steps."""
    reducer.overlap.stop()
    reducer.expect_anew()
    for parameter in reducer.parameters:
        # They lie in the buckets, which are the others' now.
        parameter.grad = None


@dataclass(frozen=True, slots=True)
class _Sitting:
    """A reducer while this rank has joined (an engine.basics.Sitting)."""

    reducer: GradientReducer

    def sit_out(self) -> bool:
        """Take part in the others' steps with zeros; return whether one is on."""
        layout = self.reducer.layout
        if layout is None:
            return False
        replanned = layout.sit_out(self.reducer.engine)
        if replanned is not None:
            context.current().count_step()
        if replanned:
            # The others have given these up, and make new ones when all are back.
            self.reducer.give_up()
        return layout.sitting_out

    def come_back(self) -> None:
        """Leave out a step's number: all ranks have joined."""
        if self.reducer.layout is not None:
            self.reducer.layout.come_back()
