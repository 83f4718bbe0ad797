"""Plain torch scripts: every socket of a local run listens on loopback only."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import run_cli

pytestmark = pytest.mark.ranks

SCRIPT = """
import os
import time
import torch
import torch.distributed as dist


def listening():
    folder = "/proc/self/fd/"
    mine = {os.readlink(folder + fd) for fd in os.listdir(folder) if os.path.lexists(folder + fd)}
    for name in ("tcp", "tcp6"):
        for line in open(f"/proc/net/{name}").readlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in mine:
                yield fields[1]


def descriptors():
    return len(os.listdir("/proc/self/fd"))


kept = []
for visit in range(4):
    dist.init_process_group("gloo")
    value = torch.tensor([1.0 + dist.get_rank()])
    dist.all_reduce(value)
    print("sum", value.item())
    for address in listening():
        host, port = address.split(":")
        print("listens", "loopback" if host == "0100007F" else address)
        if int(port, 16) == int(os.environ["MASTER_PORT"]):
            print("store", dist.get_rank())
    dist.barrier()
    if dist.get_rank() == 0:
        time.sleep(0.5)  # by then the others are at their next visit
    dist.destroy_process_group()
    # Gloo's go a moment later; what the first visit leaves is the store.
    deadline = time.monotonic() + 10
    while kept and descriptors() > kept[0] and time.monotonic() < deadline:
        time.sleep(0.02)
    kept.append(descriptors())
print("left", "nothing" if kept[-1] <= kept[0] else kept)
"""


def test_a_plain_process_group(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    done = run_cli("run", "-np", "2", script)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert sorted(line for line in lines if "sum" in line) == [
        *["[0]<stdout>:sum 3.0"] * 4,
        *["[1]<stdout>:sum 3.0"] * 4,
    ]
    listens = {line.partition(":")[2] for line in lines if "listens" in line}
    assert listens == {"listens loopback"}
    assert [line for line in lines if "store" in line] == ["[0]<stdout>:store 0"] * 4
    assert sorted(line for line in lines if "left" in line) == [
        "[0]<stdout>:left nothing",
        "[1]<stdout>:left nothing",
    ]
