"""What Horovod was built with, asked before init()."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

import farandole.torch as hvd


def test_all_questions_are_answered_before_init(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FARANDOLE_TRANSPORT", raising=False)
    assert not hvd.is_initialized()
    assert hvd.gloo_built() is True
    assert hvd.mpi_built() is (find_spec("mpi4py") is not None)
    assert (hvd.gloo_enabled(), hvd.mpi_enabled()) == (True, False)
    assert (hvd.ddl_built(), hvd.ccl_built()) == (False, False)
    assert isinstance(hvd.nccl_built(), int)
    assert isinstance(hvd.cuda_built(), bool)
    assert isinstance(hvd.rocm_built(), bool)
    with pytest.raises(ValueError, match="--transport mpi"):
        hvd.mpi_threads_supported()


def test_the_variable_counts_before_and_after_init(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers() -> tuple[bool, ...]:
        return hvd.gloo_enabled(), hvd.mpi_enabled(), hvd.mpi_threads_supported()

    monkeypatch.setenv("FARANDOLE_TRANSPORT", "mpi")
    assert answers() == (False, True, True)
    hvd.init()
    try:
        assert answers() == (False, True, True)
    finally:
        hvd.shutdown()


def test_after_init_what_is_in_use_counts() -> None:
    hvd.init()
    try:
        assert (hvd.gloo_enabled(), hvd.mpi_enabled()) == (True, False)
        assert hvd.is_homogeneous()
    finally:
        hvd.shutdown()
