"""Backward passes and the samples of model calls, in scripts without a DataLoader."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recorder.forks import Forks
from tests.recorder.launching import launch

pytestmark = pytest.mark.ranks

TRAIN = """
import copy, io, pickle
import torch, torch.utils.checkpoint

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU())
        self.head = torch.nn.Linear(8, 1)

    def forward(self, x):
        if isinstance(x, dict):
            x = x["x"]
        return self.head(self.layers(x))

torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(6, 4)
loss_of = torch.nn.MSELoss()

def loss(y):
    return loss_of(y, torch.zeros_like(y))
"""
LOOP = """
for step in range(6):
    optimizer.zero_grad()
    {}
    optimizer.step()
"""


CASES = [
    ("loss(model(x)).backward()", 1, 6),
    ("for _ in range(3): loss(model(x)).backward()", 3, 18),
    ("loss(model(x=x)).backward()", 1, 6),
    ("loss(model({'n': torch.tensor(1.0), 'x': x})).backward()", 1, 6),
    ("sum(loss(model(row[None])) for row in x).backward()", 1, 6),
    # Two losses of one forward are one pass.
    ("y = model(x); loss(y).backward(retain_graph=True); y.mean().backward()", 1, 6),
    # Parts of a model that are called one by one have the same samples.
    ("loss(model.head(model.layers(x))).backward()", 1, 6),
    # Validation is no training, with gradients or without.
    ("model.eval(); model(x); model.train(); loss(model(x)).backward()", 1, 6),
    ("with torch.no_grad(): model(x[:2])\nloss(model(x)).backward()", 1, 6),
    # What checkpointing computes anew is no further call.
    ("loss(torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)).backward()", 1, 6),
    # Gradients by other means than a backward pass.
    ("for p, g in zip(model.parameters(), torch.autograd.grad(loss(model(x)),"
     " list(model.parameters()))): p.grad = g", 1, 6),
]  # fmt: skip


def test_calls_and_passes_are_counted(tmp_path: Path, forks: Forks) -> None:
    steps = [step for step, _, _ in (CASES[0], *CASES)]
    loop = "optimizer.zero_grad()\nexec(step)\noptimizer.step()".replace("\n", "\n    ")
    ran = launch(tmp_path, f"{TRAIN}\nfor step in {steps!r}:\n    {loop}\n", launcher=forks)
    assert ran.code == 0, ran.output
    (rank,) = ran.ranks
    found = rank.steps()
    # Calls are followed from the second step on.
    assert (found["passes"][0], found["samples"][0]) == (1.0, None)
    counted = zip(found["passes"][1:], found["samples"][1:], strict=True)
    assert list(counted) == [(passes, samples) for _, passes, samples in CASES]
    assert rank.setup["batch_seen"] == 6


def test_a_module_can_still_be_copied_pickled_and_scripted(tmp_path: Path, forks: Forks) -> None:
    script = (
        TRAIN
        + LOOP.format("loss(model(x)).backward()")
        + """
again = pickle.loads(pickle.dumps(copy.deepcopy(model)))
assert torch.equal(again(x), model(x))
assert not vars(model)["_forward_pre_hooks"]
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU())
assert torch.jit.script(net)(x).shape == (6, 8)
torch.save(model, io.BytesIO())
"""
    )
    ran = launch(tmp_path, script, launcher=forks)
    assert ran.code == 0, ran.output


def test_a_data_loader_tells_samples_better_than_calls(tmp_path: Path, forks: Forks) -> None:
    script = (
        TRAIN
        + """
loader = torch.utils.data.DataLoader(torch.randn(48, 4), batch_size=8)
for batch in loader:
    optimizer.zero_grad()
    for part in batch.split(2):
        loss(model(part)).backward()
    optimizer.step()
assert type(model).__call__ is torch.nn.Module.__call__  # nothing is followed that is not needed
"""
    )
    ran = launch(tmp_path, script, launcher=forks)
    assert ran.code == 0, ran.output
    steps = ran.ranks[0].steps()
    # One batch of 8, however a script cuts it.
    assert steps["samples"] == [8.0] * 6
    assert steps["passes"] == [1.0] * 6
    assert ran.ranks[0].setup["batch_seen"] == 8


@pytest.mark.soak
def test_compiled_modules_are_followed_without_a_warning(tmp_path: Path) -> None:
    script = TRAIN + "model = torch.compile(model, backend='eager')\n"
    script += LOOP.format("for _ in range(2): loss(model(x)).backward()")
    ran = launch(tmp_path, script, launcher="python", PYTHONWARNINGS="error::UserWarning")
    assert ran.code == 0, ran.output
    assert ran.ranks[0].steps()["samples"][1:] == [12.0] * 5
