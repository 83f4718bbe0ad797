from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from farandole.engine import context
from farandole.engine.clean_stop import CleanStop, LinkNotes, hear
from farandole.testing import FakeWorld, Member, Nursery
from farandole.transport.choose import SoloTransport


@pytest.fixture
def _default_action() -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("_default_action")
def test_the_signal_is_a_wish_to_stop() -> None:
    first, second = LinkNotes(SoloTransport().link), LinkNotes(SoloTransport().link)
    hear(first.ask_stop)
    hear(second.ask_stop)  # a second init()
    os.kill(os.getpid(), signal.SIGUSR1)
    assert (first.stop_asked, second.stop_asked) == (False, True)
    assert CleanStop(second, rank=0, size=1, at_once=True).reached


@pytest.mark.usefixtures("_default_action")
def test_a_script_with_its_own_use_for_the_signal_keeps_it() -> None:
    heard: list[int] = []
    signal.signal(signal.SIGUSR1, lambda signum, frame: heard.append(signum))
    notes = LinkNotes(SoloTransport().link)
    hear(notes.ask_stop)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert heard == [signal.SIGUSR1]
    assert not notes.stop_asked


def train(member: Member, asked_at: int) -> tuple[int, str]:
    """Train until all stop; rank 0 is asked in a step. Return the last step."""
    import torch

    import farandole.torch as hvd

    hvd.init()
    notes = LinkNotes(context.current().engine.transport.link)
    stop = CleanStop(notes, rank=member.rank, size=member.size, at_once=True)
    model = torch.nn.Linear(4, 2)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(1, 1000):
        optimizer.zero_grad()
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        if step == asked_at and member.rank == 0:
            notes.ask_stop()
        stop.count()
        if stop.reached:
            break
    return step, context.current().engine.transport.name


@pytest.mark.ranks
@pytest.mark.parametrize(("transport", "name"), [("auto", "hierarchical"), ("gloo", "gloo")])
def test_the_word_of_rank_0_is_there_before_the_next_step_ends(
    nursery: Nursery, transport: str, name: str
) -> None:
    with FakeWorld(3, transport=transport, per_host=2, nursery=nursery) as world:
        assert world.run(train, 20) == [(22, name)] * 3
