"""Process sets, where Horovod has them."""

from __future__ import annotations

from farandole.engine.context import add_process_set, remove_process_set
from farandole.engine.process_sets import ProcessSet, global_process_set

__all__ = ["ProcessSet", "add_process_set", "global_process_set", "remove_process_set"]
