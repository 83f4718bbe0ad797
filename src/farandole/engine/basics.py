"""The methods of Horovod's basics that scripts reach for, though they begin with a line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from farandole.engine.context import add_process_set, current, known, rank, remove_process_set


class Basics:
    """What `hvd.mpi_ops._basics` is called in scripts."""

    def __init__(self, find: Callable[[str], Any]) -> None:
        """Begin.

        Args:
            find: returns what the front door has under a name.
        """
        self._find = find

    def __getattr__(self, name: str) -> Any:
        """Return those that do not begin with a line: `rank`, `size`, `init` and so on."""
        return self._find(name)

    @staticmethod
    def _get_process_set_ids_and_ranks() -> dict[int, list[int]]:
        """Return the ranks of every process set, by its number."""
        return known().sets.ids_and_ranks()

    @staticmethod
    def _process_set_size(process_set_id: int) -> int:
        """Return the number of ranks in a process set."""
        return len(known().sets.ranks_of(process_set_id))

    @staticmethod
    def _process_set_rank(process_set_id: int) -> int:
        """Return this worker's place in a process set; -1 outside."""
        ranks = known().sets.ranks_of(process_set_id)
        return ranks.index(rank()) if rank() in ranks else -1

    @staticmethod
    def _add_process_set_impl(ranks: Sequence[int]) -> int | None:
        """Make a process set; return its number, None if there is one of these ranks."""
        if sorted(ranks) in current().sets.ids_and_ranks().values():
            return None
        return add_process_set(ranks).process_set_id

    @staticmethod
    def _remove_process_set_impl(process_set_id: int) -> int | None:
        """Take a process set out of use; return its number, None if that cannot be done."""
        found = current().sets.object_of(process_set_id)
        done = found is not None and remove_process_set(found)
        return process_set_id if done else None
