from __future__ import annotations

import os
import socket

import pytest

from farandole.world.store import bound_listener, inherited_listener, master_listener


def test_an_inherited_socket_is_duplicated(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        monkeypatch.setenv("FARANDOLE_MASTER_FD", str(held.fileno()))
        for _ in range(2):
            taken = master_listener("127.0.0.1", port)
            assert taken is not None
            with taken:
                assert taken.getsockname() == ("127.0.0.1", port)
                assert taken.fileno() != held.fileno()
        assert inherited_listener("127.0.0.1", port + 1) is None
        assert inherited_listener("127.0.0.2", port) is None


def test_a_descriptor_that_is_something_else_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, write = os.pipe()
    monkeypatch.setenv("FARANDOLE_MASTER_FD", str(read))
    assert inherited_listener("127.0.0.1", 1234) is None
    os.fstat(read)
    os.close(read)
    os.close(write)
    assert inherited_listener("127.0.0.1", 1234) is None


def test_binding_anew_is_on_loopback_and_fails_softly() -> None:
    listener = bound_listener(0)
    assert listener is not None
    with listener:
        address, port = listener.getsockname()
        assert address == "127.0.0.1"
        assert bound_listener(port) is None
