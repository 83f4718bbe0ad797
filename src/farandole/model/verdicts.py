"""Verdicts: what the figures mean, and what to do about it.

RULES has the words of every verdict. Below, one function per rule says when it applies and to which
figures; `find_verdicts` applies all of them to a study. A void (`find_voids`) is the reason why no
speedup may be printed: mostly, the workers did not train together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any, Literal

import numpy as np

from farandole.format import fill, plural
from farandole.model.accuracy import MetricCurve, MetricRow
from farandole.model.curves import Curve, amdahl_fraction, group_of
from farandole.model.jobs import LARGEST_BATCH, LEAST_STEPS, enough_steps
from farandole.model.measured import Measured, Pace, common_unit
from farandole.model.metrics import WINDOW, Series, held_out, plateau, reach, training_partner
from farandole.model.rows import CellRow
from farandole.model.split import StepSplit
from farandole.model.statistics import LEAST_LAUNCHES, SPEED_MARGIN, Estimate, ratio, speed_relation
from farandole.study.records import Cell, Floats, Launch, Rank

Bound = Literal[
    "compute", "communication", "input", "straggler", "fixed_cost", "oversubscription", "unknown"
]
Severity = Literal["void", "warn", "note", "good"]
VoidKind = Literal["not_averaged", "weights_differ", "same_samples", "whole_data", "work_unknown"]
Evidence = Mapping[str, float | str]
LINEAR = 0.90
"""An efficiency below is no longer linear."""
NOISY = 0.10
"""Half width of a speedup's interval, relative, above which no number should be quoted."""
# Shares of a step above which a part is worth mending.
COMMUNICATION_SHARE = 0.20
INPUT_SHARE = 0.10
STRAGGLER_SHARE = 0.10
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
_ELSEWHERE = ("buffers", "parameters", "objects", "other")


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


