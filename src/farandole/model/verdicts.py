"""Verdicts: what the figures mean, and what to do about it.

RULES has the words of every verdict; the functions below say when each applies, and
`find_verdicts` applies all of them to a study. A void (`find_voids`) is the reason why no
speedup may be printed: mostly, the workers did not train together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice, pairwise
from typing import Any, Literal

import numpy as np

from farandole.format import brief, fill, number, percent, plural, rate, seconds, times, too_wide
from farandole.model.accuracy import MetricCurve, MetricRow
from farandole.model.curves import Curve, amdahl_fraction, group_of
from farandole.model.jobs import LARGEST_BATCH, LEAST_STEPS, JobTime, enough_steps
from farandole.model.measured import Measured, Pace, common_unit, compare_speed
from farandole.model.metrics import WINDOW, Series, plateau, reach, training_partner
from farandole.model.rows import CellRow
from farandole.model.split import StepSplit
from farandole.model.statistics import LEAST_LAUNCHES, SPEED_MARGIN, Estimate
from farandole.model.utilisation import UtilisationRow
from farandole.study.records import Cell, Floats, Launch, Mistake, Rank

Bound = Literal[
    "compute", "communication", "input", "straggler", "fixed_cost", "oversubscription", "unknown"
]
Severity = Literal["void", "warn", "note", "good"]
VoidKind = Literal[
    "not_averaged",
    "weights_differ",
    "same_samples",
    "whole_data",
    "overlapping_parts",
    "work_unknown",
    "mistake",
]
Evidence = Mapping[str, float | str]
LINEAR = 0.90
"""An efficiency below is no longer linear."""
NOISY = 0.10
"""Half width of a speedup's interval, relative, above which no number should be quoted."""
# Shares of a step above which a part is worth mending.
SHARES: Mapping[str, float] = {"communication": 0.20, "input": 0.10, "straggler": 0.10}
STRAGGLER_RATIO = 1.10
COMPUTE_SHARE = 0.80
CONTENTION_RATIO = 1.15
FIXED_SHARE = 0.30
FLAT = 0.80
"""A serial fraction of whole jobs above which more workers have nothing to share."""
UNEVEN = 0.20
# A pause is a wait of so many steps, and of so many seconds, in at most this share of the steps.
PAUSE_STEPS = 2.0
PAUSE_S = 0.10
PAUSE_SHARE = 0.25
_MEMORY_NOISE_BYTES = 100e6
_IDLE = 0.25
"""Workers that all keep less of their threads busy have nothing to even out."""
NOTHING_GAINED = 0.05
GAP_MARGINS = 5
"""A training accuracy above the validation's by so many margins (5 points) is overfitting."""
LOSS_RISE = 0.05
FALL_MARGINS = 5
LOSS_JUMP = 0.50
_MOST_NAMED = 3
_OF_A_KIND = 3
"""Verdicts of one kind that are worth reading; a study of 200 cells would give 200."""
_ORDER = ("void", "warn", "note", "good")
_RANKING = ("cpu", "k80", "m60", "p4", "p100", "t4", "v100", "a10", "l4", "a100", "h100", "b200")
"""Devices by training speed, slowest first; a name that holds one of these is compared by it."""
_SAME_SAMPLES = 0.5
"""Share of a rank's samples that its peer saw, too; disjoint shards have about 0."""
_WHOLE = 0.9
"""Share of the data in a pass of one worker; an equal part of two workers is 0.5."""
_TWICE = 1.25
"""Samples of all workers in an epoch, over the data set's, above which parts overlap."""
_REPEATED = ("same_samples", "whole_data", "overlapping_parts")
_ELSEWHERE = ("buffers", "parameters", "objects", "other")
DOCTOR_IDS: Mapping[str, tuple[str, ...]] = {
    "not_averaged": ("FD101",),
    "weights_differ": ("FD104", "FD103"),
    "same_samples": ("FD201",),
    "whole_data": ("FD202",),
    "overlapping_parts": ("FD205", "FD202"),
}
"""The same mistakes by the ids of `farandole doctor`: where a void says it, the id does not."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The words of a verdict; see `format.fill` for what its templates may hold.

    They may name whatever is in the evidence: "{data share:percent}".
    """

    severity: Severity
    sentence: str
    action: str
    kind: str = ""
    """In report.json; the rule's name unless two rules share one."""
    with_keras: str = ""
    """The action where it is another one with Keras."""


