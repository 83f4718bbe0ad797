"""Verdicts on metrics: overfitting, instability, divergence, a difference or none."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from farandole.format import plural
from farandole.model.accuracy import MetricCurve, MetricRow
from farandole.model.measured import figure
from farandole.model.metrics import WINDOW, Series, plateau, reach
from farandole.model.verdicts import Verdict

GAP_MARGINS = 5
"""A training accuracy above the validation's by so many margins (5 points) is overfitting."""
LOSS_RISE = 0.05
FALL_MARGINS = 5
LOSS_JUMP = 0.50
_MOST_NAMED = 3


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
    values = [point.value.value for point in held_out_curve.points] if held_out_curve else []
    best = (max(values) if higher else min(values)) if values else validation
    rise = 0.0 if higher or best <= 0 else values[-1] / best - 1 if values else 0.0
    if higher and gap <= GAP_MARGINS * held_out.margin:
        return None
    if not higher and (rise <= LOSS_RISE or gap <= 0):
        return None
    evidence: dict[str, float | str] = {"gap": gap, held_out.metric: validation}
    since = ""
    epoch = _plateau_epoch(held_out_curve, higher) if held_out_curve else None
    if not higher and held_out_curve:
        epoch = held_out_curve.points[values.index(best)].epoch
    if epoch is None:
        epoch = held_out.stable_epoch
    if epoch is not None:
        evidence["plateau (epoch)"] = epoch
        since = f"; {held_out.metric} gains nothing after epoch {epoch:g}"
    return Verdict(
        kind="overfitting",
        severity="warn",
        sentence=(
            f"Overfitting: {training.metric} ends at {trained:.4g}, {held_out.metric} at "
            f"{validation:.4g}, a gap of {gap:.3g}{since} ({held_out.label})."
        ),
        action=(
            "Stop at the plateau, or add data, augmentation or weight decay; more epochs only "
            "widen the gap."
        ),
        evidence=evidence,
        labels=(held_out.label,),
    )


