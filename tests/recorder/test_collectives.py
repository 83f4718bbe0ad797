"""torch.distributed's functions in scripts: bytes by kind, and gradients averaged by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.recorder.forks import Forks
from tests.recorder.recorded import GRADIENT_BYTES, run

pytestmark = pytest.mark.ranks

BY_HAND = """
dist.init_process_group("gloo")
network = model()
parameters = list(network.parameters())
for parameter in parameters:
    dist.broadcast(parameter.data, 0)
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
for step in range(18):
    optimizer.zero_grad()
    loss = loss_of(network, step)
    loss.backward()
    if step < 6:
        for parameter in parameters:
            dist.all_reduce(parameter.grad)
            parameter.grad /= 2
    elif step < 12:
        works = [dist.all_reduce(p.grad.data, async_op=True) for p in parameters]
        for work in works:
            work.wait()
    else:
        flat = torch.cat([p.grad.flatten() for p in parameters])
        dist.all_reduce(flat)
        torch.nn.utils.vector_to_parameters(flat / 2, parameters)
    dist.all_reduce(loss.detach())
    optimizer.step()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("transport", ["gloo", "shm"])
def test_gradients_averaged_by_hand(transport: str, tmp_path: Path, forks: Forks) -> None:
    """One by one, then all at once without waiting, then in one flat piece."""
    gloo = transport == "gloo"
    flags = () if gloo else ("--transport", transport)
    for rank in run(BY_HAND, tmp_path, forks=forks if gloo else None, flags=flags)[0]:
        assert rank.framework == "process_group"
        assert rank.bytes_sent["gradients"] == 18 * GRADIENT_BYTES
        # The loss of each step.
        assert rank.bytes_sent["other"] >= 18 * 4
        steps = rank.steps
        assert (steps.exposed_s > 0).all()
        assert (steps.exposed_s <= steps.communication_s + 2e-6).all()
        assert (steps.ready_s < steps.done_s).all()
        assert (steps.done_s <= steps.end_s).all()
        assert np.isfinite(steps.ready_s).all()


OTHERS = """
dist.init_process_group("gloo")
rank = dist.get_rank()
word = torch.full((25,), float(rank))
everyone = [torch.zeros(25) for _ in range(2)]
dist.all_gather(everyone, word)
assert [t[0].item() for t in everyone] == [0.0, 1.0]
both = torch.zeros(50)
dist.all_gather_into_tensor(both, word)
dist.broadcast(word, src=1)
dist.barrier()
dist.all_gather_object(words := [None, None], {"rank": rank})
assert words[1] == {"rank": 1}
dist.broadcast_object_list(told := ["a" * 1000 if rank == 0 else None], src=0)
assert told == ["a" * 1000]
if rank == 0:
    dist.send(word, 1)
else:
    dist.recv(word, 0)

@torch.compile(backend="eager", fullgraph=True)
def total(x):
    y = x * 2
    dist.all_reduce(y)
    return y + 1

assert total(torch.ones(3)).tolist() == [5.0] * 3
compiled = torch.compile(DDP(model()), backend="eager")
optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)
loss_of(compiled, 0).backward()
optimizer.step()
parameter = torch.nn.Parameter(torch.zeros(11))
dist.broadcast(parameter.data, 0)
dist.broadcast(parameter.detach().requires_grad_(), 0)
with torch.no_grad():
    dist.broadcast(parameter, 0)
dist.destroy_process_group()
"""


def test_bytes_by_kind_and_compiled_calls(tmp_path: Path, forks: Forks) -> None:
    first, second = run(OTHERS, tmp_path, forks=forks)[0]
    # all_gather, all_gather_into_tensor, broadcast; two broadcasts of something unknown.
    expected = 3 * 100 + 2 * 44
    assert second.bytes_sent["other"] == expected
    assert first.bytes_sent["other"] == expected + 100
    assert first.bytes_sent["parameters"] == 44 + GRADIENT_BYTES
    # Pickled: at least the string itself.
    assert first.bytes_sent["objects"] > 1000
    assert first.bytes_sent["gradients"] == GRADIENT_BYTES


UNDER_FSDP = """
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
network = model()
fully_shard(network)
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    loss_of(network, step).backward()
    optimizer.step()
dist.destroy_process_group()
"""


def test_what_fsdp_reduces_in_backward_is_gradients(tmp_path: Path, forks: Forks) -> None:
    for rank in run(UNDER_FSDP, tmp_path, forks=forks)[0]:
        # Sharded pieces are padded.
        assert rank.bytes_sent["gradients"] >= 3 * GRADIENT_BYTES
