"""Verdicts on speed: small pure rules, each with its evidence and what to do.

A rule takes what was computed and returns a Verdict, or None where it has nothing to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from farandole.format import plural
from farandole.model.communication import Communication
from farandole.model.curves import Curve, CurvePoint, amdahl_fraction
from farandole.model.jobs import LARGEST_BATCH, LEAST_STEPS, JobTime
from farandole.model.measured import figure
from farandole.model.split import StepSplit
from farandole.model.statistics import LEAST_LAUNCHES, SPEED_MARGIN, Estimate, ratio, speed_relation
from farandole.model.utilisation import UtilisationRow
from farandole.study.records import Cell

Bound = Literal[
    "compute", "communication", "input", "straggler", "fixed_cost", "oversubscription", "unknown"
]
Severity = Literal["void", "warn", "note", "good"]
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
_MEMORY_NOISE_BYTES = 100e6
NOTHING_GAINED = 0.05
_RANKING = ("cpu", "k80", "m60", "p4", "p100", "t4", "v100", "a10", "l4", "a100", "h100", "b200")
"""Devices by training speed, slowest first; a name that holds one of these is compared by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One sentence with its evidence and what to do."""

    kind: str
    """The rule's name: communication_bound, overfitting, ..."""
    severity: Severity
    sentence: str
    action: str
    evidence: Mapping[str, float | str]
    labels: tuple[str, ...] = ()
    """Of the cells that it speaks of."""


def interval(estimate: Estimate) -> str:
    """Return " (1.79 to 1.87)", or "" when there is no interval."""
    if estimate.low is None or estimate.high is None:
        return ""
    return f" ({estimate.low:.2f} to {estimate.high:.2f})"


def leaves_linear(curve: Curve) -> Verdict | None:
    """Fire at the first worker count whose efficiency is below 0.9, clearly where it can be."""
    before: CurvePoint | None = None
    for point in curve.points:
        if point.efficiency is None or point.workers == curve.baseline_workers:
            before = point
            continue
        highest = point.efficiency.value if point.efficiency.high is None else point.efficiency.high
        if highest < LINEAR:
            reached = (
                ""
                if before is None or before.efficiency is None
                else f", after {before.efficiency.value:.0%} with {before.workers}"
            )
            return Verdict(
                kind="leaves_linear",
                severity="note",
                sentence=(
                    f"The curve leaves linear at {plural(point.workers, 'worker')}: efficiency "
                    f"{point.efficiency.value:.0%}{reached} "
                    f"({curve.label})."
                ),
                action=(
                    "Up to "
                    f"{plural(before.workers if before else curve.baseline_workers, 'worker')} "
                    "the money is well spent; beyond that you pay for waiting."
                ),
                evidence={
                    "workers": float(point.workers),
                    "efficiency": point.efficiency.value,
                },
                labels=(curve.label,),
            )
        before = point
    return None


def more_than_linear(curve: Curve) -> Verdict | None:
    """Fire when a speedup is above the ideal by more than the margin, clearly where it can be."""
    for point in reversed(curve.points):
        if point.speedup is None or point.workers == curve.baseline_workers:
            continue
        lowest = point.speedup.value if point.speedup.low is None else point.speedup.low
        if lowest > point.ideal_speedup and point.speedup.value > point.ideal_speedup * (
            1 + SPEED_MARGIN / 10
        ):
            small = point.speedup.value <= point.ideal_speedup * (1 + SPEED_MARGIN)
            return Verdict(
                kind="more_than_linear",
                severity="note" if small else "warn",
                sentence=(
                    f"More than linear: {point.speedup.value:.2f}x{interval(point.speedup)} on "
                    f"{point.ideal_speedup:g} times the workers ({curve.label})."
                ),
                action=(
                    "Do not quote it before it is explained: a slow or cold baseline, another "
                    "batch, another device, or a model that fits a cache only when shared. "
                    f"Measure {plural(curve.baseline_workers, 'worker')} again with --repeats 5."
                ),
                evidence={"speedup": point.speedup.value, "ideal": point.ideal_speedup},
                labels=(curve.label,),
            )
    return None


