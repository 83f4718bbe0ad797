"""What a scaling curve says: where it leaves linear, more than linear, noise, no gain."""

from __future__ import annotations

from collections.abc import Sequence

from farandole.format import plural
from farandole.model.info.curve import Curve, CurvePoint
from farandole.model.info.verdict import Verdict
from farandole.model.statistics import (
    LEAST_LAUNCHES,
    SPEED_MARGIN,
    Estimate,
    ratio,
    speed_relation,
)

LINEAR = 0.90
"""An efficiency below is no longer linear."""
NOISY = 0.10
"""Half width of a speedup's interval, relative, above which no number should be quoted."""


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
