"""Batch norm of several workers against torch's on the whole batch."""

from __future__ import annotations

import copy
import json
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import farandole.torch as hvd
from farandole.engine import handle
from farandole.errors import UsageError
from farandole.recorder import Recorder
from farandole.recorder.recorder import read_settings
from tests.torch.checks import Check, Checks, Ranks, on, raises

checks = Checks()

PLAIN = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
TAILS = {2: (), 3: (5,), 4: (3, 4), 5: (2, 3, 2)}
CHANNELS = 3


def mine(shares: tuple[int, ...]) -> slice:
    begin = sum(shares[: hvd.rank()])
    return slice(begin, begin + shares[hvd.rank()])


def randoms(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def filled(layer: nn.Module) -> nn.Module:
    """Give weight and bias values that show."""
    layer = layer.double()
    if layer.affine:
        with torch.no_grad():
            layer.weight.copy_(1 + randoms(1, CHANNELS).abs())
            layer.bias.copy_(randoms(2, CHANNELS))
    return layer


def near(got: torch.Tensor, expected: torch.Tensor, most: float = 1e-10) -> None:
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    if got.numel():
        assert (got - expected).abs().max() <= most, (got - expected).abs().max()


def compare(shares: tuple[int, ...], dims: int, **options: Any) -> None:
    """Train three steps on this rank's share and on everything; all must be the same."""
    shares = shares[: hvd.size()]
    layer = filled(hvd.SyncBatchNorm(CHANNELS, **options))
    whole = filled(PLAIN[dims](CHANNELS, **options))
    own = mine(shares)
    for step in range(3):
        x = 3 + 2 * randoms(10 + step, sum(shares), CHANNELS, *TAILS[dims])
        # Ranks that differ much in mean.
        x += torch.arange(sum(shares), dtype=x.dtype).view(-1, *(1 for _ in x.shape[1:]))
        slopes = randoms(20 + step, *x.shape)
        part = x[own].clone().requires_grad_()
        x.requires_grad_()
        layer.zero_grad()
        whole.zero_grad()
        output, expected = layer(part), whole(x)
        # The average over ranks of gradients is that of the whole batch's loss.
        (output * slopes[own]).sum().mul(hvd.size()).backward()
        (expected * slopes).sum().backward()
        near(output.detach(), expected.detach()[own])
        near(part.grad / hvd.size(), x.grad[own])
        for got, right in zip(layer.parameters(), whole.parameters(), strict=True):
            near(hvd.allreduce(got.grad, name="gradient"), right.grad)
        for got, right in zip(layer.buffers(), whole.buffers(), strict=True):
            near(got, right)
    layer.eval()
    whole.eval()
    if layer.track_running_stats:
        near(layer(x[own]).detach(), whole(x).detach()[own])


@checks.of(d2=2, d3=3, d4=4, d5=5)
def check_as_one_worker(dims: int) -> None:
    compare((4, 4, 4), dims)


@checks.of(
    unequal={"shares": (5, 2, 3)},
    nothing_on_one={"shares": (4, 0, 3)},
    average_of_all={"momentum": None},
    slow={"momentum": 0.01, "eps": 1e-2},
    without_weights={"affine": False},
    without_statistics={"track_running_stats": False},
    bare={"affine": False, "track_running_stats": False},
)
def check_options(options: dict[str, Any]) -> None:
    options = dict(options)
    compare(options.pop("shares", (3, 3, 3)), 4, **options)


@checks
def check_a_large_mean_costs_no_digits() -> None:
    size, rank = hvd.size(), hvd.rank()
    x = (1e4 + randoms(3, 64 * size, CHANNELS)).float()
    whole = nn.BatchNorm1d(CHANNELS).double()
    expected = whole(x.double())
    layer = hvd.SyncBatchNorm(CHANNELS)
    output = layer(x[64 * rank : 64 * (rank + 1)])
    # One unit in the last place of 1e4 is 0.001 in float32. A variance from the mean of squares,
    # 1e8, would be off by several.
    near(output.double(), expected[64 * rank : 64 * (rank + 1)], 2e-3)
    near(layer.running_var.double(), whole.running_var, 1e-4)


@checks.of(bfloat16=torch.bfloat16, float16=torch.float16)
def check_half_precision(dtype: torch.dtype) -> None:
    size, rank = hvd.size(), hvd.rank()
    x = randoms(4, 8 * size, CHANNELS, 4).to(dtype)
    whole, layer = nn.BatchNorm1d(CHANNELS), hvd.SyncBatchNorm(CHANNELS)
    own = slice(8 * rank, 8 * (rank + 1))
    for module, part in ((whole, x.float()), (layer, x[own])):
        part.requires_grad_()
        output = module(part)
        (output * output.detach().abs()).sum().backward()
        if module is whole:
            expected, slope = output, part.grad
    # Statistics come from sums in float32; what goes in and out is rounded.
    assert output.dtype == part.grad.dtype == dtype
    near(output.float(), expected[own], 2e-2)
    near(part.grad.float(), slope[own], 5e-2)
    near(layer.running_var, whole.running_var, 1e-6)


class Net(nn.Module):
    """Two layers of one shape, and one that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
        )
        self.twice = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.twice(torch.tanh(self.twice(self.layers(x))))
        return self.head(x.square().mean((2, 3)))


def trained(passes: int, *, distributed: bool) -> nn.Module:
    size, rank = (hvd.size(), hvd.rank()) if distributed else (1, 0)
    torch.manual_seed(5)
    net = Net().double()
    optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    if distributed:
        if rank == 0:
            # What one rank makes besides must not change the names of the others' layers.
            hvd.SyncBatchNorm.convert_sync_batchnorm(Net())
        net = hvd.SyncBatchNorm.convert_sync_batchnorm(net)
        optimizer = hvd.DistributedOptimizer(
            optimizer, net.named_parameters(), backward_passes_per_step=passes
        )
    share = 12 // size
    for step in range(3):
        optimizer.zero_grad()
        for number in range(passes):
            x = randoms(100 * step + number, 12, 2, 6, 6)[share * rank : share * (rank + 1)]
            (net(x).square().mean() / passes).backward()
        optimizer.step()
    return net


@checks.of(one_pass=1, accumulating=2)
def check_training(passes: int) -> None:
    net, alone = trained(passes, distributed=True), trained(passes, distributed=False)
    found, expected = net.state_dict(), alone.state_dict()
    assert found.keys() == expected.keys()
    for name in expected:
        near(found[name], expected[name])


@checks
def check_eval_mode_exchanges_nothing() -> None:
    layer = hvd.SyncBatchNorm(CHANNELS).eval()
    bare = hvd.SyncBatchNorm(CHANNELS, track_running_stats=False).eval()
    if hvd.rank() == 0:
        x = randoms(6, 5, CHANNELS).float()
        near(layer(x), nn.BatchNorm1d(CHANNELS).eval()(x), 0.0)
        near(bare(x), nn.BatchNorm1d(CHANNELS, track_running_stats=False).eval()(x), 0.0)
    assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))


@checks
def check_input_without_a_gradient() -> None:
    layer = hvd.SyncBatchNorm(CHANNELS)
    layer(randoms(7 + hvd.rank(), 4, CHANNELS).float()).square().sum().backward()
    assert torch.isfinite(layer.weight.grad).all()
    with torch.no_grad():
        layer(randoms(8 + hvd.rank(), 4, CHANNELS).float())
    assert layer.num_batches_tracked == 2


@checks
def check_one_value_for_all_workers_is_an_error_on_all() -> None:
    layer = hvd.SyncBatchNorm(CHANNELS)
    with raises(ValueError, "more than 1 value per channel", f"all {hvd.size()} workers have 1"):
        layer(torch.ones(1 if hvd.rank() == 0 else 0, CHANNELS))
    # One each is enough, where torch's would refuse.
    assert torch.isfinite(layer(torch.full((1, CHANNELS), float(hvd.rank())))).all()


@checks
def check_bytes_are_recorded_as_buffers() -> None:
    settings = read_settings({"FARANDOLE_RECORD_DIR": (folder := tempfile.mkdtemp())})
    assert settings is not None
    recorder = Recorder(settings, rank=hvd.rank(), size=hvd.size(), host="here")
    plain = handle.current
    handle.current = lambda: recorder  # type: ignore[attr-defined]
    try:
        net = nn.ModuleDict({"linear": nn.Linear(2, 4), "norm": hvd.SyncBatchNorm(4)})
        net.register_buffer("scale", torch.ones(5))
        net["norm"](net["linear"](torch.ones(3, 2))).sum().backward()
        exchanged = sent(recorder)
        hvd.broadcast_parameters(dict(net["norm"].named_buffers()), root_rank=0)
        hvd.broadcast_parameters([*net.named_parameters(), *net.named_buffers()], root_rank=0)
    finally:
        handle.current = plain  # type: ignore[attr-defined]
        recorder.close()
        Path(folder, f"rank-{hvd.rank()}.jsonl").unlink()
        Path(folder).rmdir()
    # Mean, squares and count of every rank forward, two sums backward, in float32.
    there_and_back = 4 * (hvd.size() * (2 * 4 + 1) + 2 * 4)
    assert exchanged == {"buffers": there_and_back}
    statistics, parameters = 4 * (4 + 4) + 8, 4 * (2 * 4 + 4 + 4 + 4)
    assert sent(recorder) == {
        "buffers": there_and_back + 2 * statistics + 5 * 4,
        "parameters": parameters,
    }


def sent(recorder: Recorder) -> dict[str, int]:
    recorder.flush()  # adds up what was sent
    return json.loads(json.dumps({kind: n for kind, n in recorder._bytes.items() if n}))


ranks = on((2, "shm"), (3, "shm"), (2, "gloo"))


@pytest.mark.ranks
@checks.each()
def test_on_all_ranks(ranks: Ranks, check: Check) -> None:
    ranks.run(check)


@pytest.fixture
def alone() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


def test_one_worker_has_torchs(alone: None) -> None:
    x = randoms(9, 6, CHANNELS, 4).float()
    layer, plain = hvd.SyncBatchNorm(CHANNELS), nn.BatchNorm1d(CHANNELS)
    near(layer(x), plain(x), 0.0)
    near(layer.running_var, plain.running_var, 0.0)


@pytest.mark.parametrize(
    ("shape", "said"),
    [((3,), "1 dimensions"), ((1,) * 6, "6 dimensions"), ((2, 4), r"shape \(2, 4\), which has 4")],
)
def test_input_of_another_shape(shape: tuple[int, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        hvd.SyncBatchNorm(CHANNELS)(torch.ones(shape))


def test_a_model_is_converted_in_place() -> None:
    norm = nn.BatchNorm2d(4, eps=1e-3, momentum=None)
    bare = nn.BatchNorm1d(2, affine=False, track_running_stats=False).eval()
    model = nn.Sequential(nn.Conv2d(1, 4, 1), norm, nn.Sequential(nn.GroupNorm(2, 4), bare), norm)
    before = {name: id(tensor) for name, tensor in named(model)}
    converted = hvd.SyncBatchNorm.convert_sync_batchnorm(model)
    assert converted is model
    assert [type(module) for module in model] == [
        nn.Conv2d,
        hvd.SyncBatchNorm,
        nn.Sequential,
        hvd.SyncBatchNorm,
    ]
    # Optimizers that hold the parameters still do, and what was one module still is one.
    assert {name: id(tensor) for name, tensor in named(model)} == before
    assert model[1] is model[3]
    assert (model[1].eps, model[1].momentum, model[1].training) == (1e-3, None, True)
    assert (model[2][1].affine, model[2][1].training) == (False, False)
    assert hvd.SyncBatchNorm.convert_sync_batchnorm(model)[1] is model[1]


def named(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]


def test_a_batch_norm_alone_is_converted() -> None:
    norm = nn.BatchNorm3d(2, dtype=torch.float64)
    converted = hvd.SyncBatchNorm.convert_sync_batchnorm(norm)
    assert isinstance(converted, hvd.SyncBatchNorm)
    assert converted.weight is norm.weight
    assert converted.running_mean.dtype == torch.float64
    with pytest.raises(UsageError, match="LazyBatchNorm1d does not know its channels"):
        hvd.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.LazyBatchNorm1d()))


def test_it_can_be_copied_and_kept() -> None:
    layer = hvd.SyncBatchNorm(CHANNELS)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert other.state_dict().keys() == nn.BatchNorm1d(CHANNELS).state_dict().keys()
    nn.BatchNorm1d(CHANNELS).load_state_dict(layer.state_dict())
