from __future__ import annotations

import socket

import pytest

from farandole.errors import UsageError
from farandole.launch.local_workers import hold_port


def test_held_ports_differ_and_are_on_loopback() -> None:
    held = [hold_port({}) for _ in range(50)]
    names = {one.getsockname() for one in held}
    for one in held:
        one.close()
    assert len(names) == 50
    assert {address for address, _ in names} == {"127.0.0.1"}


def test_a_program_that_asks_for_a_held_port_gets_it() -> None:
    with hold_port({}) as held, socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(held.getsockname())
        server.listen()


def test_the_users_port_is_taken() -> None:
    with hold_port({}) as held:
        port = held.getsockname()[1]
    with hold_port({"MASTER_PORT": str(port)}) as again:
        assert again.getsockname()[1] == port


def test_the_port_of_an_outer_launch_is_not_taken() -> None:
    with hold_port({}) as outer:
        port = outer.getsockname()[1]
        outer.listen()
        environ = {"MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "outer"}
        with hold_port(environ) as inner:
            assert inner.getsockname()[1] != port


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=f"MASTER_PORT={port} is set, but port {port}"):
            hold_port({"MASTER_PORT": str(port)})


@pytest.mark.parametrize("text", ["x", "-1", "65536"])
def test_what_is_no_port_is_named(text: str) -> None:
    with pytest.raises(UsageError, match=f"MASTER_PORT={text} is not a port"):
        hold_port({"MASTER_PORT": text})
