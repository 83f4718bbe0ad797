"""Hashes of samples, and what the graph of a loss says."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from farandole.recorder import samples
from farandole.recorder.samples import SampleLog, random_states, row_hashes
from farandole.recorder.schedules import describe_root
from tests.recorder.forks import Forks
from tests.recorder.launching import launch

torch = pytest.importorskip("torch")


def rows(count: int = 6, width: int = 9) -> Any:
    return np.random.default_rng(0).random((count, width)).astype(np.float32)


def test_a_sample_has_one_hash_wherever_it_stands() -> None:
    data = rows()
    labels = np.arange(6) % 3
    first, small = row_hashes([data, labels], 6)
    turned, _ = row_hashes([data[::-1], labels[::-1]], 6)
    assert len(set(first)) == 6
    assert first == turned[::-1]
    assert small[:3] == small[3:]
    assert len(set(small)) == 3


def test_padding_changes_no_hash_and_a_change_does() -> None:
    data = np.random.default_rng(0).integers(1, 99, (4, 12))
    padded = np.pad(data, ((0, 0), (0, 20)))
    assert row_hashes([data], 4)[0] == row_hashes([padded], 4)[0]
    data[2, 5] += 1
    now, before = row_hashes([data], 4)[0], row_hashes([padded], 4)[0]
    assert [at for at in range(4) if now[at] != before[at]] == [2]


def test_tensors_and_arrays_have_the_same_hashes_and_labels_alone_none() -> None:
    data = rows()
    assert row_hashes([torch.from_numpy(data)], 6)[0] == row_hashes([data], 6)[0]
    assert row_hashes([np.arange(6)], 6) == ([], [])


def test_looking_draws_no_random_number() -> None:
    class Data:
        def __init__(self) -> None:
            self.own = np.random.default_rng(3)

    data = Data()
    before = random_states(data)
    row_hashes([rows()], 6)
    assert random_states(data) == before
    assert set(before) == {"python", "numpy", "torch", "own"}
    data.own.normal()
    random.random()
    after = random_states(data)
    assert {name for name in after if after[name] != before[name]} == {"python", "own"}


def test_the_root_of_a_loss_says_by_what_it_was_divided() -> None:
    x = torch.randn(8, 4, requires_grad=True)
    labels = torch.tensor([0, 1, 2, -100, 1, 1, -100, 2])
    plain = torch.nn.functional.cross_entropy(x, labels)
    found = describe_root(plain.grad_fn)
    assert (found["divisors"], found["counts"], found["known"]) == ([], [[6.0, 8.0]], True)
    assert describe_root((plain / 4).grad_fn)["divisors"] == [4.0]
    assert describe_root((plain * 0.5).grad_fn)["factors"] == [0.5]
    mask = labels >= 0
    masked = (x.sum(1) * mask).sum() / mask.sum()
    assert describe_root(masked.grad_fn)["divisors"] == [6.0]
    assert describe_root((plain + masked).grad_fn)["known"]
    assert not describe_root(None)["known"]


def test_a_loader_of_each_epoch_is_one_and_never_another_that_lives() -> None:
    def loader(size: int) -> Any:
        data = torch.utils.data.TensorDataset(torch.randn(size, 8))
        return torch.utils.data.DataLoader(data, 4)

    log = SampleLog()
    train, valid = loader(12), loader(8)
    assert [log.begins(one) for one in (train, valid, train)] == [0, 1, 0]
    del train
    train = loader(12)
    assert log.begins(train) == 0
    del train
    other = loader(20)
    assert [log.begins(one) for one in (other, valid)] == [2, 1]


def test_what_keras_evaluates_on_is_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    class CallbackList:
        params = None

        def on_epoch_begin(self) -> None: ...
        def on_train_begin(self) -> None: ...
        def on_test_begin(self) -> None: ...
        def on_test_end(self, logs: Any) -> None: ...
        def on_predict_begin(self) -> None: ...
        def on_predict_end(self) -> None: ...

    told: list[dict[str, Any]] = []
    recorder: Any = SimpleNamespace(
        steps=0,
        add_ending=lambda finish: None,
        tell=lambda kind, **fields: told.append({"kind": kind, **fields}),
    )
    log = SampleLog()
    monkeypatch.setattr(samples, "_log", log)
    samples.install_keras(SimpleNamespace(callbacks=SimpleNamespace(CallbackList=CallbackList)))
    log.opened(recorder)
    loaders = [
        torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(size, 8)), 4)
        for size in (12, 8)
    ]
    callbacks = CallbackList()

    def fetch(loader: Any, updates: int) -> None:
        # As Keras does on torch: gradients are enabled in an evaluation too, and it counts
        # batches and asks for no one more.
        iterator = SimpleNamespace()
        log.began(iterator, loader)
        for batch in loader:
            log.fetched(iterator, batch, recorder, True)
            recorder.steps += updates

    for _ in range(2):
        callbacks.on_epoch_begin()
        fetch(loaders[0], 1)
        callbacks.on_test_begin()
        fetch(loaders[1], 0)
        callbacks.on_test_end({})
    callbacks.on_epoch_begin()
    fetch(loaders[0], 1)
    log._finish()
    passes = [(one["samples"], one["training"]) for one in told if one["kind"] == "pass"]
    assert sorted(passes) == [(8, False)] * 2 + [(12, True)] * 3


SCRIPT = """
import torch
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(20, 8), torch.arange(20) % 2)
loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
held_out = torch.utils.data.DataLoader(data, batch_size=10)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=7)
next(iter(loader))
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        (torch.nn.functional.cross_entropy(model(x), y) / 2).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    for x, y in held_out:
        model(x)
"""


@pytest.mark.ranks
def test_a_script_is_seen_whole(tmp_path: Path, forks: Forks) -> None:
    launched = launch(tmp_path, SCRIPT, launcher=forks, FARANDOLE_RECORD="doctor")
    assert launched.code == 0, launched.output
    (rank,) = launched.ranks
    train, valid = rank.of("loader")
    assert (train["samplers"], train["batch_size"]) == (["BatchSampler", "RandomSampler"], 4)
    assert (train["shuffle"], valid["shuffle"]) == (True, False)
    assert train["base"] == valid["base"]
    passes = {(one["loader"], one["number"]): one for one in rank.of("pass")}
    training = [one for one in passes.values() if one["training"]]
    # Neither the look at a first batch, nor an evaluation with gradients.
    assert [(one["loader"], one["number"]) for one in training] == [(0, 1), (0, 2)]
    for one in training:
        assert sorted(one["indices"]) == list(range(20))
        assert (one["whole"], one["steps"], one["sizes"]) == (True, 5, [[4, 5]])
    by_index = [
        dict(zip(one["indices"], _cut(one["contents"]), strict=True))
        for one in passes.values()
        if one["whole"]
    ]
    assert len(by_index) == 4
    assert all(each == by_index[0] for each in by_index)
    (first, *_) = [one for one in rank.of("local") if one["step"] == 2]
    assert (first["passes"], first["divisors"], first["carried"]) == (1, [[2.0]], False)
    assert len(rank.of("clip")) == len(rank.of("local"))
    # Told behind the last update, before the script steps it once more.
    assert rank.of("schedule")[-1]["calls"] >= 9
    assert rank.of("schedule")[-1]["total"] == 7
    assert rank.of("plan") == []
    assert rank.of("work")[-1]["updates"] == 10
    assert not list((tmp_path / "recorded").glob("loader-*"))


def _cut(text: str) -> list[str]:
    return [text[at : at + 12] for at in range(0, len(text), 12)]
