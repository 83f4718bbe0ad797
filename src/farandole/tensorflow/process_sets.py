"""Process sets: there is one, of all workers."""

from __future__ import annotations

from typing import Any

from farandole.engine.process_sets import global_process_set
from farandole.errors import UsageError

__all__ = ["check_process_set", "global_process_set"]


def check_process_set(process_set: Any) -> None:
    """Raise UsageError unless all workers are meant.

    Args:
        process_set: None, global_process_set, or the number of that.
    """
    if process_set is None or process_set is global_process_set or process_set == 0:
        return
    raise UsageError(
        f"process_set={process_set!r}: operations among some of the workers come in a later "
        "version. Leave it out, or use hvd.global_process_set."
    )
