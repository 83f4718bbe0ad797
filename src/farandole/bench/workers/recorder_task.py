"""Training as scripts do it, with a DataLoader and a metric per step, recorded and not in turns.

What recording costs is far below what two launches differ by, and below what blocks of steps do, so
that single steps take turns: the series "ratio" has one value per pair of neighbours. Not recorded
means that the hooks are there and find no recorder; a thread's samples, two a second, go on. Some
recorded steps do more than others (gradient noise, times of gradients, a block that is written):
these are always recorded, and their share is part of the ratio.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, TensorDataset

import farandole
import farandole.torch as hvd
from farandole.recorder.noise import PERIOD
from farandole.recorder.optimizers import LOOKS, SAMPLED
from farandole.recorder.recorder import RECORD_DIR, Recorder, current, paused

from .libraries import connect
from .measure import time_steps
from .torch_tasks import build, facts, random_samples

EXTRA = ("", "forced", "watch", "buckets", "flush", "noise")
"""What makes a step unlike others, the dearest last: it was recorded in case one of these came,
gradients will be timed in the next step, or are, a block is written, gradients are squared."""


class Step(NamedTuple):
    """One step, recorded or not."""

    time_s: float
    recorded: bool
    pair: int | None = None
    """Two neighbours have the same number: one recorded, one not."""
    extra: str = ""
    """What a recorded step did that most do not: such a step is no measure of the others."""


def ratios(steps: Sequence[Step], out_of: Mapping[str, int]) -> list[float]:
    """Return a step's time recorded over not recorded, one ratio for each pair of neighbours.

    A machine's pace drifts by far more than recording costs, but hardly from one step to the next.
    What steps with extra work took beyond their neighbours is shared out over all: a mean would
    say the same, and be at the mercy of every other program.

    Args:
        steps: in their order.
        out_of: for each kind of extra work, how many steps had one such in the number seen here.
    """
    usual = {at: step for at, step in enumerate(steps) if step.recorded and not step.extra}
    extra_s = 0.0
    for kind, number in out_of.items():
        found = []
        for at, step in enumerate(steps):
            if step.extra == kind:
                beside = sorted(usual, key=lambda other: abs(other - at))[:2]
                found.append(step.time_s - mean(usual[other].time_s for other in beside))
        extra_s += median(found) * len(found) / number if found else 0.0
    bare_s = {step.pair: step.time_s for step in steps if not step.recorded}
    pairs = [step for step in usual.values() if step.pair in bare_s]
    return [(step.time_s + extra_s) / bare_s[step.pair] for step in pairs]


def train(given: dict[str, Any]) -> dict[str, Any]:
    """Time steps in turns. Options: library, model, warmup, steps."""
    with connect(given) as world:
        task = build(given["model"])
        model, optimizer = world.distribute(task.model)
        num_samples = task.batch * (given["warmup"] + given["steps"])
        samples = TensorDataset(*random_samples(task, num_samples, rank=world.rank))
        batches = iter(DataLoader(samples, batch_size=task.batch))
        criterion = torch.nn.CrossEntropyLoss()

        def step(_index: int) -> None:
            inputs, labels = next(batches)
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
            farandole.record(loss=loss)

        world.barrier()
        time_steps(step, warmup=given["warmup"], steps=0)
        recorder = current()
        assert recorder is not None
        first = given["warmup"] + 1
        taken = take_turns(step, recorder, range(first, first + given["steps"]))
        # The noise counts all updates, the others count those that are recorded.
        num_recorded = sum(one.recorded for one in taken)
        out_of = {"noise": len(taken), **dict.fromkeys(("flush", "buckets", "watch"), num_recorded)}
        found = {"series": {"ratio": ratios(taken, out_of)}, "facts": facts(task.model)}
    return {"rank": world.rank, **found}


def take_turns(step: Callable[[int], None], recorder: Recorder, updates: range) -> list[Step]:
    """Train these steps, each recorded or not; the numbers are those of the updates, from 1."""
    flushed: list[bool] = []
    recorder.add_source(lambda: flushed.append(True))
    taken: list[tuple[float, bool, int | None, int, set[str]]] = []
    usual = 0
    for update in updates:
        number, forced = recorder.steps, update % PERIOD == 0
        pair, second = divmod(usual, 2)
        # Now one, now the other goes first, in an order without a period, which could be that of
        # something else.
        recorded = (pair.bit_count() + second) % 2 == 0
        alone = number in LOOKS or forced
        recorded, usual = recorded or alone, usual + (not alone)
        flushed.clear()
        with nullcontext() if recorded else paused():
            (time_s,) = time_steps(step, warmup=0, steps=1)
        did = {"forced": forced, "watch": number + 1 in SAMPLED, "flush": recorded and flushed}
        kinds = {kind for kind, true in did.items() if true}
        taken.append((time_s, recorded, None if alone else pair, number, kinds))
    recorder.flush()
    path = Path(os.environ[RECORD_DIR], f"rank-{recorder.rank}.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    sampled = {(line["kind"], int(line["step"])) for line in lines if "step" in line}
    extras = []
    for _, recorded, _, number, kinds in taken:
        more = {kind for kind in ("noise", "buckets") if recorded and (kind, number) in sampled}
        extras.append(max(map(EXTRA.index, kinds | more), default=0))
    times_s = slowest([one[0] for one in taken], "times")
    dearest = [EXTRA[int(extra)] for extra in slowest(extras, "extras")]
    return [
        Step(time_s, one[1], one[2], extra)
        for time_s, one, extra in zip(times_s, taken, dearest, strict=True)
    ]


def slowest(values: Sequence[float], name: str) -> list[float]:
    """Return the largest value of any rank, place by place."""
    # Exchanged while not recording, so that the exchange itself is not recorded either.
    with paused():
        tensor = torch.tensor(values, dtype=torch.float64)
        everyone: list[float] = hvd.allreduce(tensor, op=hvd.Max, name=name).tolist()
    return everyone
