"""What the head says about hosts that are missing, strange or late; no process is started."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from farandole.errors import StartError
from farandole.launch import control
from farandole.launch.placement import HostShare, Placement
from farandole.launch.remote_workers import GatherInterruptedError, disagreement, gather, start_all
from farandole.world.channel import Connection, Door, call

SECRET = b"s" * 32
PLACEMENT = Placement(
    hosts=(HostShare(name="n1", ranks=(0, 1)), HostShare(name="n2", ranks=(2, 3)))
)
HELLO = control.Hello(
    host=0,
    name="n1",
    address="127.0.0.1",
    master_port=1,
    python="3.11.4",
    torch="2.13.0+cpu",
    farandole="1.0",
    cores=2,
)


class Said:
    """A carrier that says something about the agent of one host."""

    def __init__(self, host: str, said: str | None = None) -> None:
        self.hosts: Sequence[str] = (host,)
        self._said = said

    def poll(self) -> str | None:
        return self._said

    def close(self) -> None:
        pass


@pytest.fixture
def door() -> Iterator[Door]:
    door = Door("127.0.0.1", SECRET, me="the head", most_bytes=control.MOST_BYTES)
    yield door
    door.close()


class Callers:
    """Agents by threads: each calls the door and says one thing."""

    def __init__(self, door: Door, words: Sequence[bytes], secret: bytes = SECRET) -> None:
        self.connections: list[Connection] = []
        self._threads = [
            threading.Thread(target=self._call, args=(door, each, secret)) for each in words
        ]
        for thread in self._threads:
            thread.start()

    def _call(self, door: Door, words: bytes, secret: bytes) -> None:
        try:
            connection = call(door.address, door.port, secret, timeout_s=10)
        except StartError:
            return
        connection.send(words)
        self.connections.append(connection)

    def close(self) -> None:
        for thread in self._threads:
            thread.join()
        for connection in self.connections:
            connection.close()


def hello(**changes: object) -> bytes:
    from farandole.version import __version__

    own = {"farandole": __version__, **changes}
    return control.encode(replace(HELLO, **own))  # type: ignore[arg-type]


def test_all_hosts_report_in_any_order(door: Door) -> None:
    callers = Callers(door, [hello(host=1, name="two"), hello(host=0)])
    links = gather(PLACEMENT, [door], [Said("n1"), Said("n2")], timeout_s=10)
    assert [(link.share.name, link.hello.name) for link in links] == [("n1", "n1"), ("n2", "two")]
    for link in links:
        link.connection.close()
    callers.close()


def test_a_host_that_cannot_be_reached_is_named(door: Door) -> None:
    callers = Callers(door, [hello(host=0)])
    carriers = [Said("n1"), Said("n2", "ssh did not get there (Permission denied)")]
    with pytest.raises(StartError) as caught:
        gather(PLACEMENT, [door], carriers, timeout_s=10)
    assert str(caught.value) == (
        "A host cannot be used. n2: ssh did not get there (Permission denied)"
    )
    callers.close()


def test_a_host_that_does_not_report_is_named(door: Door) -> None:
    callers = Callers(door, [hello(host=0)])
    with pytest.raises(StartError) as caught:
        gather(PLACEMENT, [door], [Said("n1"), Said("n2")], timeout_s=0.5)
    assert "Host n2 has not reported within 0.5 s." in str(caught.value)
    assert f"127.0.0.1 port {door.port}: look for a firewall" in str(caught.value)
    callers.close()


def test_callers_with_another_secret_or_no_hello_are_not_let_in(door: Door) -> None:
    strangers = Callers(door, [hello(host=0)], secret=b"other")
    odd = Callers(door, [b"nonsense", hello(host=7), control.encode(control.Started())])
    with pytest.raises(StartError) as caught:
        gather(PLACEMENT, [door], [Said("n1"), Said("n2")], timeout_s=1)
    assert "Hosts n1, n2 have not reported" in str(caught.value)
    assert "Turned away: the head lost its connection to the caller from 127.0.0.1" in (
        str(caught.value)
    )
    strangers.close()
    odd.close()


def test_a_signal_ends_the_wait(door: Door) -> None:
    receiver, sender = socket.socketpair()
    with receiver, sender:
        receiver.setblocking(False)
        sender.send(b"\x02")
        with pytest.raises(GatherInterruptedError) as caught:
            gather(PLACEMENT, [door], [Said("n1"), Said("n2")], timeout_s=10, signals=receiver)
    assert caught.value.signum == 2


def test_hosts_that_do_not_fit_each_other_are_named_before_anything_starts(door: Door) -> None:
    callers = Callers(door, [hello(host=0), hello(host=1, python="3.12.1")])
    with pytest.raises(StartError, match=r"Python differs: 3.11 on n1, 3.12 on n2."):
        gather(PLACEMENT, [door], [Said("n1"), Said("n2")], timeout_s=10)
    callers.close()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, ""),
        ({"python": "3.11.9"}, ""),
        ({"torch": "2.13.0+cu130"}, ""),
        ({"torch": "2.12.1"}, "torch differs: 2.13.0 on n1, n3, 2.12.1 on n2. Install"),
        ({"torch": ""}, "torch differs: 2.13.0 on n1, n3, not there on n2."),
        ({"farandole": "0.9"}, "Farandole is 1.0 here, but 0.9 on n2."),
    ],
)
def test_versions(changes: dict[str, str], says: str) -> None:
    hellos = {"n1": HELLO, "n2": replace(HELLO, **changes), "n3": HELLO}  # type: ignore[arg-type]
    found = disagreement(hellos, own="1.0")
    assert found.startswith(says) if says else found == ""


def test_a_host_that_cannot_start_its_workers_is_named(door: Door) -> None:
    callers = Callers(door, [hello(host=0), hello(host=1)])
    links = gather(PLACEMENT, [door], [Said("n1"), Said("n2")], timeout_s=10)
    callers.close()
    share = control.Share(
        job_id="j",
        argv=["x"],
        cwd="/",
        variables={},
        hosts=["n1", "n2"],
        counts=[2, 2],
        master_addr="127.0.0.1",
        master_port=1,
        threads=1,
        override_threads=False,
        transport="auto",
        start_timeout_s=1.0,
        look_every_s=1.0,
        horovod_alias=True,
        clean_stop=True,
        timeline=False,
        restart=0,
        max_restarts=0,
        elastic=False,
        record_dir="",
        record_mark="",
    )
    with pytest.raises(StartError, match=r"host n[12] could not start its workers: it has ended"):
        start_all(links, share, timeout_s=10)
    for link in links:
        link.connection.close()
