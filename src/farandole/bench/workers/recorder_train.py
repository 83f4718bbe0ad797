"""Training as scripts do it, with a DataLoader and a metric per step, recorded and not recorded in
turns. Options: model, warmup, steps.

What recording costs is far below what two launches differ by, and below what blocks of steps do, so
that single steps take turns: the series "ratio" has one value per pair of neighbours. Not recorded
means that the hooks are there and find no recorder; a thread's samples, two a second, go on. Some
recorded steps do more than others (gradient noise, times of gradients, a block that is written):
these are always recorded, and their share is part of the ratio.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.utils.data import DataLoader, TensorDataset

import farandole
import farandole.torch as hvd
from farandole.recorder.gradient_times import LOOKS, SAMPLED
from farandole.recorder.noise import PERIOD
from farandole.recorder.recorder import Recorder, current, paused
from farandole.recorder.settings import RECORD_DIR

if TYPE_CHECKING:
    from farandole.bench.workers import harness, training, turns
else:
    import harness
    import training
    import turns

SAMPLES = ("noise", "buckets")
"""Kinds of lines that tell of one step each."""
MORE = ("noise", "flush", "buckets", "watch", "forced")
"""What makes a step unlike others, the dearest first: gradients are squared, a block is written,
gradients are timed, or will be in the next step; or it had to be recorded as one of these might
have come."""


def slowest(values: list[float], name: str) -> list[float]:
    """Return the largest value of any rank, place by place."""
    # Exchanged while not recording, so that the exchange itself is not recorded either.
    with paused():
        everyone: list[float] = hvd.allreduce(
            torch.tensor(values, dtype=torch.float64), op=hvd.Max, name=name
        ).tolist()
    return everyone


def sampled_steps(recorder: Recorder) -> dict[str, set[int]]:
    """Return which of this rank's recorded steps were sampled, for each kind."""
    recorder.flush()
    path = Path(os.environ[RECORD_DIR], f"rank-{recorder.rank}.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {kind: {int(line["step"]) for line in lines if line["kind"] == kind} for kind in SAMPLES}


def take_turns(step: Callable[[int], None], recorder: Recorder, updates: range) -> list[turns.Turn]:
    """Train these steps, each recorded or not; the numbers are those of the updates, from 1."""
    flushed: list[bool] = []
    recorder.add_source(lambda: flushed.append(True))
    times_s: list[float] = []
    numbers: list[int | None] = []
    pairs: list[int | None] = []
    done: dict[str, list[bool]] = {kind: [] for kind in MORE}
    usual = 0
    for update in updates:
        number = recorder.steps
        done["watch"].append(number + 1 in SAMPLED)
        done["forced"].append(update % PERIOD == 0)
        recorded = number in LOOKS or done["forced"][-1]
        if recorded:
            pairs.append(None)
        else:
            # Now one, now the other goes first, in an order without a period, which could be that
            # of something else.
            pair, second = divmod(usual, 2)
            recorded = (pair.bit_count() + second) % 2 == 0
            usual += 1
            pairs.append(pair)
        flushed.clear()
        with nullcontext() if recorded else paused():
            times_s += harness.time_steps(step, warmup=0, steps=1)
        numbers.append(number if recorded else None)
        done["flush"].append(recorded and bool(flushed))

    for kind, steps in sampled_steps(recorder).items():
        done[kind] = [number in steps for number in numbers]
    flags = [slowest(list(map(float, done[kind])), kind) for kind in MORE]
    more = [
        next((kind for kind, flag in zip(MORE, each, strict=True) if flag), "")
        for each in zip(*flags, strict=True)
    ]
    return [
        turns.Turn(time_s, recorded=number is not None, pair=pair, more=kinds)
        for time_s, number, pair, kinds in zip(
            slowest(times_s, "times"), numbers, pairs, more, strict=True
        )
    ]


def main() -> None:
    given = harness.options()
    hvd.init()
    task = training.build(given["model"])
    optimizer = hvd.DistributedOptimizer(
        training.sgd(task.model), named_parameters=task.model.named_parameters()
    )
    hvd.broadcast_parameters(task.model.state_dict(), root_rank=0)
    generator = torch.Generator().manual_seed(1000 + hvd.rank())
    num_samples = task.batch * (given["warmup"] + given["steps"])
    samples = TensorDataset(
        torch.randn(num_samples, *task.sample_shape, generator=generator),
        torch.randint(task.num_classes, (num_samples,), generator=generator),
    )
    batches = iter(DataLoader(samples, batch_size=task.batch))
    criterion = torch.nn.CrossEntropyLoss()

    def step(_index: int) -> None:
        inputs, labels = next(batches)
        optimizer.zero_grad()
        loss = criterion(task.model(inputs), labels)
        loss.backward()
        optimizer.step()
        farandole.record(loss=loss)

    hvd.barrier()
    harness.time_steps(step, warmup=given["warmup"], steps=0)
    recorder = current()
    assert recorder is not None
    first = given["warmup"] + 1
    took = take_turns(step, recorder, range(first, first + given["steps"]))
    # The noise counts all updates, the others count those that are recorded.
    num_recorded = sum(turn.recorded for turn in took)
    out_of = {"noise": len(took), **dict.fromkeys(("flush", "buckets", "watch"), num_recorded)}
    harness.report(
        given,
        rank=hvd.rank(),
        series={"ratio": turns.ratios(took, out_of)},
        facts=training.facts(task.model),
    )
    hvd.shutdown()


if __name__ == "__main__":
    main()
