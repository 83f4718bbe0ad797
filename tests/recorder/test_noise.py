"""Squared norms of gradients: how often they are taken, and what they are in real launches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from farandole.recorder import noise
from farandole.recorder.noise import (
    MOST_SHARE,
    PERIOD,
    Norms,
    PartNorms,
    Schedule,
    norms_of,
    squared_norm,
)
from farandole.recorder.recorder import Recorder, Settings
from farandole.study.read import read_rank
from farandole.study.records import Noise, Rank
from farandole.transport.reduction import STORAGE, Array, Reduction
from tests.recorder.forks import Forks
from tests.recorder.launching import launch

# ------------------------------------------------------------------------------ how often


def schedule(step_s: float, cost_s: float, updates: int = 200) -> Schedule:
    """Return what a schedule has come to after steps that took so long."""
    made, now_s = Schedule(), 0.0
    for update in range(1, updates + 1):
        if made.samples(update):
            made.spent(cost_s)
        now_s += step_s
        made.ended(now_s)
    return made


@pytest.mark.parametrize(
    ("cost_s", "period"),
    # A step of 20 ms affords 0.03 ms, so that ten of them afford 0.3 ms.
    [(0.0002, 10), (0.00029, 10), (0.00031, 20), (0.0007, 40), (0.0011, 40), (0.03, 1280)],
)
def test_what_costs_more_is_sampled_more_rarely(cost_s: float, period: int) -> None:
    made = schedule(0.02, cost_s)
    assert made.period == period
    assert cost_s / made.period <= MOST_SHARE * 0.02


def test_periods_contain_each_other() -> None:
    for shorter in range(5):
        sampled = set(range(0, 2000, PERIOD << shorter))
        assert sampled >= set(range(0, 2000, PERIOD << (shorter + 1)))


def test_a_schedule_follows_steps_that_become_longer_or_shorter() -> None:
    made = schedule(0.02, 0.0012)
    assert made.period == 40
    for update in range(3):
        made.ended(100.0 + update)  # of a second each
        made.spent(0.002)
    for update in range(9):
        made.ended(103.0 + update)
    made.spent(0.002)
    assert made.period == 10


def test_a_period_does_not_flicker() -> None:
    made = schedule(0.02, 0.00033)
    assert made.period == 20
    for cost_s in (0.00028, 0.00032, 0.00027, 0.00028):  # 0.0003 is the limit
        made.spent(cost_s)
        assert made.period == 20
    for _ in range(3):
        made.spent(0.00018)
    assert made.period == 10


def test_a_single_slow_step_changes_nothing() -> None:
    made = schedule(0.02, 0.00025)
    made.spent(5.0)
    made.ended(1000.0)
    made.spent(0.00025)
    assert made.period == 10


# ------------------------------------------------------------------------------ norms


def bits(values: Array, dtype: str) -> Array:
    """Return values as buckets hold them."""
    tensor = torch.from_numpy(values).to(getattr(torch, dtype))
    if STORAGE[dtype] == np.uint16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    plain: Array = tensor.numpy()
    return plain


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("count", [0, 1, 7, 65_536, 200_001])
def test_squared_norm(dtype: str, count: int) -> None:
    values = np.random.default_rng(count).normal(0, 0.1, count).astype(np.float32)
    rounded = torch.from_numpy(values).to(getattr(torch, dtype)).double()
    found = squared_norm(bits(values, dtype), dtype)
    assert isinstance(found, float)
    assert found == pytest.approx(float(rounded.square().sum()), rel=2e-6)


def free() -> float:
    """A clock that stands still: nothing costs anything."""
    return 0.0


Opened = Callable[[int], Recorder]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    made: list[Recorder] = []

    def opening(rank: int) -> Recorder:
        settings = Settings(folder=str(tmp_path))
        made.append(Recorder(settings, rank=rank, size=2, host="here"))
        return made[-1]

    yield opening
    for recorder in made:
        recorder.close()


def read(recorder: Recorder, folder: Path) -> Rank:
    recorder.flush()
    rank = read_rank(folder / f"rank-{recorder.rank}.jsonl")
    assert rank is not None
    return rank


def update(norms: Norms, recorder: Recorder | None, mine: Array, mean: Array) -> None:
    """Make an update of one bucket."""
    if norms.due:
        norms.before(0, [mine], "float32")
    norms.ended(recorder, [mean], ["float32"])
    if recorder is not None:
        recorder.trained_on(8)
        recorder.step()


def test_two_ranks_square_all_of_the_mean_together(tmp_path: Path, opened: Opened) -> None:
    rng = np.random.default_rng(1)
    gradients = rng.normal(size=(20, 2, 101)).astype(np.float32)
    found = []
    for rank in (0, 1):
        recorder = opened(rank)
        norms = Norms(rank=rank, size=2, clock=free)
        for step in gradients:
            update(norms, recorder, step[rank], step.mean(axis=0))
        (one,) = read(recorder, tmp_path).noise
        found.append(one)
    for rank, one in enumerate(found):
        assert one.update.tolist() == [10, 20]
        assert one.step.tolist() == [9, 19]
        assert one.samples.tolist() == [8.0, 8.0]
        assert one.bucket_bytes == (404,)
        own = (gradients[[9, 19], rank].astype(np.float64) ** 2).sum(axis=1)
        np.testing.assert_allclose(one.before[:, 0], own, rtol=1e-6)
    means = (gradients[[9, 19]].mean(axis=1).astype(np.float64) ** 2).sum(axis=1)
    np.testing.assert_allclose(found[0].after[:, 0] + found[1].after[:, 0], means, rtol=1e-6)


def test_what_is_not_finite_is_no_measurement(tmp_path: Path, opened: Opened) -> None:
    recorder, norms = opened(0), Norms(rank=0, size=2, clock=free)
    for number in range(1, 31):
        values = np.full(4, np.inf if number == 20 else 1.0, np.float32)
        update(norms, recorder, values, values)
    (found,) = read(recorder, tmp_path).noise
    assert found.update.tolist() == [10, 30]


def test_updates_count_while_nothing_is_recorded(tmp_path: Path, opened: Opened) -> None:
    recorder, norms = opened(0), Norms(rank=0, size=2, clock=free)
    ones = np.ones(4, np.float32)
    for number in range(1, 31):
        update(norms, None if 5 <= number <= 22 else recorder, ones, ones)
    (found,) = read(recorder, tmp_path).noise
    assert (found.update.tolist(), found.step.tolist()) == ([30], [11])


def test_several_updates_may_end_in_one_piece(tmp_path: Path, opened: Opened) -> None:
    recorder, norms = opened(0), Norms(rank=0, size=2, clock=free)
    ones = np.ones(4, np.float32)
    for _ in range(5):
        for _ in range(4):
            if norms.due:
                norms.before(0, [ones], "float32")
            norms.ended(recorder, [ones], ["float32"])
        recorder.several_steps(0.0, [8, 8, 8, 5])
    (found,) = read(recorder, tmp_path).noise
    assert found.update.tolist() == [10, 20]
    # The second and the last of their pieces of four.
    assert (found.step.tolist(), found.samples.tolist()) == ([9, 19], [8.0, 5.0])


def test_buckets_that_were_laid_out_anew_are_left_out(tmp_path: Path, opened: Opened) -> None:
    recorder, norms = opened(0), Norms(rank=0, size=2, clock=free)
    ones = np.ones(4, np.float32)
    for number in range(1, 21):
        if norms.due:
            norms.before(0, [ones], "float32")
            if number == 20:
                norms.before(1, [ones], "float32")
        norms.ended(recorder, [] if number == 10 else [ones, ones], ["float32"] * 2)
    (found,) = read(recorder, tmp_path).noise
    assert (found.update.tolist(), found.bucket_bytes) == ([20], (16, 16))


@pytest.mark.parametrize(
    ("how", "factor"),
    [
        (Reduction(op="average"), 1.0),
        (Reduction(op="sum"), 2.0),
        (Reduction(op="average", prescale=0.25, postscale=4.0), 1.0),
        (Reduction(op="sum", postscale=3.0), 6.0),
    ],
)
def test_results_are_taken_back_to_the_mean(
    tmp_path: Path, opened: Opened, how: Reduction, factor: float
) -> None:
    recorder, norms = opened(1), norms_of(how, 1, 2)
    ones = np.ones(4, np.float32)
    for _ in range(10):
        update(norms, recorder, ones, factor * ones)
    (found,) = read(recorder, tmp_path).noise
    assert (found.before.tolist(), found.after.tolist()) == ([[4.0]], [[2.0]])


@pytest.mark.parametrize(
    ("how", "scaled", "words"),
    [
        (Reduction(op="max"), False, "op=max of the workers' gradients is no mean of them"),
        (Reduction(op="average"), True, "LossScaleOptimizer scales the gradients"),
    ],
)
def test_what_is_no_mean_is_not_measured(
    tmp_path: Path, opened: Opened, how: Reduction, scaled: bool, words: str
) -> None:
    recorder, norms = opened(0), norms_of(how, 0, 2, scaled=scaled)
    ones = np.ones(4, np.float32)
    for _ in range(12):
        update(norms, recorder, ones, ones)
    rank = read(recorder, tmp_path)
    assert rank.noise == ()
    assert [words in note for note in rank.notes] == [True]


def test_one_worker_has_nothing_to_compare(tmp_path: Path, opened: Opened) -> None:
    recorder, norms = opened(0), norms_of(Reduction(op="max"), 0, 1)
    for _ in range(12):
        update(norms, recorder, np.ones(4, np.float32), np.ones(4, np.float32))
    rank = read(recorder, tmp_path)
    assert (rank.noise, rank.notes) == ((), ())


def test_the_scale_of_a_loss_is_divided_out(
    tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise, "_scaler", None)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    noise.scaled_by(scaler)
    scaler.scale(torch.ones(()))
    recorder, norms = opened(0), Norms(rank=0, size=2, clock=free)
    for _ in range(10):
        update(norms, recorder, np.full(4, 16.0, np.float32), np.full(4, 16.0, np.float32))
    (found,) = read(recorder, tmp_path).noise
    assert (found.before.tolist(), found.after.tolist()) == ([[4.0]], [[2.0]])


@pytest.mark.parametrize("averaged", [False, True])
def test_batches_of_an_update_stand_for_workers(
    tmp_path: Path, opened: Opened, averaged: bool
) -> None:
    rng = np.random.default_rng(2)
    batches = rng.normal(size=(20, 3, 6, 5)).astype(np.float32)
    recorder, norms = opened(0), PartNorms(3, averaged=averaged, clock=free)
    for step in batches:
        for batch in step:
            if norms.due:
                norms.part([batch[:2].astype(np.float16), None, batch[2:].T])
        norms.ended(recorder, [step.mean(axis=0) if averaged else step.sum(axis=0), None])
        recorder.trained_on(24)
        recorder.step()
    (found,) = read(recorder, tmp_path).noise
    assert (found.update.tolist(), found.parts, found.samples.tolist()) == ([10, 20], 3, [24.0] * 2)
    wide = batches[[9, 19]].astype(np.float64)
    own = (wide**2).sum(axis=(2, 3)).mean(axis=1)
    np.testing.assert_allclose(found.before[:, 0], own, rtol=1e-3)  # some in float16
    means = (wide.mean(axis=1) ** 2).sum(axis=(1, 2))
    np.testing.assert_allclose(found.after[:, 0], means, rtol=1e-5)


# ------------------------------------------------------------------------------ real launches

MODES = ("ddp", "ddp_accumulating", "average", "sum", "passes", "scaler")
# Which of their updates, counting from 0, are sampled. DDP's go by the worker's steps: a new
# optimizer's first update is not one yet, so that steps are one behind by then.
SAMPLED = dict.fromkeys(MODES, (9, 19)) | {"ddp_accumulating": (10,)}
STEPS = 20
RATE = 0.05
# Batches of different sizes, and gradients that are clipped once they are averaged.
SHARED = f"""
import torch

