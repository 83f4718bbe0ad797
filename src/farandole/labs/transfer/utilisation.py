"""How busy the workers are over time, and whether they wait for images."""

from __future__ import annotations

from typing import Any

from farandole.format import percent, plural, seconds, size, whole
from farandole.labs import columns
from farandole.labs.disturbed import disturbed
from farandole.labs.evidence import only
from farandole.labs.lab import Answered, Found
from farandole.labs.transfer.questions import UTILISATION
from farandole.labs.usage import split_words, use_words
from farandole.model.info.scaling import ScalingInfo
from farandole.model.info.utilisation import UtilisationRow, UtilisationSeries
from farandole.report.charts import lines
from farandole.report.table import Column, Table

_BINS = 16
"""Points of a line: each is the mean of an equal part of the time."""
_KEEPS_UP = 0.05
"""Input that takes less than this share of a step keeps up."""


def answer_utilisation(found: Found) -> Answered:
    """Answer by what every worker's process used, sampled while it ran."""
    info = found.studies.get("workers")
    used = [row for row in info.utilisation if not row.cell.today] if info else []
    table = Table(
        name=UTILISATION.key,
        title="Utilisation, memory and waiting for images by worker",
        columns=(
            columns.WORKERS,
            Column(key="rank", title="rank", show=whole),
            Column(key="cpu", title="CPU utilisation", show=percent),
            Column(key="memory_bytes", title="memory", show=size),
            Column(key="data_share", title="step spent waiting for images", show=percent),
        ),
        rows=tuple(row for one in used if info for row in _rows(info, one)),
        notes=("Utilisation is of the cores that a worker may use, from its first step on.",),
    )
    return Answered(
        question=UTILISATION,
        sentences=tuple(_said(found, info, used)),
        tables=(table,),
        figures=(
            lines(
                "utilisation-over-time",
                "CPU utilisation over time",
                "Share of its cores that each worker kept busy while it trained and validated; "
                "what comes before is start-up.",
                _over_time(found, info),
                x="time_s",
                y="cpu",
                series="series",
                x_title="time since the launch (s)",
                x_log=False,
            ),
        ),
    )


def input_share(info: ScalingInfo, workers: int) -> float | None:
    """Return which share of a step waits for images; None where nobody measured it."""
    split = only(info.splits, workers=workers)
    if split is None or split.data_s is None or not split.step_s:
        return None
    return split.data_s / split.step_s


def _rows(info: ScalingInfo, used: UtilisationRow) -> list[tuple[Any, ...]]:
    share = input_share(info, used.cell.workers)
    return [(used.cell.workers, rank, cpu, memory, share) for rank, cpu, _, memory in used.by_rank]


def _over_time(found: Found, info: ScalingInfo | None) -> Table:
    """Return the utilisation of one worker, and of as many as have a core each, by time."""
    fitting = [
        one
        for one in (info.utilisation_series if info else ())
        if one.cell.workers <= found.asked.cores
    ]
    counts = sorted({one.cell.workers for one in fitting})
    wanted = {counts[0], counts[-1]} if counts else set()
    return Table(
        name="utilisation-over-time",
        title="CPU utilisation over time",
        columns=(
            Column(key="series", title="worker", text=True),
            Column(key="time_s", title="time", show=seconds),
            Column(key="cpu", title="CPU utilisation", show=percent),
        ),
        rows=tuple(
            (f"{plural(one.cell.workers, 'worker')}, rank {one.rank}", time_s, cpu)
            for one in fitting
            if one.cell.workers in wanted
            for time_s, cpu in binned(one)
        ),
    )


def binned(series: UtilisationSeries, bins: int = _BINS) -> list[tuple[float, float]]:
    """Return the means of equal parts of the time, each at its middle; empty parts are left out."""
    samples = [
        (time_s, cpu)
        for time_s, cpu in zip(series.time_s, series.cpu, strict=True)
        if cpu is not None
    ]
    if len(samples) <= bins:
        return samples
    first, last = samples[0][0], samples[-1][0]
    width = (last - first) / bins
    parts: dict[int, list[float]] = {}
    for time_s, cpu in samples:
        parts.setdefault(min(bins - 1, int((time_s - first) / width)), []).append(cpu)
    return [
        (first + (place + 0.5) * width, sum(values) / len(values))
        for place, values in sorted(parts.items())
    ]


def _said(found: Found, info: ScalingInfo | None, used: list[UtilisationRow]) -> list[str]:
    if info is None or not used:
        return ["Utilisation was not measured: no launch ended well."]
    said = [use_words(row) for row in used]
    said += [split_words(split) for split in info.splits if split.cell.workers > 1]
    said += input_words(info)
    return [*said, *disturbed(found, "workers")]


def input_words(info: ScalingInfo) -> list[str]:
    """Say whether images come in time, or by how much they do not."""
    shares = [
        (row.cell.workers, share)
        for row in info.cells
        if not row.cell.today and (share := input_share(info, row.cell.workers)) is not None
    ]
    if not shares:
        return ["Whether images come in time was not measured."]
    workers, share = max(shares, key=lambda one: one[1])
    if share < _KEEPS_UP:
        return [
            f"Images come in time: at most {percent(share)} of a step waits for them "
            f"({plural(workers, 'worker')})."
        ]
    return [
        f"Training is held up by its input: {percent(share)} of a step on "
        f"{plural(workers, 'worker')} waits for images, where less than {percent(_KEEPS_UP)} would "
        "keep up."
    ]
