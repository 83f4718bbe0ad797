"""What a replay needs: computing, the network, how ranks scatter; as a study recorded it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from farandole.model.measured import Measured
from farandole.model.pace import Pace
from farandole.model.projection.records import LinkSpeed
from farandole.model.projection.replay.allreduce import (
    AllReduce,
    Cost,
    Network,
    fit_allreduce,
    on_link,
)
from farandole.model.projection.replay.computing import Computing, ComputingLine, computing_of
from farandole.model.projection.replay.jitter import NO_JITTER, Jitter, jitter_of
from farandole.model.projection.replay.step import Replayed, replay
from farandole.model.projection.replay.whatif import (
    DDP_LAYOUT,
    FARANDOLE_LAYOUT,
    Change,
    Layout,
    accumulated,
    halved,
    put_together,
)
from farandole.study.records import Apart, Floats, Link, Rank

# torch's process group works on two collectives at a time; NCCL and Farandole on one.
_GLOO_CHANNELS = 2
_TORCH_TRANSPORTS = ("gloo", "nccl")
# What one core copies, where nobody measured it.
_MEMORY_BYTES_PER_S = 5e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """What a replay cannot know beforehand."""

    slowdown: float = 1.0
    """Of communication while computing goes on."""
    contention: float = 1.0
    """Of computing while communication goes on."""
    correction: float = 1.0
    """Measured over replayed."""
    overlap: bool = True
    """Whether buckets go before computing is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayInputs:
    """All that a replay needs beside the rows that it is fitted to."""

    computing: ComputingLine
    network: Network
    layout: Layout = FARANDOLE_LAYOUT
    channels: int = 1
    """Buckets on their way at a time."""
    jitter: Jitter = NO_JITTER
    memory_bytes_per_s: float = _MEMORY_BYTES_PER_S
    """Of one worker, for what converting gradients takes."""
    change: Change = field(default_factory=Change)
    assumptions: tuple[str, ...] = ()

    def played(
        self, workers: int, hosts: int, batch: int, factors: Factors, network_speed: float = 1.0
    ) -> Replayed:
        """Play one step on paper, the wait for the slowest worker included.

        Args:
            workers: all of them.
            hosts: that they are on, evenly.
            batch: per worker, and per backward pass.
            factors: `correction` is not applied here.
            network_speed: over what the network is taken for.
        """
        each = self._changed(self.computing.at(batch, math.ceil(workers / hosts)))
        layout = self.layout
        if self.change.bucket_bytes is not None:
            layout = Layout(bucket_bytes=self.change.bucket_bytes)

        def cost(nbytes: int) -> Cost:
            one = self.network.cost(workers, hosts, nbytes)
            return Cost(
                latency_s=one.latency_s / network_speed, transfer_s=one.transfer_s / network_speed
            )

        return replay(
            put_together(each.buckets, layout),
            cost,
            backward_s=each.end_s,
            update_s=each.update_s + each.data_s + self.jitter.slowest_s(workers),
            slowdown=factors.slowdown,
            contention=factors.contention,
            channels=self.channels,
            overlap=factors.overlap,
        )

    def _changed(self, computing: Computing) -> Computing:
        if self.change.half_precision:
            computing = halved(computing, self.memory_bytes_per_s)
        if self.change.accumulation > 1:
            computing = accumulated(computing, self.change.accumulation)
        return computing


def replay_inputs(
    cells: Sequence[Measured],
    calibration: Link,
    *,
    link: LinkSpeed | None = None,
    apart: Sequence[Apart] = (),
) -> ReplayInputs | None:
    """Gather what a replay needs; None when gradients were not timed or nothing tells of a network.

    Args:
        cells: of one group: the same script, device and transport.
        calibration: of what connects the workers of a host.
        link: between hosts, where there is one or is to be one.
        apart: what workers of a host took each for itself.
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
        computing=ComputingLine(measured=tuple(computing), apart=tuple(apart)),
        network=Network(inside=inside, link=link, shape=_across(transport, ddp=ddp)),
        layout=layout,
        channels=_GLOO_CHANNELS if ddp and transport != "nccl" else 1,
        jitter=_jitter(cells),
        memory_bytes_per_s=calibration.memcpy_bytes_per_s or _MEMORY_BYTES_PER_S,
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


def _across(transport: str, *, ddp: bool) -> str:
    """Return how gradients go between hosts, one of SHAPES."""
    if ddp or transport == "nccl":
        return "flat"
    # As farandole.transport.choose: Gloo between all workers only where somebody asks for it.
    return "pairwise" if transport == "gloo" else "hierarchical"


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
