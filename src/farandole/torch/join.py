"""join(): a rank that has no more data lets the others go on without it."""

from __future__ import annotations

from farandole.engine import context
from farandole.engine.handles import table
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
    handle = engine.join()

    def all_joined() -> bool:
        in_step = [_sit_out(reducer) for reducer in reducers]
        return handle.check() and not any(in_step)

    engine.loop.wait(all_joined)
    last = engine.wait(handle)
    table.count_anew(engine.number)
    assert isinstance(last, int)
    return last


def _leave(reducer: GradientReducer) -> None:
    """Prepare to sit out steps."""
    reducer.overlap.stop()
    reducer.expect_anew()
    for parameter in reducer.parameters:
        # They lie in the buckets, which are the others' now.
        parameter.grad = None


def _sit_out(reducer: GradientReducer) -> bool:
    """Take part in the others' steps with zeros; return whether one is on.

    To be called again and again. Without buckets there is nothing to do: what goes by name goes
    without those who have joined.
    """
    layout = reducer.layout
    if layout is None:
        return False
    if layout.sit_out(reducer.engine):
        # The others have given these up, and make new ones when all are back.
        reducer.give_up()
    return layout.sitting_out
