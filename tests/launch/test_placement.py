from __future__ import annotations

from pathlib import Path

import pytest

from farandole.errors import UsageError
from farandole.launch.placement import (
    HostShare,
    Placement,
    Shape,
    Slots,
    named_hosts,
    pack,
    parse_hosts,
    parse_shape,
    read_hostfile,
    spread,
)


def slots(*counts: int) -> tuple[Slots, ...]:
    return tuple(Slots(name=f"n{number}", count=count) for number, count in enumerate(counts, 1))


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("h1:2,h2:3", [("h1", 2), ("h2", 3)]),
        ("h1", [("h1", 1)]),
        (" h1:2 , h2 ", [("h1", 2), ("h2", 1)]),
        ("me@h1.example.org:4", [("me@h1.example.org", 4)]),
        ("10.0.0.1:8", [("10.0.0.1", 8)]),
    ],
)
def test_hosts(text: str, hosts: list[tuple[str, int]]) -> None:
    assert [(host.name, host.count) for host in parse_hosts(text)] == hosts


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("h1:2,h1:2", "-H h1:2,h1:2: h1 is there 2 times. Name it once, with all its slots."),
        ("h1:0", "-H h1:0: h1 has 0 slots. Give it at least 1, or leave it out."),
        ("h1:two", "'two' is not a number of slots. Write h1:2."),
        ("h1:-1", "'-1' is not a number of slots"),
        ("", "there is no host"),
        (",", "there is no host"),
        ("-oProxyCommand=x:1", "'-oProxyCommand=x' is not a host name"),
        ("h1;reboot:1", "is not a host name"),
        ("a b:1", "is not a host name"),
        ("nœud:1", "is not a host name"),
        ("::1:2", "is not a host name"),
        ("n1:2,[fe80::1]:2", "[fe80::1] is an address of IPv6, but hosts are reached by IPv4"),
        ("[::1]", "is an address of IPv6"),
    ],
)
def test_hosts_that_cannot_be_used(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_hosts(text)
    assert says in str(caught.value)


def test_a_hostfile_of_either_kind(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text(
        "# ours\nh1 slots=2\n\nh2:3  # fast\nh3 slots = 4 max_slots=8\nh4\nh5\tslots=5\n"
        "h6 max_slots=8 slots=6\nh7 max-slots=8\n"
    )
    found = [(host.name, host.count) for host in read_hostfile(file)]
    assert found == [
        *(("h1", 2), ("h2", 3), ("h3", 4), ("h4", 1), ("h5", 5), ("h6", 6)),
        ("h7", 1),
    ]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("h1 slots=2\nh1:1\n", "h1 is there 2 times"),
        ("h1 slots=0\n", "line 1: h1 has 0 slots"),
        ("\nh1 slots=x\n", "line 2: 'x' is not a number of slots"),
        ("# nobody\n", "there is no host"),
    ],
)
def test_hostfiles_that_cannot_be_used(content: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text(content)
    with pytest.raises(UsageError) as caught:
        read_hostfile(file)
    assert f"--hostfile {file}" in str(caught.value)
    assert says in str(caught.value)


def test_a_hostfile_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_hostfile(tmp_path / "none")


def test_hosts_are_named_in_one_way(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("h3:3\n")
    assert named_hosts(None, None, {}) is None
    assert named_hosts("h1:1", None, {"FARANDOLE_HOSTS": "h2:2"}) == parse_hosts("h1:1")
    assert named_hosts(None, None, {"FARANDOLE_HOSTS": "h2:2"}) == parse_hosts("h2:2")
    assert named_hosts(None, None, {"FARANDOLE_HOSTFILE": str(file)}) == parse_hosts("h3:3")
    # Inside of a worker the variable says where that runs.
    assert named_hosts(None, None, {"FARANDOLE_HOSTS": "h2:2", "FARANDOLE_JOB": "x"}) is None
    with pytest.raises(UsageError, match="Give one of them"):
        named_hosts("h1:1", str(file), {})


@pytest.mark.parametrize(
    ("text", "shape"),
    [("2x4", (2, 4)), (" 1 x 8 ", (1, 8)), ("4", None), ("x", None), ("2x", None)],
)
def test_shapes(text: str, shape: tuple[int, int] | None) -> None:
    found = parse_shape(text)
    assert (found and (found.hosts, found.workers)) == shape


def test_a_shape_of_nothing() -> None:
    with pytest.raises(UsageError, match="0x4: give hosts x workers"):
        parse_shape("0x4")


def test_packing_fills_host_after_host() -> None:
    placement = pack(slots(2, 3, 4), 4)
    assert placement == Placement(
        hosts=(HostShare(name="n1", ranks=(0, 1)), HostShare(name="n2", ranks=(2, 3)))
    )
    assert placement.size == 4
    assert placement.rank_hosts == ("n1", "n1", "n2", "n2")
    assert placement.host_number(3) == 1


def test_packing_more_than_fits() -> None:
    with pytest.raises(UsageError) as caught:
        pack(slots(2, 1), 8)
    assert str(caught.value) == (
        "You asked for 8 workers (-np 8), but the hosts have 3 slots (n1:2, n2:1). "
        "Use -np 3, or name more hosts or slots."
    )


def test_spreading_takes_the_same_from_each() -> None:
    placement = spread(slots(4, 4, 4), Shape(hosts=2, workers=3))
    assert [(share.name, share.ranks) for share in placement.hosts] == [
        ("n1", (0, 1, 2)),
        ("n2", (3, 4, 5)),
    ]


@pytest.mark.parametrize(
    ("counts", "says"),
    [((4,), "2x3 needs 2 hosts, but there are 1 (n1)"), ((4, 2), "but n2 has 2")],
)
def test_spreading_over_too_little(counts: tuple[int, ...], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        spread(slots(*counts), Shape(hosts=2, workers=3))
    assert says in str(caught.value)