MODES, STEPS, RATE = {MODES!r}, {STEPS}, {RATE}

def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 40), torch.nn.Tanh(), torch.nn.Linear(40, 30), torch.nn.Tanh(),
        torch.nn.Linear(30, 2),
    )

def passes(mode):
    return 2 if mode in ("passes", "ddp_accumulating") else 1

def batches(mode, rank, step):
    for number in range(passes(mode)):
        generator = torch.Generator().manual_seed(1000 * step + 10 * rank + number)
        yield torch.randn(4 + 2 * rank, 6, generator=generator)

def loss_of(model, x):
    return (model(x) - x[:, :2].abs()).square().mean()

def clip(model):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.3)
"""
TRAIN = (
    SHARED
    + """
import functools, zlib
from contextlib import nullcontext
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import farandole
import farandole.torch as hvd
from farandole.engine.buckets import make_plan
from farandole.recorder import noise
from farandole.torch import reducer

reducer.make_plan = functools.partial(make_plan, bucket_bytes=2000)
noise.MOST_SHARE = 1e9  # however slow this machine is
hvd.init()
dist.init_process_group("gloo")

def train(mode):
    net = inner = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=mode == "scaler")
    if mode.startswith("ddp"):
        net = DistributedDataParallel(net, bucket_cap_mb=0.002)
    else:
        optimizer = hvd.DistributedOptimizer(
            optimizer, backward_passes_per_step=passes(mode),
            op=hvd.Sum if mode == "sum" else hvd.Average,
        )
    for step in range(STEPS):
        optimizer.zero_grad()
        for number, x in enumerate(batches(mode, hvd.rank(), step)):
            early = mode == "ddp_accumulating" and number == 0
            with net.no_sync() if early else nullcontext():
                scaler.scale(loss_of(net, x)).backward()
            farandole.record(samples=len(x))
        if mode.startswith("ddp"):
            clip(net)
            optimizer.step()
            continue
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        if mode == "sum":
            for parameter in net.parameters():
                parameter.grad /= hvd.size()
        clip(net)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
    word = 0
    for tensor in inner.state_dict().values():
        word = zlib.crc32(tensor.numpy().tobytes(), word)
    print(f"{mode} {hvd.rank()} {word:08x}", flush=True)

