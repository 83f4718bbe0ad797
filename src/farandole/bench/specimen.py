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

from farandole.recorder.lines import Row, line, steps_line
from farandole.recorder.writer import Writer
from farandole.study import folder
from farandole.study.records import SCHEMA, Cell, Launch, Link, Purpose
from farandole.study.write import (
    create_study,
    mark_complete,
    new_launch_folder,
    write_launch,
    write_link,
)

_HOST = "specimen"
_PARAMETERS = 1_626_442
_DATASET = 50_000
_NOISE = 0.02
_START_S = 3.0
_BLOCK = 50
"""Steps in a line; the recorder writes blocks, too."""
_USE_SAMPLES = 10
_HASHES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How large a specimen is."""

    workers: tuple[int, ...] = (1, 2, 3, 4)
    batches: tuple[int, ...] = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
    widths: tuple[int, ...] = (1, 2, 3, 4, 5)
    repeats: int = 3
    """Launches of each cell for speed; one for accuracy comes on top."""
    steps_per_rank: int = 100

    @property
    def cells(self) -> int:
        return len(self.workers) * len(self.batches) * len(self.widths)

    @property
    def launches(self) -> int:
        return self.cells * (self.repeats + 1)

    @property
    def steps(self) -> int:
        """Step records of all ranks of all launches."""
        ranks = sum(self.workers) * len(self.batches) * len(self.widths) * (self.repeats + 1)
        return ranks * self.steps_per_rank


def write_specimen(path: Path, shape: Shape) -> None:
    """Write the study's folder."""
    cores = max(shape.workers)
    study = create_study(
        path,
        label="specimen",
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
        created="2026-01-01T12:00:00+00:00",
    )
    # Cells take turns, as a study's do.
    rounds = itertools.product(range(shape.repeats + 1), _cells(shape))
    for number, (repeat, cell) in enumerate(rounds):
        purpose: Purpose = "speed" if repeat < shape.repeats else "accuracy"
        _write_launch(path, cell, repeat % shape.repeats, purpose, number, shape.steps_per_rank)
    write_link(path, _link(shape))
    mark_complete(study)


def step_s(cell: Cell) -> float:
    """Return the formula's time of a step."""
    return compute_s(cell) + exposed_s(cell)


def compute_s(cell: Cell) -> float:
    """Return what a step takes without its peers."""
    assert cell.batch is not None
    return 0.004 + 0.0004 * cell.batch * int(dict(cell.params)["width"])


def exposed_s(cell: Cell) -> float:
    """Return what a step waits for its peers."""
    return 0.006 * (cell.workers - 1) / cell.workers


def _cells(shape: Shape) -> Iterator[Cell]:
    for width, batch, workers in itertools.product(shape.widths, shape.batches, shape.workers):
        yield Cell(workers=workers, threads=1, batch=batch, params=(("width", str(width)),))


def _write_launch(
    path: Path, cell: Cell, repeat: int, purpose: Purpose, number: int, steps: int
) -> None:
    place = new_launch_folder(path, cell, repeat)
    begin_s = 1000.0 + 60.0 * number
    noise = random.Random(number)
    # All ranks of a step end together: they wait for each other.
    durations = [step_s(cell) * math.exp(_NOISE * noise.gauss(0, 1)) for _ in range(steps)]
    for rank in range(cell.workers):
        writer = Writer(str(folder.rank_file(place, rank)))
        writer.write(list(_rank_lines(cell, rank, purpose, begin_s, durations)))
        writer.close()
    wall_s = _START_S + sum(durations) + 0.5
    launch = Launch(
        id=place.name,
        cell=cell,
        repeat=repeat,
        seed=repeat,
        purpose=purpose,
        outcome="ok" if purpose == "accuracy" else "stopped",
        argv=("python", "train.py", "--batch-size", str(cell.batch)),
        started="2026-01-01T12:00:00+00:00",
        begin_s=begin_s,
        wall_s=wall_s,
        foreign_share=0.004,
        steal_share=0.001,
    )
    write_launch(place, launch, durable=False)


def _rank_lines(
    cell: Cell, rank: int, purpose: Purpose, begin_s: float, durations: list[float]
) -> Iterator[str]:
    yield line(
        "begin",
        schema=SCHEMA,
        rank=rank,
        size=cell.workers,
        host=_HOST,
        pid=1000 + rank,
        begin_s=begin_s,
        begin_unix_s=1.7e9 + begin_s,
    )
    yield line(
        "setup",
        framework="farandole.torch",
        device="cpu",
        parameters=_PARAMETERS,
        gradient_bytes_per_step=4 * _PARAMETERS,
        batch_seen=cell.batch,
        dataset_size=_DATASET,
        sample_hashes=[f"{rank:04x}{sample:04x}" for sample in range(_HASHES)],
    )
    ends_s = list(itertools.accumulate(durations, initial=begin_s + _START_S))[1:]
    rows = [_step(cell, end_s) for end_s in ends_s]
    for first in range(0, len(rows), _BLOCK):
        yield steps_line(rows[first : first + _BLOCK])
    yield _use_line(sum(durations))
    if purpose == "accuracy":
        yield line("epoch", begin_s=begin_s + _START_S, end_s=ends_s[-1])
        for metric in _metrics(cell, sum(durations), len(durations)) if rank == 0 else ():
            yield line("metric", **metric)
    yield line(
        "end",
        end_s=ends_s[-1] + 0.3,
        bytes_sent={"gradients": 4 * _PARAMETERS * len(rows) * (cell.workers > 1)},
        peak_memory_bytes=400_000_000,
        peak_gpu_bytes=None,
        weights="5e",
        stopped=purpose != "accuracy",
    )


def _step(cell: Cell, end_s: float) -> Row:
    optimizer_s, wait_s = 0.0005, exposed_s(cell)
    done_s = end_s - optimizer_s
    together = cell.workers > 1
    return (
        end_s,
        0.0008,
        optimizer_s,
        2 * wait_s if together else None,
        wait_s if together else None,
        done_s - wait_s if together else None,
        done_s if together else None,
        float(cell.batch or 0),
    )


def _use_line(training_s: float) -> str:
    count = _USE_SAMPLES
    return line(
        "use",
        columns={
            "time_s": [_START_S + training_s * (index + 1) / count for index in range(count)],
            "cpu": [0.97] * count,
            "memory_bytes": [380e6 + 2e6 * index for index in range(count)],
            "gpu": [None] * count,
            "gpu_energy_j": [None] * count,
        },
    )


def _metrics(cell: Cell, training_s: float, steps: int) -> Iterator[dict[str, float | int | str]]:
    epochs = 10
    for epoch in range(1, epochs + 1):
        accuracy = 0.9 * (1 - math.exp(-epoch / (2 + 0.1 * cell.workers)))
        when = {
            "step": steps * epoch // epochs,
            "epoch": epoch,
            "time_s": _START_S + training_s * epoch / epochs,
        }
        yield {"name": "val_accuracy", "value": accuracy, **when}
        yield {"name": "loss", "value": 2.3 * (1 - accuracy), **when}


def _link(shape: Shape) -> Link:
    counts = [count for count in shape.workers if count > 1]
    sizes = [4**power for power in range(5, 13)]
    return Link(
        memcpy_bytes_per_s=9.9e9,
        peak_bytes_per_s=6.5e9,
        latency_s=20e-6,
        allreduce=tuple((n, size, 30e-6 + size / 4e9) for n in counts for size in sizes),
    )
