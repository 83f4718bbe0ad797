"""Why a speedup may not be printed: mostly, the workers did not train together.

Gradients never averaged, weights that differ, data that were not sharded; or nobody saw how much
work a step is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from farandole.format import fill
from farandole.model.curves import group_of
from farandole.model.measured import Measured
from farandole.study.records import Cell, Launch, Rank

VoidKind = Literal["not_averaged", "weights_differ", "same_samples", "work_unknown"]
_SAME = 0.5
"""Share of a rank's samples that its peer saw, too; disjoint shards have about 0."""
_ELSEWHERE = ("buffers", "parameters", "objects", "other")
_WORDS: Mapping[VoidKind, tuple[str, str, str]] = {
    "not_averaged": (
        "Your {workers:worker} trained {workers} separate models: nothing was averaged.",
        "Wrap the optimizer: optimizer = hvd.DistributedOptimizer(optimizer) (or the model: "
        "DDP(model)).",
        "Wrap the optimizer: model.compile(hvd.DistributedOptimizer(optimizer), ...), with hvd of "
        "import farandole.keras as hvd.",
    ),
    "weights_differ": (
        "Your {workers:worker} ended with different weights, although gradients were averaged: "
        "they trained {workers} different models.",
        "Begin with the same weights: hvd.broadcast_parameters(model.state_dict(), root_rank=0) "
        "before the first step, and step the optimizer on every rank.",
        "Begin with the same weights: give fit the callback "
        "hvd.callbacks.BroadcastGlobalVariablesCallback(0), on every rank.",
    ),
    "same_samples": (
        "Your {workers:worker} all trained on the same samples: the work was repeated, not shared.",
        "Give each worker its own part: DistributedSampler(dataset, num_replicas=hvd.size(), "
        "rank=hvd.rank()), and set_epoch(epoch) before every epoch.",
        "Give each worker its own part: fit(hvd.shard((x, y), batch_size=...)).",
    ),
    "work_unknown": (
        "How many samples a step of your {workers:worker} has could not be seen: no DataLoader was "
        "used, and no call of a model in training mode. A step may be less work with more workers, "
        "as with gradient accumulation that is divided among them, so that steps per second are no "
        "speedup.",
        "Say how many samples each worker's step has: farandole.record(samples=...) in every step.",
        "",
    ),
}
"""What is wrong, how to mend it, and how where it is another way with Keras."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Void:
    """A reason why a speedup is not shown: mostly, workers did not train together."""

    kind: VoidKind
    cell: Cell
    label: str
    launches: tuple[str, ...]
    sentence: str
    mend: str
    evidence: Mapping[str, float | str]


def why_no_speedup(kind: VoidKind) -> str:
    """Say in a few words why a cell has no speedup."""
    if kind == "work_unknown":
        return "how much work a step is was not seen"
    return "the workers did not train together"


def find_voids(found: Measured, cells: Sequence[Measured] = ()) -> list[Void]:
    """Return what is wrong with a cell's launches, at most one reason of each kind.

    Args:
        found: the cell.
        cells: all of the study, those with fewer workers among them.
    """
    by_kind: dict[VoidKind, list[Launch]] = {}
    workers = found.cell.workers
    if workers < 2:
        return []
    for launch in found.ended_well:
        kind = void_of(launch)
        if kind:
            by_kind.setdefault(kind, []).append(launch)
    if not by_kind and any(map(_work_unknown, (found, *_fewer(found, cells)))):
        by_kind["work_unknown"] = [pace.launch for pace in found.paces]
    return [_void(kind, found, launches) for kind, launches in by_kind.items()]


def void_of(launch: Launch) -> VoidKind | None:
    """Return the first reason why this launch's workers did not train together, or None."""
    ranks = [rank for rank in launch.ranks if len(rank.steps)]
    if launch.cell.workers < 2 or len(ranks) < 2:
        return None
    if _nothing_averaged(ranks):
        return "not_averaged"
    if _weights_differ(ranks):
        return "weights_differ"
    if _same_samples(ranks):
        return "same_samples"
    return None


