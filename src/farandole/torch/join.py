"""join(): a rank that has no more data lets the others go on without it."""

from __future__ import annotations

from farandole.engine import context
from farandole.torch.reducer import reducers_of


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
        reducer.leave()
    handle = engine.join()

    def all_joined() -> bool:
        in_step = [reducer.sit_out() for reducer in reducers]
        return handle.check() and not any(in_step)

    engine.loop.wait(all_joined)
    last = engine.wait(handle)
    assert isinstance(last, int)
    return last
