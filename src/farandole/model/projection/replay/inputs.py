"""What a study recorded that a replay needs: computing, the network, and how ranks scatter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from farandole.model.measured import Measured
from farandole.model.pace import Pace
from farandole.model.projection.records import LinkSpeed
from farandole.model.projection.replay.allreduce import AllReduce, Network, fit_allreduce, on_link
from farandole.model.projection.replay.computing import ComputingLine, computing_of
from farandole.model.projection.replay.fit import MEMORY_BYTES_PER_S, ReplayInputs
from farandole.model.projection.replay.jitter import NO_JITTER, Jitter, jitter_of
from farandole.model.projection.replay.whatif import (
    DDP_LAYOUT,
    FARANDOLE_LAYOUT,
    Layout,
    put_together,
)
from farandole.study.records import Floats, Link, Rank

# torch's process group works on two collectives at a time; NCCL and Farandole on one.
_GLOO_CHANNELS = 2
_TORCH_TRANSPORTS = ("gloo", "nccl")


def replay_inputs(
    cells: Sequence[Measured], calibration: Link, *, link: LinkSpeed | None = None
) -> ReplayInputs | None:
    """Gather what a replay needs; None when gradients were not timed or nothing tells of a network.

    Args:
        cells: of one group: the same script, device and transport.
        calibration: of what connects the workers of a host.
        link: between hosts, where there is one or is to be one.
    """
    computing = [one for found in cells if (one := computing_of(found)) is not None]
    if not computing:
        return None
    ddp = any(rank.framework == "ddp" for rank in _ranks(cells))
    transport = cells[0].cell.transport
    layout = _layout(cells) if ddp else FARANDOLE_LAYOUT
    sizes = [bucket.bytes for bucket in put_together(computing[0].buckets, layout)]
    inside = _inside(calibration, transport, sizes, ddp=ddp)
    assumptions = _assumed(calibration, link, inside)
    if inside is None:
        if link is None:
            return None
        inside = on_link(link)
    return ReplayInputs(
        computing=ComputingLine(measured=tuple(computing)),
        network=Network(
            inside=inside, link=link, shape="flat" if ddp or transport == "nccl" else "pairwise"
        ),
        layout=layout,
        channels=_GLOO_CHANNELS if ddp and transport != "nccl" else 1,
        jitter=_jitter(cells),
        memory_bytes_per_s=calibration.memcpy_bytes_per_s or MEMORY_BYTES_PER_S,
        assumptions=assumptions,
    )


def times_gradients(cells: Sequence[Measured]) -> bool:
    """Tell whether it was recorded when gradients were ready."""
    return any(rank.buckets for rank in _ranks(cells))


def _assumed(
    calibration: Link, link: LinkSpeed | None, inside: AllReduce | None
) -> tuple[str, ...]:
    counts = {workers for workers, _, _ in calibration.allreduce}
    if link is None:
        if len(counts) != 1:
            return ()
        return (
            f"All-reduces were measured with {counts.pop()} workers only: how they grow with more "
            "is taken from what moves the gradients.",
        )
    taken = f"The link between hosts, {link.name}, was not measured: it is taken at its word."
    if inside is not None:
        return (taken,)
    return (
        "Workers of one host were not measured together: they are taken as connected by "
        f"{link.name}, too.",
        taken,
    )


def _inside(
    calibration: Link, transport: str, sizes: Sequence[int], *, ddp: bool
) -> AllReduce | None:
    law: str | None = None
    if transport in _TORCH_TRANSPORTS or ddp:
        law = "ring" if transport == "nccl" else "gloo"
    elif len({workers for workers, _, _ in calibration.allreduce}) == 1:
        # Shared memory: with more workers at most everybody's bytes go through one bus.
        law = "bus"
    return fit_allreduce(calibration.allreduce, law, latency_s=calibration.latency_s, around=sizes)


def _layout(cells: Sequence[Measured]) -> Layout:
    sizes = {rank.bucket_bytes for rank in _ranks(cells)} - {None, DDP_LAYOUT.bucket_bytes}
    # Who sets a size has no small first bucket.
    return Layout(bucket_bytes=max(filter(None, sizes))) if sizes else DDP_LAYOUT


def _ranks(cells: Sequence[Measured]) -> list[Rank]:
    return [rank for found in cells for pace in found.paces for rank in pace.launch.ranks]


def _jitter(cells: Sequence[Measured]) -> Jitter:
    """Return how the ranks of the largest measured count scatter."""
    several = [found for found in cells if found.cell.workers > 1]
    for found in sorted(several, key=lambda found: -found.cell.workers):
        parts = [one for pace in found.paces if (one := jitter_of(_computing_s(pace))) is not None]
        if parts:
            return Jitter(residuals_s=np.sort(np.concatenate([one.residuals_s for one in parts])))
    return NO_JITTER


def _computing_s(pace: Pace) -> Floats:
    """Return ranks x steps: what each computed, without waiting for data or for the others."""
    ranks = pace.launch.ranks
    shortest = min((len(rank.steps) for rank in ranks), default=0)
    rows = []
    for rank in ranks:
        steps = rank.steps
        own_s = steps.duration_s - np.nan_to_num(steps.data_s) - steps.exposed_s
        rows.append(own_s[max(pace.warmup, 1) : shortest])
    return np.stack(rows) if rows else np.empty((0, 0))
