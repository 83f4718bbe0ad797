from __future__ import annotations

import os
import signal
import threading

import pytest

from farandole.launch.local_workers import caught_signals
from tests.conftest import eventually


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_arrive_as_bytes(signum: int) -> None:
    before = signal.getsignal(signum)
    with caught_signals() as signals:
        assert signals is not None
        os.kill(os.getpid(), signum)

        def came() -> bytes:
            try:
                return signals.recv(8)
            except BlockingIOError:
                return b""

        assert eventually(came) == bytes([signum])
    assert signal.getsignal(signum) is before


def test_other_threads_catch_nothing() -> None:
    found: list[object] = []

    def look() -> None:
        with caught_signals() as signals:
            found.append(signals)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [None]
