"""DDP scripts as they are: what is recorded of them, and that nothing else changes."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from farandole.recorder.ddp import read_device_pass, read_pass
from farandole.study.records import Rank
from tests.recorder.forks import Forks
from tests.recorder.recorded import BUFFER_BYTES, GRADIENT_BYTES, TRAIN, run

DAY_NS = 1_700_000_000_000_000_000
SECOND_NS = 1_000_000_000


def stats(began: float, ready: float, done: float) -> dict[str, int]:
    names = ("backward_comm_time_start", "backward_compute_time_end", "backward_comm_time_end")
    times = (began, ready, done)
    return {n: DAY_NS + int(t * SECOND_NS) for n, t in zip(names, times, strict=True)}


def test_a_pass_of_ddps_times() -> None:
    found = read_pass(stats(1.0, 1.5, 1.75), offset_ns=DAY_NS)
    assert found is not None
    assert (found.began_s, found.ready_s, found.done_s, found.exposed_s) == (1.0, 1.5, 1.75, 0.25)


def test_what_the_group_waited_before_ddp_looked_is_exposed_too() -> None:
    found = read_pass(stats(1.0, 1.75, 1.75), offset_ns=DAY_NS, waited_s=0.5)
    assert found is not None
    assert (found.ready_s, found.exposed_s) == (1.25, 0.5)
    # It cannot have been ready before the first bucket went.
    found = read_pass(stats(1.0, 1.75, 1.75), offset_ns=DAY_NS, waited_s=5.0)
    assert found is not None
    assert found.ready_s == 1.0


@pytest.mark.parametrize(
    "given",
    [{}, stats(1.0, 1.5, 1.75) | {"backward_comm_time_end": -1}, stats(2.0, 1.5, 1.75)],
)
def test_an_incomplete_pass_is_none(given: dict[str, int]) -> None:
    assert read_pass(given, offset_ns=DAY_NS) is None


def test_a_pass_of_a_gpus_durations() -> None:
    given = {
        "backward_comm_time_start": DAY_NS + SECOND_NS,
        "backward_comm_time": SECOND_NS // 2,
        "backward_compute_comm_overlap_time": SECOND_NS // 8,
    }
    found = read_device_pass(given, offset_ns=DAY_NS)
    assert found is not None
    assert (found.began_s, found.ready_s, found.done_s) == (1.0, 1.125, 1.5)
    assert read_device_pass({}, offset_ns=DAY_NS) is None


PLAIN = """
dist.init_process_group("gloo")
ddp = DDP(model())
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    with ddp.no_sync():
        loss_of(ddp, 2 * step).backward()
    loss_of(ddp, 2 * step + 1).backward()
    optimizer.step()
ddp.eval()
with torch.no_grad():
    ddp(batch(0)[0])
dist.destroy_process_group()
"""


def check_plain(ranks: list[Rank], *, steps: int = 6, passes: int = 6) -> None:
    """Check what was recorded of `steps` steps of the small model with `passes` that send."""
    assert [rank.rank for rank in ranks] == [0, 1]
    for rank in ranks:
        assert rank.framework == "ddp"
        assert len(rank.steps) == steps
        assert rank.gradient_bytes_per_step == GRADIENT_BYTES
        assert rank.bucket_bytes == 25 << 20
        assert rank.bytes_sent["gradients"] == passes * GRADIENT_BYTES
        assert rank.bytes_sent["parameters"] == GRADIENT_BYTES
        check_times(rank)
    assert ranks[0].weights == ranks[1].weights is not None


def check_times(rank: Rank) -> None:
    """Check that every step's communication is where it can have been."""
    steps = rank.steps
    begins = np.concatenate([[rank.begin_s], steps.end_s[:-1]])
    # Written to the microsecond.
    grain = 2e-6
    assert (steps.ready_s >= begins - grain).all()
    assert (steps.ready_s <= steps.done_s + grain).all()
    assert (steps.done_s <= steps.end_s + grain).all()
    assert (steps.exposed_s > 0).all()
    assert (steps.exposed_s <= steps.communication_s + grain).all()


@pytest.mark.ranks
def test_a_plain_script_with_accumulation(tmp_path: Path) -> None:
    ranks, _ = run(PLAIN, tmp_path)
    check_plain(ranks)
    # When the module is made, in each pass after one that sent, and in the evaluation's.
    assert ranks[0].bytes_sent["buffers"] == (1 + 6 + 1) * BUFFER_BYTES


VARIANTS = """
import json
from contextlib import nullcontext
dist.init_process_group("gloo")
results = {}

def train(name, join=False, hook=None, zero=True, closure=False, passes=1, compiled="", **options):
    inner = model()
    if options.get("find_unused_parameters"):
        inner[0].unused = torch.nn.Linear(3, 3)
    if compiled == "inside":
        inner = torch.compile(inner, backend="eager")
    ddp = DDP(inner, **options)
    if hook is not None:
        hook(ddp)
    called = torch.compile(ddp, backend="eager") if compiled == "outside" else ddp
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    with ddp.join(**join) if join else nullcontext():
        for step in range(5 + (dist.get_rank() if join else 0)):
            optimizer.zero_grad(set_to_none=zero)
            def backward():
                for part in range(passes):
                    loss = loss_of(called, passes * step + part)
                    loss.backward()
                return loss
            if closure:
                optimizer.step(backward)
            else:
                backward()
                optimizer.step()
    results[name] = crc(ddp)

from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
train("default", bucket_cap_mb=0.005)
train("view", gradient_as_bucket_view=True)
train("view, zeros", gradient_as_bucket_view=True, zero=False)
train("unused", find_unused_parameters=True)
train("static", static_graph=True)
train("join", join={"divide_by_initial_world_size": False})
train("join, initial", join={"divide_by_initial_world_size": True})
train("closure", closure=True)
train("two passes", passes=2)
if os.environ.get("COMPILED"):
    train("compiled inside", compiled="inside")
    train("compiled outside", compiled="outside")
train("fp16", hook=lambda ddp: ddp.register_comm_hook(None, default_hooks.fp16_compress_hook))
train("powersgd", hook=lambda ddp: ddp.register_comm_hook(
    powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, random_seed=1),
    powerSGD_hook.powerSGD_hook,
))
builtin = dist.BuiltinCommHookType.ALLREDUCE
train("builtin", hook=lambda ddp: ddp._register_builtin_comm_hook(builtin))
if dist.get_rank() == 0:
    print(json.dumps(results))
dist.destroy_process_group()
"""


