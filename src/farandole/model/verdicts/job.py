"""What job times, data and memory say: fixed cost, small data, contradictions, uneven workers."""

from __future__ import annotations

from collections.abc import Sequence

from farandole.format import plural
from farandole.model.info.job import JobTime
from farandole.model.info.utilisation import UtilisationRow
from farandole.model.info.verdict import Verdict
from farandole.model.laws import amdahl_fraction
from farandole.model.measured import figure

FIXED_SHARE = 0.30
FLAT = 0.80
"""A serial fraction of whole jobs above which more workers have nothing to share."""
LEAST_STEPS = 20
LARGEST_BATCH = 0.10
UNEVEN = 0.20
_MEMORY_NOISE_BYTES = 100e6


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
