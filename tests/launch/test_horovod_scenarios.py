"""Elastic runs as Horovod's own integration test has them, through `farandole horovodrun`."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import clean_environ, cli_argv

pytestmark = pytest.mark.ranks

# Written for Horovod: rank 0 logs a line at the end of an epoch, and waits for a change of hosts
# where the schedule has one.
WORKER = """
import json, os, signal, sys, time
import torch
import horovod.torch as hvd
from horovod.common.exceptions import HostsUpdatedInterrupt

log, epochs, exits, how, changes, most, wait_s = json.loads(sys.argv[1])
hvd.init()
host, start_rank = os.environ["HOROVOD_HOSTNAME"], int(os.environ["HOROVOD_RANK"])
data, target = torch.randn(8, 2), torch.randint(2, (8,))
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

def fail():
    if how != "exception":
        os.kill(os.getpid() if how == "kill" else os.getppid(), signal.SIGKILL)
        time.sleep(30)
    raise RuntimeError(f"start rank {start_rank} exits")

def set_learning_rate():
    for group in optimizer.param_groups:
        group["lr"] = 0.01 * hvd.size()

@hvd.elastic.run
def train(state):
    state.rendezvous += 1
    while state.epoch < epochs:
        while state.batch < 3:
            if start_rank in exits.get(str(state.epoch), []):
                fail()
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(data), target).backward()
            optimizer.step()
            state.batch += 1
            state.commit()
        assert optimizer.param_groups[0]["lr"] == 0.01 * hvd.size()
        if hvd.rank() == 0:
            with open(log, "a") as file:
                file.write(json.dumps([start_rank, hvd.size(), host, state.rendezvous]) + "\\n")
            deadline = time.monotonic() + 20
            while (
                state.epoch in changes and hvd.size() < most and state._host_messages.empty()
            ):
                assert time.monotonic() < deadline, "no change"
                time.sleep(0.02)
        time.sleep(wait_s)
        state.epoch += 1
        state.batch = 0
        updated = state._last_updated_timestamp
        try:
            state.commit()
        except HostsUpdatedInterrupt:
            assert state._last_updated_timestamp > updated
            raise

state = hvd.elastic.TorchState(model, optimizer, epoch=0, batch=0, rendezvous=0)
state.register_reset_callbacks([set_learning_rate])
train(state)
"""

ONE, TWO = "localhost:2", "127.0.0.1:2"
BOTH = [[ONE, TWO]]


@dataclass(kw_only=True)
class Ended:
    """How a run ended."""

    code: int
    errors: str
    log: list[list[object]]
    """By epoch: rank 0's start rank, the size, its host, and how often `train` was entered."""


