"""Remote shells: what they are given, and what is said when they fail. `sh` plays the shell."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from farandole.errors import UsageError
from farandole.launch.starters import AgentProcess, SshStarter, explain_ssh, is_here
from tests.conftest import eventually

SHOW = """
import json, os, sys
words = {"argv": sys.argv[1:], "greeting": sys.stdin.readline()}
words["path"] = os.environ.get("PYTHONPATH")
words["environ"] = [name for name, value in os.environ.items() if "s3cret" in value]
open(sys.argv[1], "a").write(json.dumps(words) + "\\n")
"""


@pytest.fixture
def shell(tmp_path: Path) -> str:
    """A remote shell that reaches this machine under every name."""
    script = tmp_path / "my shell"
    script.write_text('#!/bin/sh\necho "$1" >> "$0.hosts"\nexec sh -c "$2"\n')
    script.chmod(0o700)
    return f"'{script}'"


@pytest.fixture
def agents() -> Iterator[list[AgentProcess]]:
    started: list[AgentProcess] = []
    yield started
    for agent in started:
        agent.close()


def test_agents_get_their_number_and_the_greeting(
    shell: str, tmp_path: Path, agents: list[AgentProcess]
) -> None:
    said = tmp_path / 'it\'s "said"'
    environ = {**os.environ, "PYTHONPATH": "/some where:/else"}
    starter = SshStarter(shell, environ=environ)
    argv = [sys.executable, "-c", SHOW, str(said)]
    agents += starter.start(["h1", "h2"], argv, b"s3cret\n")  # type: ignore[arg-type]
    eventually(lambda: [c.poll() for c in agents] == ["", ""])
    found = sorted(map(json.loads, said.read_text().splitlines()), key=lambda each: each["argv"])
    assert [each["argv"] for each in found] == [
        [str(said), "--host", "0"],
        [str(said), "--host", "1"],
    ]
    assert {each["greeting"] for each in found} == {"s3cret\n"}
    assert {each["path"] for each in found} == {"/some where:/else"}
    assert [each["environ"] for each in found] == [[], []]
    assert sorted((tmp_path / "my shell.hosts").read_text().split()) == ["h1", "h2"]


def test_this_host_needs_no_remote_shell(tmp_path: Path, agents: list[AgentProcess]) -> None:
    said = tmp_path / "said"
    starter = SshStarter("false", environ=os.environ)
    argv = [sys.executable, "-c", SHOW, str(said)]
    agents += starter.start(["localhost"], argv, b"hi\n")  # type: ignore[arg-type]
    assert eventually(lambda: agents[0].poll() == "")
    assert json.loads(said.read_text())["greeting"] == "hi\n"


def test_a_shell_that_fails_is_quoted(agents: list[AgentProcess]) -> None:
    starter = SshStarter("sh -c 'echo one; echo no route >&2; exit 3'", environ=os.environ)
    agents += starter.start(["h1"], ["true"], b"x" * 100)  # type: ignore[arg-type]
    assert eventually(agents[0].poll) == "its agent ended with code 3: no route"


def test_a_carrier_can_be_ended(agents: list[AgentProcess]) -> None:
    starter = SshStarter("sh -c 'sleep 60'", environ=os.environ)
    agents += starter.start(["h1"], ["true"], b"")  # type: ignore[arg-type]
    assert agents[0].poll() is None
    agents[0].close()
    assert agents[0].poll() == "its agent was ended by signal 15"


@pytest.mark.parametrize(
    ("code", "errors", "says"),
    [
        (0, "noise", ""),
        (
            255,
            "banner\nme@n2: Permission denied (publickey).\n",
            "ssh did not get there (banner / me@n2: Permission denied (publickey).). "
            "Try: ssh -p 22 n2 true",
        ),
        (127, "sh: 1: /x/python: not found", "Install the same environment under the same path"),
        (
            1,
            "/x/python: Error while finding module specification for 'farandole.launch.agent' "
            "(ModuleNotFoundError: No module named 'farandole')",
            "its Python has no farandole",
        ),
        (
            1,
            "farandole: the agent on n2 cannot reach the head at 10.0.0.1 port 5: refused.",
            "its agent ended with code 1: the agent on n2 cannot reach the head",
        ),
        (-9, "", "its agent was ended by signal 9"),
    ],
)
def test_explanations(code: int, errors: str, says: str) -> None:
    said = explain_ssh(code, errors, "n2", ssh="ssh -p 22")
    assert says in said
    assert bool(said) == bool(says)


@pytest.mark.parametrize(
    ("rsh", "says"),
    [("no-such-shell -x", "there is no such program"), ("'open", "cannot be read")],
)
def test_shells_that_are_not_there(rsh: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        SshStarter(rsh, environ=os.environ)


def test_without_ssh() -> None:
    with pytest.raises(UsageError, match="There is no ssh here"):
        SshStarter(None, environ={"PATH": "/nowhere"})


def test_names_of_this_host() -> None:
    assert is_here("localhost")
    assert is_here(platform.node())
    # Tests with a real sshd call this machine so.
    assert not is_here("127.0.0.2")


def test_names_for_the_network(shell: str) -> None:
    starter = SshStarter(shell, environ=os.environ)
    assert starter.network_name("me@h1") == "h1"
