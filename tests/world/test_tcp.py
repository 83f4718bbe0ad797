from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from farandole.errors import StartError, UsageError
from farandole.world import tcp
from farandole.world.environment import World
from farandole.world.tcp import TcpRendezvous, connect_tcp, ports_of

HERE = "127.0.0.1"


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all nodes be on loopback, where each test has a job of its own."""
    monkeypatch.setattr(tcp, "network_name", lambda node: HERE)
    monkeypatch.setattr(tcp, "_BETWEEN_ROUNDS_S", 0.005)


def world(rank: int, size: int, job: str, *, timeout_s: float = 20.0, per_host: int = 1) -> World:
    hosts = tuple(f"n{number + 1}" for number in range(-(-size // per_host)))
    return World(
        rank=rank,
        size=size,
        local_rank=rank % per_host,
        local_size=per_host,
        cross_rank=rank // per_host,
        cross_size=len(hosts),
        source="slurm",
        hostname=hosts[rank // per_host],
        hosts=hosts,
        job_id=job,
        start_timeout_s=timeout_s,
    )


def together(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run all at once, and return what each gave or raised."""
    found: list[Any] = [None] * len(calls)

    def one(place: int) -> None:
        try:
            found[place] = calls[place]()
        except Exception as error:
            found[place] = error

    threads = [threading.Thread(target=one, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def meet(size: int, job: str, environ: dict[str, str], ranks: Sequence[int] = ()) -> list[Any]:
    return together(
        [lambda r=r: connect_tcp(world(r, size, job), environ) for r in ranks or range(size)]
    )


def close(meetings: Sequence[Any]) -> None:
    for meeting in meetings:
        if isinstance(meeting, TcpRendezvous):
            meeting.close()


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path)}


def test_everybody_gets_everything_in_rank_order(environ: dict[str, str]) -> None:
    meetings = meet(4, "11.0", environ)
    for number in range(3):
        payloads = [bytes([rank]) * (rank * 1000 * number) for rank in range(4)]
        got = together(
            [lambda m=m, p=p: m.exchange(p) for m, p in zip(meetings, payloads, strict=True)]
        )
        assert got == [payloads] * 4
    assert {meeting.local_address for meeting in meetings} == {HERE}
    close(meetings)


def test_large_payloads_arrive(environ: dict[str, str]) -> None:
    meetings = meet(2, "12.0", environ)
    payloads = [b"a" * 3_000_000, b""]
    got = together([lambda: meetings[0].exchange(payloads[0]), lambda: meetings[1].exchange(b"")])
    assert got == [payloads, payloads]
    close(meetings)


def test_port_of_another_job_is_stepped_over(environ: dict[str, str]) -> None:
    with socket.create_server((HERE, ports_of("13.0")[0])):
        meetings = meet(2, "13.0", environ)
    assert all(isinstance(meeting, TcpRendezvous) for meeting in meetings)
    close(meetings)


def test_wrong_key_is_named_with_both_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp, "_REFUSED_S", 0.0)
    found = together(
        [
            lambda: connect_tcp(
                world(0, 2, "14.0", timeout_s=2.0), {"XDG_STATE_HOME": str(tmp_path / "a")}
            ),
            lambda: connect_tcp(
                world(1, 2, "14.0", timeout_s=20.0), {"XDG_STATE_HOME": str(tmp_path / "b")}
            ),
        ]
    )
    assert all(isinstance(error, StartError) for error in found)
    assert "rank 1 on n2" in str(found[1])
    assert "rank 0 on n1" in str(found[1])
    assert "does not know the secret" in str(found[1])
    assert "FARANDOLE_SECRET_FILE" in str(found[1])
    assert "turned away" in str(found[0])


def test_missing_rank_and_silent_host_are_named_everywhere(environ: dict[str, str]) -> None:
    found = together(
        [
            lambda: connect_tcp(world(0, 4, "15.0", timeout_s=1.0, per_host=2), environ),
            lambda: connect_tcp(world(1, 4, "15.0", timeout_s=1.0, per_host=2), environ),
        ]
    )
    for error in found:
        assert isinstance(error, StartError)
        assert "rank 2, rank 3 have not called hvd.init() in time" in str(error)
        assert "Nothing was heard from n2" in str(error)


def test_rank_0_that_never_comes_is_named(environ: dict[str, str]) -> None:
    with pytest.raises(StartError, match="rank 1 on n2 cannot reach rank 0 on n1"):
        connect_tcp(world(1, 2, "16.0", timeout_s=0.2), environ)


def test_rank_that_has_left_is_named(environ: dict[str, str]) -> None:
    meetings = meet(3, "17.0", environ)
    meetings[2].close()
    found = together([lambda: meetings[0].exchange(b""), lambda: meetings[1].exchange(b"")])
    for error in found:
        assert isinstance(error, StartError)
        assert "rank 2 on n3" in str(error)
    close(meetings)


def test_two_sizes_cannot_meet(environ: dict[str, str]) -> None:
    found = together(
        [
            lambda: connect_tcp(world(0, 2, "18.0"), environ),
            lambda: connect_tcp(world(1, 3, "18.0"), environ),
        ]
    )
    for error in found:
        assert isinstance(error, StartError)
        assert "rank 1 on n2 of 3 called rank 0 of 2" in str(error)


def test_nobody_listens_once_all_have_come(environ: dict[str, str]) -> None:
    meetings = meet(2, "19.0", environ)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HERE, ports_of("19.0")[0]), 1.0)
    close(meetings)


def test_hosts_are_needed(environ: dict[str, str]) -> None:
    from dataclasses import replace

    with pytest.raises(UsageError, match="SLURM_STEP_NODELIST"):
        connect_tcp(replace(world(0, 2, "20.0"), hosts=()), environ)


def test_ports_follow_from_the_job() -> None:
    assert ports_of("7.0") == ports_of("7.0")
    assert ports_of("7.0") != ports_of("7.1")
    assert all(20000 <= port < 32768 for port in ports_of("7.0"))
