"""Which transport: a table."""

from __future__ import annotations

import pytest

from farandole.errors import UsageError
from farandole.transport.choose import choose
from farandole.transport.hosts import Survey, hosts_of
from farandole.world.environment import World


def world(size: int = 2, local_size: int = 2, transport: str = "auto") -> World:
    return World(
        rank=0,
        size=size,
        local_rank=0,
        local_size=local_size,
        cross_rank=0,
        cross_size=size // local_size,
        source="farandole",
        hostname="n1",
        transport=transport,
    )


@pytest.mark.parametrize(
    ("place", "system", "machine", "chosen"),
    [
        (world(1, 1), "linux", "x86_64", "solo"),
        (world(1, 1, "gloo"), "darwin", "arm64", "solo"),
        (world(), "linux", "x86_64", "shm"),
        (world(), "linux", "AMD64", "shm"),
        (world(transport="shm"), "linux", "x86_64", "shm"),
        (world(transport="gloo"), "linux", "x86_64", "gloo"),
        (world(transport="nccl"), "linux", "x86_64", "shm"),
        (world(transport="mpi"), "linux", "x86_64", "mpi"),
        (world(transport="mpi"), "linux", "aarch64", "mpi"),
        (world(1, 1, "mpi"), "linux", "x86_64", "solo"),
        (world(4, 2), "linux", "x86_64", "gloo"),
        (world(), "linux", "aarch64", "gloo"),
        (world(), "darwin", "x86_64", "gloo"),
    ],
)
def test_choices(place: World, system: str, machine: str, chosen: str) -> None:
    assert choose(place, system=system, machine=machine) == chosen


def found(names: str = "aabb", *, shares_memory: bool = True, doubt: str = "") -> Survey:
    return Survey(
        hosts=hosts_of(list(names)), address="192.0.2.1", shares_memory=shares_memory, doubt=doubt
    )


@pytest.mark.parametrize(
    ("transport", "known", "chosen"),
    [
        ("auto", found(), "hierarchical"),
        ("nccl", found(), "hierarchical"),
        ("auto", found("aaab"), "hierarchical"),
        ("auto", found("abab"), "hierarchical"),
        ("auto", found("abcd"), "gloo"),
        ("gloo", found(), "gloo"),
        ("mpi", found(), "hierarchical"),
        ("mpi", found("abcd"), "mpi"),
        ("auto", found(shares_memory=False), "gloo"),
        ("auto", found(doubt="two hosts have one name"), "gloo"),
    ],
)
def test_choices_on_several_hosts(transport: str, known: Survey, chosen: str) -> None:
    assert choose(world(4, 2, transport), known) == chosen


@pytest.mark.parametrize(
    ("place", "machine", "reason"),
    [
        (world(4, 2, "shm"), "x86_64", "2 of 4 are on n1"),
        (world(transport="shm"), "aarch64", "linux on aarch64"),
    ],
)
def test_shared_memory_where_it_cannot_be(place: World, machine: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        choose(place, system="linux", machine=machine)
    assert "--transport gloo or auto" in str(caught.value)
