"""horovod.common.util, as scripts use it."""

from __future__ import annotations

import os
from typing import Any

import pytest

from farandole.horovod.common import util


def test_frameworks() -> None:
    assert util.extension_available("torch", verbose=True)
    assert not util.extension_available("mxnet")
    assert not util.gpu_available("mxnet")
    util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", "x.py", "mpi_lib_v2")
    with pytest.raises(ImportError, match=r"horovod\.mxnet cannot be used: mxnet is not installed"):
        util.check_extension("horovod.mxnet", "HOROVOD_WITH_MXNET", "x.py")
    util.check_installed_version("pytorch", "1.0.0", ImportError("undefined symbol"))


def test_what_there_is_before_init() -> None:
    assert util.gloo_built(verbose=True) is True
    assert isinstance(util.mpi_built(), bool)
    assert isinstance(util.nccl_built(), int)
    assert util.ddl_built() is False
    assert util.ccl_built() is False


def test_variables_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_A", "before")
    monkeypatch.delenv("HOROVOD_B", raising=False)

    def fail() -> None:
        with util.env(HOROVOD_A=None, HOROVOD_B="1"):
            assert os.environ["HOROVOD_A"] == "before", "as in Horovod, None says nothing"
            assert os.environ["HOROVOD_B"] == "1"
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert os.environ["HOROVOD_A"] == "before"
    assert "HOROVOD_B" not in os.environ


@pytest.mark.parametrize(
    ("count", "parts", "lengths"), [(7, 3, [3, 2, 2]), (2, 4, [1, 1, 0, 0]), (6, 2, [3, 3])]
)
def test_lists_are_cut_evenly(count: int, parts: int, lengths: list[int]) -> None:
    cut = util.split_list(list(range(count)), parts)
    assert [len(part) for part in cut] == lengths
    assert [item for part in cut for item in part] == list(range(count))


def test_powers_of_two() -> None:
    assert [n for n in range(-2, 20) if util.num_rank_is_power_2(n)] == [1, 2, 4, 8, 16]


@pytest.mark.parametrize(
    ("version", "target", "expected"),
    [
        ("2.10.0", "2.9.1", True),
        ("2.9.1", "2.9.1", True),
        ("1.13.1", "2.0.0", False),
        ("2.13.0+cpu", "2.13.0", True),
        ("2.1.0a0", "2.1.1", False),
        ("2.1", "2.1.0", True),
    ],
)
def test_versions(version: str, target: str, expected: bool) -> None:
    assert util.is_version_greater_equal_than(version, target) is expected


@pytest.mark.parametrize(
    ("version", "target", "words"),
    [
        ("2.1.0", "2.0", r"'2\.0' is not a version of three numbers"),
        ("two", "2.0.0", "'two' is not a version"),
        (2, "2.0.0", "2 is not a version"),
    ],
)
def test_what_is_no_version(version: Any, target: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        util.is_version_greater_equal_than(version, target)


def test_what_can_be_gone_through() -> None:
    assert [util.is_iterable(each) for each in ([], "a", range(2), 3, None)] == [True] * 3 + [
        False
    ] * 2


def test_calls_are_remembered() -> None:
    calls = []
    remembered = util._cache(lambda number: calls.append(number) or number * 2)
    assert [remembered(1), remembered(2), remembered(1)] == [2, 4, 2]
    assert calls == [1, 2]