@pytest.mark.ranks
@pytest.mark.parametrize(
    "env",
    [
        {},
        # Six ranks import torch.compile's machinery for it; that a compiled one is recorded is in
        # test_collectives.
        pytest.param({"COMPILED": "1"}, marks=pytest.mark.soak),
    ],
    ids=["as they are", "and compiled"],
)
def test_recording_changes_no_bit_of_any_variant(
    tmp_path: Path, forks: Forks, env: dict[str, str]
) -> None:
    # Three ranks: with two, dividing and multiplying by the inverse give the same bits.
    ranks, recorded = run(VARIANTS, tmp_path, num_workers=3, forks=forks, env=env)
    (tmp_path / "bare").mkdir()
    bare = {"FARANDOLE_RECORD_DIR": "", **env}
    bare_ranks, plain = run(VARIANTS, tmp_path / "bare", num_workers=3, forks=forks, env=bare)
    assert not bare_ranks
    # What torch.compile has to say comes before.
    results, expected = (json.loads(said.splitlines()[-1]) for said in (recorded, plain))
    assert results == expected
    assert len(results) == (14 if env else 12)
    assert ranks[0].framework == "ddp"


NAIVE = """
dist.init_process_group("gloo")
ddp = DDP(model(), find_unused_parameters=True)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    for part in range(3):
        loss_of(ddp, 3 * step + part).backward()
    optimizer.step()
dist.destroy_process_group()
"""


@pytest.mark.ranks
def test_accumulation_that_sends_every_time_shows_it(tmp_path: Path) -> None:
    # Over shared memory, where the group's operations are Farandole's.
    ranks, _ = run(NAIVE, tmp_path, flags=("--transport", "shm"))
    check_plain(ranks, steps=4, passes=12)
    # One int32 for each of the model's six parameters, in each pass.
    assert ranks[0].bytes_sent["control"] >= 12 * 6 * 4


TWO_MODELS = """
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
dist.init_process_group("gloo")
models = [DDP(model()), DDP(model())]
class Hook:
    __name__ = __qualname__ = "Hook"
    def __call__(self, state, bucket):
        return default_hooks.fp16_compress_hook(state, bucket)
models[1].register_comm_hook(dist.group.WORLD, Hook())
optimizers = [torch.optim.SGD(ddp.parameters(), lr=0.1) for ddp in models]
for step in range(4):
    for ddp, optimizer in zip(models, optimizers):
        optimizer.zero_grad()
        loss_of(ddp, step).backward()
        optimizer.step()
dist.destroy_process_group()
"""


@pytest.mark.ranks
def test_two_models_in_turn_and_a_users_hook_counted_by_what_it_sends(
    tmp_path: Path, forks: Forks
) -> None:
    for rank in run(TWO_MODELS, tmp_path, forks=forks)[0]:
        assert rank.gradient_bytes_per_step == 2 * GRADIENT_BYTES
        assert rank.bytes_sent["gradients"] == 4 * GRADIENT_BYTES + 4 * GRADIENT_BYTES // 2
        check_times(rank)


ACCELERATE = """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
data = torch.utils.data.TensorDataset(torch.randn(64, 10), torch.randn(64, 7))
network = model()
network, optimizer, loader = accelerator.prepare(
    network, torch.optim.SGD(network.parameters(), lr=0.1),
    torch.utils.data.DataLoader(data, batch_size=8, shuffle=True),
)
for x, y in loader:
    optimizer.zero_grad()
    accelerator.backward(torch.nn.functional.mse_loss(network(x), y))
    optimizer.step()
accelerator.wait_for_everyone()
accelerator.end_training()
"""


@pytest.mark.ranks
@pytest.mark.skipif(
    importlib.util.find_spec("accelerate") is None, reason="accelerate is not installed"
)
def test_an_accelerate_script(tmp_path: Path) -> None:
    ranks, _ = run(ACCELERATE, tmp_path)
    check_plain(ranks, steps=4, passes=4)


LIGHTNING = """
import warnings
warnings.simplefilter("ignore")
import lightning as L

class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = model()
    def training_step(self, batch, index):
        x, y = batch
        return torch.nn.functional.mse_loss(self.model(x), y)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

data = torch.utils.data.TensorDataset(torch.randn(64, 10), torch.randn(64, 7))
trainer = L.Trainer(
    max_epochs=2, accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]), strategy="ddp",
    logger=False, enable_checkpointing=False, enable_progress_bar=False,
)
trainer.fit(Module(), torch.utils.data.DataLoader(data, batch_size=8))
"""


@pytest.mark.ranks
@pytest.mark.skipif(
    importlib.util.find_spec("lightning") is None, reason="lightning is not installed"
)
def test_a_lightning_script(tmp_path: Path) -> None:
    ranks, _ = run(LIGHTNING, tmp_path)
    check_plain(ranks, steps=8, passes=8)


def test_the_scripts_of_these_tests_share_their_beginning() -> None:
    compile(TRAIN + PLAIN, "train.py", "exec")
