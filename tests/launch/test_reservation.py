"""Reservation on a Ray cluster, as far as it needs none; tests/test_ray.py has a real one."""

from __future__ import annotations

import socket
import sys
from typing import Any

import pytest

from farandole.errors import MissingExtraError, UsageError
from farandole.launch.reservation import Node, connected, no_room, place, reachable, wait_for_room


def node(number: int, name: str) -> dict[str, Any]:
    return {
        "NodeID": f"{number}" * 8,
        "NodeManagerHostname": name,
        "NodeManagerAddress": f"10.0.0.{number}",
    }


class Group:
    """A placement group that is ready when it was waited for a third time."""

    def __init__(self) -> None:
        self.waits_s: list[float] = []

    def wait(self, timeout_s: float) -> bool:
        self.waits_s.append(timeout_s)
        return len(self.waits_s) == 3


def test_room_is_waited_for_in_pieces_between_which_ctrl_c_is_heard() -> None:
    group = Group()
    assert wait_for_room(group, 3600.0)
    assert len(group.waits_s) == 3
    assert max(group.waits_s) <= 1
    late = Group()
    assert not wait_for_room(late, 0.0)
    assert late.waits_s == [0.0]


def test_the_drivers_host_comes_first() -> None:
    nodes = [node(1, "n1"), node(2, "n2"), node(3, "n3")]
    homes = ["11111111", "22222222", "11111111", "22222222"]
    assert place(homes, nodes, here="22222222") == [
        Node(name="n2", address="10.0.0.2", bundle=1),
        Node(name="n1", address="10.0.0.1", bundle=0),
    ]


def test_hosts_keep_rays_order_where_the_driver_has_no_worker() -> None:
    nodes = [node(1, "n1"), node(2, "n2"), node(3, "n3")]
    found = place(["22222222", "11111111"], nodes, here="33333333")
    assert [each.name for each in found] == ["n2", "n1"]


def test_two_nodes_on_one_host_have_two_names() -> None:
    found = place(["11111111", "22222222"], [node(1, "n"), node(2, "n")], here="11111111")
    assert [each.name for each in found] == ["n-111111", "n-222222"]


@pytest.mark.parametrize(
    ("bundle", "total", "free", "said"),
    [
        ({"CPU": 1}, {"CPU": 2}, {"CPU": 1}, "has 2 CPU (1 free), and did not"),
        ({"CPU": 1}, {"CPU": 2}, {"CPU": 1}, "Use -np 2, or add hosts."),
        ({"CPU": 1}, {"CPU": 8}, {}, "Wait until others have ended, or add hosts."),
        ({"CPU": 2, "GPU": 1}, {"CPU": 8}, {}, "with 2 CPU and 1 GPU each"),
        ({"CPU": 2, "GPU": 1}, {"CPU": 8}, {}, "8 CPU (0 free) and 0 GPU (0 free)"),
    ],
)
def test_no_room_says_what_was_asked_for_and_what_there_is(
    bundle: dict[str, float], total: dict[str, float], free: dict[str, float], said: str
) -> None:
    text = no_room(bundle, 4, total=total, free=free, timeout_s=60, flag="-np ")
    assert "You asked for 4 workers (-np 4)" in text
    assert said in text


def test_a_cluster_that_has_ended_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.2", 0)) as listener:
        address = f"127.0.0.2:{listener.getsockname()[1]}"
        assert reachable(address, here="127.0.0.3")
        # Ray listens on the network's address, also where its user says localhost.
        assert reachable(address.replace("127.0.0.2", "127.0.0.4"), here="127.0.0.2")
    assert not reachable(address, here="127.0.0.3")


@pytest.mark.parametrize("address", ["auto", "local", "ray://n1:10001"])
def test_what_is_no_host_and_port_is_left_to_ray(address: str) -> None:
    assert reachable(address, here="127.0.0.1")


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"farandole\[ray\]"), connected():
        pass


def test_an_address_of_rays_client_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'farandole[ray]'")
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    with pytest.raises(UsageError, match="ray://head:10001 is an address of Ray's client"):
        connected().__enter__()
