"""Whether more workers pay, by the model's own rules, and why the loss grows."""

from __future__ import annotations

from typing import Any

from farandole.format import listed, percent, plural, seconds, whole
from farandole.labs import columns
from farandole.labs.columns import plain
from farandole.labs.driving.questions import LOSS_COLUMN, METRIC, VERDICT, four
from farandole.labs.driving.workers import job_time, steps_per_epoch
from farandole.labs.evidence import only
from farandole.labs.lab import Answered, Found
from farandole.labs.settings import Setting, settings_of
from farandole.model.info.verdict import Verdict
from farandole.model.pays import SAVED
from farandole.model.statistics import SPEED_MARGIN
from farandole.model.verdicts.job import LEAST_STEPS
from farandole.report.table import Column, Table

_TIME = ("fixed_cost", "no_significant_difference")
_KINDS = ("data_too_small", *_TIME)


def answer_verdict(found: Found) -> Answered:
    """Answer by the verdicts on the study of worker counts."""
    settings = settings_of(found, "workers", "recipes")
    verdicts = _verdicts(found)
    table = Table(
        name="verdict",
        title="What adding workers does to a job",
        columns=(
            columns.RECIPE,
            columns.WORKERS,
            Column(key="steps_per_epoch", title="steps per epoch", show=whole),
            Column(key="steps", title="steps of the job", show=whole),
            Column(key="rate", title="learning rate", show=plain),
            Column(key="job_s", title="job", show=seconds, interval=True),
            Column(key="fixed_s", title="fixed", show=seconds),
            Column(key="fixed_share", title="fixed share", show=percent),
            LOSS_COLUMN,
        ),
        rows=tuple(_row(found, one) for one in settings),
        notes=("Fixed: what of a job is not a pass over the training data.",),
    )
    rules = Table(
        name="verdict-rules",
        title="The rules that fired",
        columns=(
            Column(key="study", title="study", text=True),
            Column(key="rule", title="rule", text=True),
            Column(key="sentence", title="verdict", text=True),
            Column(key="action", title="what to do", text=True),
        ),
        rows=tuple((study, one.kind, one.sentence, one.action) for study, one in verdicts),
    )
    return Answered(
        question=VERDICT,
        sentences=(
            *_pays(found, settings),
            *_small(settings),
            *(one.sentence for study, one in verdicts if study == "workers" and one.kind in _TIME),
            *_why(settings),
            *(f"The lab's own times: {one.sentence}" for study, one in verdicts if study == "lab"),
        ),
        tables=(table, rules) if rules.rows else (table,),
    )


def _row(found: Found, one: Setting) -> tuple[Any, ...]:
    info = found.studies.get(one.study)
    job = only(info.job_times, workers=one.workers, recipe=one.recipe) if info else None
    return (
        *(one.recipe, one.workers, steps_per_epoch(one), one.counted, one.rate),
        job_time(found, one),
        *((job.fixed_s, job.fixed_share) if job else (None, None)),
        one.final(METRIC),
    )


def _verdicts(found: Found) -> list[tuple[str, Verdict]]:
    """Return what the model says of the study here, and of the lab's table."""
    here, lab = found.studies.get("workers"), found.published.get("driving")
    said = [("workers", one) for one in (here.verdicts if here else ()) if one.kind in _KINDS]
    return said + [("lab", one) for one in (lab.verdicts if lab else ()) if one.kind in _KINDS]


def _pays(found: Found, settings: tuple[Setting, ...]) -> list[str]:
    """Judge time and loss of the most workers whose time counts, or else of the most."""
    own = [one for one in settings if one.study == "workers"]
    timed = [(one, job.value) for one in own if (job := job_time(found, one)) is not None]
    many = timed[-1][0] if len(timed) > 1 else own[-1] if own else None
    if many is None or many is own[0]:
        return ["There is no verdict: it takes two numbers of workers that ran to their end."]
    parts, good = [], []
    if len(timed) > 1:
        saved = 1 - timed[-1][1] / timed[0][1]
        good.append(saved >= SAVED)
        change = f"save {percent(saved)}" if saved >= 0 else f"add {percent(-saved)}"
        parts.append(f"{change} of the job's time, where {percent(SAVED)} would pay")
    before, after = own[0].final(METRIC), many.final(METRIC)
    if before is not None and after is not None:
        good.append(after.value <= before.value * (1 + SPEED_MARGIN))
        parts.append(
            f"end with a loss of {four(after.value)}, where {plural(own[0].workers, 'worker')} "
            f"{'ends' if own[0].workers == 1 else 'end'} with {four(before.value)}"
        )
    if not good:
        return ["There is no verdict: no launch ran to its end."]
    if len(timed) < 2:
        return [
            "Whether adding workers pays cannot be told, for want of times that count: "
            f"{plural(many.workers, 'worker')} {parts[0]}."
        ]
    verdict = "pays" if all(good) else "does not pay" if not any(good) else "has its price"
    return [f"Adding workers {verdict}: {plural(many.workers, 'worker')} {', and '.join(parts)}."]


def _small(settings: tuple[Setting, ...]) -> list[str]:
    """Say whether epochs have enough steps."""
    own = [one for one in settings if one.study == "workers"]
    if not own:
        return ["No launch here ran: the verdict is that of the lab's table."]
    each = [f"{steps_per_epoch(one)} on {plural(one.workers, 'worker')}" for one in own]
    few = [one.workers for one in own if steps_per_epoch(one) < LEAST_STEPS]
    verdict = (
        f"fewer than {LEAST_STEPS} from {plural(min(few), 'worker')} on: the data set is too small"
        if few
        else f"at least {LEAST_STEPS} everywhere"
    )
    return [
        f"The steps per epoch of {own[0].samples:,} samples in batches of {own[0].batch} per "
        f"worker are {listed(each)}, {verdict}."
    ]


def _why(settings: tuple[Setting, ...]) -> list[str]:
    """Tell what fewer steps do to the loss from what the scaled rate does."""
    base = min((one for one in settings if one.study == "workers"), key=_size, default=None)
    start = base.final(METRIC) if base else None
    if base is None or start is None:
        return []
    said = []
    for many in sorted({one.workers for one in settings if one.workers > base.workers}):
        by_recipe = {
            one.recipe: loss.value
            for one in settings
            if one.workers == many and (loss := one.final(METRIC)) is not None
        }
        if "linear" not in by_recipe or "fixed" not in by_recipe:
            continue
        steps = by_recipe["fixed"] - start.value
        rate = by_recipe["linear"] - by_recipe["fixed"]
        said.append(
            f"On {plural(many, 'worker')} the loss goes from {four(start.value)} to "
            f"{four(by_recipe['fixed'])} by fewer steps alone (rate unscaled, {steps:+.2g}), and "
            f"to {four(by_recipe['linear'])} with the rate scaled as well ({rate:+.2g})."
        )
    if not said:
        said.append(
            "Whether fewer steps or the scaled rate change the loss takes both recipes, fixed and "
            "linear, on several workers."
        )
    return said


def _size(one: Setting) -> int:
    return one.workers
