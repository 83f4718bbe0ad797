"""Handles and default names (what needs no other rank)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import farandole.torch as hvd
from farandole.engine.handle import Handle
from farandole.engine.handles import HandleTable
from farandole.errors import NotInitializedError


@pytest.fixture
def table() -> Iterator[HandleTable]:
    hvd.init()
    yield HandleTable()
    hvd.shutdown()


def done(result: object) -> Handle:
    handle = Handle()
    handle.finish(result)
    return handle


def test_given_names_are_kept_apart_by_kind(table: HandleTable) -> None:
    assert table.name("allreduce", "x") == ("allreduce.x", None)
    assert table.name("broadcast", "x") == ("broadcast.x", None)


def test_numbers_of_unnamed_operations_are_used_again(table: HandleTable) -> None:
    first, number = table.name("allreduce", None)
    second, _ = table.name("allreduce", None)
    assert (first, second) == ("allreduce.noname.0", "allreduce.noname.1")
    assert table.name("broadcast", None)[0] == "broadcast.noname.0"
    table.free(number)
    assert table.name("allreduce", None)[0] == "allreduce.noname.0"


def test_a_handle_is_good_once(table: HandleTable) -> None:
    name, unnamed = table.name("allreduce", None)
    number = table.add(done(None), lambda: "result", unnamed)
    assert not table.poll(number)
    assert table.poll(number)
    assert table.synchronize(number) == "result"
    assert table.synchronize(number) is None
    assert table.name("allreduce", None)[0] == name


def test_a_failed_operation_raises_once(table: HandleTable) -> None:
    handle = Handle()
    handle.fail(RuntimeError("wrong"))
    table.name("allreduce", "x")
    number = table.add(handle, lambda: "result", None)
    with pytest.raises(RuntimeError, match="wrong"):
        table.synchronize(number)
    assert table.synchronize(number) is None


def test_an_engine_begins_with_nothing_open(table: HandleTable) -> None:
    table.name("allreduce", None)
    number = table.add(Handle(), lambda: "never", None)
    hvd.shutdown()
    with pytest.raises(NotInitializedError):
        table.synchronize(number)
    hvd.init()
    assert table.synchronize(number) is None
    assert table.name("allreduce", None)[0] == "allreduce.noname.0"
