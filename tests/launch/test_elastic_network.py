"""Elastic runs on hosts with a network of their own, which is cut off and healed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from farandole.testing.hosts import NamespaceHosts
from farandole.testing.shaped import why_not
from tests.conftest import clean_environ, cli_argv, eventually

pytest.importorskip("torch", reason="hosts exchange through Gloo")
pytestmark = [
    pytest.mark.ranks,
    pytest.mark.soak,
    pytest.mark.skipif(bool(why_not()), reason=f"namespaces as hosts: {why_not()}"),
]

TRAIN = """
import json, os, sys, time
from pathlib import Path
from farandole.elastic import generation
from farandole.engine import context
from farandole.errors import CollectiveError, NotNeededError
log, finish = Path(sys.argv[1]), Path(sys.argv[2])
context.init()
while True:
    try:
        told = [generation.hosts_changed() is not None, finish.exists()]
        changed, done = json.loads(context.current().engine.exchange(json.dumps(told).encode())[0])
        if context.rank() == 0:
            log.write_text(str(context.size()))
        if done:
            break
        time.sleep(0.05)
        if not changed:
            continue
    except CollectiveError as error:
        print("lost:", error, flush=True)
    try:
        generation.next_generation()
    except NotNeededError:
        break
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[NamespaceHosts]:
    with NamespaceHosts(3, tmp_path) as hosts:
        yield hosts


@pytest.mark.parametrize("which", [0, 1], ids=["the host of rank 0", "another host"])
def test_a_host_that_is_cut_off_comes_back(
    hosts: NamespaceHosts, script: Path, tmp_path: Path, which: int
) -> None:
    script.write_text(TRAIN)
    log, finish = tmp_path / "log", tmp_path / "finish"
    flags = ["--min-np", "2", "-np", "3", "--blacklist", "host"]
    cooldown = ["--blacklist-cooldown-range", "1", "2"]
    argv = [*cli_argv(), "run", "--rsh", hosts.rsh, "-H", hosts.flag(1), *flags, *cooldown]

    def sizes(size: int) -> None:
        eventually(lambda: log.exists() and log.read_text() == str(size), 60)

    with (
        (tmp_path / "errors").open("w") as errors,
        subprocess.Popen(
            hosts.command([*argv, str(script), str(log), str(finish)]),
            env=clean_environ(),
            stdout=errors,
            stderr=errors,
        ) as head,
    ):
        try:
            sizes(3)
            hosts.cut(which)
            sizes(2)
            hosts.mend(which)
            sizes(3)
            finish.touch()
            assert head.wait(30) == 0, (tmp_path / "errors").read_text()
        finally:
            head.kill()
    said = (tmp_path / "errors").read_text()
    assert f"host {hosts.names[which]} (rank {which}) was lost: it has not answered for 5 s" in said
    eventually(lambda: all(not hosts.processes(number) for number in range(3)), 30)
