"""Verdicts: what the figures mean, and what to do about it.

RULES has the words of every verdict. Below, one function per rule says when it applies and to which
figures; `find_verdicts` applies all of them to a study.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from farandole.format import fill, plural
from farandole.model.accuracy import MetricCurve, MetricRow
from farandole.model.communication import Communication
from farandole.model.curves import Curve, CurvePoint, amdahl_fraction, group_of
from farandole.model.jobs import LARGEST_BATCH, LEAST_STEPS, JobTime
from farandole.model.measured import Measured, common_unit
from farandole.model.metrics import WINDOW, Series, held_out, plateau, reach, training_partner
from farandole.model.pace import Pace, dataset_size
from farandole.model.rows import CellRow
from farandole.model.split import StepSplit
from farandole.model.statistics import LEAST_LAUNCHES, SPEED_MARGIN, Estimate, ratio, speed_relation
from farandole.model.utilisation import UtilisationRow
from farandole.study.records import Cell, Floats

Bound = Literal[
    "compute", "communication", "input", "straggler", "fixed_cost", "oversubscription", "unknown"
]
Severity = Literal["void", "warn", "note", "good"]
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
NOTHING_GAINED = 0.05
GAP_MARGINS = 5
"""A training accuracy above the validation's by so many margins (5 points) is overfitting."""
LOSS_RISE = 0.05
FALL_MARGINS = 5
LOSS_JUMP = 0.50
_MOST_NAMED = 3
_OF_A_KIND = 3
"""Verdicts of one kind that are worth reading; a study of 200 cells would give 200."""
_ORDER = {"void": 0, "warn": 1, "note": 2, "good": 3}
_RANKING = ("cpu", "k80", "m60", "p4", "p100", "t4", "v100", "a10", "l4", "a100", "h100", "b200")
"""Devices by training speed, slowest first; a name that holds one of these is compared by it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The words of a verdict; see `format.fill` for what its templates may hold."""

    severity: Severity
    sentence: str
    action: str
    kind: str = ""
    """In report.json; the rule's name unless two rules share one."""


