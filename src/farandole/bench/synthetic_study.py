"""A large study that nobody had to run: its folder, written by what writes real ones.

Every figure follows from a formula: a step computes in proportion to its batch and its width,
communication grows with (N-1)/N, times scatter by 2 %, accuracy rises as 1 - exp(-epoch).
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from farandole.recorder.lines import Writer, line, steps_line
from farandole.study import folder
from farandole.study.records import SCHEMA, Cell, Launch, Link, Purpose

_HOST = "synthetic"
_CREATED = "2026-01-01T12:00:00+00:00"
_PARAMETERS = 1_626_442
_DATASET = 50_000
_NOISE = 0.02
_START_S = 3.0
_OPTIMIZER_S = 0.0005
_BLOCK = 50  # steps in a line; the recorder writes blocks, too
_USE_SAMPLES = _EPOCHS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How large a synthetic study is."""

    workers: tuple[int, ...] = (1, 2, 3, 4)
    batches: tuple[int, ...] = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
    widths: tuple[int, ...] = (1, 2, 3, 4, 5)
    repeats: int = 3
    """Launches of each cell for speed; one for accuracy comes on top."""
    steps_per_rank: int = 100

    @property
    def cells(self) -> int:
        """How many there are."""
        return len(self.workers) * len(self.batches) * len(self.widths)

    @property
    def launches(self) -> int:
        """How many there are of all cells."""
        return self.cells * (self.repeats + 1)

    @property
    def steps(self) -> int:
        """Step records of all ranks of all launches."""
        return self.launches * sum(self.workers) // len(self.workers) * self.steps_per_rank


def write_study(path: Path, shape: Shape) -> None:
    """Write the study's folder."""
    cores = max(shape.workers)
    study = folder.create_study(
        path,
        label=_HOST,
        command=("python", "train.py", "--batch-size", "{batch}", "--width", "{width}"),
        spec={
            "workers": shape.workers,
            "batches": shape.batches,
            "params": [["width", [str(width) for width in shape.widths]]],
            "scaling": "weak",
            "measure": "both",
            "repeats": shape.repeats,
            "seeds": 1,
        },
        machine={"host": _HOST, "cpu": "none", "physical_cores": cores, "cores": cores},
        created=_CREATED,
    )
    # Cells take turns, as a study's do.
    cells = itertools.product(shape.widths, shape.batches, shape.workers)
    rounds = itertools.product(range(shape.repeats + 1), list(cells))
    for number, (repeat, (width, batch, workers)) in enumerate(rounds):
        cell = Cell(workers=workers, threads=1, batch=batch, params=(("width", str(width)),))
        purpose: Purpose = "speed" if repeat < shape.repeats else "accuracy"
        _write_launch(path, cell, repeat % shape.repeats, purpose, number, shape.steps_per_rank)
    link = Link(
        memcpy_bytes_per_s=9.9e9,
        peak_bytes_per_s=6.5e9,
        latency_s=20e-6,
        allreduce=tuple(
            (count, 4**power, 30e-6 + 4**power / 4e9)
            for count in shape.workers
            for power in range(5, 13)
            if count > 1
        ),
    )
    folder.write_link(path, link)
    folder.mark_complete(study)


def step_s(cell: Cell) -> float:
    """Return the formula's time of a step."""
    assert cell.batch is not None
    return 0.004 + 0.0004 * cell.batch * int(dict(cell.params)["width"]) + exposed_s(cell)


def exposed_s(cell: Cell) -> float:
    """Return what a step waits for its peers."""
    return 0.006 * (cell.workers - 1) / cell.workers


def _write_launch(
    path: Path, cell: Cell, repeat: int, purpose: Purpose, number: int, steps: int
) -> None:
    place = folder.new_launch_folder(path, cell, repeat)
    begin_s, noise = 1000.0 + 60.0 * number, random.Random(number)
    # All ranks of a step end together: they wait for each other.
    durations = [step_s(cell) * math.exp(_NOISE * noise.gauss(0, 1)) for _ in range(steps)]
    for rank in range(cell.workers):
        writer = Writer(str(folder.rank_file(place, rank)))
        writer.write(list(_rank_lines(cell, rank, purpose, begin_s, durations)))
        writer.close()
    launch = Launch(
        id=place.name,
        cell=cell,
        repeat=repeat,
        seed=repeat,
        purpose=purpose,
        outcome="ok" if purpose == "accuracy" else "stopped",
        argv=("python", "train.py", "--batch-size", str(cell.batch)),
        started=_CREATED,
        begin_s=begin_s,
        wall_s=_START_S + sum(durations) + 0.5,
        foreign_share=0.004,
        steal_share=0.001,
    )
    folder.write_launch(place, launch, durable=False)


def _rank_lines(
    cell: Cell, rank: int, purpose: Purpose, begin_s: float, durations: list[float]
) -> Iterator[str]:
    who = {"rank": rank, "size": cell.workers, "host": _HOST, "pid": 1000 + rank}
    yield line("begin", schema=SCHEMA, **who, begin_s=begin_s, begin_unix_s=1.7e9 + begin_s)
    yield line(
        "setup",
        framework="farandole.torch",
        device="cpu",
        parameters=_PARAMETERS,
        gradient_bytes_per_step=4 * _PARAMETERS,
        batch_seen=cell.batch,
        dataset_size=_DATASET,
        sample_hashes=[f"{rank:04x}{sample:04x}" for sample in range(16)],
    )
    ends_s = list(itertools.accumulate(durations, initial=begin_s + _START_S))[1:]
    samples, wait_s = float(cell.batch or 0), exposed_s(cell)
    for first in range(0, len(ends_s), _BLOCK):
        block = []
        for end_s in ends_s[first : first + _BLOCK]:
            done_s = end_s - _OPTIMIZER_S
            waits = (2 * wait_s, wait_s, done_s - wait_s, done_s)
            together = waits if cell.workers > 1 else (None,) * 4
            block.append((end_s, 0.0008, _OPTIMIZER_S, *together, 1.0, samples))
        yield steps_line(block)
    training_s, places = sum(durations), range(_USE_SAMPLES)
    columns = {
        "time_s": [_START_S + training_s * (at + 1) / _USE_SAMPLES for at in places],
        "cpu": [0.97 for _ in places],
        "memory_bytes": [380e6 + 2e6 * at for at in places],
        **{name: [None for _ in places] for name in ("gpu", "gpu_energy_j")},
    }
    yield line("use", columns=columns)
    if purpose == "accuracy":
        yield line("epoch", begin_s=begin_s + _START_S, end_s=ends_s[-1])
    for epoch in range(1, _EPOCHS + 1) if purpose == "accuracy" and rank == 0 else ():
        accuracy = 0.9 * (1 - math.exp(-epoch / (2 + 0.1 * cell.workers)))
        time_s = _START_S + training_s * epoch / _EPOCHS
        when = {"step": len(durations) * epoch // _EPOCHS, "epoch": epoch, "time_s": time_s}
        yield line("metric", name="val_accuracy", value=accuracy, **when)
        yield line("metric", name="loss", value=2.3 * (1 - accuracy), **when)
    sent = 4 * _PARAMETERS * len(ends_s) * (cell.workers > 1)
    yield line(
        "end",
        end_s=ends_s[-1] + 0.3,
        bytes_sent={"gradients": sent},
        peak_memory_bytes=400_000_000,
        peak_gpu_bytes=None,
        weights="5e",
        stopped=purpose != "accuracy",
    )
