"""init() and shutdown(), by every way in which a script can be started."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import farandole
import farandole.torch as hvd
from farandole.engine import context
from farandole.errors import NotInitializedError
from tests.conftest import clean_environ
from tests.torch.checks import Check, Checks, Ranks, on, raises

QUERIES = (hvd.rank, hvd.size, hvd.local_rank, hvd.local_size, hvd.cross_rank, hvd.cross_size)

checks = Checks()


@checks
def check_who_am_i() -> None:
    assert hvd.is_initialized()
    everyone = hvd.allgather_object([query() for query in QUERIES])
    size = hvd.size()
    assert everyone == [[rank, size, rank, size, 0, 1] for rank in range(size)]


@checks
def check_a_second_init_changes_nothing() -> None:
    before = context.current()
    hvd.init()
    assert context.current() is before
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2


@checks
def check_nothing_works_after_shutdown() -> None:
    hvd.shutdown()
    hvd.shutdown()
    assert not hvd.is_initialized()
    for query in QUERIES:
        with raises(ValueError, "Horovod has not been initialized; use hvd.init()."):
            query()


@checks
def check_twenty_rounds() -> None:
    """Each ends at once after an operation that peers may not be through with yet, and ranks come
    to the next at different times."""
    hvd.shutdown()
    held = []
    for turn in range(20):
        time.sleep(0.002 * ((hvd_rank() + turn) % 3))
        hvd.init()
        model = torch.nn.Linear(3, 2)
        hvd.broadcast_parameters(model.state_dict(), 0)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
        )
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(4, 3)).sum().backward()
            optimizer.step()
        big = torch.full((300_000,), float(hvd.rank() + turn))
        expected = sum(range(hvd.size())) + turn * hvd.size()
        assert hvd.allreduce(big, op=hvd.Sum)[-1].item() == expected
        hvd.shutdown()
        gc.collect()
        process = psutil.Process()
        held.append((process.num_fds(), threading.active_count()))
    # The first rounds open what stays open: the rendezvous, libraries' own files.
    assert held[-1][0] <= held[4][0] + 2, held
    assert held[-1][1] <= held[4][1] + 1, held


def hvd_rank() -> int:
    return int(os.environ["FARANDOLE_RANK"])


@checks
def check_torchs_own_group_beside_ours() -> None:
    assert not dist.is_initialized()
    folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None)
    store = dist.FileStore(str(Path(folder, "store")), hvd.size())
    dist.init_process_group("gloo", store=store, rank=hvd.rank(), world_size=hvd.size())
    try:
        theirs = torch.ones(3)
        dist.all_reduce(theirs)
        assert torch.equal(theirs, hvd.allreduce(torch.ones(3), op=hvd.Sum))
    finally:
        dist.destroy_process_group()


@checks
def check_data_is_shared_out_among_ranks_and_loader_processes() -> None:
    dataset = TensorDataset(torch.arange(24))
    sampler = DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank(), shuffle=True)
    loader = DataLoader(dataset, batch_size=2, sampler=sampler, num_workers=1)
    seen = []
    for (x,) in loader:
        seen += x.tolist()
        hvd.allreduce(x.float())
    everyone = [number for share in hvd.allgather_object(seen) for number in share]
    assert sorted(everyone) == list(range(24))


ranks = on((2, "shm"), (3, "shm"), (3, "gloo"))


@pytest.mark.ranks
@checks.each()
def test_on_all_ranks(ranks: Ranks, check: Check) -> None:
    ranks.run(check)


@pytest.mark.parametrize("query", QUERIES)
def test_before_init(query: object) -> None:
    with pytest.raises(NotInitializedError) as caught:
        query()  # type: ignore[operator]
    assert isinstance(caught.value, ValueError)
    assert str(caught.value) == "Horovod has not been initialized; use hvd.init()."
    assert not hvd.is_initialized()


def test_shutdown_without_init() -> None:
    hvd.shutdown()


# One write for a line: torchrun lets the ranks write into the same stream as they come.
SCRIPT = """
import os
import torch
import farandole.torch as hvd
from farandole.engine import context

hvd.init()
name = context.current().engine.transport.name
total = hvd.allreduce(torch.ones(3), op=hvd.Sum)
gathered = hvd.allgather(torch.tensor([hvd.rank()]))
said = hvd.rank(), hvd.size(), hvd.local_rank(), name, total.tolist(), gathered.tolist()
os.write(1, (" ".join(map(str, said)) + "\\n").encode())
"""


def run_script(
    folder: Path, *command: str, text: str = SCRIPT, **variables: str
) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(text)
    return subprocess.run(
        [*command, str(script)],
        env=clean_environ(**variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_plain_python_is_one_worker(tmp_path: Path) -> None:
    ended = run_script(tmp_path, sys.executable)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "0 1 0 solo [1.0, 1.0, 1.0] [0]\n"


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("transport", "name"),
    # They meet in the same way; what Gloo does then is tested on ranks from the nursery.
    [("auto", "shm"), pytest.param("gloo", "gloo", marks=pytest.mark.soak)],
)
def test_under_torchrun(tmp_path: Path, transport: str, name: str) -> None:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ended = run_script(
        tmp_path, sys.executable, *torchrun, FARANDOLE_TRANSPORT=transport, OMP_NUM_THREADS="1"
    )
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == [
        f"{rank} 2 {rank} {name} [2.0, 2.0, 2.0] [0, 1]" for rank in range(2)
    ]


def work_and_leave() -> float:
    """End at once after an operation that peers may not be through with yet."""
    hvd.init()
    hvd.allreduce_(torch.ones(100))
    return hvd.allreduce(torch.ones(1_000_000), op=hvd.Sum)[-1].item()


@pytest.mark.ranks
@pytest.mark.parametrize("transport", ["shm", "gloo"])
def test_real_workers_that_leave_one_by_one(transport: str) -> None:
    assert farandole.run(work_and_leave, np=3, transport=transport) == [3.0] * 3


def test_an_unknown_transport_lists_the_choices(tmp_path: Path) -> None:
    ended = run_script(tmp_path, sys.executable, FARANDOLE_TRANSPORT="pigeon")
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert "pigeon" in last
    assert all(choice in last for choice in ("auto", "shm", "gloo", "nccl"))


def test_without_torch_the_extra_is_named(tmp_path: Path) -> None:
    text = "import sys\nsys.modules['torch'] = None\nimport farandole.torch\n"
    ended = run_script(tmp_path, sys.executable, text=text)
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert "farandole[torch]" in last
    assert "CPU build" in last
