"""What programs reach for in horovod.torch.mpi_ops."""

from __future__ import annotations

import farandole.torch as hvd
from farandole.torch import mpi_ops


def test_it_has_the_operations_of_the_front_door() -> None:
    for name in mpi_ops.__all__:
        assert getattr(mpi_ops, name) is getattr(hvd, name)
    left_out = {name for name in hvd.__all__ if name not in mpi_ops.__all__}
    assert not {name for name in left_out if name.startswith(("all", "grouped", "broadcast_a"))} - {
        "allgather_object"
    }


def test_the_basics() -> None:
    hvd.init(process_sets="dynamic")
    try:
        assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == {0: [0]}
        assert mpi_ops._basics.rank() == 0
        assert mpi_ops._basics.size() == 1
        assert mpi_ops._basics._process_set_rank(0) == 0
        assert mpi_ops._basics._remove_process_set_impl(3) is None
    finally:
        hvd.shutdown()
