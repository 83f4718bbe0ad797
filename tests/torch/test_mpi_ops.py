"""What programs reach for in horovod.torch.mpi_ops."""

from __future__ import annotations

import pytest

import farandole.torch as hvd
from farandole.torch import mpi_ops


def test_it_has_the_names_of_the_front_door() -> None:
    for name in hvd.__all__:
        assert getattr(mpi_ops, name) is getattr(hvd, name)
    from farandole.torch.mpi_ops import HorovodInternalError, allreduce_async_

    assert allreduce_async_ is hvd.allreduce_async_
    assert issubclass(HorovodInternalError, RuntimeError)
    namespace: dict[str, object] = {}
    exec("from farandole.torch.mpi_ops import *", namespace)
    assert namespace["synchronize"] is hvd.synchronize
    with pytest.raises(ImportError, match="no_such_operation"):
        exec("from farandole.torch.mpi_ops import no_such_operation", {})
    assert not hasattr(mpi_ops, "__path__")


def test_the_basics() -> None:
    hvd.init(process_sets="dynamic")
    try:
        assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == {0: [0]}
        assert mpi_ops._basics.rank() == 0
        assert mpi_ops._basics.size() == 1
        assert mpi_ops._basics._process_set_rank(0) == 0
        assert mpi_ops._basics._remove_process_set_impl(3) is None
        assert mpi_ops._basics._add_process_set_impl([0]) is None
        assert mpi_ops._basics.is_initialized()
    finally:
        hvd.shutdown()
