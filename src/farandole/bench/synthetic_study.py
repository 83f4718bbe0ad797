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

from farandole.recorder.steps import Writer, line, steps_line
from farandole.study import folder
from farandole.study.records import SCHEMA, Cell, Launch, Link

_CREATED = "2026-01-01T12:00:00+00:00"
_PARAMETERS = 1_626_442
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
    spec = {"workers": shape.workers, "batches": shape.batches, "scaling": "weak", "seeds": 1}
    spec |= {"measure": "both", "repeats": shape.repeats}
    study = folder.create_study(
        path,
        label="synthetic",
        command=("python", "train.py", "--batch-size", "{batch}", "--width", "{width}"),
        spec=spec | {"params": [["width", [str(width) for width in shape.widths]]]},
        machine={"host": "synthetic", "cpu": "none", "physical_cores": cores, "cores": cores},
        created=_CREATED,
    )
    # Cells take turns, as a study's do; the last round is for accuracy.
    rounds = itertools.product(range(shape.repeats + 1), shape.widths, shape.batches, shape.workers)
    for number, (repeat, width, batch, workers) in enumerate(rounds):
        cell = Cell(workers=workers, threads=1, batch=batch, params=(("width", str(width)),))
        _write_launch(path, cell, number, repeat % shape.repeats, repeat == shape.repeats, shape)
    sweep = itertools.product(shape.workers[1:], [4**power for power in range(5, 13)])
    link = Link(
        memcpy_bytes_per_s=9.9e9,
        peak_bytes_per_s=6.5e9,
        latency_s=20e-6,
        allreduce=tuple((count, nbytes, 30e-6 + nbytes / 4e9) for count, nbytes in sweep),
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
    path: Path, cell: Cell, number: int, repeat: int, accuracy: bool, shape: Shape
) -> None:
    place = folder.new_launch_folder(path, cell, repeat)
    begin_s, noise = 1000.0 + 60.0 * number, random.Random(number)
    # All ranks of a step end together: they wait for each other.
    usual_s, steps = step_s(cell), range(shape.steps_per_rank)
    durations = [usual_s * math.exp(_NOISE * noise.gauss(0, 1)) for _ in steps]
    for rank in range(cell.workers):
        writer = Writer(str(folder.rank_file(place, rank)))
        writer.write(list(_rank_lines(cell, rank, accuracy, begin_s, durations)))
        writer.close()
    launch = Launch(
        id=place.name,
        cell=cell,
        repeat=repeat,
        seed=repeat,
        purpose="accuracy" if accuracy else "speed",
        outcome="ok" if accuracy else "stopped",
        argv=("python", "train.py", "--batch-size", str(cell.batch)),
        started=_CREATED,
        begin_s=begin_s,
        wall_s=_START_S + sum(durations) + 0.5,
        foreign_share=0.004,
        steal_share=0.001,
    )
    folder.write_launch(place, launch, durable=False)


def _rank_lines(
    cell: Cell, rank: int, accuracy: bool, begin_s: float, durations: list[float]
) -> Iterator[str]:
    who = {"rank": rank, "size": cell.workers, "host": "synthetic", "pid": 1000 + rank}
    yield line("begin", schema=SCHEMA, **who, begin_s=begin_s, begin_unix_s=1.7e9 + begin_s)
    hashes = [f"{rank:04x}{sample:04x}" for sample in range(16)]
    what = {"framework": "farandole.torch", "device": "cpu", "parameters": _PARAMETERS}
    what |= {"gradient_bytes_per_step": 4 * _PARAMETERS, "batch_seen": cell.batch}
    yield line("setup", **what, dataset_size=50_000, sample_hashes=hashes)
    ends_s = list(itertools.accumulate(durations, initial=begin_s + _START_S))[1:]
    samples, wait_s, steps = float(cell.batch or 0), exposed_s(cell), []
    for end_s in ends_s:
        done_s = end_s - _OPTIMIZER_S
        waits = (2 * wait_s, wait_s, done_s - wait_s, done_s)
        together = waits if cell.workers > 1 else (None,) * 4
        steps.append((end_s, 0.0008, _OPTIMIZER_S, *together, 1.0, samples))
    yield from (steps_line(steps[at : at + _BLOCK]) for at in range(0, len(steps), _BLOCK))
    training_s, places = sum(durations), range(_USE_SAMPLES)
    columns = {
        "time_s": [_START_S + training_s * (at + 1) / _USE_SAMPLES for at in places],
        "cpu": [0.97] * _USE_SAMPLES,
        "memory_bytes": [380e6 + 2e6 * at for at in places],
        **dict.fromkeys(("gpu", "gpu_energy_j"), [None] * _USE_SAMPLES),
    }
    yield line("use", columns=columns)
    if accuracy:
        yield line("epoch", begin_s=begin_s + _START_S, end_s=ends_s[-1])
    for epoch in range(1, _EPOCHS + 1) if accuracy and rank == 0 else ():
        value = 0.9 * (1 - math.exp(-epoch / (2 + 0.1 * cell.workers)))
        time_s = _START_S + training_s * epoch / _EPOCHS
        when = {"step": len(durations) * epoch // _EPOCHS, "epoch": epoch, "time_s": time_s}
        yield line("metric", name="val_accuracy", value=value, **when)
        yield line("metric", name="loss", value=2.3 * (1 - value), **when)
    sent = {"gradients": 4 * _PARAMETERS * len(ends_s) * (cell.workers > 1)}
    memory = {"peak_memory_bytes": 400_000_000, "peak_gpu_bytes": None}
    end = {"end_s": ends_s[-1] + 0.3, "weights": "5e", "stopped": not accuracy}
    yield line("end", bytes_sent=sent, **memory, **end)
