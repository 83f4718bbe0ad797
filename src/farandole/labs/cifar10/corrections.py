"""What the cifar10 lab got wrong, and the right account of it."""

from __future__ import annotations

from farandole.format import listed, plural
from farandole.labs.cifar10.communication import largest_moved, measured_words
from farandole.labs.cifar10.effort import LAB_SAMPLES
from farandole.labs.cifar10.places import GB
from farandole.labs.cifar10.plan import TIME
from farandole.labs.cifar10.runs import Trained, all_trained
from farandole.labs.cifar10.speedup import scaling_words
from farandole.labs.claims import claims_of
from farandole.labs.evidence import interval_words, only, points
from farandole.labs.lab import Correction, Found
from farandole.model.communication import bus_bandwidth, derived_communication_s, steps_per_epoch
from farandole.model.info.scaling import ScalingInfo

_GIB = 2**30


def corrections(found: Found) -> tuple[Correction, ...]:
    """Say what the original got wrong, with the arithmetic on its own figures."""
    return (
        _scaling(found),
        _one_gpu(found),
        _gigabytes(found),
        *_slips(found),
        _updates(found),
    )


def _scaling(found: Found) -> Correction:
    here = scaling_words(found.studies.get(TIME)) or "No pair of step times was measured here."
    lab = found.published["cifar10_speedup"]
    one, two = (_epoch_s(lab, workers, 32) for workers in (1, 2))
    few, many = (steps_per_epoch(LAB_SAMPLES, 32, workers) for workers in (2, 1))
    return Correction(
        said="A fixed batch per worker is called strong scaling in one place, weak in another.",
        right=(
            "It is both, of different things: weak scaling of the step, whose work per worker "
            "stays and whose global batch grows, and strong scaling of the epoch, whose images "
            "are the same."
        ),
        shown_by=(
            f"The lab's batch 32 on 2 GPUs: {two:.2f} s in place of {one:.2f} s for an epoch, in "
            f"half as many steps, each {1000 * two / few:.1f} ms in place of "
            f"{1000 * one / many:.1f}. {here}"
        ),
    )


def _one_gpu(found: Found) -> Correction:
    first, second = (
        _epoch_s(found.published[name], 1, 32) for name in ("cifar10_batch", "cifar10_speedup")
    )
    communication = found.published["cifar10_communication"]
    row = only(communication.communication, workers=2, batch=32)
    two = _epoch_s(communication, 2, 32)
    size = row.gradient_bytes if row is not None and row.gradient_bytes else 0
    payload = size * steps_per_epoch(LAB_SAMPLES, 32, 2)
    derived = [derived_communication_s(two, one, 2) for one in (first, second)]
    rates = [bus_bandwidth(payload, seconds, 2) / GB for seconds in derived]
    measured = largest_moved(found.studies.get(TIME))
    here = measured_words(measured) if measured else "No transfer was measured here."
    return Correction(
        said=(
            f"One GPU at batch 32 takes {first:.2f} s in one table and {second:.2f} s in another, "
            "and communication is derived from the first."
        ),
        right=(
            "The same cell measured twice has to agree, or everything derived from it is "
            "unknown: communication is to be measured, not left over from a difference."
        ),
        shown_by=(
            f"T(2) - T(1)/2 at batch 32 is {derived[0]:.2f} s ({rates[0]:.2f} GB/s) with the one "
            f"and {derived[1]:.2f} s ({rates[1]:.2f} GB/s) with the other. {here}"
        ),
    )


def _gigabytes(found: Found) -> Correction:
    rows = found.published["cifar10_communication"].communication
    row = only(rows, workers=2, batch=32)
    rate = row.derived_bus_bytes_per_s if row is not None else None
    assert rate is not None
    measured = largest_moved(found.studies.get(TIME))
    bus = measured.row.bus_bytes_per_s if measured else None
    here = (
        f" Here {bus / GB:.2f} GB/s were measured; in units of 2^30 that is {bus / _GIB:.2f}."
        if bus
        else ""
    )
    return Correction(
        said="A GB is 2^30 bytes.",
        right="The lab's own figures are computed with 10^9 bytes, and so are all of ours.",
        shown_by=(
            f"2 GPUs, batch 32: {rate:.6g} bytes/s are {rate / GB:.5f} GB/s, as published, and "
            f"{rate / _GIB:.5f} in units of 2^30.{here}"
        ),
    )


def _slips(found: Found) -> list[Correction]:
    wrong = [claim for claim in claims_of("cifar10") if not claim.agrees]
    if not wrong:
        return []
    info = found.studies.get(TIME)
    point = next(
        (
            point
            for curve in (info.curves if info else ())
            if curve.scaling == "weak"
            for point in reversed(curve.points)
            if point.valid and point.workers > 1 and point.speedup is not None
        ),
        None,
    )
    here = "No speedup was measured here."
    if point is not None and point.speedup is not None:
        here = (
            f"Here {plural(point.workers, 'worker')} at batch {point.batch} reach "
            f"{interval_words(point.speedup)} times, by the same formula."
        )
    return [
        Correction(
            said=f"The lab's {listed([f'{claim.what}: {claim.claimed}' for claim in wrong])}.",
            right=f"{listed([f'{claim.value:.4f}' for claim in wrong])}, by the lab's own times.",
            shown_by=" ".join([*(claim.sentence for claim in wrong), here]),
        )
    ]


def _updates(found: Found) -> Correction:
    return Correction(
        said="A large batch loses accuracy because fewer parameters are updated.",
        right=(
            "Every update changes every parameter, whatever the batch; a large batch makes fewer "
            "updates in the same epochs, and larger steps (a higher rate) or more epochs make up "
            "for that."
        ),
        shown_by=_updates_here(found),
    )


def _updates_here(found: Found) -> str:
    runs = [run for run in all_trained(found) if run.name == "fixed"]
    one = next((run for run in runs if run.workers == 1), None)
    most = max((run.workers for run in runs), default=0)
    many = next((run for run in runs if run.workers == most), None)
    if one is None or many is None or one is many or one.steps is None or many.steps is None:
        return "No runs of one and of several workers at the same rate were made here."
    gap = many.gap_to(one)
    lost = f", and {points(gap.difference)} of accuracy" if gap else ""
    return (
        f"At the same rate and epochs one worker makes {one.steps:,} updates and "
        f"{plural(many.workers, 'worker')} make {many.steps:,}, {_parameters(one, many)}{lost}."
    )


def _parameters(one: Trained, many: Trained) -> str:
    counts = [run.row.parameters for run in (one, many) if run.row and run.row.parameters]
    if len(counts) < 2:
        return "of all parameters each"
    if counts[0] == counts[1]:
        return f"of all {counts[0]:,} parameters each"
    return f"of {counts[0]:,} and {counts[1]:,} parameters"


def _epoch_s(info: ScalingInfo, workers: int, batch: int) -> float:
    job = only(info.job_times, workers=workers, batch=batch)
    assert job is not None
    assert job.epoch_s is not None
    return job.epoch_s.value
