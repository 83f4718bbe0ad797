"""`horovod.run`."""

from __future__ import annotations

from typing import Any

import pytest

from farandole.errors import UsageError
from farandole.horovod import runner
from farandole.horovod.runner.common.util.env import get_env_rank_and_size
from farandole.launch import function


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What reaches farandole.run, which has tests of its own."""
    seen: dict[str, Any] = {}

    def run(fn: Any, args: Any, kwargs: Any, **options: Any) -> list[Any]:
        seen.update(options, args=args, kwargs=kwargs)
        return [fn(*args, **(kwargs or {}))] * options["np"]

    monkeypatch.setattr(function, "run", run)
    return seen


def test_a_function_on_workers(called: dict[str, Any]) -> None:
    found = runner.run(lambda a, b: a + b, (1,), {"b": 2}, 3, hosts="localhost:4")
    assert found == [3, 3, 3]
    assert (called["start_timeout"], called["output_dir"]) == (None, None)
    runner.run(int, num_proc=1, start_timeout=9, output_filename="logs")
    assert (called["start_timeout"], called["output_dir"]) == (9, "logs")


def test_deprecated_names(called: dict[str, Any]) -> None:
    with pytest.warns(DeprecationWarning, match="use num_proc"):
        assert runner.run(int, np=2) == [0, 0]


def test_what_means_nothing_is_named(called: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match="use_gloo, verbose mean nothing"):
        runner.run(int, use_gloo=True, use_mpi=False, verbose=2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"min_num_proc": 1}, r"min_num_proc.*no elastic runs"),
        ({"host_discovery_script": "x.sh"}, r"host_discovery_script.*no elastic runs"),
        ({"hosts": "n1:2"}, r"hosts='n1:2'.*on this host"),
        ({"hostfile": "f"}, r"hostfile.*on this host"),
    ],
)
def test_what_cannot_be(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        runner.run(int, **arguments)


def test_who_am_i_before_init(monkeypatch: pytest.MonkeyPatch) -> None:
    assert get_env_rank_and_size() == (0, 1)
    monkeypatch.setenv("HOROVOD_RANK", "1")
    monkeypatch.setenv("HOROVOD_SIZE", "3")
    monkeypatch.setenv("HOROVOD_LOCAL_RANK", "1")
    monkeypatch.setenv("HOROVOD_LOCAL_SIZE", "3")
    assert get_env_rank_and_size() == (1, 3)
