"""Which ranks share a host, and by which address they are reached."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from farandole.errors import StartError
from farandole.transport.hosts import Hosts, exchange_among, hosts_of, survey
from farandole.transport.protocol import Exchange
from farandole.world.environment import World


def world(rank: int = 0, **changes: Any) -> World:
    place: dict[str, Any] = {
        "rank": rank,
        "size": 2,
        "local_rank": 0,
        "local_size": 1,
        "cross_rank": rank,
        "cross_size": 2,
        "source": "torchrun",
        "hostname": f"n{rank}",
    }
    return World(**place | changes)


def peer(**changes: Any) -> dict[str, Any]:
    said: dict[str, Any] = {"host": "n1", "local": [0, 1], "address": "", "shares_memory": True}
    return said | changes


def meeting(*rounds: dict[str, Any]) -> tuple[Exchange, Callable[[], int]]:
    """A rendezvous with one peer who says these things, round by round."""
    left = list(rounds)

    def exchange(mine: bytes) -> list[bytes]:
        return [mine, json.dumps(left.pop(0)).encode()]

    return exchange, lambda: len(rounds) - len(left)


def test_ranks_by_host_in_the_order_of_their_lowest() -> None:
    hosts = hosts_of(["b", "a", "b", "c", "a"])
    assert hosts == Hosts(ranks=((0, 2), (1, 4), (3,)), names=("b", "a", "c"))
    assert (hosts.size, hosts.leaders, hosts.crowded) == (5, (0, 1, 3), True)
    assert [hosts.of(rank) for rank in range(5)] == [0, 1, 0, 2, 1]
    assert hosts.called()[4] == "rank 4 on host a"
    assert not hosts_of(["a", "b"]).crowded
    some = replace(hosts_of(["a", "b"]), numbers=(1, 4))
    assert some.called() == ["rank 1 on host a", "rank 4 on host b"]


def test_an_address_that_was_given_is_taken() -> None:
    exchange, rounds = meeting(peer(address="192.0.2.2"))
    found = survey(world(address="192.0.2.1"), exchange, address="192.0.2.99")
    assert found.address == "192.0.2.1"
    assert rounds() == 1
    assert found.hosts.names == ("n0", "n1")
    assert not found.layered, "one rank on each host"


def test_where_others_were_met_is_next() -> None:
    exchange, _ = meeting(peer(address="192.0.2.2"))
    assert survey(world(), exchange, address="192.0.2.99").address == "192.0.2.99"


def test_who_knows_nothing_asks_for_the_way_to_a_peer() -> None:
    # On the master itself, whose name is loopback here.
    exchange, rounds = meeting(peer(address="127.0.0.7"), peer(address="127.0.0.7"))
    found = survey(world(master_addr="localhost"), exchange)
    assert found.address == "127.0.0.1"
    assert rounds() == 2


def test_all_who_know_go_along_to_the_second_round() -> None:
    exchange, rounds = meeting(peer(), peer(address="192.0.2.2"))
    assert survey(world(address="192.0.2.1"), exchange).address == "192.0.2.1"
    assert rounds() == 2


def test_where_nobody_knows_an_address_that_is_said() -> None:
    exchange, _ = meeting(peer())
    with pytest.raises(StartError, match=r"No rank knows an address.*FARANDOLE_ADDRESS"):
        survey(world(), exchange)


@pytest.mark.parametrize(
    ("said", "doubted"),
    [
        ({"host": "n0", "local": [1, 2]}, False),
        ({"host": "n0", "local": [0, 2]}, True),
        ({"host": "n0", "local": [0, 1]}, True),
    ],
)
def test_hosts_of_one_name_are_doubted(said: dict[str, Any], doubted: bool) -> None:
    exchange, _ = meeting(peer(address="192.0.2.2", **said))
    found = survey(world(local_size=2, address="192.0.2.1"), exchange)
    assert bool(found.doubt) is doubted
    assert found.layered is not doubted
    if doubted:
        assert "2 ranks call their host n0" in found.doubt


def test_one_that_cannot_share_memory_is_enough() -> None:
    exchange, _ = meeting(peer(host="n0", local=[1, 2], address="a", shares_memory=False))
    assert not survey(world(local_size=2, address="192.0.2.1"), exchange).layered


def test_some_of_a_rendezvous() -> None:
    some = exchange_among(lambda mine: [b"0", mine, b"2", b"3"], [1, 3])
    assert some(b"me") == [b"me", b"3"]
