"""Ranks on shaped links: what they reach, and that the host never sees any of it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from farandole.errors import UsageError
from farandole.testing import Member, Nursery, RankError
from farandole.testing.shaped import ShapedWorld, address_of, why_not
from farandole.world.routes import address_towards

pytestmark = pytest.mark.ranks


@pytest.fixture(scope="module")
def links() -> None:
    if reason := why_not():
        pytest.skip(f"{reason} (CI runs it as root)")


@pytest.fixture(scope="module")
def world(links: None, nursery: Nursery) -> Iterator[ShapedWorld]:
    with ShapedWorld(2, rate_bits_per_s=8e6, nursery=nursery) as world:
        yield world


def network_of(pid: int | str) -> str:
    return str(Path(f"/proc/{pid}/ns/net").readlink())


def look(member: Member) -> tuple[str, list[str]]:
    # /sys shows the network in which it was mounted; this file that of who reads it.
    lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    return network_of("thread-self"), sorted(line.split(":")[0].strip() for line in lines)


def talk(member: Member, port: int) -> float:
    """Send a million bytes from rank 1 to rank 0; return rank 0's bytes per second."""
    if member.rank:
        with _connect(port) as connection:
            connection.sendall(bytes(1_000_000))
        return 0.0
    with socket.create_server((address_of(0), port)) as server:
        server.settimeout(20)
        connection, _ = server.accept()
        with connection:
            begin_s, seen = time.monotonic(), 0
            while chunk := connection.recv(1 << 16):
                seen += len(chunk)
    assert seen == 1_000_000
    return seen / (time.monotonic() - begin_s)


def _connect(port: int) -> socket.socket:
    deadline_s = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection((address_of(0), port), timeout=20)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline_s


def test_each_rank_has_a_network_of_its_own(world: ShapedWorld) -> None:
    found = world.run(look)
    networks = {network for network, _ in found}
    assert len(networks) == 2
    assert network_of("self") not in networks
    for _, devices in found:
        assert "eth0" in devices
    assert not Path("/sys/class/net/port0").exists()


def test_what_leaves_a_rank_is_as_slow_as_said(world: ShapedWorld) -> None:
    speed = max(world.run(talk, 5000))
    # 8 Mbit/s are a million bytes a second, headers included; a burst may go beyond.
    assert 0.3e6 < speed < 1.1e6


def where(member: Member) -> tuple[str, str, dict[str, str]]:
    names = ("HOSTNAME", "ADDRESS", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    place = {name: os.environ[f"FARANDOLE_{name}"] for name in names}
    other = address_of(1 - member.rank // 2)
    return network_of("thread-self"), address_towards(other), place


def init(member: Member) -> tuple[int, str, float]:
    import torch

    import farandole.torch as hvd
    from farandole.engine.context import current

    hvd.init()
    total = hvd.allreduce(torch.ones(3) * (member.rank + 1), op=hvd.Sum)
    return hvd.local_size(), current().engine.transport.name, float(total[2])


@pytest.mark.usefixtures("links")
def test_ranks_of_one_host_share_its_network(nursery: Nursery) -> None:
    with ShapedWorld(4, per_host=2, rate_bits_per_s=1e9, nursery=nursery) as world:
        found = world.run(where)
        networks = [network for network, _, _ in found]
        assert networks[0] == networks[1] != networks[2] == networks[3]
        assert [address for _, address, _ in found] == [address_of(r // 2) for r in range(4)]
        assert found[3][2] == {
            "HOSTNAME": "host1",
            "ADDRESS": address_of(1),
            "LOCAL_RANK": "1",
            "LOCAL_SIZE": "2",
            "CROSS_RANK": "1",
            "CROSS_SIZE": "2",
        }
        assert world.run(init) == [(2, "hierarchical", 10.0)] * 4


@pytest.mark.usefixtures("links")
def test_a_link_that_cannot_be_leaves_no_process(nursery: Nursery) -> None:
    with pytest.raises(RankError, match="tc qdisc"):
        ShapedWorld(1, rate_bits_per_s=0, nursery=nursery)


@pytest.mark.usefixtures("links")
@pytest.mark.parametrize("size", [0, 251])
def test_numbers_of_ranks_that_cannot_be_are_refused(size: int) -> None:
    with pytest.raises(UsageError, match=f"asked for {size} ranks: use 1 to 250"):
        ShapedWorld(size, rate_bits_per_s=8e6)


@pytest.mark.usefixtures("links")
def test_a_host_without_ranks_is_refused() -> None:
    with pytest.raises(UsageError, match="asked for 0 ranks on each host"):
        ShapedWorld(2, rate_bits_per_s=8e6, per_host=0)


def test_without_the_tools_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    why_not.cache_clear()
    try:
        assert "shaped links need" in why_not()
        with pytest.raises(UsageError, match="shaped links"):
            ShapedWorld(1, rate_bits_per_s=8e6)
    finally:
        why_not.cache_clear()
