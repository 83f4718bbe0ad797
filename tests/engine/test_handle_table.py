"""The open operations and default names (what needs no other rank)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import farandole.torch as hvd
from farandole.engine import context
from farandole.engine.handle import Handle, HandleTable
from farandole.errors import NotInitializedError


@pytest.fixture
def table() -> Iterator[HandleTable]:
    hvd.init()
    yield context.current().handles
    hvd.shutdown()


def done(result: object) -> Handle:
    handle = Handle()
    handle.finish(result)
    return handle


def test_given_names_are_kept_apart_by_kind(table: HandleTable) -> None:
    assert table.name("allreduce", "x") == "allreduce.x"
    assert table.name("broadcast", "x") == "broadcast.x"


def test_unnamed_operations_are_counted_in_the_order_of_their_submission(
    table: HandleTable,
) -> None:
    """And not by what has ended: another rank may synchronise later."""
    first = table.name("allreduce", None)
    table.synchronize(table.add(done(None), lambda: None))
    second = table.name("allreduce", None)
    assert (first, second) == ("allreduce.noname.0", "allreduce.noname.1")
    assert table.name("broadcast", None) == "broadcast.noname.0"


def test_a_loop_of_unnamed_operations_has_few_names(table: HandleTable) -> None:
    names = [table.name("allreduce", None) for _ in range(100)]
    assert len(set(names)) <= 20
    assert all(len(set(names[start : start + 8])) == 8 for start in range(92))


def test_counting_anew_is_for_one_process_set(table: HandleTable) -> None:
    for process_set in (0, 0, 1):
        table.name("allreduce", None, process_set)
    table.count_anew()
    assert table.name("allreduce", None) == "allreduce.noname.0"
    assert table.name("allreduce", None, 1) == "allreduce.noname.1"


def test_a_handle_is_good_once(table: HandleTable) -> None:
    table.name("allreduce", None)
    number = table.add(done(None), lambda: "result")
    assert not table.poll(number)
    assert table.poll(number)
    assert table.synchronize(number) == "result"
    assert table.synchronize(number) is None


def test_a_failed_operation_raises_once(table: HandleTable) -> None:
    handle = Handle()
    handle.fail(RuntimeError("wrong"))
    table.name("allreduce", "x")
    number = table.add(handle, lambda: "result")
    with pytest.raises(RuntimeError, match="wrong"):
        table.synchronize(number)
    assert table.synchronize(number) is None


def test_an_engine_begins_with_nothing_open(table: HandleTable) -> None:
    table.name("allreduce", None)
    number = table.add(Handle(), lambda: "never")
    hvd.shutdown()
    with pytest.raises(NotInitializedError):
        hvd.synchronize(number)
    hvd.init()
    anew = context.current().handles
    assert anew.add(done(None), "another's") != number
    assert hvd.synchronize(number) is None
    assert anew.name("allreduce", None) == "allreduce.noname.0"