def instability(curve: MetricCurve, *, higher: bool, margin: float) -> Verdict | None:
    """Fire when a metric falls back far between two epochs after the first fifth."""
    points = curve.points[len(curve.points) // 5 :]
    worst: tuple[float, float, float, float] | None = None
    for before, after in pairwise(points):
        change = after.value.value - before.value.value
        fall = -change if higher else change
        if worst is None or fall > worst[0]:
            worst = (fall, after.epoch, before.value.value, after.value.value)
    if worst is None:
        return None
    fall, epoch, earlier, later = worst
    limit = FALL_MARGINS * margin if higher else LOSS_JUMP * abs(earlier)
    if fall <= limit:
        return None
    return Verdict(
        kind="instability",
        severity="warn",
        sentence=(
            f"Unstable: {curve.metric} goes from {earlier:.4g} to {later:.4g} at epoch {epoch:g}, "
            f"its largest step back ({curve.label})."
        ),
        action="Warm the learning rate up over 5 epochs, scale it less, or clip gradients.",
        evidence={"fall": fall, "epoch": epoch},
        labels=(curve.label,),
    )


def diverged(row: MetricRow) -> Verdict | None:
    """Fire when a run ended with a value that is not a number."""
    if not row.diverged:
        return None
    return Verdict(
        kind="diverged",
        severity="warn",
        sentence=(
            f"{row.diverged} of {plural(row.seeds, 'run')} diverged: {row.metric} ended as NaN or "
            f"infinity ({row.label})."
        ),
        action="Lower the learning rate, or warm it up over the first epochs.",
        evidence={"diverged": float(row.diverged), "runs": float(row.seeds)},
        labels=(row.label,),
    )


def seeds_without_effect(row: MetricRow) -> Verdict | None:
    """Fire when several seeds gave the very same values."""
    if not row.seeds_alike or row.diverged:
        return None
    return Verdict(
        kind="seeds_without_effect",
        severity="warn",
        sentence=(
            f"All {row.seeds} seeds gave the very same {row.metric}: the script does not use them "
            f"({row.label})."
        ),
        action=(
            "Pass '{seed}' on the command line, or seed by the variable FARANDOLE_SEED; until then "
            "accuracy cannot be judged."
        ),
        evidence={"seeds": float(row.seeds)},
        labels=(row.label,),
    )


def changed(row: MetricRow) -> Verdict | None:
    """Say whether a metric is the same as with fewer workers, better, worse or undecided."""
    if row.verdict is None or row.verdict == "not_measured" or row.final is None:
        return None
    difference = row.difference
    if difference is None:
        return None
    bounds = ""
    if difference.low is not None and difference.high is not None:
        bounds = f" ({difference.low:+.4f} to {difference.high:+.4f})"
    evidence: dict[str, float | str] = {
        "difference": difference.value,
        "margin": row.margin,
        "seeds": float(row.seeds),
    }
    number = f"{difference.value:+.4f}{bounds}"
    if row.verdict == "same":
        sentence = (
            f"No significant difference in {row.metric}: {number}, the same within "
            f"{row.margin:.3g} ({row.label})."
        )
        kind, action = "no_significant_difference", "The speedup costs no accuracy."
    elif row.verdict == "inconclusive":
        sentence = (
            f"Cannot tell whether {row.metric} changed: {number} over "
            f"{plural(row.seeds, 'seed')} ({row.label})."
        )
        more = max(5, 2 * row.seeds)
        kind, action = "too_noisy", f"Run it again with --measure accuracy --seeds {more}."
    else:
        sentence = f"{row.metric} is {row.verdict}: {number} ({row.label})."
        kind = f"accuracy_{row.verdict}"
        action = (
            "Steps are fewer and larger: scale the learning rate with a warm-up, train for more "
            "epochs, or keep the global batch (strong scaling)."
            if row.verdict == "worse"
            else "Check with other seeds before relying on it."
        )
    severity = "warn" if row.verdict == "worse" else "good" if row.verdict == "same" else "note"
    return Verdict(
        kind=kind,
        severity=severity,  # type: ignore[arg-type]
        sentence=sentence,
        action=action,
        evidence=evidence,
        labels=(row.label,),
    )


def missing(metric: str, *, having: Sequence[str], lacking: Sequence[str]) -> Verdict | None:
    """Say for which cells a metric was not recorded, where it was for others."""
    if not having or not lacking:
        return None
    shown = ", ".join(lacking[:_MOST_NAMED])
    shown += f" and {len(lacking) - _MOST_NAMED} more" if len(lacking) > _MOST_NAMED else ""
    return Verdict(
        kind="metric_missing",
        severity="note",
        sentence=f"{metric} is not known of {shown}: accuracy is compared where it is.",
        action=f"Report {metric} in all of them.",
        evidence={"with it": float(len(having)), "without": float(len(lacking))},
        labels=tuple(lacking),
    )


def soonest(rows: Sequence[MetricRow]) -> Verdict | None:
    """Say which cell reaches the target, or else its plateau, first."""
    for field, what in (("target_s", "The target"), ("stable_s", "A stable value")):
        known = [(getattr(row, field), row) for row in rows if getattr(row, field) is not None]
        if len(known) > 1:
            time_s, best = min(known, key=lambda pair: pair[0])
            longest, worst = max(known, key=lambda pair: pair[0])
            return Verdict(
                kind="soonest",
                severity="good",
                sentence=(
                    f"{what} of {best.metric} comes soonest with {best.label}: after "
                    f"{figure(time_s)} s; with {worst.label} after {figure(longest)} s."
                ),
                action="Choose by this, not by samples per second, when accuracy is what you need.",
                evidence={"soonest (s)": time_s, "latest (s)": longest},
                labels=(best.label, worst.label),
            )
    return None


def _plateau_epoch(curve: MetricCurve, higher: bool) -> float | None:
    values = tuple(point.value.value for point in curve.points)
    if len(values) < 2 * WINDOW:
        return None
    series = Series(
        epochs=tuple(point.epoch for point in curve.points),
        values=values,
        times_s=(None,) * len(values),
        by_step=False,
    )
    return reach(series, plateau(values, higher=higher), higher=higher).epoch
