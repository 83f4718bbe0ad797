"""Meeting at torch's stores, as torchrun and plain torch.distributed give them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from farandole.errors import MissingExtraError, StartError, UsageError
from farandole.world.environment import read_world
from farandole.world.store import bound_listener, connect_store
from tests.conftest import clean_environ

SCRIPT = """
import os
from farandole.world import connect, read_world
world = read_world(os.environ)
meeting = connect(world)
answers = meeting.exchange(str(world.rank).encode())
if world.rank == 0:
    import farandole.world.store
    me = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
          if os.path.lexists(f"/proc/self/fd/{fd}")}
    for name in ("tcp", "tcp6"):
        for line in open(f"/proc/net/{name}"):
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in me:
                print("listens on", fields[1].split(":")[0])
meeting.exchange(b"")
print(world.source, [answer.decode() for answer in answers])
"""


def free_port() -> int:
    listener = bound_listener(0)
    assert listener is not None
    with listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.mark.ranks
def test_ranks_started_by_hand_meet_on_loopback(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "meet.py"
    script.write_text(SCRIPT)
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    workers = [
        subprocess.Popen(
            [sys.executable, str(script)],
            env=clean_environ(RANK=str(rank), **place),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [worker.communicate(timeout=60)[0] for worker in workers]
    assert outputs[0].splitlines() == ["listens on 0100007F", "torchrun ['0', '1']"]
    assert outputs[1].splitlines() == ["torchrun ['0', '1']"]


def test_an_address_is_needed() -> None:
    with pytest.raises(UsageError, match="MASTER_ADDR and MASTER_PORT are not"):
        connect_store(read_world({"RANK": "0", "WORLD_SIZE": "2"}))


def test_a_store_that_does_not_answer_is_named() -> None:
    pytest.importorskip("torch")
    environ = {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    world = replace(read_world(environ), start_timeout_s=0.2)
    with pytest.raises(StartError, match="No store answers at MASTER_ADDR=127"):
        connect_store(world)


def test_torch_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    environ = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    with pytest.raises(MissingExtraError, match=r'pip install "farandole\[torch\]"'):
        connect_store(read_world(environ))
