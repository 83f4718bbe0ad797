"""join(): a rank that has no more data lets the others go on without it."""

from __future__ import annotations

from farandole.engine import basics, context
from farandole.engine.gradients import gradients_of
from farandole.tensorflow.callback import as_written, check_eager


@as_written
def join(device: int = -1) -> int:
    """Wait until every rank has called this, taking part in the others' steps meanwhile.

    Their all-reduces, and the gradients of their steps, go on with zeros from this rank; averages
    are still divided by the number of all ranks. Their other operations raise an error. Call
    `broadcast_variables` afterwards from the rank that it returns: it has seen all steps.

    Args:
        device: Horovod's, the GPU that zeros would lie on; any number will do.

    Returns:
        The rank that joined last, the same on every rank.
    """
    del device
    check_eager("join")
    engine = context.current().engine
    return basics.join(engine, gradients_of(engine))
