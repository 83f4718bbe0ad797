"""A wrapped and an unwrapped optimizer: what is averaged, and what happens when nothing is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from farandole.format import optional, plural, size, whole
from farandole.labs import columns
from farandole.labs.averaging import Exchange, exchange
from farandole.labs.columns import four
from farandole.labs.evidence import points
from farandole.labs.lab import Answered, Found
from farandole.labs.settings import Setting, settings_of
from farandole.labs.transfer.questions import VALIDATION, WRAPPED
from farandole.model.gap import Gap
from farandole.model.statistics import Estimate
from farandole.report.table import Column, Table

_STUDIES = {
    "workers": "wrapped",
    "same_batch": "wrapped, sharing one worker's batch",
    "unwrapped": "not wrapped",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One run, with what its workers exchanged."""

    setting: Setting
    optimizer: str
    moved: Exchange
    validation: Estimate | None


def shown(found: Found) -> list[Shown]:
    """Return every setting of several workers that ended, and one worker to compare with."""
    rows = []
    for one in settings_of(found, *_STUDIES):
        ended = [launch for launch in one.launches if launch.outcome == "ok"]
        if ended:
            rows.append(
                Shown(
                    setting=one,
                    optimizer=_STUDIES[one.study],
                    moved=exchange(ended[-1]),
                    validation=one.final(VALIDATION),
                )
            )
    return rows


def answer_wrapped(found: Found) -> Answered:
    """Answer by bytes, fingerprints of the weights, and the study's own verdict."""
    rows = shown(found)
    table = Table(
        name=WRAPPED.key,
        title="Gradients sent, and different weights at the end",
        columns=(
            Column(key="optimizer", title="optimizer", text=True),
            columns.WORKERS,
            Column(key="global_batch", title="global batch", show=whole),
            Column(key="steps", title="steps", show=optional),
            Column(key="gradient_bytes", title="gradients sent per step and rank", show=size),
            Column(key="fingerprints", title="different weights", show=whole),
            Column(key="validation", title="validation accuracy", show=four, interval=True),
            Column(key="epochs", title="epochs", show=whole),
        ),
        rows=tuple(_row(row) for row in rows),
        notes=(
            "Weights are compared by a fingerprint of all parameters after the last step. Without "
            "a wrapper every rank has a network of its own, and the accuracy is their mean.",
        ),
    )
    return Answered(
        question=WRAPPED,
        sentences=(*_wrapped_words(rows), *unwrapped_words(found), *same_batch_words(found)),
        tables=(table,),
    )


def wrapped_example(found: Found) -> Shown | None:
    """Return the run with the most workers whose gradients were averaged."""
    several = [
        row for row in shown(found) if row.setting.workers > 1 and row.setting.study == "workers"
    ]
    return max(several, key=lambda row: row.setting.workers, default=None)


def unwrapped_words(found: Found) -> list[str]:
    """Say what the study of unwrapped workers found: its verdict that they are not together."""
    info = found.studies.get("unwrapped")
    rows = [row for row in shown(found) if row.setting.study == "unwrapped"]
    if info is None or not rows:
        return ["The unwrapped optimizer was not run here."]
    one = rows[0]
    said = [
        f"Without it each rank sends {size(one.moved.gradient_bytes_per_step or 0.0)} of gradients "
        f"and the {plural(one.setting.workers, 'rank')} end with "
        f"{plural(one.moved.fingerprints, 'different set')} of weights after "
        f"{plural(one.moved.steps, 'step')}."
    ]
    voids = [void for void in info.voids if void.cell.workers == one.setting.workers]
    said += [f'The study says so by itself: "{void.sentence}" {void.mend}' for void in voids[:1]]
    return said


def same_batch(found: Found) -> tuple[Setting, Setting, Gap] | None:
    """Return two workers that share one's batch, that one, and the difference of the two."""
    shared = next(iter(settings_of(found, "same_batch")), None)
    alone = next((one for one in settings_of(found, "workers") if one.workers == 1), None)
    gap = shared.gap(alone, VALIDATION) if shared and alone else None
    return (shared, alone, gap) if shared and alone and gap else None


def same_batch_words(found: Found) -> list[str]:
    """Say what averaging alone does: as many steps, as large, by two workers."""
    made = same_batch(found)
    if made is None:
        return []
    shared, alone, gap = made
    return [
        f"Averaging alone: {plural(shared.workers, 'worker')} with {shared.batch} samples each "
        f"make {shared.counted or shared.whole_steps:,} steps of {shared.global_batch}, as one "
        f"worker does ({alone.counted or alone.whole_steps:,} of {alone.global_batch}), and end "
        f"{points(gap.difference)} beside it."
    ]


def _row(row: Shown) -> tuple[Any, ...]:
    one = row.setting
    return (
        *(row.optimizer, one.workers, one.global_batch, row.moved.steps),
        *(row.moved.gradient_bytes_per_step, row.moved.fingerprints, row.validation, one.epochs),
    )


def _wrapped_words(rows: list[Shown]) -> list[str]:
    several = [row for row in rows if row.setting.workers > 1 and row.setting.study == "workers"]
    if not several:
        return ["No launch on several workers ran to its end: nothing was exchanged."]
    most = max(several, key=lambda row: row.setting.workers)
    ends = "the same weights" if most.moved.fingerprints == 1 else "different weights"
    return [
        f"The wrapper averages gradients in every step: on "
        f"{plural(most.setting.workers, 'worker')} each rank sends "
        f"{size(most.moved.gradient_bytes_per_step or 0.0)} in each of {most.moved.steps:,} steps, "
        f"and all ranks end with {ends}."
    ]