RULES: Mapping[str, Rule] = {
    "leaves_linear": Rule(
        "note",
        "Efficiency falls to {point.efficiency.value:percent} at {point.workers:worker}{before} "
        "({label}).",
        "Up to {last:worker} the money is well spent; beyond that you pay for waiting.",
    ),
    "more_than_linear": Rule(
        "warn",
        "More than linear: {point.speedup:interval} on {point.ideal_speedup:brief} times the "
        "workers ({label}).",
        "Explain it before you quote it: a slow or cold baseline, another batch, another device, "
        "or a model that fits a cache only when shared. Measure {curve.baseline_workers:worker} "
        "again with --repeats 5.",
    ),
    "same_speed": Rule(
        "note",
        "No difference in speed between {few} and {many}: {ratio:interval}, the same within "
        "{margin:percent}.",
        "Take {few}.",
        "no_significant_difference",
    ),
    "too_noisy": Rule(
        "warn",
        "{begin} between {point.speedup.low:times} and {point.speedup.high:times} after "
        "{point.launches:launch} ({label}).",
        "Run it again with {flag} {more} on a quieter machine.",
    ),
    "no_intervals": Rule(
        "note",
        "One launch each: figures without intervals.",
        "Run it again with {flag} 5 for intervals.",
    ),
    "disturbed": Rule(
        "warn",
        "The machine was busy: other programs took up to {share:percent} of its cores. {cells} had "
        "no quiet launch, so their speeds may be off by as much.",
        "Run it again when the machine is quiet; farandole study --resume DIR makes disturbed "
        "launches for speed again.",
    ),
    "compute_bound": Rule(
        "good",
        "Bound by compute: forward, backward and update take {share:percent} of a step ({label}).",
        "More workers, a faster device or mixed precision shorten it.",
    ),
    "communication_bound": Rule(
        "warn",
        "Bound by communication: {share:percent} of a step waits for gradients{details} ({label}).",
        "Use a larger batch per worker or accumulate gradients, compress them to float16, or take "
        "a faster transport.",
    ),
    "input_bound": Rule(
        "warn",
        "Bound by input: {share:percent} of a step waits for the next batch ({label}).",
        "Load ahead in more loader processes (num_workers), decode once and cache, or move "
        "augmentation off the training process.",
    ),
    "straggler": Rule(
        "warn",
        "Held up by rank {rank}: the others wait for it for {share:percent} of a step; {reason} "
        "({label}).",
        "Look at what else runs where rank {rank} is, and whether its share of the data is larger "
        "or longer.",
    ),
    "pauses": Rule(
        "warn",
        "Rank {rank} alone paused {count:time} for {total_s:seconds} in all ({each_s:seconds} "
        "each) while the others waited: {share:percent} of the training time ({label}). Usually "
        "this is a checkpoint or a log that one rank writes.",
        "Save less often, or write in a background thread.",
        "one_rank_pauses",
    ),
    "uneven_steps": Rule(
        "note",
        "Workers wait for each other for {share:percent} of a step, for no one in particular "
        "({label}).",
        "Even out the work per batch (lengths, sizes), or free the cores of other programs.",
    ),
    "oversubscription": Rule(
        "warn",
        "Too few cores: {cell.workers} x {cell.threads:thread} share {cores:core} ({label}).",
        "Use at most {cores:thread} in all: fewer workers, or --threads 1.",
    ),
    "contention": Rule(
        "note",
        "Computing takes {ratio:times} as long beside other workers: {one.compute_s:seconds}, then "
        "{many.compute_s:seconds} ({many.label}). They share memory and caches.",
        "No transport mends that: spread the workers over more hosts, or pin them to cores.",
    ),
    "fixed_cost": Rule(
        "warn",
        "Fixed cost: {job.fixed_share:percent} of the {job.job_s.value:seconds} job is not "
        "training{startup} ({label}).",
        "More workers do not shorten that: validate and save less often, or start faster; in "
        "longer jobs it matters less.",
    ),
    "flat_jobs": Rule(
        "warn",
        "Fixed cost: {fewest:worker} took {longest_s:seconds} and {most:worker} {last_s:seconds}: "
        "{serial:percent} of the job is not shared.{factor}",
        "Stay with {fewest:worker}, or give them more to do.",
        "fixed_cost",
    ),
    "data_too_small": Rule(
        "warn",
        "Too little data for {workers:worker}: {samples:sample} are {steps:brief} steps per epoch "
        "at a global batch of {batch} ({label}).",
        "Use fewer workers or a smaller batch; {needed:sample} would do for this many. Fewer steps "
        "per epoch need more epochs or another learning rate.",
    ),
    "contradicting_times": Rule(
        "warn",
        "A figure is off: {job.epochs:brief} epochs of {job.epoch_s.value:seconds} are "
        "{sum_s:seconds}, more than the job's {job.job_s.value:seconds} ({label}).",
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
        "{fast} gains nothing over {slow}: {rates[1]:number} and {rates[0]:number} {unit}, "
        "{ratio:times} ({label}).",
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
        "By {factor}, {unit} at {setting}: {order}. The order reverses at {other}: {faster} is "
        "faster than {slower} there.",
        "Rank them in the setting that you will use.",
    ),
    "overfitting": Rule(
        "warn",
        "Overfitting: {training.metric} ends at {training.final.value:number}, {held_out.metric} "
        "at {held_out.final.value:number}, a gap of {gap:number}{since} ({label}).",
        "Stop at the plateau, or add data, augmentation or weight decay; more epochs only widen "
        "the gap.",
    ),
    "instability": Rule(
        "warn",
        "Unstable: {curve.metric} goes from {before.value.value:number} to "
        "{after.value.value:number} at epoch {after.epoch:brief}, its largest step back ({label}).",
        "Warm the learning rate up over 5 epochs, scale it less, or clip gradients.",
    ),
    "diverged": Rule(
        "warn",
        "{row.diverged} of {row.seeds:run} diverged: {row.metric} ended as NaN or infinity "
        "({label}).",
        "Lower the learning rate, or warm it up over the first epochs.",
    ),
    "seeds_without_effect": Rule(
        "warn",
        "All {row.seeds} seeds gave the very same {row.metric}: the script does not use them "
        "({label}).",
        "Pass '{{seed}}' on the command line, or seed by the variable FARANDOLE_SEED; until then "
        "accuracy cannot be judged.",
    ),
    "same": Rule(
        "good",
        "No significant difference in {row.metric}: {difference}, the same within "
        "{row.margin:brief} ({label}).",
        "The speedup costs no accuracy.",
        "no_significant_difference",
    ),
    "inconclusive": Rule(
        "note",
        "Cannot tell whether {row.metric} changed: {difference} over {row.seeds:seed}{detectable} "
        "({label}).",
        "Run it again with --measure accuracy --seeds {more}.",
        "too_noisy",
    ),
    "worse": Rule(
        "warn",
        "{row.metric} is worse: {difference} ({label}).",
        "Steps are fewer and larger: scale the learning rate with a warm-up, train for more "
        "epochs, or keep the global batch (strong scaling).",
        "accuracy_worse",
    ),
    "better": Rule(
        "note",
        "{row.metric} is better: {difference} ({label}).",
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
        "{best.metric} reaches {what} soonest with {best.label}: after {first_s:seconds}, against "
        "{last_s:seconds} with {worst.label}.",
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


def _verdict(name: str, labels: str | Iterable[str], evidence: Evidence, **words: Any) -> Verdict:
    """Fill in a rule; a lone label is `{label}` in its words."""
    rule = RULES[name]
    if isinstance(labels, str):
        words.setdefault("label", labels)
        labels = (labels,)
    return Verdict(
        kind=rule.kind or name,
        severity=rule.severity,
        sentence=fill(rule.sentence, **words),
        action=fill(rule.action, **words),
        evidence=evidence,
        labels=tuple(labels),
    )


# Curves


def leaves_linear(curve: Curve) -> Verdict | None:
    """Fire at the first worker count whose efficiency is below 0.9, clearly where it can be."""
    before: CurvePoint | None = None
    for point in curve.points:
        found = point.efficiency
        if found is None or point.workers == curve.baseline_workers:
            before = point
            continue
        if (found.value if found.high is None else found.high) < LINEAR:
            words = ", after {point.efficiency.value:percent} at {point.workers}"
            return _verdict(
                "leaves_linear",
                curve.label,
                {"workers": float(point.workers), "efficiency": found.value},
                point=point,
                before=fill(words, point=before) if before and before.efficiency else "",
                last=before.workers if before else curve.baseline_workers,
            )
        before = point
    return None


def more_than_linear(curve: Curve) -> Verdict | None:
    """Fire when a speedup is above the ideal by more than the margin, clearly where it can be."""
    for point in reversed(curve.points):
        found, ideal = point.speedup, point.ideal_speedup
        if found is None or point.workers == curve.baseline_workers:
            continue
        lowest = found.value if found.low is None else found.low
        if lowest > ideal and found.value > ideal * (1 + SPEED_MARGIN / 10):
            evidence = {"speedup": found.value, "ideal": ideal}
            verdict = _verdict("more_than_linear", curve.label, evidence, point=point, curve=curve)
            small = found.value <= ideal * (1 + SPEED_MARGIN)
            return replace(verdict, severity="note") if small else verdict
    return None


def no_gain(
    few: Sequence[float], many: Sequence[float], few_label: str, many_label: str
) -> Verdict | None:
    """Fire when two speeds are the same by an equivalence test."""
    if speed_relation(many, few) != "same":
        return None
    found = ratio(many, few)
    return _verdict(
        "same_speed",
        (few_label, many_label),
        {"ratio": found.value, "margin": SPEED_MARGIN},
        few=few_label,
        many=many_label,
        ratio=found,
        margin=SPEED_MARGIN,
    )


def undecided(speedup: Estimate) -> bool:
    """Tell whether an interval allows both faster and slower, and is wider than the margin."""
    if speedup.low is None or speedup.high is None:
        return False
    half_width = (speedup.high - speedup.low) / 2 / speedup.value
    return speedup.low < 1 < speedup.high and half_width > SPEED_MARGIN


def too_noisy(curve: Curve, flag: str = "--repeats") -> Verdict | None:
    """Fire when a speedup's interval is so wide that the number should not be quoted."""
    for point in curve.points:
        found = point.speedup
        if found is None or found.low is None or found.high is None:
            continue
        half_width = (found.high - found.low) / 2 / found.value
        if half_width > NOISY or undecided(found):
            workers = plural(point.workers, "worker")
            begin = f"Too noisy to tell: the speedup of {workers} lies"
            if not found.low < 1 < found.high:
                sure = "faster" if found.low >= 1 else "slower"
                begin = f"Too noisy to quote: {workers} are {sure}, but their speedup lies"
            return _verdict(
                "too_noisy",
                curve.label,
                {"half width": half_width, "launches": float(point.launches)},
                begin=begin,
                point=point,
                flag=flag,
                more=max(LEAST_LAUNCHES, 2 * point.launches),
            )
    return None


def single_launches(
    curves: Sequence[Curve], *, imported: bool = False, flag: str = "--repeats"
) -> Verdict | None:
    """Fire when no speedup on any curve has an interval, because nothing was repeated.

    Args:
        curves: all of a study's.
        imported: whether the figures were measured elsewhere.
        flag: what gives more launches.
    """
    others = [
        point
        for curve in curves
        for point in curve.points
        if point.workers != curve.baseline_workers and point.speedup is not None
    ]
    if not others or any(point.speedup and point.speedup.low is not None for point in others):
        return None
    verdict = _verdict(
        "no_intervals",
        [curve.label for curve in curves],
        {"launches": float(max(point.launches for point in others))},
        flag=flag,
    )
    if imported:
        return replace(verdict, action="Add the rows of repeated runs to the table for intervals.")
    return verdict


# Steps


def share(part: float | None, split: StepSplit) -> float:
    """Return a part's share of the step; 0 when it was not measured."""
    return 0.0 if part is None or split.step_s <= 0 else part / split.step_s


def waits(split: StepSplit) -> dict[Bound, float]:
    """Return what a step waits for, by its share of the step, as far as it is worth mending."""
    several = split.cell.workers > 1
    transfer = split.exposed_s if split.transfer_s is None else split.transfer_s
    known: list[tuple[Bound, float | None, float]] = [
        ("communication", transfer if several else None, COMMUNICATION_SHARE),
        ("input", split.data_s, INPUT_SHARE),
        (
            "straggler",
            split.waiting_s if several and split.slowest_rank is not None else None,
            STRAGGLER_SHARE,
        ),
    ]
    return {name: found for name, part, limit in known if (found := share(part, split)) > limit}


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


def step_verdicts(split: StepSplit, communication: Communication | None = None) -> list[Verdict]:
    """Apply the rules on one cell's step."""
    shares, label = waits(split), split.label
    verdicts = []
    if (found := shares.get("communication")) is not None:
        evidence: dict[str, float | str] = {
            "exposed transfer share": found,
            "step (s)": split.step_s,
        }
        details = ""
        if communication and communication.bus_bytes_per_s:
            evidence["bus bandwidth (GB/s)"] = communication.bus_bytes_per_s / 1e9
            details = fill(", at {rate:rate}", rate=communication.bus_bytes_per_s)
            if communication.utilisation is not None:
                evidence["utilisation of the link"] = communication.utilisation
                details += fill(", {of:percent} of the link's peak", of=communication.utilisation)
        verdicts.append(
            _verdict("communication_bound", label, evidence, share=found, details=details)
        )
    if (found := shares.get("input")) is not None:
        evidence = {"data share": found, "data wait (s)": split.data_s or 0.0}
        verdicts.append(_verdict("input_bound", label, evidence, share=found))
    if (found := shares.get("straggler")) is not None:
        verdicts.append(_straggler(split, found))
    busy = share((split.compute_s or 0.0) + (split.optimizer_s or 0.0), split)
    if not shares and split.exposed_s is not None and busy >= COMPUTE_SHARE:
        evidence = {"compute share": busy, "step (s)": split.step_s}
        verdicts.append(_verdict("compute_bound", label, evidence, share=busy))
    return verdicts


def _straggler(split: StepSplit, waiting: float) -> Verdict:
    """Tell one rank that is slower, or mostly the last, from ranks that are late in turn."""
    times, rank = dict(split.compute_by_rank_s), split.slowest_rank
    assert rank is not None
    others = sorted(time for other, time in times.items() if other != rank)
    own, last = times.get(rank), split.slowest_share or 0.0
    slower = own / others[len(others) // 2] if own and others and others[len(others) // 2] else 0.0
    evidence: dict[str, float | str] = {
        "waiting share": waiting,
        "slowest rank": float(rank),
        "last in share of steps": last,
    }
    # Among N equal ranks each is last in 1/N of the steps.
    fair = 1 / split.cell.workers
    if slower <= STRAGGLER_RATIO and last <= fair + (1 - fair) / 2:
        return _verdict("uneven_steps", split.label, evidence, share=waiting)
    if slower:
        evidence["its compute over the others'"] = slower
    reason = fill("it is last in {last:percent} of them", last=last)
    if slower > STRAGGLER_RATIO:
        reason = fill("it computes {slower:times} as long as they do", slower=slower)
    evidence["share that the others wait"] = others_wait(split)
    return _verdict(
        "straggler", split.label, evidence, rank=rank, share=others_wait(split), reason=reason
    )


def pauses(found: Measured) -> Verdict | None:
    """Fire when one rank makes the others wait in a few long steps, alike in every launch."""
    seen = [_pauses_of(pace) for pace in found.paces]
    if not seen or None in seen or len({one[0] for one in seen if one}) > 1:
        return None
    rank, late_s, part = seen[0] or (0, np.zeros(1), 0.0)
    return _verdict(
        "pauses",
        found.label,
        {"rank": float(rank), "pauses": float(len(late_s)), "seconds": float(late_s.sum())},
        rank=rank,
        count=len(late_s),
        total_s=float(late_s.sum()),
        each_s=float(late_s.mean()),
        share=part,
    )


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


def contention(one: StepSplit, many: StepSplit) -> Verdict | None:
    """Fire when computing itself gets slower beside other workers, at the same batch."""
    if not one.compute_s or not many.compute_s or one.cell.batch != many.cell.batch:
        return None
    slower = many.compute_s / one.compute_s
    if many.cell.workers <= one.cell.workers or slower <= CONTENTION_RATIO:
        return None
    evidence = {"compute, few (s)": one.compute_s, "compute, many (s)": many.compute_s}
    labels = (one.label, many.label)
    return _verdict("contention", labels, evidence, ratio=slower, one=one, many=many)


def oversubscription(cell: Cell, label: str, cores: float | None) -> Verdict | None:
    """Fire when the workers' threads outnumber the cores of their host."""
    if cores is None or cell.threads is None or cell.device != "cpu":
        return None
    per_host = -(-cell.workers // max(cell.hosts, 1)) * cell.threads
    if per_host <= cores:
        return None
    evidence = {"threads in all": float(per_host), "cores": cores}
    return _verdict("oversubscription", label, evidence, cell=cell, cores=round(cores))


# Jobs and utilisation


def fixed_cost(job: JobTime) -> Verdict | None:
    """Fire when start-up, validation and the like take more than 30 % of the job."""
    if job.fixed_share is None or job.job_s is None or job.fixed_s is None:
        return None
    if job.fixed_share <= FIXED_SHARE:
        return None
    startup = ""
    if job.startup_s is not None:
        startup = fill(
            ", {startup:seconds} of it before the first step",
            startup=min(job.startup_s, job.fixed_s),
        )
    evidence = {"fixed share": job.fixed_share, "fixed (s)": job.fixed_s}
    return _verdict("fixed_cost", job.label, evidence, job=job, startup=startup)


def flat_jobs(jobs: Sequence[JobTime]) -> Verdict | None:
    """Fire when whole jobs hardly get shorter with workers, where only their length is known."""
    known = sorted(
        ((job.cell.workers, job.job_s.value) for job in jobs if job.job_s and not job.fixed_share),
        key=lambda pair: pair[0],
    )
    if len({workers for workers, _ in known}) < 2:
        return None
    (fewest, longest), *rest = known
    pairs = [(workers / fewest, longest / time) for workers, time in rest if workers > fewest]
    serial = amdahl_fraction([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    if serial < FLAT:
        return None
    # T(N) = F + W/N: doubling pays (saves a quarter) once the shared part W/N exceeds half of T.
    factor = ""
    if serial < 1:
        larger = serial / (1 - serial)
        factor = fill(" With about {larger:brief} times the data they would pay.", larger=larger)
    most, last_s = known[-1]
    return _verdict(
        "flat_jobs",
        [job.label for job in jobs if job.job_s],
        {"serial fraction": serial, "fewest (s)": longest, "most (s)": last_s},
        fewest=fewest,
        longest_s=longest,
        most=most,
        last_s=last_s,
        serial=min(serial, 1.0),
        factor=factor,
    )


def data_too_small(
    samples: int | None, global_batch: int | None, workers: int, label: str
) -> Verdict | None:
    """Fire when an epoch has fewer than 20 steps, or a step takes a tenth of the data."""
    if not samples or not global_batch or workers < 2:
        return None
    steps = samples / global_batch
    if steps >= LEAST_STEPS and global_batch <= LARGEST_BATCH * samples:
        return None
    return _verdict(
        "data_too_small",
        label,
        {"samples": float(samples), "steps per epoch": steps},
        workers=workers,
        samples=samples,
        steps=steps,
        batch=global_batch,
        needed=round(max(LEAST_STEPS, 1 / LARGEST_BATCH) * global_batch),
    )


def contradicting_times(job: JobTime) -> Verdict | None:
    """Fire when the epochs are longer than the job that they are part of."""
    if job.fixed_s is None or job.job_s is None or job.epoch_s is None or job.epochs is None:
        return None
    if job.fixed_s >= -0.01 * job.job_s.value:
        return None
    sum_s = job.epochs * job.epoch_s.value
    evidence = {"epochs x epoch (s)": sum_s, "job (s)": job.job_s.value}
    return _verdict("contradicting_times", job.label, evidence, job=job, sum_s=sum_s)


def _extremes(row: UtilisationRow, column: int) -> tuple[int, float, int, float] | None:
    """Return the rank with the most and the one with the least of a figure; None below two."""
    known = [(entry[column], entry[0]) for entry in row.by_rank if entry[column] is not None]
    if len(known) < 2:
        return None
    high, most = max(known, key=lambda pair: pair[0] or 0.0)
    low, least = min(known, key=lambda pair: pair[0] or 0.0)
    return most, high or 0.0, least, low or 0.0


def uneven_utilisation(row: UtilisationRow) -> Verdict | None:
    """Fire when one worker is busy by a fifth more or less than another."""
    for device, column in (("GPU", 2), ("CPU", 1)):
        most, high, least, low = _extremes(row, column) or (0, 0.0, 0, 0.0)
        if high > 0.05 and low < (1 - UNEVEN) * high:
            evidence = {f"rank {most}": high, f"rank {least}": low}
            words = {"most": most, "high": high, "least": least, "low": low}
            return _verdict("uneven_utilisation", row.label, evidence, device=device, **words)
    return None


def uneven_memory(row: UtilisationRow) -> Verdict | None:
    """Fire when one worker needs a fifth more memory than another, and 100 MB."""
    most, high, least, low = _extremes(row, 3) or (0, 0.0, 0, 0.0)
    if high - low < max(UNEVEN * low, _MEMORY_NOISE_BYTES):
        return None
    evidence = {f"rank {most} (bytes)": high, f"rank {least} (bytes)": low}
    words = {"most": most, "high": high, "least": least, "low": low}
    return _verdict("uneven_memory", row.label, evidence, **words)


# Devices and other factors


def device_rank(name: str) -> int | None:
    """Return a device's place among those that we know, or None."""
    words = name.lower().replace("-", " ").replace("_", " ").split()
    places = [place for place, known in enumerate(_RANKING) if known in words]
    return places[-1] if places else None


def faster_device_gains_nothing(
    speeds: Mapping[str, Estimate], label: str, unit: str
) -> Verdict | None:
    """Fire when a device that should be faster is not, by 5 % or at all.

    Args:
        speeds: throughput by device, all else equal.
        label: what is equal.
        unit: of the throughputs.
    """
    ranked = sorted(
        (rank, place, device)
        for place, device in enumerate(speeds)
        if (rank := device_rank(device)) is not None
    )
    for (slow_rank, _, slow), (fast_rank, _, fast) in pairwise(ranked):
        rates = (speeds[slow].value, speeds[fast].value)
        found = rates[1] / rates[0]
        if slow_rank != fast_rank and found <= 1 + NOTHING_GAINED:
            evidence = {"ratio": found, slow: rates[0], fast: rates[1]}
            words = {"slow": slow, "fast": fast, "rates": rates, "unit": unit, "ratio": found}
            return _verdict("faster_device_gains_nothing", label, evidence, **words)
    return None


def order_reverses(
    speeds: Mapping[str, Mapping[str, Estimate]], factor: str, unit: str
) -> Verdict | None:
    """Say in which order the values of a factor (models, say) come, and where it reverses.

    Args:
        speeds: by setting ("cpu, 8 workers"), throughput by the factor's value.
        factor: its name.
        unit: of the throughputs.
    """
    settings = [name for name, found in speeds.items() if len(found) > 1]
    if not settings:
        return None
    first, *others = settings
    here = speeds[first]
    reversed_pairs = []
    for setting in others:
        there = speeds[setting]
        common = [name for name in here if name in there]
        for index, one in enumerate(common):
            for other in common[index + 1 :]:
                clear = _clear(here[one], here[other]) and _clear(there[one], there[other])
                ahead = here[one].value > here[other].value
                if clear and ahead != (there[one].value > there[other].value):
                    slower, faster = (one, other) if ahead else (other, one)
                    reversed_pairs.append((setting, slower, faster))
    evidence = {f"{first}, {name}": found.value for name, found in here.items()}
    for setting, slower, faster in reversed_pairs[:3]:
        evidence[f"{setting}, {faster}"] = speeds[setting][faster].value
        evidence[f"{setting}, {slower}"] = speeds[setting][slower].value
    ranked = sorted(here.items(), key=lambda item: -item[1].value)
    order = " > ".join(
        fill("{name} ({rate:number})", name=name, rate=found.value) for name, found in ranked
    )
    words = {"factor": factor, "unit": unit, "setting": first, "order": order}
    if reversed_pairs:
        other, slower, faster = reversed_pairs[0]
        words |= {"other": other, "slower": slower, "faster": faster}
    name = "order_reverses" if reversed_pairs else "order"
    return _verdict(name, settings, evidence, **words)


def _clear(first: Estimate, second: Estimate) -> bool:
    if None not in (first.low, first.high, second.low, second.high):
        return bool(first.low > second.high or second.low > first.high)  # type: ignore[operator]
    return abs(first.value / second.value - 1) > SPEED_MARGIN


# Metrics


def overfitting(
    held_out: MetricRow,
    training: MetricRow,
    held_out_curve: MetricCurve | None = None,
) -> Verdict | None:
    """Fire when training ends clearly better than validation, or validation loss rises again."""
    if held_out.final is None or training.final is None:
        return None
    validation, trained = held_out.final.value, training.final.value
    higher = held_out.higher_is_better
    gap = trained - validation if higher else validation - trained
    points = held_out_curve.points if held_out_curve else ()
    values = [point.value.value for point in points]
    if higher:
        if gap <= GAP_MARGINS * held_out.margin:
            return None
        epoch = _plateau_epoch(held_out_curve) if held_out_curve else None
    else:
        best = min(values, default=0.0)
        if best <= 0 or values[-1] / best - 1 <= LOSS_RISE or gap <= 0:
            return None
        epoch = points[values.index(best)].epoch
    epoch = held_out.stable_epoch if epoch is None else epoch
    evidence: dict[str, float | str] = {"gap": gap, held_out.metric: validation}
    since = ""
    if epoch is not None:
        evidence["plateau (epoch)"] = epoch
        since = fill(
            "; {row.metric} gains nothing after epoch {epoch:brief}", row=held_out, epoch=epoch
        )
    words = {"training": training, "held_out": held_out, "gap": gap, "since": since}
    return _verdict("overfitting", held_out.label, evidence, **words)


def _plateau_epoch(curve: MetricCurve) -> float | None:
    """Return the epoch from which on a metric of which more is better gains nothing."""
    values = tuple(point.value.value for point in curve.points)
    if len(values) < 2 * WINDOW:
        return None
    series = Series(
        epochs=tuple(point.epoch for point in curve.points),
        values=values,
        times_s=(None,) * len(values),
        by_step=False,
    )
    return reach(series, plateau(values, higher=True), higher=True).epoch


def instability(curve: MetricCurve, *, higher: bool, margin: float) -> Verdict | None:
    """Fire when a metric falls back far between two epochs after the first fifth."""
    sign = 1.0 if higher else -1.0
    steps = [
        (sign * (before.value.value - after.value.value), before, after)
        for before, after in pairwise(curve.points[len(curve.points) // 5 :])
    ]
    if not steps:
        return None
    fall, before, after = max(steps, key=lambda step: step[0])
    if fall <= (FALL_MARGINS * margin if higher else LOSS_JUMP * abs(before.value.value)):
        return None
    evidence = {"fall": fall, "epoch": after.epoch}
    return _verdict("instability", curve.label, evidence, curve=curve, before=before, after=after)


def diverged(row: MetricRow) -> Verdict | None:
    """Fire when a run ended with a value that is not a number."""
    if not row.diverged:
        return None
    evidence = {"diverged": float(row.diverged), "runs": float(row.seeds)}
    return _verdict("diverged", row.label, evidence, row=row)


def seeds_without_effect(row: MetricRow) -> Verdict | None:
    """Fire when several seeds gave the very same values."""
    if not row.seeds_alike or row.diverged:
        return None
    return _verdict("seeds_without_effect", row.label, {"seeds": float(row.seeds)}, row=row)


def changed(row: MetricRow) -> Verdict | None:
    """Say whether a metric is the same as with fewer workers, better, worse or undecided."""
    found = row.difference
    if row.verdict in (None, "not_measured") or row.final is None or found is None:
        return None
    bounds = ""
    if found.low is not None and found.high is not None:
        bounds = f" ({found.low:+.4f} to {found.high:+.4f})"
    return _verdict(
        str(row.verdict),
        row.label,
        {"difference": found.value, "margin": row.margin, "seeds": float(row.seeds)},
        row=row,
        difference=f"{found.value:+.4f}{bounds}",
        more=max(5, 2 * row.seeds),
        detectable=_detectable(row),
    )


def _detectable(row: MetricRow) -> str:
    smallest = row.smallest_difference
    if smallest is None:
        return ""
    return fill("; only differences above {smallest:number} are detectable", smallest=smallest)


def missing(metric: str, *, having: Sequence[str], lacking: Sequence[str]) -> Verdict | None:
    """Say for which cells a metric was not recorded, where it was for others."""
    if not having or not lacking:
        return None
    shown = ", ".join(lacking[:_MOST_NAMED])
    shown += f" and {len(lacking) - _MOST_NAMED} more" if len(lacking) > _MOST_NAMED else ""
    evidence = {"with it": float(len(having)), "without": float(len(lacking))}
    return _verdict("metric_missing", lacking, evidence, metric=metric, cells=shown)


def soonest(rows: Sequence[MetricRow]) -> Verdict | None:
    """Say which cell reaches the target, or else its plateau, first."""
    for field, what in (("target_s", "the target"), ("stable_s", "a stable value")):
        known = [(getattr(row, field), row) for row in rows if getattr(row, field) is not None]
        if len(known) > 1:
            first_s, best = min(known, key=lambda pair: pair[0])
            last_s, worst = max(known, key=lambda pair: pair[0])
            evidence = {"soonest (s)": first_s, "latest (s)": last_s}
            words = {"best": best, "worst": worst, "first_s": first_s, "last_s": last_s}
            return _verdict("soonest", (best.label, worst.label), evidence, what=what, **words)
    return None


# All rules, on every cell, curve and metric that they speak of


def find_verdicts(
    cells: Sequence[Measured],
    rows: Mapping[Cell, CellRow],
    curves: Sequence[Curve],
    *,
    main_metric: str | None,
    cores: float | None,
    spec: Mapping[str, object],
    void: frozenset[Cell],
) -> tuple[Verdict, ...]:
    """Return every verdict, warnings first, each sentence once.

    Cells whose workers did not train together are left out of everything about speed.
    """
    together = [found for found in cells if found.cell not in void]
    verdicts = [
        *_on_steps(cells, together, rows),
        *(
            oversubscription(found.cell, found.label, cores)
            for found in cells
            if not found.imported and not found.cell.today
        ),
        *_on_curves(cells, curves, "--seeds" if spec.get("measure") == "accuracy" else "--repeats"),
        *_on_jobs(cells, rows, void, spec),
        *_on_metrics(cells, rows, main_metric),
        *_on_factors([found for found in together if found.paces and not found.cell.today]),
        *_on_failures(cells, together),
    ]
    unique = {verdict.sentence: verdict for verdict in verdicts if verdict is not None}
    return tuple(sorted(condense(unique.values()), key=lambda found: _ORDER[found.severity]))


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


def _on_steps(
    cells: Sequence[Measured], together: Sequence[Measured], rows: Mapping[Cell, CellRow]
) -> Iterable[Verdict | None]:
    splits = {cell: row.split for cell, row in rows.items() if row.split and not cell.today}

    def group(found: Measured) -> object:
        return group_of(found.cell), found.worker_batch

    # One worker count per group tells it: the largest, where waiting is worst.
    largest = {group(found): found for found in together if found.cell in splits}
    for alike, found in largest.items():
        split = splits[found.cell]
        verdicts = step_verdicts(split, rows[found.cell].communication)
        yield from verdicts
        yield pauses(found)
        if any(verdict.kind == "straggler" for verdict in verdicts):
            continue  # One slow rank makes the mean slower: no sign of shared memory.
        for other in cells:
            fewer = other.cell in splits and other.cell.workers < found.cell.workers
            if fewer and group(other) == alike:
                yield contention(splits[other.cell], split)
                break


def _on_curves(
    cells: Sequence[Measured], curves: Sequence[Curve], flag: str
) -> Iterable[Verdict | None]:
    by_cell = {found.cell: found for found in cells}
    yield single_launches(curves, imported=all(found.imported for found in cells), flag=flag)
    for curve in curves:
        yield leaves_linear(curve)
        yield more_than_linear(curve)
        yield too_noisy(curve, flag)
        good = [by_cell[point.cell] for point in curve.points if point.valid]
        for few, many in pairwise(good):
            yield no_gain(few.rates(curve.unit), many.rates(curve.unit), few.label, many.label)


def _on_jobs(
    cells: Sequence[Measured],
    rows: Mapping[Cell, CellRow],
    void: frozenset[Cell],
    spec: Mapping[str, object],
) -> Iterable[Verdict | None]:
    flat: dict[object, list[JobTime]] = {}
    for found in cells:
        cell, job, used = found.cell, rows[found.cell].job, rows[found.cell].utilisation
        if job is not None and cell not in void:
            yield fixed_cost(job)
            yield contradicting_times(job)
            # Where a rate is known, jobs of equal length may have done unequal work.
            if not any(set(pace.rates) - {"jobs/s"} for pace in found.paces):
                flat.setdefault((cell.params, cell.transport, found.batch), []).append(job)
        # Beside other programs utilisation is uneven by chance.
        if used is not None and found.paces:
            yield uneven_utilisation(used)
            yield uneven_memory(used)
        samples = next((size for one in found.launches if (size := dataset_size(one, spec))), None)
        if not cell.today:
            yield data_too_small(samples, found.global_batch, cell.workers, found.label)
    for jobs in flat.values():
        yield flat_jobs(jobs)


def _on_metrics(
    cells: Sequence[Measured], rows: Mapping[Cell, CellRow], main_metric: str | None
) -> Iterable[Verdict | None]:
    every = [(row, one) for row in rows.values() for one in row.metrics]
    names = {one.metric for _, one in every}
    for row, one in every:
        curve = next((curve for curve in row.metric_curves if curve.metric == one.metric), None)
        yield diverged(one)
        if one.metric == main_metric:
            yield changed(one)
            if one.rising and not one.diverged:
                yield _verdict("not_stable", one.label, {"seeds": float(one.rising)}, row=one)
            yield seeds_without_effect(one)
            if curve is not None:
                yield instability(curve, higher=one.higher_is_better, margin=one.margin)
        training = row.metric(training_partner(one.metric, names)) if held_out(one.metric) else None
        if training is not None:
            yield overfitting(one, training, curve)
    yield soonest([one for _, one in every if one.metric == main_metric])
    if main_metric is not None:
        trained = [
            found
            for found in cells
            if any(
                one.outcome == "ok" and one.purpose in ("accuracy", "imported")
                for one in found.launches
            )
        ]
        known = {found.cell for found in trained if rows[found.cell].metric(main_metric)}
        yield missing(
            main_metric,
            having=[found.label for found in trained if found.cell in known],
            lacking=[found.label for found in trained if found.cell not in known],
        )


def _on_factors(cells: Sequence[Measured]) -> Iterable[Verdict | None]:
    unit = common_unit(cells)
    speeds = [(found, speed) for found in cells if (speed := found.throughput(unit)) is not None]
    by_device: dict[object, dict[str, Estimate]] = {}
    words: dict[object, str] = {}
    for found, speed in speeds:
        cell = found.cell
        key = (cell.workers, found.batch, cell.params)
        by_device.setdefault(key, {})[cell.device] = speed
        words[key] = ", ".join([plural(cell.workers, "worker"), *_pairs(dict(cell.params))])
    for setting, devices in by_device.items():
        yield faster_device_gains_nothing(devices, words[setting], unit)
    for factor in dict.fromkeys(name for found in cells for name, _ in found.cell.params):
        settings: dict[str, dict[str, Estimate]] = {}
        for found, speed in speeds:
            params = dict(found.cell.params)
            value = params.pop(factor, None)
            if value is not None:
                where = [found.cell.device, plural(found.cell.workers, "worker")]
                where += [] if found.batch is None else [f"batch {found.batch}"]
                settings.setdefault(", ".join([*where, *_pairs(params)]), {})[value] = speed
        yield order_reverses(settings, factor, unit)


def _pairs(params: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in params.items()]


def _on_failures(
    cells: Sequence[Measured], together: Sequence[Measured]
) -> Iterable[Verdict | None]:
    for found in cells:
        if found.failed:
            evidence: Evidence = {"launches": float(len(found.launches)), "reason": found.failed}
            last = found.launches[-1].id
            verdict = _verdict(
                "cell_failed", found.label, evidence, reason=found.failed, launch=last
            )
            yield replace(verdict, action="") if found.imported else verdict
    shares = {one.label: one.disturbance for one in together if one.disturbance is not None}
    if shares:
        most = max(shares.values())
        cells_named = ", ".join(shares)
        yield _verdict("disturbed", shares, {"largest share": most}, share=most, cells=cells_named)