_OWN_PART = (
    "Give each worker its own part: DistributedSampler(dataset, num_replicas=hvd.size(), "
    "rank=hvd.rank()), and call set_epoch(epoch) before every epoch."
)
_OWN_PART_KERAS = "Give each worker its own part: fit(hvd.shard((x, y), batch_size=...))."
RULES: Mapping[str, Rule] = {
    "not_averaged": Rule(
        "void",
        "Your {workers:worker} trained {workers} separate models: nothing was averaged.",
        "Wrap the optimizer: optimizer = hvd.DistributedOptimizer(optimizer), where hvd is "
        "farandole.torch and hvd.init() comes first (or wrap the model: DDP(model)).",
        with_keras="Wrap the optimizer: model.compile(hvd.DistributedOptimizer(optimizer), ...), "
        "where hvd is farandole.keras.",
    ),
    "weights_differ": Rule(
        "void",
        "Your {workers:worker} ended with different weights, although gradients were averaged: "
        "they trained {workers} different models.",
        "Start from the same weights: call hvd.broadcast_parameters(model.state_dict(), "
        "root_rank=0) before the first step, and step the optimizer on every rank.",
        with_keras="Start from the same weights: give fit the callback "
        "hvd.callbacks.BroadcastGlobalVariablesCallback(0) on every rank.",
    ),
    "same_samples": Rule(
        "void",
        "Your {workers:worker} all trained on the same samples: the work was repeated, not shared.",
        _OWN_PART,
        with_keras=_OWN_PART_KERAS,
    ),
    "whole_data": Rule(
        "void",
        "Each of your {workers:worker} went through all {samples:sample}: an epoch did not shrink.",
        _OWN_PART,
        with_keras=_OWN_PART_KERAS,
    ),
    "overlapping_parts": Rule(
        "void",
        "Your {workers:worker} trained on {seen:sample} in an epoch of {samples:sample}: their "
        "parts overlap.",
        _OWN_PART,
        with_keras=_OWN_PART_KERAS,
    ),
    "work_unknown": Rule(
        "void",
        "The samples per step of your {workers:worker} are unknown: the script used no DataLoader "
        "and called no model in training mode. A step may do less work with more workers, so steps "
        "per second are not a speedup.",
        "Record each worker's samples: call farandole.record(samples=...) in every step.",
    ),
    "mistake": Rule(
        "void",
        "Your {workers:worker} did not train together as they should: {text}",
        "See farandole doctor --explain {id}.",
    ),
    "leaves_linear": Rule(
        "note",
        "Efficiency drops{before} to {efficiency:percent} at {workers:worker} ({label}).",
        "If cost matters, stay with {last:worker}.",
    ),
    "more_than_linear": Rule(
        "warn",
        "Superlinear speedup: {point.speedup:interval} with {ideal:brief} times the workers "
        "({label}).",
        "Explain it before you quote it. Usual causes: a slow or cold baseline, another batch or "
        "device, a model that fits a cache only when shared. Measure "
        "{curve.baseline_workers:worker} again with --repeats 5.",
    ),
    "same_speed": Rule(
        "note",
        "{few} and {many} are equally fast: {found:interval}, within {margin:percent}.",
        "Use {few}.",
        "no_significant_difference",
    ),
    "too_noisy": Rule(
        "warn",
        "{begin} after {launches:launch} ({label}).",
        "Run it again with {flag} {more} on a quieter machine.",
    ),
    "no_intervals": Rule(
        "note",
        "One launch each: figures have no intervals.",
        "Run it again with {flag} 5 to get intervals.",
    ),
    "disturbed": Rule(
        "warn",
        "The machine was busy in every launch{cells}: other programs used up to "
        "{largest share:percent} of its cores, so speeds may be off by as much.",
        "Run it again when the machine is quiet: farandole study --resume DIR repeats the "
        "disturbed launches.",
    ),
    "compute_bound": Rule(
        "good",
        "Bound by compute: forward, backward and update take {compute share:percent} of a step "
        "({label}).",
        "More workers, a faster device or mixed precision would shorten it.",
    ),
    "communication_bound": Rule(
        "warn",
        "Bound by communication: {exposed transfer share:percent} of a step waits for "
        "gradients{details} ({label}).",
        "Use a larger batch per worker, accumulate gradients, compress them to float16, or use a "
        "faster transport.",
    ),
    "input_bound": Rule(
        "warn",
        "Bound by input: {data share:percent} of a step waits for the next batch ({label}).",
        "Use more loader processes (num_workers), cache decoded samples, or move augmentation off "
        "the training process.",
    ),
    "straggler": Rule(
        "warn",
        "Held up by rank {slowest rank}: the others wait for it for "
        "{share that the others wait:percent} of a step; {reason} ({label}).",
        "Check what else runs where rank {slowest rank} is, and whether it has more or longer "
        "samples.",
    ),
    "pauses": Rule(
        "warn",
        "Rank {rank} alone paused {pauses:time} for {seconds:seconds} in all ({each_s:seconds} "
        "each) while the others waited: {share:percent} of the training time ({label}). Usually "
        "this is a checkpoint or a log that one rank writes.",
        "Save less often, or write in a background thread.",
        "one_rank_pauses",
    ),
    "uneven_steps": Rule(
        "note",
        "Workers wait for each other for {waiting share:percent} of a step, no rank more than "
        "others ({label}).",
        "Even out the work per batch (lengths, sizes), or stop other programs on these cores.",
    ),
    "oversubscription": Rule(
        "warn",
        "Too few cores: {cell.workers} x {cell.threads:thread} share {whole:core} ({label}).",
        "Use at most {whole:thread} in all: fewer workers, or --threads 1.",
    ),
    "contention": Rule(
        "note",
        "Computing takes {slower:times} as long beside other workers: {compute, few (s):seconds}, "
        "then {compute, many (s):seconds} ({many}). Usually they share memory bandwidth and "
        "caches.",
        "A faster transport does not help: spread the workers over more hosts, or pin them to "
        "cores.",
    ),
    "fixed_cost": Rule(
        "warn",
        "Fixed cost: {fixed share:percent} of the {job.job_s.value:seconds} job is not "
        "training{startup} ({label}).",
        "More workers do not shorten that. Validate and save less often, or start faster; in "
        "longer jobs it matters less.",
    ),
    "flat_jobs": Rule(
        "warn",
        "Fixed cost: {fewest:worker} took {fewest (s):seconds} and {most:worker} "
        "{most (s):seconds}, so {serial:percent} of the job is not shared.{factor}",
        "Use {fewest:worker}, or larger jobs.",
        "fixed_cost",
    ),
    "data_too_small": Rule(
        "warn",
        "Too little data for {workers:worker}: {samples:sample} make {steps per epoch:brief} steps "
        "per epoch at a global batch of {batch} ({label}).",
        "Use fewer workers or a smaller batch; this many need about {needed:sample}. With fewer "
        "steps per epoch, training needs more epochs or another learning rate.",
    ),
    "contradicting_times": Rule(
        "warn",
        "Times contradict each other: {job.epochs:brief} epochs of {job.epoch_s.value:seconds} are "
        "{epochs x epoch (s):seconds}, more than the {job (s):seconds} job ({label}).",
        "Find out which is wrong before you use either.",
    ),
    "uneven_utilisation": Rule(
        "warn",
        "Unequal utilisation: rank {most} keeps its {device} {high:percent} busy, rank {least} "
        "{low:percent} ({label}).",
        "Check what rank {most} does beyond its share (validation, logging, loading), or what rank "
        "{least} waits for.",
    ),
    "uneven_memory": Rule(
        "note",
        "Unequal memory: rank {most} uses {high:size}, rank {least} {low:size} ({label}).",
        "Rank {most} limits the batch: check what only it holds.",
    ),
    "faster_device_gains_nothing": Rule(
        "warn",
        "{fast} gains nothing over {slow}: {high:number} and {low:number} {unit}, {ratio:times} "
        "({label}).",
        "The device is not the limit. Check input first (loading, decoding, augmentation), then "
        "communication.",
    ),
    "order": Rule(
        "note",
        "By {factor}, {unit} at {setting}: {order}.",
        "The order is the same in every setting measured.",
    ),
    "order_reverses": Rule(
        "note",
        "By {factor}, {unit} at {setting}: {order}. The order reverses at {pair[0]}: {pair[2]} is "
        "faster than {pair[1]} there.",
        "Compare them in the setting that you will use.",
    ),
    "overfitting": Rule(
        "warn",
        "Overfitting: {training.metric} ends at {training.final.value:number}, {row.metric} "
        "at {row.final.value:number}, a gap of {gap:number}{since} ({label}).",
        "Stop at the plateau, or add data, augmentation or weight decay.",
    ),
    "instability": Rule(
        "warn",
        "Unstable: {row.metric} goes from {before:number} to {after:number} at epoch "
        "{epoch:brief} ({label}).",
        "Warm the learning rate up over 5 epochs, scale it less, or clip gradients.",
    ),
    "diverged": Rule(
        "warn",
        "{diverged} of {runs:run} diverged: {row.metric} ended as NaN or infinity ({label}).",
        "Lower the learning rate, or warm it up over the first epochs.",
    ),
    "seeds_without_effect": Rule(
        "warn",
        "All {seeds} seeds gave exactly the same {metric}{why} ({cells}).",
        "{action} Until then accuracy cannot be compared.",
    ),
    "same": Rule(
        "good",
        "No significant difference in {row.metric}: {change}, within {margin:brief} ({label}).",
        "The speedup costs no accuracy.",
        "no_significant_difference",
    ),
    "inconclusive": Rule(
        "note",
        "Cannot tell whether {row.metric} changed: {change} over {seeds:seed}{detectable} "
        "({label}).",
        "Run it again with --measure accuracy --seeds {more}.",
        "too_noisy",
    ),
    "worse": Rule(
        "warn",
        "{row.metric} is worse: {change} ({label}).",
        "Larger global batches mean fewer steps: scale the learning rate with a warm-up, train for "
        "more epochs, or keep the global batch (strong scaling).",
        "accuracy_worse",
    ),
    "better": Rule(
        "note",
        "{row.metric} is better: {change} ({label}).",
        "Check with other seeds before you rely on it.",
        "accuracy_better",
    ),
    "not_stable": Rule(
        "note",
        "Not stable yet: {row.metric} still improves at its last epoch ({label}).",
        "Train for more epochs before you compare final values.",
    ),
    "metric_missing": Rule(
        "note",
        "{metric} was not recorded for {cells}: accuracy is compared without them.",
        "Record {metric} in all of them.",
    ),
    "soonest": Rule(
        "good",
        "{best.metric} reaches {what} soonest with {best.label}: after {soonest (s):seconds}, "
        "against {latest (s):seconds} with {worst.label}.",
        "If you need accuracy, choose by this, not by samples per second.",
    ),
    "cell_failed": Rule(
        "warn",
        "{label}: every launch failed ({reason}).",
        "The last output is in launches/{launch}/output.txt.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One sentence with its evidence and what to do."""

    kind: str
    """The rule's name: communication_bound, overfitting, ..."""
    severity: Severity
    sentence: str
    action: str
    evidence: Evidence
    labels: tuple[str, ...] = ()
    """Of the cells that it speaks of."""


Verdicts = Iterator[Verdict]


def _verdict(name: str, labels: str | Iterable[str], evidence: Evidence, **words: Any) -> Verdict:
    """Fill in a rule; a lone label is `{label}` in its words."""
    rule = RULES[name]
    labels = (labels,) if isinstance(labels, str) else tuple(labels)
    words = {"label": labels[0], **evidence, **words}
    return Verdict(
        kind=rule.kind or name,
        severity=rule.severity,
        sentence=fill(rule.sentence, **words),
        action=fill(rule.action, **words),
        evidence=evidence,
        labels=labels,
    )


# Rules on steps


def waits(split: StepSplit) -> dict[Bound, float]:
    """Return what a step waits for, by its share of the step, as far as it is worth mending."""
    shares: dict[Bound, float] = {}
    if split.cell.workers > 1:
        transfer = split.exposed_s if split.transfer_s is None else split.transfer_s
        shares["communication"] = split.share(transfer)
    shares["input"] = split.share(split.data_s)
    if split.cell.workers > 1 and split.slowest_rank is not None:
        shares["straggler"] = split.share(split.waiting_s)
    return {name: found for name, found in shares.items() if found > SHARES[name]}


def limited_by(split: StepSplit | None, fired: Iterable[str]) -> Bound:
    """Return what limits a cell most, by the shares of its step and the kinds of its verdicts."""
    if "oversubscription" in fired:
        return "oversubscription"
    shares = waits(split) if split else {}
    if shares:
        return max(shares, key=lambda name: shares[name])
    if "fixed_cost" in fired:
        return "fixed_cost"
    return "unknown" if split is None or split.exposed_s is None else "compute"


def _step_rules(rows: Sequence[CellRow], void: frozenset[Cell], cores: float | None) -> Verdicts:
    groups: dict[object, list[CellRow]] = {}
    for row in rows:
        if row.split and not row.cell.today:
            groups.setdefault((group_of(row.cell), row.measured.worker_batch), []).append(row)
    for alike in groups.values():
        # The largest worker count stands for its group: there waiting is worst.
        largest = next((row for row in reversed(alike) if row.cell not in void), None)
        if largest is None or not (few := alike[0].split) or not (many := largest.split):
            continue
        verdicts = list(step_verdicts(largest))
        yield from verdicts
        yield from _pauses(largest.measured)
        # One slow rank makes the mean slower: no sign of shared memory.
        straggler = any(verdict.kind == "straggler" for verdict in verdicts)
        fewer, batch = few.cell.workers < many.cell.workers, few.cell.batch == many.cell.batch
        if fewer and batch and not straggler and few.compute_s and many.compute_s:
            slower = many.compute_s / few.compute_s
            if slower > CONTENTION_RATIO:
                evidence = {"compute, few (s)": few.compute_s, "compute, many (s)": many.compute_s}
                labels = (few.label, many.label)
                yield _verdict("contention", labels, evidence, slower=slower, many=many.label)
    for row in rows:
        cell = row.cell
        if cores and cell.threads and cell.device == "cpu" and not cell.today:
            threads = -(-cell.workers // max(cell.hosts, 1)) * cell.threads
            if threads > cores and not row.measured.imported:
                evidence = {"threads in all": threads, "cores": cores}
                words = {"cell": cell, "whole": round(cores)}
                yield _verdict("oversubscription", row.label, evidence, **words)


def step_verdicts(row: CellRow) -> Verdicts:
    """Say what a cell's step waits for, or that it computes."""
    split, label = row.split, row.label
    if split is None:
        return
    shares = waits(split)
    if "communication" in shares:
        evidence = {"exposed transfer share": shares["communication"], "step (s)": split.step_s}
        details, sent = "", row.communication
        if sent and sent.bus_bytes_per_s:
            evidence["bus bandwidth (GB/s)"] = sent.bus_bytes_per_s / 1e9
            details = f", at {rate(sent.bus_bytes_per_s)}"
            if sent.utilisation is not None:
                evidence["utilisation of the link"] = sent.utilisation
                details += f", {percent(sent.utilisation)} of the link's peak"
        yield _verdict("communication_bound", label, evidence, details=details)
    if "input" in shares:
        evidence = {"data share": shares["input"], "data wait (s)": split.data_s or 0.0}
        yield _verdict("input_bound", label, evidence)
    if "straggler" in shares:
        yield _straggler(split, shares["straggler"])
    busy = split.share((split.compute_s or 0.0) + (split.optimizer_s or 0.0))
    if not shares and split.exposed_s is not None and busy >= COMPUTE_SHARE:
        yield _verdict("compute_bound", label, {"compute share": busy, "step (s)": split.step_s})


def _straggler(split: StepSplit, waiting: float) -> Verdict:
    """Tell one rank that is slower, or mostly the last, from ranks that are late in turn."""
    rank, last = split.slowest_rank or 0, split.slowest_share or 0.0
    others = sorted(time for other, time in split.compute_by_rank_s if other != rank)
    middle = others[len(others) // 2] if others else 0.0
    slower = dict(split.compute_by_rank_s).get(rank, 0.0) / middle if middle else 0.0
    evidence = {"waiting share": waiting, "slowest rank": rank, "last in share of steps": last}
    # Among N equal ranks each is last in 1/N of the steps.
    fair = 1 / split.cell.workers
    if slower <= STRAGGLER_RATIO and last <= fair + (1 - fair) / 2:
        return _verdict("uneven_steps", split.label, evidence)
    if slower:
        evidence["its compute over the others'"] = slower
    evidence["share that the others wait"] = split.others_wait
    reason = f"it is last in {percent(last)} of the steps"
    if slower > STRAGGLER_RATIO:
        reason = f"it computes {times(slower)} as long as they do"
    return _verdict("straggler", split.label, evidence, reason=reason)


def _pauses(found: Measured) -> Verdicts:
    """Fire when one rank makes the others wait in a few long steps, alike in every launch."""
    seen = [_pauses_of(pace) for pace in found.paces]
    if seen and seen[0] and len({one and one[0] for one in seen}) == 1:
        rank, late_s, part = seen[0]
        evidence = {"rank": rank, "pauses": len(late_s), "seconds": float(late_s.sum())}
        yield _verdict("pauses", found.label, evidence, each_s=float(late_s.mean()), share=part)


def _pauses_of(pace: Pace) -> tuple[int, Floats, float] | None:
    """Return who paused, each pause in seconds, and their share of the launch's steps."""
    ranks, steps = pace.launch.ranks, pace.warmup + pace.steps
    if len(ranks) < 2 or len({rank.host for rank in ranks}) > 1 or not pace.step_s:
        return None
    ready = np.stack([rank.steps.ready_s[pace.warmup : steps] for rank in ranks])
    ordered = np.sort(ready, axis=0)
    late_s = ordered[-1] - ordered[-2]
    long = np.isfinite(late_s) & (late_s > max(PAUSE_STEPS * pace.step_s, PAUSE_S))
    late, late_s = set(ready[:, long].argmax(axis=0)), late_s[long]
    if len(late) != 1 or not 2 <= len(late_s) <= PAUSE_SHARE * long.size:
        return None
    part = float(late_s.sum()) / float(np.ptp(ordered[-1]))
    # What other programs cause is of any length.
    alike = float(late_s.std()) < 0.5 * float(late_s.mean())
    return (ranks[late.pop()].rank, late_s, min(part, 1.0)) if alike and part > 0.05 else None


# Rules on curves


def undecided(speedup: Estimate) -> bool:
    """Tell whether an interval allows both faster and slower, and is wider than the margin."""
    wide = (speedup.half_width or 0.0) / speedup.value > SPEED_MARGIN
    return wide and (speedup.low or 0.0) < 1 < (speedup.high or 0.0)


def _curve_rules(rows: Sequence[CellRow], curves: Sequence[Curve], flag: str) -> Verdicts:
    cells = {row.cell: row.measured for row in rows}
    compared = [
        point
        for curve in curves
        for point in curve.points
        if point.workers != curve.baseline_workers and point.speedup
    ]
    evidence: Evidence = {}
    if compared and all(point.speedup and point.speedup.low is None for point in compared):
        evidence = {"launches": max(point.launches for point in compared)}
        verdict = _verdict("no_intervals", [curve.label for curve in curves], evidence, flag=flag)
        table = "Add rows of repeated runs to the table to get intervals."
        imported = all(found.imported for found in cells.values())
        yield replace(verdict, action=table) if imported else verdict
    for curve in curves:
        for rule in (_leaves_linear, _more_than_linear, _too_noisy):
            yield from islice(rule(curve, flag), 1)
        for few, many in pairwise(cells[point.cell] for point in curve.points if point.valid):
            if not (many.rates(curve.unit) and few.rates(curve.unit)):
                continue
            found, relation = compare_speed(many, few, curve.unit)
            if relation == "same":
                labels = few.label, many.label
                evidence = {"ratio": found.value, "margin": SPEED_MARGIN}
                words = {"few": few.label, "many": many.label, "found": found}
                yield _verdict("same_speed", labels, evidence, **words)


def _leaves_linear(curve: Curve, _: str) -> Verdicts:
    for point, more in pairwise(curve.points):
        found, before = more.efficiency, ""
        if point.efficiency:
            workers = plural(point.workers, "worker")
            before = f" from {percent(point.efficiency.value)} at {workers}"
        if found and (found.value if found.high is None else found.high) < LINEAR:
            evidence = {"workers": more.workers, "efficiency": found.value}
            words = {"before": before, "last": point.workers}
            yield _verdict("leaves_linear", curve.label, evidence, **words)


def _more_than_linear(curve: Curve, _: str) -> Verdicts:
    for point in reversed(curve.points):
        found, ideal = point.speedup, point.ideal_speedup
        if found is None or (found.value if found.low is None else found.low) <= ideal:
            continue
        if found.value > ideal * (1 + SPEED_MARGIN / 10):
            evidence = {"speedup": found.value, "ideal": ideal}
            verdict = _verdict("more_than_linear", curve.label, evidence, point=point, curve=curve)
            small = found.value <= ideal * (1 + SPEED_MARGIN)
            yield replace(verdict, severity="note") if small else verdict


def _too_noisy(curve: Curve, flag: str) -> Verdicts:
    for point in curve.points:
        found = point.speedup
        half_width = (found.half_width or 0.0) / found.value if found else 0.0
        if found and (half_width > NOISY or undecided(found)):
            workers, low, high = (
                plural(point.workers, "worker"),
                found.low or 0.0,
                found.high or 0.0,
            )
            begin = f"Too noisy to tell: the speedup of {workers}"
            if low >= 1 or high <= 1:
                sure = "faster" if low >= 1 else "slower"
                begin = f"Too noisy to quote: {workers} are {sure}, but their speedup"
            wide = too_wide(low, high)
            begin += " has no bounds" if wide else f" lies between {times(low)} and {times(high)}"
            evidence = {"half width": half_width, "launches": point.launches}
            more = max(LEAST_LAUNCHES, 2 * point.launches)
            words = {"begin": begin, "flag": flag, "more": more}
            yield _verdict("too_noisy", curve.label, evidence, **words)


# Rules on jobs and utilisation


def _job_rules(rows: Sequence[CellRow], void: frozenset[Cell]) -> Verdicts:
    flat: dict[object, list[JobTime]] = {}
    for row in rows:
        cell, found = row.cell, row.measured
        if row.job is not None and cell not in void:
            yield from job_verdicts(row.job)
            # Where a rate is known, jobs of equal length may have done unequal work.
            if not any(set(pace.rates) - {"jobs/s"} for pace in found.paces):
                flat.setdefault((cell.params, cell.transport, found.batch), []).append(row.job)
        # Beside other programs utilisation is uneven by chance.
        if found.paces and row.utilisation:
            yield from _uneven_use(row.utilisation)
        samples, batch = found.samples, found.global_batch
        if cell.today or cell.workers < 2 or not samples or not batch:
            continue
        if samples < LEAST_STEPS * batch or batch > LARGEST_BATCH * samples:
            evidence = {"samples": samples, "steps per epoch": samples / batch}
            words = {"workers": cell.workers, "batch": batch, "needed": enough_steps(batch, 1)}
            yield _verdict("data_too_small", row.label, evidence, **words)
    for alike in flat.values():
        yield from flat_jobs(alike)


def job_verdicts(job: JobTime) -> Verdicts:
    """Fire when more than 30 % of a job is not training, or when its epochs are longer than it."""
    if job.job_s is None or job.fixed_s is None or job.fixed_share is None:
        return
    if job.fixed_share > FIXED_SHARE:
        startup = ""
        if job.startup_s is not None:
            before = seconds(min(job.startup_s, job.fixed_s))
            startup = f", {before} of it before the first step"
        evidence = {"fixed share": job.fixed_share, "fixed (s)": job.fixed_s}
        yield _verdict("fixed_cost", job.label, evidence, job=job, startup=startup)
    if job.fixed_share < -0.01 and job.epoch_s:
        sum_s = (job.epochs or 0.0) * job.epoch_s.value
        evidence = {"epochs x epoch (s)": sum_s, "job (s)": job.job_s.value}
        yield _verdict("contradicting_times", job.label, evidence, job=job)


def flat_jobs(jobs: Sequence[JobTime]) -> Verdicts:
    """Fire when whole jobs hardly get shorter with workers, where only their length is known."""
    jobs = [job for job in jobs if job.job_s]
    known = sorted(
        (job.cell.workers, job.job_s.value) for job in jobs if job.job_s and not job.fixed_share
    )
    if len({workers for workers, _ in known}) < 2:
        return
    (fewest, longest), (most, last_s) = known[0], known[-1]
    rest = [(workers, job_s) for workers, job_s in known if workers > fewest]
    serial = amdahl_fraction([n / fewest for n, _ in rest], [longest / s for _, s in rest])
    if serial < FLAT:
        return
    # T(N) = F + W/N: doubling pays (saves a quarter) once the shared part W/N exceeds half of T.
    larger = f" With about {brief(serial / (1 - serial))} times the data more workers would pay."
    yield _verdict(
        "flat_jobs",
        [job.label for job in jobs],
        {"serial fraction": serial, "fewest (s)": longest, "most (s)": last_s},
        fewest=fewest,
        most=most,
        serial=min(serial, 1.0),
        factor=larger if serial < 1 else "",
    )


def _uneven_use(use: UtilisationRow) -> Verdicts:
    """Fire when one worker is busy by a fifth more or less than another, or needs more memory."""
    seen = False
    for device, column in (("GPU", 2), ("CPU", 1), ("memory", 3)):
        known = [(value, entry[0]) for entry in use.by_rank if (value := entry[column]) is not None]
        if len(known) < 2:
            continue
        high, most = max(known, key=lambda pair: pair[0])
        low, least = min(known, key=lambda pair: pair[0])
        words = {"most": most, "high": high, "least": least, "low": low, "device": device}
        if device == "memory":
            if high - low >= max(UNEVEN * low, _MEMORY_NOISE_BYTES):
                evidence = {f"rank {most} (bytes)": high, f"rank {least} (bytes)": low}
                yield _verdict("uneven_memory", use.label, evidence, **words)
        elif not seen and high > _IDLE and low < (1 - UNEVEN) * high:
            seen = True
            evidence = {f"rank {most}": high, f"rank {least}": low}
            yield _verdict("uneven_utilisation", use.label, evidence, **words)


# Rules on devices and other factors


def _factor_rules(cells: Sequence[Measured]) -> Verdicts:
    unit = common_unit(cells)
    by_device: dict[tuple[str, object], dict[str, Estimate]] = {}
    by_value: dict[str, dict[str, dict[str, Estimate]]] = {}
    for found in cells:
        cell, speed = found.cell, found.throughput(unit)
        if speed is None:
            continue
        workers = plural(cell.workers, "worker")
        label = ", ".join([workers, *map("=".join, cell.params)])
        by_device.setdefault((label, found.batch), {})[cell.device] = speed
        for factor, value in cell.params:
            where = [cell.device, workers]
            where += [] if found.batch is None else [f"batch {found.batch}"]
            where += [f"{name}={other}" for name, other in cell.params if name != factor]
            by_value.setdefault(factor, {}).setdefault(", ".join(where), {})[value] = speed
    for (label, _), devices in by_device.items():
        yield from faster_device_gains_nothing(devices, label, unit)
    for factor, settings in by_value.items():
        yield from order_of_values(settings, factor, unit)


def _device_rank(name: str) -> int | None:
    """Return a device's place among those that we know, or None."""
    words = name.lower().replace("-", " ").replace("_", " ").split()
    return max((place for place, known in enumerate(_RANKING) if known in words), default=None)


def faster_device_gains_nothing(speeds: Mapping[str, Estimate], label: str, unit: str) -> Verdicts:
    """Fire when a device that should be faster, all that the label says equal, is not by 5 %."""
    ranks = {name: rank for name in speeds if (rank := _device_rank(name)) is not None}
    for slow, fast in pairwise(sorted(ranks, key=lambda name: ranks[name])):
        low, high = speeds[slow].value, speeds[fast].value
        if ranks[slow] != ranks[fast] and high / low <= 1 + NOTHING_GAINED:
            evidence = {"ratio": high / low, slow: low, fast: high}
            words = {"slow": slow, "fast": fast, "low": low, "high": high, "unit": unit}
            yield _verdict("faster_device_gains_nothing", label, evidence, **words)
            return


def order_of_values(
    speeds: Mapping[str, Mapping[str, Estimate]], factor: str, unit: str
) -> Verdicts:
    """Say in which order the values of a factor (models, say) come, and where it reverses.

    Speeds are by setting ("cpu, 8 workers"), then by the factor's value.
    """
    settings = [name for name, found in speeds.items() if len(found) > 1]
    if not settings:
        return
    here, reverses = speeds[settings[0]], []
    for setting in settings[1:]:
        there = speeds[setting]
        for pair in combinations([name for name in here if name in there], 2):
            ahead, ahead_there = (by[pair[0]].value > by[pair[1]].value for by in (here, there))
            if ahead != ahead_there and all(_clear(*(by[n] for n in pair)) for by in (here, there)):
                reverses.append((setting, *(pair if ahead else pair[::-1])))
    evidence = {f"{settings[0]}, {name}": found.value for name, found in here.items()}
    for setting, slower, faster in reverses[:3]:
        evidence |= {f"{setting}, {n}": speeds[setting][n].value for n in (faster, slower)}
    ranked = sorted(here.items(), key=lambda item: -item[1].value)
    order = " > ".join(f"{name} ({number(rate.value)})" for name, rate in ranked)
    words = {"factor": factor, "unit": unit, "setting": settings[0], "order": order}
    if reverses:
        yield _verdict("order_reverses", settings, evidence, pair=reverses[0], **words)
    else:
        yield _verdict("order", settings, evidence, **words)


def _clear(first: Estimate, second: Estimate) -> bool:
    if None not in (first.low, first.high, second.low, second.high):
        return bool(first.low > second.high or second.low > first.high)  # type: ignore[operator]
    return abs(first.value / second.value - 1) > SPEED_MARGIN


# Rules on metrics


def _metric_rules(rows: Sequence[CellRow], main: str | None, command: Sequence[str]) -> Verdicts:
    names = {one.metric for row in rows for one in row.metrics}
    for row in rows:
        curves = {curve.metric: curve for curve in row.metric_curves}
        for one in row.metrics:
            curve = curves.get(one.metric)
            yield from metric_verdicts(one, curve, main)
            if training := row.metric(training_partner(one.metric, names)):
                yield from overfitting(one, training, curve)
    judged = [found for row in rows if (found := row.metric(main))]
    yield from _seeds_without_effect(judged, command)
    yield from soonest(judged)
    trained = [
        row
        for row in rows
        if any(
            one.outcome == "ok" and one.purpose in ("accuracy", "imported")
            for one in row.measured.launches
        )
    ]
    lacking = [row.label for row in trained if not row.metric(main)]
    if main is not None and 0 < len(lacking) < len(trained):
        evidence = {"with it": len(trained) - len(lacking), "without": len(lacking)}
        yield _verdict("metric_missing", lacking, evidence, metric=main, cells=_named(lacking))


def metric_verdicts(row: MetricRow, curve: MetricCurve | None, main: str | None) -> Verdicts:
    """Judge how a metric ends, and on the way there if it is the main one."""
    evidence: Evidence = {"diverged": row.diverged, "runs": row.seeds}
    if row.diverged:
        yield _verdict("diverged", row.label, evidence, row=row)
    if row.metric != main:
        return
    found = row.difference
    if row.verdict not in (None, "not_measured") and found is not None:
        change, detectable = f"{found.value:+.4f}", ""
        if row.smallest_difference is not None:
            change += f" ({found.low:+.4f} to {found.high:+.4f})"
            least = number(row.smallest_difference)
            detectable = f"; only differences above {least} are detectable"
        evidence = {"difference": found.value, "margin": row.margin, "seeds": row.seeds}
        words = {"change": change, "more": max(5, 2 * row.seeds), "detectable": detectable}
        yield _verdict(str(row.verdict), row.label, evidence, row=row, **words)
    if row.rising and not row.diverged:
        yield _verdict("not_stable", row.label, {"seeds": row.rising}, row=row)
    if curve is not None:
        yield from instability(row, curve)


def instability(row: MetricRow, curve: MetricCurve) -> Verdicts:
    """Fire when a metric falls back far between two epochs after the first fifth."""
    sign = 1.0 if row.higher_is_better else -1.0
    steps = [
        (sign * (before.value.value - after.value.value), before.value.value, after)
        for before, after in pairwise(curve.points[len(curve.points) // 5 :])
    ]
    fall, before, after = max(steps, key=lambda step: step[0], default=(0.0, 0.0, None))
    most = FALL_MARGINS * row.margin if row.higher_is_better else LOSS_JUMP * abs(before)
    if after is not None and fall > most:
        evidence = {"fall": fall, "epoch": after.epoch}
        words = {"row": row, "before": before, "after": after.value.value}
        yield _verdict("instability", row.label, evidence, **words)


def overfitting(row: MetricRow, training: MetricRow, curve: MetricCurve | None) -> Verdicts:
    """Fire when training ends clearly better than validation, or validation loss rises again."""
    if row.final is None or training.final is None:
        return
    higher = row.higher_is_better
    gap = (training.final.value - row.final.value) * (1 if higher else -1)
    points = curve.points if curve else ()
    epochs, values = tuple(p.epoch for p in points), tuple(p.value.value for p in points)
    epoch = None
    if higher:
        fires = gap > GAP_MARGINS * row.margin
        if len(values) >= 2 * WINDOW:
            times_s = (None,) * len(values)
            series = Series(epochs=epochs, values=values, times_s=times_s, by_step=False)
            epoch = reach(series, plateau(values, higher=True), higher=True).epoch
    else:
        best = min(values, default=0.0)
        fires = gap > 0 and best > 0 and values[-1] / best - 1 > LOSS_RISE
        epoch = epochs[values.index(best)] if values else None
    if not fires:
        return
    epoch = row.stable_epoch if epoch is None else epoch
    evidence, since = {"gap": gap, row.metric: row.final.value}, ""
    if epoch is not None:
        evidence["plateau (epoch)"] = epoch
        since = f"; {row.metric} gains nothing after epoch {brief(epoch)}"
    yield _verdict("overfitting", row.label, evidence, row=row, training=training, since=since)


def _seeds_without_effect(rows: Sequence[MetricRow], command: Sequence[str]) -> Verdicts:
    alike = [row for row in rows if row.seeds_alike and not row.diverged]
    if alike:
        why = "; the command does not pass '{seed}'"
        action = "Pass '{seed}' on the command line, or seed the script from FARANDOLE_SEED."
        if any("{seed}" in part for part in command):
            why = ", although the command passes '{seed}'"
            action = "Seed the script's random numbers (weights, order of samples) with that value."
        labels = [row.label for row in alike]
        evidence = {"seeds": max(row.seeds for row in alike)}
        words = {"metric": alike[0].metric, "why": why, "action": action, "cells": _named(labels)}
        yield _verdict("seeds_without_effect", labels, evidence, **words)


def _named(labels: Sequence[str]) -> str:
    """Return the first few labels, and how many more there are."""
    more = len(labels) - _MOST_NAMED
    return ", ".join(labels[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def soonest(rows: Sequence[MetricRow]) -> Verdicts:
    """Say which cell reaches the target, or else its plateau, first."""
    for field, what in (("target_s", "the target"), ("stable_s", "a stable value")):
        known = [(time_s, row) for row in rows if (time_s := getattr(row, field)) is not None]
        if len(known) > 1:
            known.sort(key=lambda one: one[0])
            (first_s, best), (last_s, worst) = known[0], known[-1]
            evidence = {"soonest (s)": first_s, "latest (s)": last_s}
            labels = (best.label, worst.label)
            yield _verdict("soonest", labels, evidence, best=best, worst=worst, what=what)
            return


# All rules, on every cell, curve and metric that they speak of


def find_verdicts(
    rows: Sequence[CellRow],
    curves: Sequence[Curve],
    *,
    main_metric: str | None,
    cores: float | None,
    spec: Mapping[str, object],
    command: Sequence[str],
    void: frozenset[Cell],
) -> tuple[Verdict, ...]:
    """Return every verdict, warnings first, each sentence once and a few of each kind.

    Cells whose workers did not train together are left out of everything about speed.
    """
    together = [row for row in rows if row.cell not in void]
    flag = "--seeds" if spec.get("measure") == "accuracy" else "--repeats"
    verdicts = [
        *_step_rules(rows, void, cores),
        *_curve_rules(rows, curves, flag),
        *_job_rules(rows, void),
        *_metric_rules(rows, main_metric, command),
        *_factor_rules([row.measured for row in together if row.launches and not row.cell.today]),
        *_failure_rules(rows, together),
    ]
    by_kind: dict[str, dict[str, Verdict]] = {}
    for verdict in verdicts:
        by_kind.setdefault(verdict.kind, {})[verdict.sentence] = verdict
    few = [verdict for alike in by_kind.values() for verdict in condense(list(alike.values()))]
    return tuple(sorted(few, key=lambda one: _ORDER.index(one.severity)))


def condense(alike: Sequence[Verdict]) -> list[Verdict]:
    """Keep the first few verdicts of a kind, and say how many more there are."""
    kept, more = list(alike[:_OF_A_KIND]), len(alike) - _OF_A_KIND
    if more > 0:
        kept[-1] = replace(kept[-1], sentence=f"{kept[-1].sentence} (And {more} more like this.)")
    return kept


def _failure_rules(rows: Sequence[CellRow], together: Sequence[CellRow]) -> Verdicts:
    for row in rows:
        if row.failed:
            last = row.measured.launches[-1].id
            evidence: Evidence = {"launches": row.attempts, "reason": row.failed}
            verdict = _verdict("cell_failed", row.label, evidence, launch=last)
            yield replace(verdict, action="") if row.measured.imported else verdict
    shares = {row.label: s for row in together if (s := row.measured.disturbance) is not None}
    if shares:
        evidence = {"largest share": max(shares.values())}
        every = all(row.label in shares for row in together if row.launches)
        cells = "" if every else f" of {'; '.join(shares)}"
        yield _verdict("disturbed", shares, evidence, cells=cells)


# Why a speedup may not be printed


@dataclass(frozen=True, slots=True, kw_only=True)
class Void:
    """A reason why a speedup is not shown: mostly, workers did not train together."""

    kind: VoidKind
    cell: Cell
    label: str
    launches: tuple[str, ...]
    sentence: str
    mend: str
    evidence: Evidence

    @property
    def why(self) -> str:
        """Why the cell has no speedup, in a few words."""
        if self.kind == "work_unknown":
            return "the samples per step are unknown"
        if self.kind == "whole_data":
            return "every worker went through all of the data"
        if self.kind == "overlapping_parts":
            return "workers trained on the same samples"
        return "the workers did not train together"


def find_voids(found: Measured, cells: Sequence[Measured] = ()) -> list[Void]:
    """Return what is wrong with a cell's launches, beside the study's other cells."""
    if found.cell.workers < 2:
        return []
    alike = [one for one in cells if group_of(one.cell) == group_of(found.cell)]
    # A speedup of this cell may be relative to any with fewer workers.
    fewer = [one for one in alike if one.cell.workers < found.cell.workers]
    # Parts that were cut beforehand have other sizes with other numbers of workers.
    shared = any(
        one.samples == found.samples and one.cell.workers != found.cell.workers for one in alike
    )
    # A sampler may draw more in an epoch than there are: one worker shows that.
    alone = [one for few in fewer if few.cell.workers == 1 for one in few.ended_well]
    epoch = max([found.samples or 0.0, *(sum(_seen_in_epoch(one)) for one in alone)])
    by_kind: dict[VoidKind, list[Launch]] = {}
    for launch in found.ended_well:
        kind = void_of(launch)
        if kind is None and shared and epoch:
            kind = _beyond_its_part(launch, epoch)
        if kind is not None:
            by_kind.setdefault(kind, []).append(launch)
    if not by_kind and any(map(_work_unknown, (found, *fewer))):
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
    return "mistake" if _mistake(launch) else None


def _mistake(launch: Launch) -> Mistake | None:
    """Return the first error of the doctor's that no rule here knows."""
    known = {number for numbers in DOCTOR_IDS.values() for number in numbers}
    return next((one for one in launch.mistakes if one.id not in known), None)


def _overlaps(ranks: Sequence[Rank]) -> list[float | None]:
    """Return for each two ranks the share of samples that both saw; None if unknown."""
    seen = [set(rank.sample_hashes) for rank in ranks]
    return [
        len(ours & theirs) / min(len(ours), len(theirs)) if ours and theirs else None
        for ours, theirs in combinations(seen, 2)
    ]


def repeats_one_batch(rank: Rank) -> bool:
    """Tell whether every step trained on the same samples, as synthetic benchmarks do."""
    hashes = rank.sample_hashes
    return len(hashes) > 1 and 2 * len(set(hashes)) <= len(hashes)


def _work_unknown(found: Measured) -> bool:
    """Tell whether steps were recorded, and no samples that could be compared with others'."""
    return any(
        len(rank.steps) and "samples/s" not in pace.rates
        for pace in found.paces
        for rank in pace.launch.ranks
    )


def _nothing_averaged(ranks: Sequence[Rank]) -> bool:
    if any(rank.bytes_sent.get("gradients", 1) > 0 for rank in ranks):
        return False  # or not counted
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
    if any(share is None or share <= _SAME_SAMPLES for share in _overlaps(ranks)):
        return False
    if len({rank.sample_hashes for rank in ranks}) == 1:
        return True
    # Of a data set smaller than what was looked at, disjoint shards meet in the second epoch.
    looked_at = sum(len(set(rank.sample_hashes)) for rank in ranks)
    size = next((rank.dataset_size for rank in ranks if rank.dataset_size), None)
    return size is None or looked_at <= size


def _beyond_its_part(launch: Launch, samples: float) -> VoidKind | None:
    """Compare the samples of a first epoch with those of one worker, which workers are to share."""
    seen = _seen_in_epoch(launch)
    if len(seen) < 2:
        return None
    if min(seen) >= _WHOLE * samples:
        return "whole_data"
    # Samplers fill up the last batches.
    filled = len(seen) * (launch.cell.batch or 0)
    return "overlapping_parts" if sum(seen) > _TWICE * samples + filled else None


def _seen_in_epoch(launch: Launch) -> list[float]:
    """Return the samples that each rank trained on in its first pass; empty where not known."""
    seen = []
    for rank in launch.ranks:
        if not rank.epochs or not rank.dataset_size:
            return []
        begin, end = rank.epochs[0]
        inside = (rank.steps.end_s > begin) & (rank.steps.end_s <= end)
        batch = launch.cell.batch or rank.batch_seen or 0
        seen.append(float(np.nan_to_num(rank.steps.samples[inside], nan=batch).sum()))
    return seen


def mistake_of(launch: Launch) -> str | None:
    """Say why a launch's workers did not train together, and what to do; None if they did."""
    kind = void_of(launch)
    if kind is None:
        return None
    sentence = fill(RULES[kind].sentence, workers=launch.cell.workers, **_words(launch))
    return f"{sentence} {_mend(kind, launch)}"


def _words(launch: Launch) -> dict[str, str]:
    one = _mistake(launch)
    return {} if one is None else {"text": one.text, "id": one.id}


def _mend(kind: VoidKind, launch: Launch) -> str:
    rule = RULES[kind]
    keras = any("keras" in rank.framework for rank in launch.ranks)
    return fill((keras and rule.with_keras) or rule.action, **_words(launch))


def _void(kind: VoidKind, found: Measured, launches: Sequence[Launch]) -> Void:
    ranks, rule = launches[0].ranks, RULES[kind]
    seen = round(sum(_seen_in_epoch(launches[0])))
    steps = max(len(rank.steps) for rank in ranks)
    weights = {f"weights of rank {one.rank}": one.weights or "not known" for one in ranks[:4]}
    overlaps = [share for share in _overlaps(ranks) if share is not None]
    evidence: dict[VoidKind, Evidence] = {
        "not_averaged": {"gradient bytes": 0, "steps": steps, **weights},
        "weights_differ": weights,
        "same_samples": {"overlap of samples": min(overlaps, default=0.0)},
        "whole_data": {"samples": found.samples or 0},
        "overlapping_parts": {"samples": found.samples or 0, "samples of an epoch": seen},
        "work_unknown": {"steps": steps},
        "mistake": _words(launches[0]),
    }
    known = DOCTOR_IDS.get(kind)
    words = _words(launches[0])
    return Void(
        kind=kind,
        cell=found.cell,
        label=found.label,
        launches=tuple(launch.id for launch in launches),
        sentence=fill(
            rule.sentence,
            workers=found.cell.workers,
            samples=found.samples,
            seen=seen,
            **words,
        ),
        mend=_mend(kind, launches[0]),
        evidence={**evidence[kind], **({"id": known[0]} if known else {})},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that must hold for workers that train together."""

    kind: VoidKind
    passed: bool | None
    """None where it could not be seen."""
    text: str


def check_together(rows: Sequence[CellRow], voids: Sequence[Void]) -> tuple[Check, ...]:
    """Say of each rule whether it held; empty where no launch had several workers."""
    launches = [
        one for row in rows if row.cell.workers > 1 for one in row.measured.ended_well if one.ranks
    ]
    if not launches:
        return ()
    ranks = [rank for one in launches for rank in one.ranks if len(rank.steps)]
    averaged = any("gradients" in rank.bytes_sent for rank in ranks)
    fingerprints = any(rank.weights is not None for rank in ranks)
    samples = any(rank.sample_hashes and not repeats_one_batch(rank) for rank in ranks)
    checks: tuple[tuple[VoidKind, bool, str], ...] = (
        (
            "not_averaged",
            averaged,
            "Gradients were exchanged in every launch with several workers.",
        ),
        ("weights_differ", fingerprints, "All workers ended with the same weights."),
        ("same_samples", samples, "Each worker trained on samples of its own."),
    )
    failed: dict[VoidKind, str] = {
        "same_samples" if void.kind in _REPEATED else void.kind: void.sentence for void in voids
    }
    return tuple(
        Check(
            kind=kind,
            passed=False if kind in failed else seen or None,
            text=failed.get(kind, text),
        )
        for kind, seen, text in checks
    )
