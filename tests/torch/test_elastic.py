"""TorchState and ElasticSampler, without other workers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import farandole.torch as hvd
from farandole.errors import PeerDiedError
from farandole.torch.elastic import sampler as sampler_module
from farandole.torch.elastic import state as state_module
from farandole.torch.elastic.sampler import ElasticSampler
from farandole.torch.elastic.state import (
    StateHandler,
    TorchState,
    get_handler_registry,
    set_handler_registry,
)


def workers(patch: pytest.MonkeyPatch, size: int, rank: int = 0) -> None:
    patch.setattr(sampler_module, "size", lambda: size)
    patch.setattr(sampler_module, "rank", lambda: rank)


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(4, 3)).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_a_model_and_what_trains_it_go_back_to_the_last_commit(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hvd.elastic.ObjectState, "check_host_updates", lambda self: None)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    optimizer = kind(model.parameters(), lr=0.1, **options)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    state: Any = TorchState(model=model, optimizer=optimizer, schedule=schedule, batch=0)

    def everything() -> list[Any]:
        weights = [each.clone() for each in model.state_dict().values()]
        return [weights, optimizer.state_dict(), schedule.last_epoch, state.batch]

    def same(first: Any, second: Any) -> bool:
        return torch.equal(
            torch.cat([each.flatten().double() for each in tensors(first)]),
            torch.cat([each.flatten().double() for each in tensors(second)]),
        )

    def tensors(value: Any) -> list[torch.Tensor]:
        if isinstance(value, torch.Tensor):
            return [value]
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list | tuple):
            return [part for each in value for part in tensors(each)]
        return [torch.tensor(float(value))] if isinstance(value, int | float) else []

    first = copy.deepcopy(everything())
    for _ in range(2):
        step(model, optimizer)
        schedule.step()
        state.batch += 1
    state.restore()
    assert same(everything(), first)
    step(model, optimizer)
    state.batch += 1
    state.commit()
    committed = copy.deepcopy(everything())
    # What is restored is not what is saved: a second time gives the same.
    for _ in range(2):
        step(model, optimizer)
        schedule.step()
        assert not same(everything(), committed)
        state.restore()
        assert same(everything(), committed)
        assert optimizer.param_groups[0]["lr"] == 0.1


def test_a_loss_while_ranks_synchronise_keeps_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def broadcast(mine: Any) -> Any:
        raise PeerDiedError("lost", culprit=0)

    # The model has arrived when the worker is lost that was to send the rest.
    monkeypatch.setattr(state_module, "broadcast_parameters", lambda *_, **__: None)
    model = torch.nn.Linear(3, 4)
    state: Any = TorchState(model=model, batch=0)
    state._bcast_object = broadcast
    before = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        model.weight += 1
    with pytest.raises(PeerDiedError):
        state.sync()
    state.restore()
    assert torch.equal(model.weight, before["weight"])


def test_handlers_can_be_added() -> None:
    class Counter:
        number = 3

    class CounterHandler(StateHandler):
        def save(self) -> None:
            self.saved = self.value.number

        def restore(self) -> None:
            self.value.number = self.saved

        def sync(self) -> None:
            pass

    before = get_handler_registry()
    set_handler_registry([*before, (Counter, CounterHandler)])
    try:
        state: Any = TorchState(counter=Counter())
        state.save()
        state.counter.number = 4
        state.restore()
        assert state.counter.number == 3
        another = Counter()
        another.number = 5
        state.counter = another
        state.counter.number = 6
        state.restore()
        assert (state.counter, another.number) == (another, 5)
    finally:
        set_handler_registry(before)


def test_samplers_position_is_part_of_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    workers(monkeypatch, 2)
    sampler = ElasticSampler(range(40), shuffle=False)
    state: Any = TorchState(sampler=sampler)
    sampler.set_epoch(1)
    assert list(sampler)[:3] == [0, 2, 4]
    sampler.record_batch(0, 4)
    state.save()
    sampler.record_batch(1, 4)
    assert sampler.processed_num == 16
    state.restore()
    assert (sampler.epoch, sampler.processed_num) == (1, 8)
    workers(monkeypatch, 4, rank=1)
    state.on_reset()
    assert (sampler.num_replicas, len(sampler)) == (4, 8)
    assert sampler.remaining_indices == list(range(8, 40))
    assert list(sampler) == list(range(9, 40, 4))
    assert sampler.get_indices(1, 3) == [21, 25, 29]


def test_few_samples_for_many_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    dealt = []
    for rank in range(5):
        workers(monkeypatch, 5, rank)
        dealt.append(list(ElasticSampler(range(2), shuffle=False)))
    assert dealt == [[0], [1], [0], [1], [0]]
    sampler = ElasticSampler(range(2))
    sampler.record_batch(0, 8)
    sampler.reset()
    assert (list(sampler), len(sampler)) == ([], 0)


@given(
    length=st.integers(1, 60),
    shuffle=st.booleans(),
    batch=st.integers(1, 4),
    parts=st.lists(
        # Workers, batches until the commit, batches after it, whether those are taken back.
        st.tuples(st.integers(1, 5), st.integers(0, 4), st.integers(0, 3), st.booleans()),
        max_size=5,
    ),
)
def test_an_epoch_over_changing_workers_has_every_sample_once(
    length: int, shuffle: bool, batch: int, parts: list[tuple[int, int, int, bool]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        trained: list[int] = []
        position = {"epoch": 3, "processed_num": 0}
        for size, committed, more, lost in [*parts, (3, length, 0, False)]:
            samplers = []
            for rank in range(size):
                workers(patch, size, rank)
                samplers.append(ElasticSampler(range(length), shuffle=shuffle, seed=5))
                samplers[-1].load_state_dict(position)
            left = len(samplers[0].remaining_indices)
            assert sum(map(len, samplers)) == left + -left % size
            order = list(samplers[0].remaining_indices)
            dealt = [list(each) for each in samplers]
            batches = committed + (0 if lost else more)
            for number in range(batches):
                for mine in dealt:
                    trained += mine[number * batch : (number + 1) * batch]
                for each in samplers:
                    each.record_batch(number, batch)
            # What fills the last batches up comes from the front of what was left.
            filler = max(0, min(batches * batch, len(samplers[0])) * size - left)
            assert filler < size
            for place in range(filler):
                trained.remove(order[place % left])
            position = samplers[0].state_dict()
        assert sorted(trained) == list(range(length))