def no_gain(
    few: Sequence[float], many: Sequence[float], few_label: str, many_label: str
) -> Verdict | None:
    """Fire when two speeds are the same by an equivalence test."""
    if speed_relation(many, few) != "same":
        return None
    found = ratio(many, few)
    return Verdict(
        kind="no_significant_difference",
        severity="note",
        sentence=(
            f"No difference in speed between {few_label} and {many_label}: "
            f"{found.value:.3f}x{interval(found)}, the same within {SPEED_MARGIN:.0%}."
        ),
        action=f"Take {few_label}.",
        evidence={"ratio": found.value, "margin": SPEED_MARGIN},
        labels=(few_label, many_label),
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
            more = max(LEAST_LAUNCHES, 2 * point.launches)
            workers = plural(point.workers, "worker")
            begin = f"Too noisy to tell: the speedup of {workers} lies"
            if not found.low < 1 < found.high:
                sure = "faster" if found.low >= 1 else "slower"
                begin = f"Too noisy to quote: {workers} are {sure}, but their speedup lies"
            return Verdict(
                kind="too_noisy",
                severity="warn",
                sentence=(
                    f"{begin} "
                    f"between {found.low:.2f} and {found.high:.2f} after {point.launches} launches "
                    f"({curve.label})."
                ),
                action=f"Run it again with {flag} {more} on a quieter machine.",
                evidence={"half width": half_width, "launches": float(point.launches)},
                labels=(curve.label,),
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
    action = f"Run it again with {flag} 5 for intervals."
    if imported:
        action = "Add the rows of repeated runs to the table for intervals."
    return Verdict(
        kind="no_intervals",
        severity="note",
        sentence="One launch each: figures without intervals.",
        action=action,
        evidence={"launches": float(max(point.launches for point in others))},
        labels=tuple(curve.label for curve in curves),
    )


def disturbed(cells: Sequence[tuple[str, float]]) -> Verdict | None:
    """Fire when cells, given by label and what others took of all cores, have no quiet launch."""
    if not cells:
        return None
    labels, shares = zip(*cells, strict=True)
    return Verdict(
        kind="disturbed",
        severity="warn",
        sentence=(
            f"The machine was busy: other programs took up to {max(shares):.0%} of its cores, and "
            f"{', '.join(labels)} had no quiet launch, so that their speeds may be off by as much."
        ),
        action=(
            "Run it again when the machine is quiet; farandole study --resume DIR makes disturbed "
            "launches for speed again."
        ),
        evidence={"largest share": max(shares)},
        labels=labels,
    )


def share(part: float | None, split: StepSplit) -> float:
    """Return a part's share of the step; 0 when it was not measured."""
    return 0.0 if part is None or split.step_s <= 0 else part / split.step_s


def compute_bound(split: StepSplit) -> Verdict | None:
    """Fire when computing takes most of the step and nothing else is worth mending."""
    busy = (split.compute_s or 0.0) + (split.optimizer_s or 0.0)
    if split.exposed_s is None or share(busy, split) < COMPUTE_SHARE:
        return None
    if any((communication_bound(split), input_bound(split), straggler(split))):
        return None
    return Verdict(
        kind="compute_bound",
        severity="good",
        sentence=(
            f"Bound by compute: {share(busy, split):.0%} of a step is forward, backward and update "
            f"({split.label})."
        ),
        action="More workers, a faster device or mixed precision are what shortens it.",
        evidence={"compute share": share(busy, split), "step (s)": split.step_s},
        labels=(split.label,),
    )


def communication_bound(split: StepSplit, found: Communication | None = None) -> Verdict | None:
    """Fire when training waits for the transfer of gradients for more than a fifth of a step."""
    transfer = split.transfer_s if split.transfer_s is not None else split.exposed_s
    exposed = share(transfer, split)
    if split.cell.workers < 2 or exposed <= COMMUNICATION_SHARE:
        return None
    evidence: dict[str, float | str] = {"exposed transfer share": exposed, "step (s)": split.step_s}
    details = ""
    if found and found.bus_bytes_per_s:
        evidence["bus bandwidth (GB/s)"] = found.bus_bytes_per_s / 1e9
        details = f", at {found.bus_bytes_per_s / 1e9:.2f} GB/s"
        if found.utilisation is not None:
            evidence["utilisation of the link"] = found.utilisation
            details += f", {found.utilisation:.0%} of the link's peak"
    return Verdict(
        kind="communication_bound",
        severity="warn",
        sentence=(
            f"Bound by communication: {exposed:.0%} of a step waits for gradients on their way"
            f"{details} ({split.label})."
        ),
        action=(
            "Use a larger batch per worker or accumulate gradients, compress them to float16, or "
            "take a faster transport."
        ),
        evidence=evidence,
        labels=(split.label,),
    )


def input_bound(split: StepSplit) -> Verdict | None:
    """Fire when a step waits for data for more than a tenth of its time."""
    waiting = share(split.data_s, split)
    if waiting <= INPUT_SHARE:
        return None
    return Verdict(
        kind="input_bound",
        severity="warn",
        sentence=(
            f"Bound by input: {waiting:.0%} of a step waits for the next batch ({split.label})."
        ),
        action=(
            "Load ahead in more loader processes (num_workers), decode once and cache, or move "
            "augmentation off the training process."
        ),
        evidence={"data share": waiting, "data wait (s)": split.data_s or 0.0},
        labels=(split.label,),
    )


def straggler(split: StepSplit) -> Verdict | None:
    """Fire when the others wait for one rank that computes longer, or is mostly the last."""
    waiting = share(split.waiting_s, split)
    if split.cell.workers < 2 or waiting <= STRAGGLER_SHARE or split.slowest_rank is None:
        return None
    times = dict(split.compute_by_rank_s)
    others = sorted(time for rank, time in times.items() if rank != split.slowest_rank)
    own = times.get(split.slowest_rank)
    slower = own / others[len(others) // 2] if own and others and others[len(others) // 2] else 0.0
    # Among N equal ranks each is last in 1/N of the steps.
    fair = 1 / split.cell.workers
    often = (split.slowest_share or 0.0) > fair + (1 - fair) / 2
    evidence: dict[str, float | str] = {
        "waiting share": waiting,
        "slowest rank": float(split.slowest_rank),
        "last in share of steps": split.slowest_share or 0.0,
    }
    if slower > STRAGGLER_RATIO or often:
        if slower:
            evidence["its compute over the others'"] = slower
        longer = f"it computes {slower:.2f} times as long as they do"
        last = f"it is last in {split.slowest_share or 0.0:.0%} of them"
        return Verdict(
            kind="straggler",
            severity="warn",
            sentence=(
                f"Held up by rank {split.slowest_rank}: the others wait for it for {waiting:.0%} "
                f"of a step; {longer if slower > STRAGGLER_RATIO else last} ({split.label})."
            ),
            action=(
                f"Look at what else runs where rank {split.slowest_rank} is, and whether its share "
                f"of the data is larger or longer."
            ),
            evidence=evidence,
            labels=(split.label,),
        )
    return Verdict(
        kind="uneven_steps",
        severity="note",
        sentence=(
            f"Workers wait for each other for {waiting:.0%} of a step, for no one in particular "
            f"({split.label})."
        ),
        action="Even out the work per batch (lengths, sizes), or free the cores of other programs.",
        evidence=evidence,
        labels=(split.label,),
    )


def oversubscription(cell: Cell, label: str, cores: float | None) -> Verdict | None:
    """Fire when the workers' threads outnumber the cores of their host."""
    if cores is None or cell.threads is None or cell.device != "cpu":
        return None
    per_host = -(-cell.workers // max(cell.hosts, 1)) * cell.threads
    if per_host <= cores:
        return None
    return Verdict(
        kind="oversubscription",
        severity="warn",
        sentence=(
            f"Too few cores: {cell.workers} x {plural(cell.threads, 'thread')} share "
            f"{plural(round(cores), 'core')} "
            f"({label})."
        ),
        action=(
            f"Use at most {plural(round(cores), 'thread')} in all: fewer workers, or --threads 1."
        ),
        evidence={"threads in all": float(per_host), "cores": cores},
        labels=(label,),
    )


def contention(one: StepSplit, many: StepSplit) -> Verdict | None:
    """Fire when computing itself gets slower beside other workers, at the same batch."""
    if not one.compute_s or not many.compute_s or one.cell.batch != many.cell.batch:
        return None
    slower = many.compute_s / one.compute_s
    if many.cell.workers <= one.cell.workers or slower <= CONTENTION_RATIO:
        return None
    return Verdict(
        kind="contention",
        severity="note",
        sentence=(
            f"Computing alone takes {slower:.2f} times as long beside other workers "
            f"({one.compute_s * 1e3:.3g} ms, then {many.compute_s * 1e3:.3g} ms, {many.label}): "
            f"they share memory and caches."
        ),
        action="No transport mends that: spread the workers over more hosts, or pin them to cores.",
        evidence={"compute, few (s)": one.compute_s, "compute, many (s)": many.compute_s},
        labels=(one.label, many.label),
    )


def limited_by(split: StepSplit | None, fired: Mapping[str, Verdict]) -> Bound:
    """Return what limits a cell most, by the shares of its step and the rules that fired."""
    if "oversubscription" in fired:
        return "oversubscription"
    if split is None or split.exposed_s is None:
        if split is not None and input_bound(split):
            return "input"
        return "fixed_cost" if "fixed_cost" in fired else "unknown"
    shares: dict[Bound, float] = {
        "communication": share(
            split.transfer_s if split.transfer_s is not None else split.exposed_s, split
        )
        if communication_bound(split)
        else 0.0,
        "input": share(split.data_s, split) if input_bound(split) else 0.0,
        "straggler": share(split.waiting_s, split) if straggler(split) else 0.0,
    }
    most = max(shares, key=lambda name: shares[name])
    if shares[most] > 0:
        return most
    return "fixed_cost" if "fixed_cost" in fired else "compute"


def fixed_cost(job: JobTime) -> Verdict | None:
    """Fire when start-up, validation and the like take more than 30 % of the job."""
    if job.fixed_share is None or job.job_s is None or job.fixed_s is None:
        return None
    if job.fixed_share <= FIXED_SHARE:
        return None
    parts = ""
    if job.startup_s is not None:
        parts = f", {job.startup_s:.3g} s of it before the first step"
    return Verdict(
        kind="fixed_cost",
        severity="warn",
        sentence=(
            f"Fixed cost: {job.fixed_share:.0%} of the job's {figure(job.job_s.value)} s are not "
            f"training{parts} ({job.label})."
        ),
        action=(
            "More workers do not shorten that: validate and save less often, or start faster; in "
            "longer jobs it matters less."
        ),
        evidence={"fixed share": job.fixed_share, "fixed (s)": job.fixed_s},
        labels=(job.label,),
    )


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
    last = known[-1]
    # T(N) = F + W/N: doubling pays (saves a quarter) once the shared part W/N exceeds half of T.
    factor = ""
    if serial < 1:
        larger = serial / (1 - serial)
        factor = f" With about {larger:.2g} times the data they would pay."
    return Verdict(
        kind="fixed_cost",
        severity="warn",
        sentence=(
            f"Fixed cost: {plural(fewest, 'worker')} took {figure(longest)} s and "
            f"{plural(last[0], 'worker')} {figure(last[1])} s: {min(serial, 1.0):.0%} of the job "
            f"is not shared.{factor}"
        ),
        action=f"Stay with {plural(fewest, 'worker')}, or give them more to do.",
        evidence={"serial fraction": serial, "fewest (s)": longest, "most (s)": last[1]},
        labels=tuple(job.label for job in jobs if job.job_s),
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
    needed = max(LEAST_STEPS, 1 / LARGEST_BATCH) * global_batch
    return Verdict(
        kind="data_too_small",
        severity="warn",
        sentence=(
            f"A data set too small for {plural(workers, 'worker')}: {samples} samples are "
            f"{steps:.3g} steps per epoch at a global batch of {global_batch} ({label})."
        ),
        action=(
            f"Use fewer workers or a smaller batch; {needed:.0f} samples would do for this many. "
            "Fewer steps per epoch need more epochs or another learning rate."
        ),
        evidence={"samples": float(samples), "steps per epoch": steps},
        labels=(label,),
    )


def contradicting_times(job: JobTime) -> Verdict | None:
    """Fire when the epochs are longer than the job that they are part of."""
    if job.fixed_s is None or job.job_s is None or job.epoch_s is None or job.epochs is None:
        return None
    if job.fixed_s >= -0.01 * job.job_s.value:
        return None
    return Verdict(
        kind="contradicting_times",
        severity="warn",
        sentence=(
            f"A figure is off: {job.epochs:g} epochs of {figure(job.epoch_s.value)} s are "
            f"{figure(job.epochs * job.epoch_s.value)} s, more than the job's "
            f"{figure(job.job_s.value)} s ({job.label})."
        ),
        action="Do not compute with either before it is clear which.",
        evidence={"epochs x epoch (s)": job.epochs * job.epoch_s.value, "job (s)": job.job_s.value},
        labels=(job.label,),
    )


def uneven_utilisation(row: UtilisationRow) -> Verdict | None:
    """Fire when one worker is busy by a fifth more or less than another."""
    for name, column in (("GPU", 2), ("CPU", 1)):
        values = {entry[0]: entry[column] for entry in row.by_rank}
        known = {rank: value for rank, value in values.items() if value is not None}
        if len(known) < 2:
            continue
        most, least = max(known, key=lambda r: known[r]), min(known, key=lambda r: known[r])
        if known[most] > 0.05 and known[least] < (1 - UNEVEN) * known[most]:
            return Verdict(
                kind="uneven_utilisation",
                severity="warn",
                sentence=(
                    f"Unequal utilisation: rank {most} keeps its {name} {known[most]:.0%} busy, "
                    f"rank {least} {known[least]:.0%} ({row.label})."
                ),
                action=(
                    f"See what rank {most} does beyond its share (validation, logging, loading), "
                    f"or what rank {least} waits for."
                ),
                evidence={f"rank {most}": known[most], f"rank {least}": known[least]},
                labels=(row.label,),
            )
    return None


def uneven_memory(row: UtilisationRow) -> Verdict | None:
    """Fire when one worker needs a fifth more memory than another, and 100 MB."""
    known = {rank: memory for rank, _, _, memory in row.by_rank if memory is not None}
    if len(known) < 2:
        return None
    most, least = max(known, key=lambda r: known[r]), min(known, key=lambda r: known[r])
    difference = known[most] - known[least]
    if difference < max(UNEVEN * known[least], _MEMORY_NOISE_BYTES):
        return None
    return Verdict(
        kind="uneven_memory",
        severity="note",
        sentence=(
            f"Unequal memory: rank {most} takes {known[most] / 1e9:.2f} GB, rank {least} "
            f"{known[least] / 1e9:.2f} GB ({row.label})."
        ),
        action=f"Rank {most} sets the largest batch: see what it holds that others do not.",
        evidence={f"rank {most} (bytes)": known[most], f"rank {least} (bytes)": known[least]},
        labels=(row.label,),
    )


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
        (device for device in speeds if device_rank(device) is not None),
        key=lambda device: device_rank(device) or 0,
    )
    for slow, fast in pairwise(ranked):
        if device_rank(slow) == device_rank(fast):
            continue
        found = speeds[fast].value / speeds[slow].value
        if found <= 1 + NOTHING_GAINED:
            return Verdict(
                kind="faster_device_gains_nothing",
                severity="warn",
                sentence=(
                    f"{fast} gains nothing over {slow}: {figure(speeds[fast].value)} and "
                    f"{figure(speeds[slow].value)} {unit}, {found:.2f}x ({label})."
                ),
                action=(
                    "The device is not what bounds it: look at input first (loading, decoding, "
                    "augmentation), then at communication."
                ),
                evidence={"ratio": found, slow: speeds[slow].value, fast: speeds[fast].value},
                labels=(label,),
            )
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
    reversed_pairs = []
    first = settings[0]
    for setting in settings[1:]:
        common = [name for name in speeds[first] if name in speeds[setting]]
        for index, one in enumerate(common):
            for other in common[index + 1 :]:
                here, there = speeds[first], speeds[setting]
                if _clear(here[one], here[other]) and _clear(there[one], there[other]):
                    ahead = here[one].value > here[other].value
                    if ahead != (there[one].value > there[other].value):
                        pair = (one, other) if ahead else (other, one)
                        reversed_pairs.append((setting, *pair))
    order = " > ".join(
        f"{name} ({figure(found.value)})"
        for name, found in sorted(speeds[first].items(), key=lambda item: -item[1].value)
    )
    sentence = f"By {factor}, {unit} at {first}: {order}."
    if reversed_pairs:
        setting, ahead_here, ahead_there = reversed_pairs[0]
        sentence += (
            f" The order reverses at {setting}: {ahead_there} is faster than {ahead_here} there."
        )
    evidence: dict[str, float | str] = {
        f"{first}, {name}": found.value for name, found in speeds[first].items()
    }
    for setting, ahead_here, ahead_there in reversed_pairs[:3]:
        evidence[f"{setting}, {ahead_there}"] = speeds[setting][ahead_there].value
        evidence[f"{setting}, {ahead_here}"] = speeds[setting][ahead_here].value
    return Verdict(
        kind="order_reverses" if reversed_pairs else "order",
        severity="note",
        sentence=sentence,
        action="Rank them in the setting that you will use."
        if reversed_pairs
        else "The order holds in every setting measured.",
        evidence=evidence,
        labels=tuple(settings),
    )


def _clear(first: Estimate, second: Estimate) -> bool:
    if None not in (first.low, first.high, second.low, second.high):
        return bool(first.low > second.high or second.low > first.high)  # type: ignore[operator]
    return abs(first.value / second.value - 1) > SPEED_MARGIN
