"""An agent that never gets as far as workers; test_hosts.py has those that do."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from farandole.launch import control
from farandole.launch.agent import own_address
from farandole.world.channel import Connection, Door
from tests.conftest import clean_environ, eventually

SECRET = b"s" * 32


def start(greeting: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    agent = subprocess.Popen(
        [sys.executable, "-m", "farandole.launch.agent", *arguments],
        env=clean_environ(**variables),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert agent.stdin is not None
    agent.stdin.write(greeting)
    agent.stdin.flush()
    return agent


def greeting(door: Door, secret: bytes = SECRET) -> str:
    return json.dumps({"addresses": [[door.address, door.port]], "secret": secret.hex()}) + "\n"


def test_without_a_greeting() -> None:
    with start("") as agent:
        _, errors = agent.communicate(timeout=30)
    assert agent.returncode == 1
    assert errors == ("farandole: no greeting came on standard input; `farandole run` sends it.\n")


def test_a_head_that_is_not_there() -> None:
    door = Door("127.0.0.1", SECRET)
    door.close()
    with start(greeting(door)) as agent:
        _, errors = agent.communicate(timeout=30)
    assert agent.returncode == 1
    assert f"cannot reach the head at 127.0.0.1 port {door.port}: Connection refused." in errors


def test_a_head_with_another_secret_is_not_obeyed() -> None:
    door = Door("127.0.0.1", SECRET)
    try:
        with start(greeting(door, b"other")) as agent:
            eventually(lambda: [door.accept(), door.refused][1])
            _, errors = agent.communicate(timeout=30)
        assert "it does not know the secret of this job" in errors
        assert agent.returncode == 1
    finally:
        door.close()


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        ({}, "192.0.2.1"),
        ({"FARANDOLE_ADDRESS": "127.0.0.1"}, "127.0.0.1"),
        # Another host's, which srun has passed on.
        ({"FARANDOLE_ADDRESS": "192.0.2.9"}, "192.0.2.1"),
        ({"FARANDOLE_ADDRESS": "127.0.0.1", "FARANDOLE_JOB": "outer"}, "192.0.2.1"),
    ],
)
def test_the_user_of_a_host_may_choose_its_address(
    variables: dict[str, str], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert own_address("192.0.2.1") == address


@pytest.mark.parametrize(
    ("arguments", "variables", "number"),
    [(["--host", "1"], {}, 1), ([], {"SLURM_NODEID": "2"}, 2), ([], {}, 0)],
)
def test_an_agent_introduces_itself_and_goes_with_the_head(
    arguments: list[str], variables: dict[str, str], number: int
) -> None:
    door = Door("127.0.0.1", SECRET)
    guests: list[tuple[Connection, bytes]] = []
    try:
        with start(greeting(door), *arguments, **variables) as agent:
            eventually(lambda: [guests.extend(door.accept()), guests][1])
            ((connection, words),) = guests
            hello = control.decode(words)
            assert isinstance(hello, control.Hello)
            assert (hello.host, hello.address) == (number, "127.0.0.1")
            assert hello.python == ".".join(map(str, sys.version_info[:3]))
            assert hello.cores >= 1
            # Only where rank 0 will be is a port held for torch's store.
            assert bool(hello.master_port) == (number == 0)
            door.close()
            connection.close()
            assert agent.wait(30) == 1
    finally:
        door.close()


def test_an_agent_that_is_turned_away_calls_again() -> None:
    door = Door("127.0.0.1", SECRET)
    guests: list[tuple[Connection, bytes]] = []
    try:
        with start(greeting(door), "--host", "1") as agent:
            for turn in (1, 2):
                eventually(lambda n=turn: [guests.extend(door.accept()), len(guests) == n][1])
                guests[-1][0].close()
            door.close()
            assert agent.wait(30) == 1
    finally:
        door.close()
    first, second = (control.decode(words) for _, words in guests)
    assert isinstance(second, control.Hello)
    assert first == second