RULES: Mapping[str, Rule] = {
    "not_averaged": Rule(
        "void",
        "Your {workers:worker} trained {workers} separate models: nothing was averaged.",
        "Wrap the optimizer: optimizer = hvd.DistributedOptimizer(optimizer) (or the model: "
        "DDP(model)).",
        with_keras="Wrap the optimizer: model.compile(hvd.DistributedOptimizer(optimizer), ...), "
        "with hvd of import farandole.keras as hvd.",
    ),
    "weights_differ": Rule(
        "void",
        "Your {workers:worker} ended with different weights, although gradients were averaged: "
        "they trained {workers} different models.",
        "Begin with the same weights: hvd.broadcast_parameters(model.state_dict(), root_rank=0) "
        "before the first step, and step the optimizer on every rank.",
        with_keras="Begin with the same weights: give fit the callback "
        "hvd.callbacks.BroadcastGlobalVariablesCallback(0), on every rank.",
    ),
    "same_samples": Rule(
        "void",
        "Your {workers:worker} all trained on the same samples: the work was repeated, not shared.",
        "Give each worker its own part: DistributedSampler(dataset, num_replicas=hvd.size(), "
        "rank=hvd.rank()), and set_epoch(epoch) before every epoch.",
        with_keras="Give each worker its own part: fit(hvd.shard((x, y), batch_size=...)).",
    ),
    "whole_data": Rule(
        "void",
        "Each of your {workers:worker} went through all {samples:sample}: an epoch did not shrink.",
        "Give each worker its own part: DistributedSampler(dataset, num_replicas=hvd.size(), "
        "rank=hvd.rank()), and set_epoch(epoch) before every epoch.",
        with_keras="Give each worker its own part: fit(hvd.shard((x, y), batch_size=...)).",
    ),
    "work_unknown": Rule(
        "void",
        "How many samples a step of your {workers:worker} has could not be seen: no DataLoader was "
        "used, and no call of a model in training mode. A step may be less work with more workers, "
        "as with gradient accumulation that is divided among them, so that steps per second are no "
        "speedup.",
        "Say how many samples each worker's step has: farandole.record(samples=...) in every step.",
    ),
    "leaves_linear": Rule(
        "note",
        "Efficiency falls to {efficiency:percent} at {workers:worker}{after} ({label}).",
        "Up to {last:worker} the money is well spent; beyond that you pay for waiting.",
    ),
    "more_than_linear": Rule(
        "warn",
        "More than linear: {point.speedup:interval} on {ideal:brief} times the workers ({label}).",
        "Explain it before you quote it: a slow or cold baseline, another batch, another device, "
        "or a model that fits a cache only when shared. Measure {curve.baseline_workers:worker} "
        "again with --repeats 5.",
    ),
    "same_speed": Rule(
        "note",
        "No difference in speed between {few} and {many}: {found:interval}, the same within "
        "{margin:percent}.",
        "Take {few}.",
        "no_significant_difference",
    ),
    "too_noisy": Rule(
        "warn",
        "{begin} between {speedup.low:times} and {speedup.high:times} after {launches:launch} "
        "({label}).",
        "Run it again with {flag} {more} on a quieter machine.",
    ),
    "no_intervals": Rule(
        "note",
        "One launch each: figures without intervals.",
        "Run it again with {flag} 5 for intervals.",
    ),
    "disturbed": Rule(
        "warn",
        "The machine was busy: other programs took up to {largest share:percent} of its cores. "
        "{cells} had no quiet launch, so their speeds may be off by as much.",
        "Run it again when the machine is quiet; farandole study --resume DIR makes disturbed "
        "launches for speed again.",
    ),
    "compute_bound": Rule(
        "good",
        "Bound by compute: forward, backward and update take {compute share:percent} of a step "
        "({label}).",
        "More workers, a faster device or mixed precision shorten it.",
    ),
    "communication_bound": Rule(
        "warn",
        "Bound by communication: {exposed transfer share:percent} of a step waits for "
        "gradients{details} ({label}).",
        "Use a larger batch per worker or accumulate gradients, compress them to float16, or take "
        "a faster transport.",
    ),
    "input_bound": Rule(
        "warn",
        "Bound by input: {data share:percent} of a step waits for the next batch ({label}).",
        "Load ahead in more loader processes (num_workers), decode once and cache, or move "
        "augmentation off the training process.",
    ),
    "straggler": Rule(
        "warn",
        "Held up by rank {slowest rank}: the others wait for it for "
        "{share that the others wait:percent} of a step; {reason} ({label}).",
        "Look at what else runs where rank {slowest rank} is, and whether its share of the data is "
        "larger or longer.",
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
        "Workers wait for each other for {waiting share:percent} of a step, for no one in "
        "particular ({label}).",
        "Even out the work per batch (lengths, sizes), or free the cores of other programs.",
    ),
    "oversubscription": Rule(
        "warn",
        "Too few cores: {cell.workers} x {cell.threads:thread} share {whole:core} ({label}).",
        "Use at most {whole:thread} in all: fewer workers, or --threads 1.",
    ),
    "contention": Rule(
        "note",
        "Computing takes {slower:times} as long beside other workers: {compute, few (s):seconds}, "
        "then {compute, many (s):seconds} ({many}). They share memory and caches.",
        "No transport mends that: spread the workers over more hosts, or pin them to cores.",
    ),
    "fixed_cost": Rule(
        "warn",
        "Fixed cost: {fixed share:percent} of the {job.job_s.value:seconds} job is not "
        "training{startup} ({label}).",
        "More workers do not shorten that: validate and save less often, or start faster; in "
        "longer jobs it matters less.",
    ),
    "flat_jobs": Rule(
        "warn",
        "Fixed cost: {fewest:worker} took {fewest (s):seconds} and {most:worker} "
        "{most (s):seconds}: {serial:percent} of the job is not shared.{factor}",
        "Stay with {fewest:worker}, or give them more to do.",
        "fixed_cost",
    ),
    "data_too_small": Rule(
        "warn",
        "Too little data for {workers:worker}: {samples:sample} are {steps per epoch:brief} steps "
        "per epoch at a global batch of {batch} ({label}).",
        "Use fewer workers or a smaller batch; {needed:sample} would do for this many. Fewer steps "
        "per epoch need more epochs or another learning rate.",
    ),
    "contradicting_times": Rule(
        "warn",
        "A figure is off: {job.epochs:brief} epochs of {job.epoch_s.value:seconds} are "
        "{epochs x epoch (s):seconds}, more than the job's {job (s):seconds} ({label}).",
        "Do not compute with either before it is clear which.",
    ),
    "uneven_utilisation": Rule(
        "warn",
        "Unequal utilisation: rank {most} keeps its {device} {high:percent} busy, rank {least} "
        "{low:percent} ({label}).",
        "See what rank {most} does beyond its share (validation, logging, loading), or what rank "
        "{least} waits for.",
    ),
    "uneven_memory": Rule(
        "note",
        "Unequal memory: rank {most} takes {high:size}, rank {least} {low:size} ({label}).",
        "Rank {most} sets the largest batch: see what it holds that others do not.",
    ),
    "faster_device_gains_nothing": Rule(
        "warn",
        "{fast} gains nothing over {slow}: {high:number} and {low:number} {unit}, {ratio:times} "
        "({label}).",
        "The device is not what bounds it: look at input first (loading, decoding, augmentation), "
        "then at communication.",
    ),
    "order": Rule(
        "note",
        "By {factor}, {unit} at {setting}: {order}.",
        "The order holds in every setting measured.",
    ),
    "order_reverses": Rule(
        "note",
        "By {factor}, {unit} at {setting}: {order}. The order reverses at {pair[0]}: {pair[2]} is "
        "faster than {pair[1]} there.",
        "Rank them in the setting that you will use.",
    ),
    "overfitting": Rule(
        "warn",
        "Overfitting: {training.metric} ends at {training.final.value:number}, {row.metric} "
        "at {row.final.value:number}, a gap of {gap:number}{since} ({label}).",
        "Stop at the plateau, or add data, augmentation or weight decay; more epochs only widen "
        "the gap.",
    ),
    "instability": Rule(
        "warn",
        "Unstable: {row.metric} goes from {before:number} to {after:number} at epoch "
        "{epoch:brief}, its largest step back ({label}).",
        "Warm the learning rate up over 5 epochs, scale it less, or clip gradients.",
    ),
    "diverged": Rule(
        "warn",
        "{diverged} of {runs:run} diverged: {row.metric} ended as NaN or infinity ({label}).",
        "Lower the learning rate, or warm it up over the first epochs.",
    ),
    "seeds_without_effect": Rule(
        "warn",
        "All {seeds} seeds gave the very same {metric}, since {why} ({cells}).",
        "Pass '{{seed}}' on the command line, or seed by the variable FARANDOLE_SEED; until then "
        "accuracy cannot be judged.",
    ),
    "same": Rule(
        "good",
        "No significant difference in {row.metric}: {change}, the same within {margin:brief} "
        "({label}).",
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
        "Steps are fewer and larger: scale the learning rate with a warm-up, train for more "
        "epochs, or keep the global batch (strong scaling).",
        "accuracy_worse",
    ),
    "better": Rule(
        "note",
        "{row.metric} is better: {change} ({label}).",
        "Check with other seeds before relying on it.",
        "accuracy_better",
    ),
    "not_stable": Rule(
        "note",
        "Not stable yet: {row.metric} still improves at its last epoch ({label}).",
        "Train for more epochs before you compare where it ends.",
    ),
    "metric_missing": Rule(
        "note",
        "{metric} was not recorded for {cells}: accuracy is compared where it was.",
        "Report {metric} in all of them.",
    ),
    "soonest": Rule(
        "good",
        "{best.metric} reaches {what} soonest with {best.label}: after {soonest (s):seconds}, "
        "against {latest (s):seconds} with {worst.label}.",
        "Choose by this, not by samples per second, when accuracy is what you need.",
    ),
    "cell_failed": Rule(
        "warn",
        "{label}: no launch ended well ({reason}).",
        "Its last output is in launches/{launch}/output.txt.",
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


# Curves


def leaves_linear(curve: Curve) -> Verdicts:
    """Fire at the first worker count whose efficiency is below 0.9, clearly where it can be."""
    for before, point in pairwise(curve.points):
        found = point.efficiency
        if found and (found.value if found.high is None else found.high) < LINEAR:
            after = ", after {point.efficiency.value:percent} at {point.workers}"
            yield _verdict(
                "leaves_linear",
                curve.label,
                {"workers": point.workers, "efficiency": found.value},
                after=fill(after, point=before) if before.efficiency else "",
                last=before.workers,
            )
            return


def more_than_linear(curve: Curve) -> Verdicts:
    """Fire when a speedup is above the ideal by more than the margin, clearly where it can be."""
    for point in reversed(curve.points):
        found, ideal = point.speedup, point.ideal_speedup
        if found is None or (found.value if found.low is None else found.low) <= ideal:
            continue
        if found.value > ideal * (1 + SPEED_MARGIN / 10):
            evidence = {"speedup": found.value, "ideal": ideal}
            verdict = _verdict("more_than_linear", curve.label, evidence, point=point, curve=curve)
            small = found.value <= ideal * (1 + SPEED_MARGIN)
            yield replace(verdict, severity="note") if small else verdict
            return


def same_speed(few: Measured, many: Measured, unit: str) -> Verdicts:
    """Fire when two speeds are the same by an equivalence test."""
    rates = many.rates(unit), few.rates(unit)
    if all(rates) and speed_relation(*rates) == "same":
        found = ratio(*rates)
        yield _verdict(
            "same_speed",
            (few.label, many.label),
            {"ratio": found.value, "margin": SPEED_MARGIN},
            few=few.label,
            many=many.label,
            found=found,
        )


def undecided(speedup: Estimate) -> bool:
    """Tell whether an interval allows both faster and slower, and is wider than the margin."""
    wide = (speedup.half_width or 0.0) / speedup.value > SPEED_MARGIN
    return wide and (speedup.low or 0.0) < 1 < (speedup.high or 0.0)


def too_noisy(curve: Curve, flag: str = "--repeats") -> Verdicts:
    """Fire when a speedup's interval is so wide that the number should not be quoted."""
    for point in curve.points:
        found = point.speedup
        half_width = (found.half_width or 0.0) / found.value if found else 0.0
        if found and (half_width > NOISY or undecided(found)):
            workers = plural(point.workers, "worker")
            begin = f"Too noisy to tell: the speedup of {workers} lies"
            if (found.low or 0.0) >= 1 or (found.high or 0.0) <= 1:
                sure = "faster" if (found.low or 0.0) >= 1 else "slower"
                begin = f"Too noisy to quote: {workers} are {sure}, but their speedup lies"
            yield _verdict(
                "too_noisy",
                curve.label,
                {"half width": half_width, "launches": point.launches},
                begin=begin,
                speedup=found,
                flag=flag,
                more=max(LEAST_LAUNCHES, 2 * point.launches),
            )
            return


def single_launches(curves: Sequence[Curve], *, imported: bool, flag: str) -> Verdicts:
    """Fire when no speedup on any curve has an interval, because nothing was repeated.

    Args:
        curves: all of a study's.
        imported: whether the figures were measured elsewhere.
        flag: what gives more launches.
    """
    others = [
        (point.launches, point.speedup.low)
        for curve in curves
        for point in curve.points
        if point.workers != curve.baseline_workers and point.speedup is not None
    ]
    if others and all(low is None for _, low in others):
        evidence = {"launches": max(launches for launches, _ in others)}
        verdict = _verdict("no_intervals", [curve.label for curve in curves], evidence, flag=flag)
        table = "Add the rows of repeated runs to the table for intervals."
        yield replace(verdict, action=table) if imported else verdict


# Steps


def share(part: float | None, split: StepSplit) -> float:
    """Return a part's share of the step; 0 when it was not measured."""
    return 0.0 if part is None or split.step_s <= 0 else part / split.step_s


def waits(split: StepSplit) -> dict[Bound, float]:
    """Return what a step waits for, by its share of the step, as far as it is worth mending."""
    shares: dict[Bound, float] = {}
    if split.cell.workers > 1:
        transfer = split.exposed_s if split.transfer_s is None else split.transfer_s
        shares["communication"] = share(transfer, split)
    shares["input"] = share(split.data_s, split)
    if split.cell.workers > 1 and split.slowest_rank is not None:
        shares["straggler"] = share(split.waiting_s, split)
    limits = {"communication": COMMUNICATION_SHARE, "input": INPUT_SHARE}
    return {
        name: found for name, found in shares.items() if found > limits.get(name, STRAGGLER_SHARE)
    }


def others_wait(split: StepSplit) -> float:
    """Return the share of a step that ranks other than the slowest wait for it."""
    workers = split.cell.workers
    # The mean over all ranks counts the slowest one, which does not wait.
    return min(1.0, share(split.waiting_s, split) * workers / max(workers - 1, 1))


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
            details = fill(", at {rate:rate}", rate=sent.bus_bytes_per_s)
            if sent.utilisation is not None:
                evidence["utilisation of the link"] = sent.utilisation
                details += fill(", {of:percent} of the link's peak", of=sent.utilisation)
        yield _verdict("communication_bound", label, evidence, details=details)
    if "input" in shares:
        evidence = {"data share": shares["input"], "data wait (s)": split.data_s or 0.0}
        yield _verdict("input_bound", label, evidence)
    if "straggler" in shares:
        yield _straggler(split, shares["straggler"])
    busy = share((split.compute_s or 0.0) + (split.optimizer_s or 0.0), split)
    if not shares and split.exposed_s is not None and busy >= COMPUTE_SHARE:
        yield _verdict("compute_bound", label, {"compute share": busy, "step (s)": split.step_s})


def _straggler(split: StepSplit, waiting: float) -> Verdict:
    """Tell one rank that is slower, or mostly the last, from ranks that are late in turn."""
    times, rank = dict(split.compute_by_rank_s), split.slowest_rank
    assert rank is not None
    last = split.slowest_share or 0.0
    others = sorted(time for other, time in times.items() if other != rank)
    middle = others[len(others) // 2] if others else 0.0
    slower = times.get(rank, 0.0) / middle if middle else 0.0
    evidence = {"waiting share": waiting, "slowest rank": rank, "last in share of steps": last}
    # Among N equal ranks each is last in 1/N of the steps.
    fair = 1 / split.cell.workers
    if slower <= STRAGGLER_RATIO and last <= fair + (1 - fair) / 2:
        return _verdict("uneven_steps", split.label, evidence)
    if slower:
        evidence["its compute over the others'"] = slower
    evidence["share that the others wait"] = others_wait(split)
    reason = fill("it is last in {last:percent} of them", last=last)
    if slower > STRAGGLER_RATIO:
        reason = fill("it computes {slower:times} as long as they do", slower=slower)
    return _verdict("straggler", split.label, evidence, reason=reason)


def pauses(found: Measured) -> Verdicts:
    """Fire when one rank makes the others wait in a few long steps, alike in every launch."""
    seen = [_pauses_of(pace) for pace in found.paces]
    ranks = {one[0] if one else None for one in seen}
    if len(ranks) == 1 and seen[0] is not None:
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


def contention(one: StepSplit, many: StepSplit) -> Verdicts:
    """Fire when computing itself gets slower beside other workers, at the same batch."""
    if one.compute_s and many.compute_s and one.cell.batch == many.cell.batch:
        slower = many.compute_s / one.compute_s
        if slower > CONTENTION_RATIO:
            evidence = {"compute, few (s)": one.compute_s, "compute, many (s)": many.compute_s}
            labels = (one.label, many.label)
            yield _verdict("contention", labels, evidence, slower=slower, many=many.label)


def oversubscription(found: Measured, cores: float | None) -> Verdicts:
    """Fire when the workers' threads outnumber the cores of their host."""
    cell = found.cell
    if cores is None or cell.threads is None or cell.device != "cpu" or cell.today:
        return
    threads = -(-cell.workers // max(cell.hosts, 1)) * cell.threads
    if threads > cores and not found.imported:
        evidence = {"threads in all": threads, "cores": cores}
        yield _verdict("oversubscription", found.label, evidence, cell=cell, whole=round(cores))


# Jobs and utilisation


def fixed_cost(row: CellRow) -> Verdicts:
    """Fire when start-up, validation and the like take more than 30 % of the job."""
    job = row.job
    if job is None or job.fixed_s is None or (job.fixed_share or 0.0) <= FIXED_SHARE:
        return
    startup = ""
    if job.startup_s is not None:
        before = min(job.startup_s, job.fixed_s)
        startup = fill(", {before:seconds} of it before the first step", before=before)
    evidence = {"fixed share": job.fixed_share or 0.0, "fixed (s)": job.fixed_s}
    yield _verdict("fixed_cost", row.label, evidence, job=job, startup=startup)


def flat_jobs(rows: Sequence[CellRow]) -> Verdicts:
    """Fire when whole jobs hardly get shorter with workers, where only their length is known."""
    timed = [(row.job, row.job.job_s.value) for row in rows if row.job and row.job.job_s]
    known = sorted((job.cell.workers, job_s) for job, job_s in timed if not job.fixed_share)
    if len({workers for workers, _ in known}) < 2:
        return
    (fewest, longest), (most, last_s) = known[0], known[-1]
    rest = [(workers, seconds) for workers, seconds in known if workers > fewest]
    serial = amdahl_fraction([n / fewest for n, _ in rest], [longest / s for _, s in rest])
    if serial < FLAT:
        return
    # T(N) = F + W/N: doubling pays (saves a quarter) once the shared part W/N exceeds half of T.
    factor = ""
    if serial < 1:
        larger = serial / (1 - serial)
        factor = fill(" With about {larger:brief} times the data they would pay.", larger=larger)
    yield _verdict(
        "flat_jobs",
        [job.label for job, _ in timed],
        {"serial fraction": serial, "fewest (s)": longest, "most (s)": last_s},
        fewest=fewest,
        most=most,
        serial=min(serial, 1.0),
        factor=factor,
    )


def data_too_small(found: Measured) -> Verdicts:
    """Fire when an epoch has fewer than 20 steps, or a step takes a tenth of the data."""
    samples, batch, workers = found.samples, found.global_batch, found.cell.workers
    if not samples or not batch or workers < 2:
        return
    if samples < LEAST_STEPS * batch or batch > LARGEST_BATCH * samples:
        yield _verdict(
            "data_too_small",
            found.label,
            {"samples": samples, "steps per epoch": samples / batch},
            workers=workers,
            batch=batch,
            needed=enough_steps(batch, 1),
        )


def contradicting_times(row: CellRow) -> Verdicts:
    """Fire when the epochs are longer than the job that they are part of."""
    job = row.job
    if job and job.job_s and job.epoch_s and (job.fixed_s or 0.0) < -0.01 * job.job_s.value:
        sum_s = (job.epochs or 0.0) * job.epoch_s.value
        evidence = {"epochs x epoch (s)": sum_s, "job (s)": job.job_s.value}
        yield _verdict("contradicting_times", row.label, evidence, job=job)


def uneven_use(row: CellRow) -> Verdicts:
    """Fire when one worker is busy by a fifth more or less than another, or needs more memory."""
    by_rank = row.utilisation.by_rank if row.utilisation else ()
    seen = False
    for name, column in (("GPU", 2), ("CPU", 1), ("memory", 3)):
        known = [(value, entry[0]) for entry in by_rank if (value := entry[column]) is not None]
        if len(known) < 2:
            continue
        high, most = max(known, key=lambda pair: pair[0])
        low, least = min(known, key=lambda pair: pair[0])
        words = {"most": most, "high": high, "least": least, "low": low}
        if name == "memory":
            if high - low >= max(UNEVEN * low, _MEMORY_NOISE_BYTES):
                evidence = {f"rank {most} (bytes)": high, f"rank {least} (bytes)": low}
                yield _verdict("uneven_memory", row.label, evidence, **words)
        elif not seen and high > _IDLE and low < (1 - UNEVEN) * high:
            seen = True
            evidence = {f"rank {most}": high, f"rank {least}": low}
            yield _verdict("uneven_utilisation", row.label, evidence, device=name, **words)


# Devices and other factors


def device_rank(name: str) -> int | None:
    """Return a device's place among those that we know, or None."""
    words = name.lower().replace("-", " ").replace("_", " ").split()
    return max((place for place, known in enumerate(_RANKING) if known in words), default=None)


def faster_device_gains_nothing(speeds: Mapping[str, Estimate], label: str, unit: str) -> Verdicts:
    """Fire when a device that should be faster is not, by 5 % or at all.

    Args:
        speeds: throughput by device, all else equal.
        label: what is equal.
        unit: of the throughputs.
    """
    ranks = {name: rank for name in speeds if (rank := device_rank(name)) is not None}
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

    Args:
        speeds: by setting ("cpu, 8 workers"), throughput by the factor's value.
        factor: its name.
        unit: of the throughputs.
    """
    settings = [name for name, found in speeds.items() if len(found) > 1]
    if not settings:
        return
    first, *others = settings
    here = speeds[first]
    reverses = []
    for setting in others:
        there = speeds[setting]
        for pair in combinations([name for name in here if name in there], 2):
            ahead, ahead_there = (by[pair[0]].value > by[pair[1]].value for by in (here, there))
            if ahead != ahead_there and all(_clear(*(by[n] for n in pair)) for by in (here, there)):
                reverses.append((setting, *(pair if ahead else pair[::-1])))
    evidence = {f"{first}, {name}": found.value for name, found in here.items()}
    for setting, slower, faster in reverses[:3]:
        for name in (faster, slower):
            evidence[f"{setting}, {name}"] = speeds[setting][name].value
    ranked = sorted(here.items(), key=lambda item: -item[1].value)
    order = [fill("{name} ({rate.value:number})", name=name, rate=rate) for name, rate in ranked]
    yield _verdict(
        "order_reverses" if reverses else "order",
        settings,
        evidence,
        factor=factor,
        unit=unit,
        setting=first,
        order=" > ".join(order),
        pair=reverses[0] if reverses else (),
    )


def _clear(first: Estimate, second: Estimate) -> bool:
    if None not in (first.low, first.high, second.low, second.high):
        return bool(first.low > second.high or second.low > first.high)  # type: ignore[operator]
    return abs(first.value / second.value - 1) > SPEED_MARGIN


# Metrics


def metric_verdicts(row: MetricRow, curve: MetricCurve | None, main: str | None) -> Verdicts:
    """Judge how a metric ends, and on the way there if it is the main one."""
    if row.diverged:
        yield _verdict(
            "diverged", row.label, {"diverged": row.diverged, "runs": row.seeds}, row=row
        )
    if row.metric != main:
        return
    yield from changed(row)
    if row.rising and not row.diverged:
        yield _verdict("not_stable", row.label, {"seeds": row.rising}, row=row)
    if curve is not None:
        yield from instability(row, curve)


def changed(row: MetricRow) -> Verdicts:
    """Say whether a metric is the same as with fewer workers, better, worse or undecided."""
    found, smallest = row.difference, row.smallest_difference
    if row.verdict in (None, "not_measured") or found is None:
        return
    change, detectable = f"{found.value:+.4f}", ""
    if smallest is not None:
        change += f" ({found.low:+.4f} to {found.high:+.4f})"
        detectable = fill("; only differences above {least:number} are detectable", least=smallest)
    yield _verdict(
        str(row.verdict),
        row.label,
        {"difference": found.value, "margin": row.margin, "seeds": row.seeds},
        row=row,
        change=change,
        more=max(5, 2 * row.seeds),
        detectable=detectable,
    )


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
    values = [point.value.value for point in points]
    epoch = None
    if higher:
        fires = gap > GAP_MARGINS * row.margin
        if len(values) >= 2 * WINDOW:
            series = Series(
                epochs=tuple(point.epoch for point in points),
                values=tuple(values),
                times_s=(None,) * len(values),
                by_step=False,
            )
            epoch = reach(series, plateau(values, higher=True), higher=True).epoch
    else:
        best = min(values, default=0.0)
        fires = gap > 0 and best > 0 and values[-1] / best - 1 > LOSS_RISE
        epoch = points[values.index(best)].epoch if values else None
    if not fires:
        return
    epoch = row.stable_epoch if epoch is None else epoch
    evidence, since = {"gap": gap, row.metric: row.final.value}, ""
    if epoch is not None:
        evidence["plateau (epoch)"] = epoch
        since = fill(
            "; {metric} gains nothing after epoch {epoch:brief}", metric=row.metric, epoch=epoch
        )
    yield _verdict("overfitting", row.label, evidence, row=row, training=training, since=since)


def seeds_without_effect(rows: Sequence[MetricRow], command: Sequence[str]) -> Verdicts:
    """Fire once when seeds changed nothing, and say why."""
    alike = [row for row in rows if row.seeds_alike and not row.diverged]
    if alike:
        passed = any("{seed}" in part for part in command)
        why = "the script does not use the seed that it is given"
        if not passed:
            why = "the command has no '{seed}' and the script does not read FARANDOLE_SEED"
        labels = [row.label for row in alike]
        evidence = {"seeds": max(row.seeds for row in alike)}
        words = {"metric": alike[0].metric, "why": why, "cells": _named(labels)}
        yield _verdict("seeds_without_effect", labels, evidence, **words)


def _named(labels: Sequence[str]) -> str:
    """Return the first few labels, and how many more there are."""
    more = len(labels) - _MOST_NAMED
    return ", ".join(labels[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def metric_missing(metric: str, having: Sequence[str], lacking: Sequence[str]) -> Verdicts:
    """Say for which cells a metric was not recorded, where it was for others."""
    if having and lacking:
        evidence = {"with it": len(having), "without": len(lacking)}
        yield _verdict("metric_missing", lacking, evidence, metric=metric, cells=_named(lacking))


def soonest(rows: Sequence[MetricRow]) -> Verdicts:
    """Say which cell reaches the target, or else its plateau, first."""
    for field, what in (("target_s", "the target"), ("stable_s", "a stable value")):
        known = sorted(
            (row for row in rows if getattr(row, field) is not None),
            key=lambda row: float(getattr(row, field)),
        )
        if len(known) > 1:
            best, worst = known[0], known[-1]
            evidence = {"soonest (s)": getattr(best, field), "latest (s)": getattr(worst, field)}
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
    """Return every verdict, warnings first, each sentence once.

    Cells whose workers did not train together are left out of everything about speed.
    """
    together = [row for row in rows if row.cell not in void]
    verdicts = [
        *_on_steps(rows, together),
        *(verdict for row in rows for verdict in oversubscription(row.measured, cores)),
        *_on_curves(rows, curves, "--seeds" if spec.get("measure") == "accuracy" else "--repeats"),
        *_on_jobs(rows, void),
        *_on_metrics(rows, main_metric, command),
        *_on_factors([row.measured for row in together if row.launches and not row.cell.today]),
        *_on_failures(rows, together),
    ]
    unique = {verdict.sentence: verdict for verdict in verdicts}
    return tuple(sorted(condense(unique.values()), key=lambda one: _ORDER.index(one.severity)))


def condense(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Keep the first few verdicts of a kind, and say how many more there are."""
    by_kind: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_kind.setdefault(verdict.kind, []).append(verdict)
    kept = []
    for alike in by_kind.values():
        *first, last = alike[:_OF_A_KIND]
        more = len(alike) - _OF_A_KIND
        if more > 0:
            last = replace(last, sentence=f"{last.sentence} (And {more} more like this.)")
        kept += [*first, last]
    return kept


def _on_steps(rows: Sequence[CellRow], together: Sequence[CellRow]) -> Verdicts:
    def group(row: CellRow) -> object:
        return group_of(row.cell), row.measured.worker_batch

    # One worker count per group tells it: the largest, where waiting is worst.
    largest = {group(row): row for row in together if row.split and not row.cell.today}
    for alike, row in largest.items():
        verdicts = list(step_verdicts(row))
        yield from verdicts
        yield from pauses(row.measured)
        fewer = [
            other.split
            for other in rows
            if other.split
            and not other.cell.today
            and group(other) == alike
            and other.cell.workers < row.cell.workers
        ]
        # One slow rank makes the mean slower: no sign of shared memory.
        if fewer and row.split and not any(one.kind == "straggler" for one in verdicts):
            yield from contention(fewer[0], row.split)


def _on_curves(rows: Sequence[CellRow], curves: Sequence[Curve], flag: str) -> Verdicts:
    cells = {row.cell: row.measured for row in rows}
    imported = all(row.measured.imported for row in rows)
    yield from single_launches(curves, imported=imported, flag=flag)
    for curve in curves:
        yield from leaves_linear(curve)
        yield from more_than_linear(curve)
        yield from too_noisy(curve, flag)
        for few, many in pairwise(cells[point.cell] for point in curve.points if point.valid):
            yield from same_speed(few, many, curve.unit)


def _on_jobs(rows: Sequence[CellRow], void: frozenset[Cell]) -> Verdicts:
    flat: dict[object, list[CellRow]] = {}
    for row in rows:
        cell, found = row.cell, row.measured
        if row.job is not None and cell not in void:
            yield from fixed_cost(row)
            yield from contradicting_times(row)
            # Where a rate is known, jobs of equal length may have done unequal work.
            if not any(set(pace.rates) - {"jobs/s"} for pace in found.paces):
                flat.setdefault((cell.params, cell.transport, found.batch), []).append(row)
        # Beside other programs utilisation is uneven by chance.
        if found.paces:
            yield from uneven_use(row)
        if not cell.today:
            yield from data_too_small(found)
    for alike in flat.values():
        yield from flat_jobs(alike)


def _on_metrics(rows: Sequence[CellRow], main: str | None, command: Sequence[str]) -> Verdicts:
    names = {one.metric for row in rows for one in row.metrics}
    for row in rows:
        curves = {curve.metric: curve for curve in row.metric_curves}
        for one in row.metrics:
            curve = curves.get(one.metric)
            yield from metric_verdicts(one, curve, main)
            partner = training_partner(one.metric, names) if held_out(one.metric) else None
            if (training := row.metric(partner)) is not None:
                yield from overfitting(one, training, curve)
    judged = [one for row in rows for one in row.metrics if one.metric == main]
    yield from seeds_without_effect(judged, command)
    yield from soonest(judged)
    if main is not None:
        trained = [
            (row.label, row.metric(main) is not None)
            for row in rows
            if any(
                one.outcome == "ok" and one.purpose in ("accuracy", "imported")
                for one in row.measured.launches
            )
        ]
        having = [label for label, known in trained if known]
        yield from metric_missing(main, having, [label for label, known in trained if not known])


def _on_factors(cells: Sequence[Measured]) -> Verdicts:
    unit = common_unit(cells)
    speeds = [(found, speed) for found in cells if (speed := found.throughput(unit)) is not None]
    by_device: dict[object, dict[str, Estimate]] = {}
    words: dict[object, str] = {}
    for found, speed in speeds:
        cell = found.cell
        key = (cell.workers, found.batch, cell.params)
        by_device.setdefault(key, {})[cell.device] = speed
        words[key] = ", ".join([plural(cell.workers, "worker"), *map("=".join, cell.params)])
    for setting, devices in by_device.items():
        yield from faster_device_gains_nothing(devices, words[setting], unit)
    for factor in dict.fromkeys(name for found in cells for name, _ in found.cell.params):
        settings: dict[str, dict[str, Estimate]] = {}
        for found, speed in speeds:
            params = dict(found.cell.params)
            value = params.pop(factor, None)
            if value is not None:
                where = [found.cell.device, plural(found.cell.workers, "worker")]
                where += [] if found.batch is None else [f"batch {found.batch}"]
                setting = ", ".join([*where, *map("=".join, params.items())])
                settings.setdefault(setting, {})[value] = speed
        yield from order_of_values(settings, factor, unit)


def _on_failures(rows: Sequence[CellRow], together: Sequence[CellRow]) -> Verdicts:
    for row in rows:
        if row.failed:
            last = row.measured.launches[-1].id
            evidence: Evidence = {"launches": row.attempts, "reason": row.failed}
            verdict = _verdict("cell_failed", row.label, evidence, launch=last)
            yield replace(verdict, action="") if row.measured.imported else verdict
    shares = {row.label: s for row in together if (s := row.measured.disturbance) is not None}
    if shares:
        evidence = {"largest share": max(shares.values())}
        yield _verdict("disturbed", shares, evidence, cells=", ".join(shares))


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
            return "how much work a step is was not seen"
        if self.kind == "whole_data":
            return "every worker went through all of the data"
        return "the workers did not train together"


def find_voids(found: Measured, cells: Sequence[Measured] = ()) -> list[Void]:
    """Return what is wrong with a cell's launches, at most one reason of each kind.

    Args:
        found: the cell.
        cells: all of the study, those with fewer workers among them.
    """
    if found.cell.workers < 2:
        return []
    # A speedup of this cell may be relative to any with fewer workers.
    fewer = [
        other
        for other in cells
        if other.cell.workers < found.cell.workers and group_of(other.cell) == group_of(found.cell)
    ]
    by_kind: dict[VoidKind, list[Launch]] = {}
    for launch in found.ended_well:
        kind = void_of(launch)
        # A worker's own part has fewer samples than one worker had for itself.
        if kind is None and fewer and fewer[0].samples == found.samples and _whole_data(launch):
            kind = "whole_data"
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
    return "same_samples" if _same_samples(ranks) else None


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
    shares = [overlap(first, second) for first, second in combinations(ranks, 2)]
    if any(share is None or share <= _SAME_SAMPLES for share in shares):
        return False
    if len({rank.sample_hashes for rank in ranks}) == 1:
        return True
    # Of a data set smaller than what was looked at, disjoint shards meet in the second epoch.
    looked_at = sum(len(set(rank.sample_hashes)) for rank in ranks)
    size = next((rank.dataset_size for rank in ranks if rank.dataset_size), None)
    return size is None or looked_at <= size


def _whole_data(launch: Launch) -> bool:
    """Tell whether every worker of several went through the whole data set in its first pass."""
    for rank in launch.ranks:
        if not rank.epochs or not rank.dataset_size:
            return False
        begin, end = rank.epochs[0]
        inside = (rank.steps.end_s > begin) & (rank.steps.end_s <= end)
        batch = launch.cell.batch or rank.batch_seen or 0
        seen = np.nan_to_num(rank.steps.samples[inside], nan=batch).sum()
        if seen < _WHOLE * rank.dataset_size:
            return False
    return len(launch.ranks) > 1


def _void(kind: VoidKind, found: Measured, launches: Sequence[Launch]) -> Void:
    ranks, rule = launches[0].ranks, RULES[kind]
    evidence: dict[str, float | str] = {}
    if kind == "not_averaged":
        evidence["gradient bytes"] = 0
    if kind in ("not_averaged", "work_unknown"):
        evidence["steps"] = max(len(rank.steps) for rank in ranks)
    if kind in ("not_averaged", "weights_differ"):
        for rank in ranks[:4]:
            evidence[f"weights of rank {rank.rank}"] = rank.weights or "not known"
    if kind == "whole_data":
        evidence["samples"] = found.samples or 0
    if kind == "same_samples":
        shares = [overlap(first, second) for first, second in combinations(ranks, 2)]
        evidence["overlap of samples"] = min(share for share in shares if share is not None)
    keras = any("keras" in rank.framework for rank in ranks)
    return Void(
        kind=kind,
        cell=found.cell,
        label=found.label,
        launches=tuple(launch.id for launch in launches),
        sentence=fill(rule.sentence, workers=found.cell.workers, samples=found.samples),
        mend=(keras and rule.with_keras) or rule.action,
        evidence=evidence,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that must hold for workers that train together."""

    kind: VoidKind
    passed: bool | None
    """None where it could not be seen."""
    text: str


_CHECKS: Mapping[VoidKind, str] = {
    "not_averaged": "Gradients were exchanged in every launch with several workers.",
    "weights_differ": "All workers ended with the same weights.",
    "same_samples": "Each worker trained on samples of its own.",
}


def check_together(rows: Sequence[CellRow], voids: Sequence[Void]) -> tuple[Check, ...]:
    """Say of each rule whether it held; empty where no launch had several workers."""
    launches = [
        one for row in rows if row.cell.workers > 1 for one in row.measured.ended_well if one.ranks
    ]
    ranks = [rank for one in launches for rank in one.ranks if len(rank.steps)]
    seen: Mapping[VoidKind, bool] = {
        "not_averaged": any("gradients" in rank.bytes_sent for rank in ranks),
        "weights_differ": any(rank.weights is not None for rank in ranks),
        "same_samples": any(rank.sample_hashes and not repeats_one_batch(rank) for rank in ranks),
    }
    failed = {void.kind: void.sentence for void in voids}
    return tuple(
        Check(
            kind=kind,
            passed=False if kind in failed else True if seen[kind] else None,
            text=failed.get(kind, text),
        )
        for kind, text in (_CHECKS.items() if launches else ())
    )