def run(
    folder: Path,
    flags: Sequence[str] = ("-np", "2", "--min-np", "2", "--max-np", "4"),
    *,
    hosts: Sequence[Sequence[str]] = (),
    exits: Mapping[str, Sequence[int]] | None = None,
    how: str = "kill",
    epochs: int = 3,
    wait_s: float = 0.0,
    returns: int | None = None,
    command: str = "horovodrun",
    **variables: str,
) -> Ended:
    """Run the worker.

    Args:
        folder: Where files go.
        flags: Of horovodrun.
        hosts: What the discovery script prints, by the number of lines in the log.
        exits: The start ranks that fail, by epoch.
        how: "kill" or "exception", or "agent": what has started the worker is killed.
        epochs: How many there are.
        wait_s: How long each takes at least.
        returns: At the end of this epoch rank 0 waits for more workers, until there are 4.
        command: Of farandole.
        variables: Of the launcher.
    """
    log, script = folder / "log", folder / "discover.sh"
    changes = []
    if hosts:
        lines = ["#!/bin/sh", f"[ -f {log} ] && n=$(wc -l < {log})", "case ${n:-0} in"]
        for number, names in enumerate(hosts):
            which = "*" if number == len(hosts) - 1 else str(number)
            lines.append(f"{which}) {'; '.join(f'echo {name}' for name in names)} ;;")
        script.write_text("\n".join([*lines, "esac", ""]))
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        flags = [*flags, "--host-discovery-script", str(script)]
        changes = list(range(len(hosts) - 1))
    worker = folder / "train.py"
    worker.write_text(WORKER)
    if returns is not None:
        changes = [returns]
    told = json.dumps(
        [str(log), epochs, exits or {}, how, changes, 99 if returns is None else 4, wait_s]
    )
    done = subprocess.run(
        [*cli_argv(), command, *flags, "--", sys.executable, str(worker), told],
        env=clean_environ(**variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    entries = log.read_text().splitlines() if log.exists() else []
    return Ended(code=done.returncode, errors=done.stderr, log=[json.loads(e) for e in entries])


FAILED = [[0, 4, "localhost", 1], [2, 2, "127.0.0.1", 2], [2, 2, "127.0.0.1", 2]]


@pytest.mark.parametrize("slots", [2, pytest.param(1, marks=pytest.mark.soak)])
def test_hosts_come_and_go(tmp_path: Path, slots: int) -> None:
    one, two = f"localhost:{slots}", f"127.0.0.1:{slots}"
    flags = ["-np", str(slots), "--min-np", str(slots), "--max-np", str(2 * slots)]
    limit = ["--reset-limit", "2"]
    ended = run(tmp_path, [*flags, *limit], hosts=[[one], [one, two], [two]])
    assert ended.code == 0, ended.errors
    assert ended.log == [
        [0, slots, "localhost", 1],
        [0, 2 * slots, "localhost", 2],
        [slots, slots, "127.0.0.1", 3],
    ]


@pytest.mark.soak
def test_too_many_changes(tmp_path: Path) -> None:
    flags = ["-np", "2", "--min-np", "2", "--max-np", "4", "--reset-limit", "1"]
    ended = run(tmp_path, flags, hosts=[[ONE], [ONE, TWO], [TWO]])
    assert ended.code == 1
    assert "The number of resets would exceed the limit: 1 (--reset-limit)." in ended.errors
    assert ended.log == [[0, 2, "localhost", 1], [0, 4, "localhost", 2]]


@pytest.mark.parametrize("how", ["kill", pytest.param("exception", marks=pytest.mark.soak)])
def test_one_rank_fails(tmp_path: Path, how: str) -> None:
    ended = run(tmp_path, hosts=BOTH, exits={"1": [0]}, how=how)
    assert (ended.code, ended.log) == (0, FAILED), ended.errors


@pytest.mark.parametrize("how", ["exception", pytest.param("kill", marks=pytest.mark.soak)])
def test_one_rank_fails_on_hosts_that_were_named(tmp_path: Path, how: str) -> None:
    flags = ["-np", "2", "--min-np", "2", "--max-np", "4", "-H", f"{ONE},{TWO}"]
    ended = run(tmp_path, flags, exits={"1": [0]}, how=how)
    assert (ended.code, ended.log) == (0, FAILED), ended.errors


@pytest.mark.parametrize("ranks", [(0, 2), pytest.param((0, 1, 2, 3), marks=pytest.mark.soak)])
def test_all_ranks_or_hosts_fail(tmp_path: Path, ranks: Sequence[int]) -> None:
    ended = run(tmp_path, hosts=BOTH, exits={"1": ranks}, how="exception")
    assert (ended.code, ended.log) == (1, FAILED[:1])
    assert "failed first: RuntimeError: start rank" in ended.errors
    assert "No worker is left that has the state of training." in ended.errors


def test_fewer_than_min(tmp_path: Path) -> None:
    flags = ["-np", "4", "--min-np", "4", "--max-np", "4", "--elastic-timeout", "0.3"]
    ended = run(tmp_path, flags, hosts=BOTH, exits={"1": [0]})
    assert (ended.code, ended.log) == (137, FAILED[:1])
    assert (
        "After 0.3 s (--elastic-timeout) there was room for 2 workers, but --min-np 4"
        in ended.errors
    )


def test_hosts_come_back(tmp_path: Path) -> None:
    flags = ["-np", "2", "--min-np", "2", "--max-np", "4"]
    cooldown = ["--blacklist-cooldown-range", "0.2", "0.4"]
    exits = {"1": [3], "3": [3]}
    ended = run(
        tmp_path,
        [*flags, *cooldown],
        hosts=BOTH,
        exits=exits,
        how="exception",
        epochs=5,
        wait_s=0.05,
        returns=2,
    )
    assert ended.code == 0, ended.errors
    assert ended.log[0][1] == 4
    assert len(ended.log) == 5
    # How long the host was away, in epochs, depends on the machine's load.
    sizes = re.findall(r"generation (\d+): (\d) workers", ended.errors)
    assert sizes[:2] == [("2", "2"), ("3", "4")]
    # A second one with this start rank: the host came back.
    assert ended.errors.count("failed: RuntimeError: start rank 3 exits") >= 2
