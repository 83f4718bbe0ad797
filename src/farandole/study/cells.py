"""The grid of a study: which cells there are, each once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from farandole.errors import UsageError
from farandole.study.places import Place, per_host
from farandole.study.records import Cell
from farandole.study.spec import Spec


def make_cells(spec: Spec, *, max_batch: int | None = None) -> tuple[Cell, ...]:
    """Return the cells of a study, no cell twice, the one-process cell of today last.

    Args:
        spec: What was asked for.
        max_batch: The largest batch per worker that fits, once it has been found.

    Raises:
        UsageError: A batch cannot be shared by the workers.
    """
    cells = dict.fromkeys(_grid(spec, max_batch))
    today = _today(spec, tuple(cells))
    if today is not None:
        cells[today] = None
    return tuple(cells)


def is_void_for_speed(spec: Spec, cell: Cell) -> bool:
    """Say whether ranks outnumber what they run on, so that times say nothing."""
    return per_host(cell.workers, cell.hosts) > spec.room.per_host


def _grid(spec: Spec, max_batch: int | None) -> Iterator[Cell]:
    names = [name for name, _ in spec.params]
    recipes = list(itertools.product(*(values for _, values in spec.params)))
    for recipe, transport in itertools.product(recipes, spec.transports):
        for (workers, hosts), threads in _pairs(spec):
            for batch in _batches(spec, workers, max_batch):
                yield Cell(
                    workers=workers,
                    hosts=hosts,
                    threads=threads,
                    batch=batch,
                    transport=transport,
                    device="cuda" if spec.room.gpus else "cpu",
                    params=tuple(zip(names, recipe, strict=True)),
                )


def _pairs(spec: Spec) -> list[tuple[Place, int]]:
    """Return workers, hosts and threads of each cell."""
    if spec.split:
        return list(zip(spec.placed, spec.threads, strict=True))
    return [(place, threads) for threads in spec.threads for place in spec.placed]


def _batches(spec: Spec, workers: int, max_batch: int | None) -> Sequence[int | None]:
    """Return the batches per worker of cells with so many workers."""
    if not spec.sets_batch:
        return [None]
    given = set(spec.batches)
    shared = set(spec.global_batches)
    if max_batch is not None:
        given.add(max_batch)
    found: set[int] = set()
    if spec.scaling in ("weak", "both"):
        found |= given
    if spec.scaling in ("strong", "both"):
        whole = math.lcm(*spec.workers)
        for batch in spec.batches:
            _check_shared(batch, spec.workers, f"-L batch={batch} with --scaling {spec.scaling}")
        shared |= set(spec.batches)
        if max_batch is not None and max_batch >= whole:
            shared.add(max_batch - max_batch % whole)
    for batch in sorted(spec.global_batches):
        _check_shared(batch, spec.workers, f"-L global_batch={batch}")
    found |= {batch // workers for batch in shared}
    return sorted(found)


def _check_shared(batch: int, workers: tuple[int, ...], flag: str) -> None:
    """Refuse a global batch that some number of workers does not divide."""
    for count in workers:
        if batch % count:
            whole = math.lcm(*workers)
            below, above = batch - batch % whole, batch - batch % whole + whole
            nearest = [str(value) for value in (below, above) if value > 0]
            listed = ", ".join(map(str, workers))
            raise UsageError(
                f"{flag}: {count} workers cannot share a global batch of {batch} evenly. "
                f"Use {' or '.join(nearest)}, which {listed} workers can."
            )


def _today(spec: Spec, cells: tuple[Cell, ...]) -> Cell | None:
    """Return the cell of one process with all cores, unless the grid has it already."""
    if not spec.today or spec.measure == "accuracy" or spec.room.gpus or spec.launcher:
        return None
    alone = [cell for cell in cells if cell.workers == 1]
    if any(cell.threads == spec.room.cores for cell in alone):
        return None
    like = alone[0] if alone else cells[0]
    return Cell(
        workers=1,
        threads=spec.room.cores,
        batch=like.batch,
        device=like.device,
        params=like.params,
        today=True,
    )