for mode in MODES:
    train(mode)
dist.destroy_process_group()
"""
)


def by_hand(mode: str, size: int) -> tuple[Array, Array]:
    """Train in float64 in this process; return the squared norms of the sampled updates.

    Returns:
        Of the ranks' own gradients (updates by ranks), and of their mean (by updates).
    """
    names: dict[str, Any] = {}
    exec(SHARED, names)
    net = names["model"]().double()
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    before, after = [], []
    for step in range(STEPS):
        own = []
        for rank in range(size):
            net.zero_grad()
            for x in names["batches"](mode, rank, step):
                names["loss_of"](net, x.double()).backward()
            own.append([parameter.grad.clone() for parameter in net.parameters()])
        for number, parameter in enumerate(net.parameters()):
            parameter.grad = torch.stack([gradients[number] for gradients in own]).mean(dim=0)
        if step in SAMPLED[mode]:
            before.append([float(sum(g.square().sum() for g in gradients)) for gradients in own])
            after.append(float(sum(p.grad.square().sum() for p in net.parameters())))
        names["clip"](net)
        optimizer.step()
    return np.array(before), np.array(after)


def by_mode(path: Path) -> dict[str, Noise]:
    """Return what a rank recorded of each mode."""
    rank = read_rank(path)
    assert rank is not None
    found = sorted(rank.noise, key=lambda one: one.optimizer)
    return dict(zip(MODES, found, strict=True))


@pytest.mark.ranks
@pytest.mark.timeout(300)
def test_launches_against_norms_by_hand(tmp_path: Path, forks: Forks) -> None:
    size = 3
    recorded = launch(tmp_path, TRAIN, np=size, launcher=forks)
    assert recorded.code == 0, recorded.output
    found = [by_mode(tmp_path / "recorded" / f"rank-{rank}.jsonl") for rank in range(size)]
    for mode in MODES:
        before, after = by_hand(mode, size)
        own = np.stack([noise_of[mode].before.sum(axis=1) for noise_of in found], axis=1)
        np.testing.assert_allclose(own, before, rtol=2e-4, err_msg=mode)
        shares = np.stack([noise_of[mode].after.sum(axis=1) for noise_of in found])
        np.testing.assert_allclose(shares.sum(axis=0), after, rtol=2e-4, err_msg=mode)
        assert (shares > 0).all()
        passes = 2 if mode in ("passes", "ddp_accumulating") else 1
        for rank, noise_of in enumerate(found):
            one = noise_of[mode]
            assert one.samples.tolist() == [passes * (4 + 2 * rank)] * len(SAMPLED[mode])
            assert len(one.bucket_bytes) > 1
            assert (one.before > 0).all()
            assert one.bucket_bytes == found[0][mode].bucket_bytes
            assert one.update.tolist() == found[0][mode].update.tolist()
    (tmp_path / "bare").mkdir()
    bare = launch(tmp_path / "bare", TRAIN, np=size, launcher=forks, FARANDOLE_RECORD_DIR="")
    assert bare.code == 0, bare.output
    assert not bare.ranks
    assert weights(bare.output) == weights(recorded.output)
    assert len(weights(bare.output)) == len(MODES) * size


def weights(output: str) -> list[str]:
    """Return the lines that a launch ended with, sorted."""
    return sorted(line for line in output.splitlines() if line.startswith(MODES))


def test_lines_are_strict_json(tmp_path: Path, opened: Opened) -> None:
    recorder, norms = opened(0), Norms(rank=0, size=2, clock=free)
    for _ in range(10):
        update(norms, recorder, np.ones(4, np.float32), np.ones(4, np.float32))
    recorder.flush()
    lines = [json.loads(text) for text in (tmp_path / "rank-0.jsonl").read_text().splitlines()]
    (told,) = [line for line in lines if line["kind"] == "noise"]
    assert set(told) == {"kind", "optimizer", "update", "step", "bytes", "before", "after"}
