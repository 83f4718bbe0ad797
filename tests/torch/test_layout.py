"""Where gradients lie and how a step fills them (by one worker; reducing has its own tests)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

import farandole.torch as hvd
from farandole.engine import context
from farandole.engine.buckets import REPLAN, Gradient, make_plan
from farandole.engine.engine import Engine
from farandole.recorder.noise import Norms
from farandole.torch.layout import Layout, in_channels_last
from farandole.torch.operations import TYPE_NAMES
from farandole.transport.reduction import AVERAGE


@pytest.fixture
def engine() -> Iterator[Engine]:
    hvd.init()
    yield context.current().engine
    hvd.shutdown()


@pytest.fixture
def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(20 + i)) for i in range(4)]


def layout_of(
    engine: Engine,
    parameters: list[nn.Parameter],
    bucket_bytes: int = 200,
    dtype: torch.dtype = torch.float32,
) -> Layout:
    """A layout with two gradients in each bucket, which travel in a precision."""
    gradients = [
        Gradient(index=i, count=p.numel(), dtype=TYPE_NAMES[dtype], itemsize=dtype.itemsize)
        for i, p in enumerate(parameters)
    ]
    plan, norms = make_plan(gradients, bucket_bytes), Norms(rank=engine.rank, size=engine.size)
    last = [i for i, p in enumerate(parameters) if in_channels_last(p)]
    return Layout(engine, "test", plan, parameters, AVERAGE, norms, channels_last=last)


def give(parameter: nn.Parameter, value: float) -> torch.Tensor:
    parameter.grad = torch.full_like(parameter, value)
    return parameter.grad


def test_a_full_bucket_goes_at_once_but_for_the_last(
    engine: Engine, parameters: list[nn.Parameter]
) -> None:
    layout = layout_of(engine, parameters)
    assert layout.plan.members == ((0, 1), (2, 3))
    for index, goes in ((1, False), (0, True), (3, False), (2, False)):
        give(parameters[index], float(index))
        assert layout.take(index, parameters[index]) == goes
    assert [layout.submitted(index) for index in range(4)] == [True, True, False, False]
    layout.submit_rest(parameters, 0, set())
    assert layout.finish(parameters) is None
    assert not layout.submitted(0)
    assert [p.grad.unique().tolist() for p in parameters] == [[0.0], [1.0], [2.0], [3.0]]


class Busy:
    """Buckets that have moved data for a while."""

    busy_s: float | None = 2.0


def test_moving_is_told_once(engine: Engine, parameters: list[nn.Parameter]) -> None:
    layout = layout_of(engine, parameters)
    assert layout.moved_s() is None, "one worker moves nothing"
    layout.buckets = buckets = Busy()  # type: ignore[assignment]
    assert layout.moved_s() == 2.0
    assert layout.moved_s() == 0.0
    buckets.busy_s = 2.5
    assert layout.moved_s() == 0.5


def test_a_gradient_moves_into_its_bucket_and_stays(
    engine: Engine, parameters: list[nn.Parameter]
) -> None:
    layout = layout_of(engine, parameters)
    private = give(parameters[0], 1.0)
    layout.take(0, parameters[0])
    view = parameters[0].grad
    assert view is not private
    layout.submit_rest(parameters, 0, set())
    layout.finish(parameters)
    assert parameters[0].grad is view
    view.fill_(2.0)
    assert layout.buckets.arrays[0][:20].tolist() == [2.0] * 20


def test_what_travels_in_half_precision_is_copied_once_unless_it_was_changed(
    engine: Engine, parameters: list[nn.Parameter], monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = layout_of(engine, parameters, 100, torch.float16)
    assert layout.plan.members == ((0, 1), (2, 3))
    written: list[int] = []
    write = layout._write
    monkeypatch.setattr(layout, "_write", lambda i, g: (written.append(i), write(i, g)))
    for index, parameter in enumerate(parameters):
        give(parameter, float(index))
        layout.take(index, parameter)
    # The last bucket goes here, and one of its gradients has been changed since it came.
    parameters[3].grad.mul_(2)
    layout.submit_rest(parameters, 0, set())
    layout.finish(parameters)
    assert written == [0, 1, 2, 3, 3]
    assert [p.grad.unique().tolist() for p in parameters] == [[0.0], [1.0], [2.0], [6.0]]


def test_a_missing_gradient_stays_missing(engine: Engine, parameters: list[nn.Parameter]) -> None:
    layout = layout_of(engine, parameters)
    for step in range(2):
        for parameter in parameters:
            parameter.grad = None
        give(parameters[1], float(step))
        layout.take(1, parameters[1])
        layout.submit_rest(parameters, 0, set())
        layout.finish(parameters)
        assert [p.grad is None for p in parameters] == [True, False, True, True]


def test_a_wish_for_another_plan_leaves_the_last_bucket_out(
    engine: Engine, parameters: list[nn.Parameter]
) -> None:
    layout = layout_of(engine, parameters)
    for parameter in parameters:
        give(parameter, 1.0)
    layout.submit_rest(parameters, REPLAN, set())
    assert layout.finish(parameters) == (2, 3)


def test_a_sparse_gradient_takes_part_without_counting(
    engine: Engine, parameters: list[nn.Parameter]
) -> None:
    layout = layout_of(engine, parameters)
    give(parameters[0], 1.0)
    parameters[1].grad = torch.ones(21).to_sparse()
    assert not layout.take(1, parameters[1])
    layout.submit_rest(parameters, REPLAN, {1})
    layout.finish(parameters)
    # Had a peer a dense one, this would be part of the sum. Nobody has.
    assert layout.buckets.arrays[0][32:53].tolist() == [1.0] * 21
    assert parameters[1].grad.is_sparse


def test_a_step_is_forgotten_unless_a_bucket_is_on_its_way(
    engine: Engine, parameters: list[nn.Parameter]
) -> None:
    layout = layout_of(engine, parameters)
    give(parameters[0], 1.0)
    give(parameters[1], 1.0)
    layout.take(0, parameters[0])
    assert layout.forget()
    # Had it not been forgotten, this one would fill the bucket.
    assert not layout.take(1, parameters[1])
    assert layout.take(0, parameters[0])
    assert not layout.forget()
    layout.submit_rest(parameters, 0, set())
    layout.finish(parameters)


def test_gradients_lie_in_memory_like_their_parameters(engine: Engine) -> None:
    shapes = [(2, 3, 4, 5), (), (3, 2), (4, 4, 1, 1)]
    parameters = [nn.Parameter(torch.zeros(shape)) for shape in shapes]
    for place in (0, 3):
        parameters[place].data = parameters[place].data.to(memory_format=torch.channels_last)
    layout = layout_of(engine, parameters, 1 << 20)
    for index, parameter in enumerate(parameters):
        parameter.grad = torch.rand(parameter.shape)
        expected = parameter.grad.clone()
        layout.take(index, parameter)
        assert torch.equal(parameter.grad, expected)
        assert parameter.grad.stride() == parameter.stride()
    layout.submit_rest(parameters, 0, set())
    layout.finish(parameters)
