"""What programs import from `horovod.torch.mpi_ops`: the names of the front door, and basics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farandole.engine.context import add_process_set, current, rank, remove_process_set


def __getattr__(name: str) -> Any:
    """Return what `farandole.torch` has under this name."""
    import farandole.torch as hvd

    if name == "__all__" or name in hvd.__all__:
        return getattr(hvd, name)
    raise AttributeError(f"horovod.torch.mpi_ops has no {name} here.", name=name)


class _Basics:
    """The methods of Horovod's basics that scripts reach for, though they begin with a line."""

    def __getattr__(self, name: str) -> Any:
        """Return those that do not: `rank`, `size`, `init` and so on."""
        return __getattr__(name)

    @staticmethod
    def _get_process_set_ids_and_ranks() -> dict[int, list[int]]:
        """Return the ranks of every process set, by its number."""
        return current().sets.ids_and_ranks()

    @staticmethod
    def _process_set_size(process_set_id: int) -> int:
        """Return the number of ranks in a process set."""
        return len(current().sets.ranks_of(process_set_id))

    @staticmethod
    def _process_set_rank(process_set_id: int) -> int:
        """Return this worker's place in a process set; -1 outside."""
        ranks = current().sets.ranks_of(process_set_id)
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


_basics = _Basics()