def overlap(first: Rank, second: Rank) -> float | None:
    """Return the share of the samples of one rank that the other saw, too; None if unknown."""
    ours, theirs = set(first.sample_hashes), set(second.sample_hashes)
    if not ours or not theirs:
        return None
    return len(ours & theirs) / min(len(ours), len(theirs))


def repeats_one_batch(rank: Rank) -> bool:
    """Tell whether every step trained on the same samples, as synthetic benchmarks do."""
    hashes = rank.sample_hashes
    return len(hashes) > 1 and 2 * len(set(hashes)) <= len(hashes)


def _fewer(found: Measured, cells: Sequence[Measured]) -> list[Measured]:
    """Return the cells that a speedup of this one may be relative to."""
    return [
        other
        for other in cells
        if other.cell.workers < found.cell.workers and group_of(other.cell) == group_of(found.cell)
    ]


def _work_unknown(found: Measured) -> bool:
    """Tell whether steps were recorded, and no samples that could be compared with others'."""
    return any(
        len(rank.steps) and "samples/s" not in pace.rates
        for pace in found.paces
        for rank in pace.launch.ranks
    )


def _nothing_averaged(ranks: Sequence[Rank]) -> bool:
    if any("gradients" not in rank.bytes_sent for rank in ranks):
        return False
    if any(rank.bytes_sent["gradients"] > 0 for rank in ranks):
        return False
    # A script may average by hand, through calls whose payload we cannot tell from others: then
    # bytes did move, and workers that saw different samples ended with the same weights.
    moved = any(rank.bytes_sent.get(kind, 0) > 0 for rank in ranks for kind in _ELSEWHERE)
    known = all(rank.weights is not None for rank in ranks)
    together = moved and known and not _weights_differ(ranks)
    seen = any(rank.sample_hashes for rank in ranks)
    return not (together and seen and not _same_samples(ranks))


def _weights_differ(ranks: Sequence[Rank]) -> bool:
    return len({rank.weights for rank in ranks if rank.weights is not None}) > 1


def _same_samples(ranks: Sequence[Rank]) -> bool:
    if any(repeats_one_batch(rank) for rank in ranks):
        return False
    shares = [overlap(first, second) for first, second in combinations(ranks, 2)]
    if any(share is None or share <= _SAME for share in shares):
        return False
    if len({rank.sample_hashes for rank in ranks}) == 1:
        return True
    # Of a data set smaller than what was looked at, disjoint shards meet in the second epoch.
    looked_at = sum(len(set(rank.sample_hashes)) for rank in ranks)
    size = next((rank.dataset_size for rank in ranks if rank.dataset_size), None)
    return size is None or looked_at <= size


def _void(kind: VoidKind, found: Measured, launches: Sequence[Launch]) -> Void:
    ranks = launches[0].ranks
    sentence, mend, with_keras = _WORDS[kind]
    keras = with_keras and any("keras" in rank.framework for rank in ranks)
    evidence: dict[str, float | str] = {}
    if kind == "not_averaged":
        evidence["gradient bytes"] = 0
    if kind in ("not_averaged", "work_unknown"):
        evidence["steps"] = max(len(rank.steps) for rank in ranks)
    if kind in ("not_averaged", "weights_differ"):
        for rank in ranks[:4]:
            evidence[f"weights of rank {rank.rank}"] = rank.weights or "not known"
    if kind == "same_samples":
        shares = [overlap(first, second) for first, second in combinations(ranks, 2)]
        evidence["overlap of samples"] = min(share for share in shares if share is not None)
    return Void(
        kind=kind,
        cell=found.cell,
        label=found.label,
        launches=tuple(launch.id for launch in launches),
        sentence=fill(sentence, workers=found.cell.workers),
        mend=with_keras if keras else mend,
        evidence=evidence,
    )
