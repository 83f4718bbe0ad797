"""Process sets: there is one, of all workers."""

from __future__ import annotations

from typing import Any

from farandole.errors import UsageError


class GlobalProcessSet:
    """All workers."""

    process_set_id = 0


global_process_set = GlobalProcessSet()


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
