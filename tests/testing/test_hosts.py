from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from farandole.errors import UsageError
from farandole.testing.hosts import NamespaceHosts
from farandole.testing.shaped import why_not
from tests.conftest import eventually

needs_namespaces = pytest.mark.skipif(bool(why_not()), reason=f"namespaces as hosts: {why_not()}")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamespaceHosts]:
    with NamespaceHosts(2, tmp_path_factory.mktemp("hosts")) as hosts:
        yield hosts


def on(hosts: NamespaceHosts, number: int, command: str) -> subprocess.CompletedProcess[str]:
    argv = [hosts.rsh, hosts.names[number], command]
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)


@needs_namespaces
def test_hosts_have_addresses_of_their_own(hosts: NamespaceHosts) -> None:
    for number, name in enumerate(hosts.names):
        shown = on(hosts, number, "cat /proc/net/fib_trie").stdout
        assert name in shown
    assert hosts.flag(3) == f"{hosts.names[0]}:3,{hosts.names[1]}:3"


@needs_namespaces
def test_the_remote_shell_returns_codes_and_knows_its_hosts(hosts: NamespaceHosts) -> None:
    assert on(hosts, 0, "exit 7").returncode == 7
    done = subprocess.run([hosts.rsh, "elsewhere", "true"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (255, b"rsh: elsewhere: no such host\n")


@needs_namespaces
def test_processes_of_a_host_are_found(hosts: NamespaceHosts) -> None:
    argv = [hosts.rsh, hosts.names[1], "exec sleep 60"]
    with subprocess.Popen(argv) as sleeper:
        eventually(lambda: hosts.processes(1) == [sleeper.pid])
        assert hosts.processes(0) == []
        sleeper.kill()


@needs_namespaces
def test_a_cut_host_is_silent_until_it_is_mended(hosts: NamespaceHosts) -> None:
    call = "import socket, sys; socket.create_connection((sys.argv[1], 9), 0.3)"

    def answer() -> str:
        from sys import executable

        argv = hosts.command([executable, "-S", "-c", call, hosts.names[0]])
        return subprocess.run(argv, capture_output=True, text=True, check=False).stderr

    assert "Connection refused" in answer()
    hosts.cut(0)
    assert "timed out" in answer() or "No route" in answer()
    hosts.mend(0)
    eventually(lambda: "Connection refused" in answer())


def test_more_hosts_than_there_are_addresses(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"use 1 to 200|no namespaces as hosts here"):
        NamespaceHosts(201, tmp_path)
