"""From launches to rows: summaries, ratios, and whether each figure was reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

from farandole.bench.launch import LaunchRecord
from farandole.bench.ranking import order_text, spearman
from farandole.bench.rows import Claim, Group, Quantity, RowPlan
from farandole.model.statistics import Estimate, ratio, summarize, welch


class Verdict(Enum):
    """Whether a claim holds; a figure is never called reached on void launches."""

    STRETCH = "stretch reached"
    REACHED = "reached"
    MISSED = "not reached"
    VOID = "void: others used this machine"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A claim with what was measured of it."""

    claim: Claim
    estimate: Estimate | None
    verdict: Verdict
    certain: bool
    """Whether the whole interval lies on the verdict's side of the figure to reach; of a ranking,
    whether every pair of launches gives that verdict."""
    note: str | None = None
    """What else a reader wants to see of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One contestant's line in a row."""

    contestant: str
    num_ranks: int
    launches: tuple[float, ...]
    """The value of every launch that counts; of the void ones when none does."""
    void: bool
    """True when no launch was undisturbed, so that the values below are of disturbed ones."""
    num_void_launches: int
    estimate: Estimate | None
    against_baseline: Estimate | None
    """Speed over the baseline's speed; for memory, excess over the baseline in units."""
    note: str | None
    """Why there is no value: missing, failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A finished table."""

    plan: RowPlan
    entries: tuple[Entry, ...]
    judgements: tuple[Judgement, ...]


def judge(group: Group, records: Sequence[LaunchRecord]) -> list[Row]:
    """Return the group's rows from all of its launches, void and failed ones included."""
    return [_judge_row(row, group, records) for row in group.rows]


def _judge_row(plan: RowPlan, group: Group, records: Sequence[LaunchRecord]) -> Row:
    num_ranks = {c.name: c.num_ranks for c in group.contestants}
    launches: dict[str, tuple[float, ...]] = {}
    void: dict[str, bool] = {}
    for name in plan.contestants:
        launches[name], void[name] = usable(
            records, contestant=name, series=plan.series, timed=plan.unit != "bytes"
        )
    entries = tuple(
        Entry(
            contestant=name,
            num_ranks=num_ranks[name],
            launches=launches[name],
            void=void[name],
            num_void_launches=sum(
                r.contestant == name and r.void and r.failure is None and plan.unit != "bytes"
                for r in records
            ),
            estimate=summarize(launches[name]) if launches[name] else None,
            against_baseline=_against(plan, launches, name),
            note=_note(records, name) if not launches[name] else None,
        )
        for name in plan.contestants
    )
    judgements = tuple(
        judge_ranking(claim, plan, records)
        if claim.quantity is Quantity.RANKING
        else judge_claim(claim, plan, launches, void)
        for claim in plan.claims
    )
    return Row(plan=plan, entries=entries, judgements=judgements)


def usable(
    records: Sequence[LaunchRecord], *, contestant: str, series: str, timed: bool = True
) -> tuple[tuple[float, ...], bool]:
    """Return a contestant's values and whether they are of void launches, for want of better.

    Args:
        timed: whether the series is of times, which others' use of the machine spoils.
    """
    mine = [r for r in records if r.contestant == contestant and series in r.values]
    good = tuple(r.values[series] for r in mine if r.counts or not timed)
    if good:
        return good, False
    return tuple(r.values[series] for r in mine), bool(mine)


def judge_claim(
    claim: Claim,
    plan: RowPlan,
    launches: Mapping[str, Sequence[float]],
    void: Mapping[str, bool],
) -> Judgement:
    """Return whether `claim` holds for these launches."""
    names = [claim.subject] if claim.against is None else [claim.subject, claim.against]
    if not all(launches.get(name) for name in names):
        return Judgement(claim=claim, estimate=None, verdict=Verdict.NOT_MEASURED, certain=False)
    estimate = _measure(claim, plan, launches)
    at_least = claim.quantity is Quantity.SPEED_RATIO
    reached = _meets(estimate.value, claim.to_reach, at_least=at_least)
    verdict = Verdict.REACHED if reached else Verdict.MISSED
    if claim.stretch is not None and _meets(estimate.value, claim.stretch, at_least=at_least):
        verdict = Verdict.STRETCH
    if any(void[name] for name in names):
        verdict = Verdict.VOID
    ends = [end for end in (estimate.low, estimate.high) if end is not None]
    certain = len(ends) == 2 and all(
        _meets(end, claim.to_reach, at_least=at_least) == reached for end in ends
    )
    return Judgement(claim=claim, estimate=estimate, verdict=verdict, certain=certain)


def judge_ranking(claim: Claim, plan: RowPlan, records: Sequence[LaunchRecord]) -> Judgement:
    """Return whether two contestants put the row's `ranked` series into the same order."""
    assert claim.against is not None
    found: dict[str, list[tuple[float, ...]]] = {}
    void = False
    for name in (claim.subject, claim.against):
        columns = [usable(records, contestant=name, series=series) for series in plan.ranked]
        found[name] = list(zip(*(values for values, _ in columns), strict=True))
        void = void or any(disturbed for _, disturbed in columns)
    mine, others = found[claim.subject], found[claim.against]
    if not mine or not others:
        return Judgement(claim=claim, estimate=None, verdict=Verdict.NOT_MEASURED, certain=False)
    correlation = spearman(_medians(mine), _medians(others))
    reached = correlation >= claim.to_reach
    each = [spearman(one, other) >= claim.to_reach for one in mine for other in others]
    verdict = Verdict.REACHED if reached else Verdict.MISSED
    return Judgement(
        claim=claim,
        estimate=Estimate(value=correlation, low=None, high=None),
        verdict=Verdict.VOID if void else verdict,
        certain=len(each) > 1 and all(same == reached for same in each),
        note="; ".join(
            f"{name}: {order_text(dict(zip(plan.ranked, _medians(rows), strict=True)))}"
            for name, rows in found.items()
        ),
    )


def _medians(launches: Sequence[Sequence[float]]) -> list[float]:
    return [median(column) for column in zip(*launches, strict=True)]


def _measure(claim: Claim, plan: RowPlan, launches: Mapping[str, Sequence[float]]) -> Estimate:
    mine = launches[claim.subject]
    if claim.quantity in (Quantity.TIME_S, Quantity.BYTES) or claim.against is None:
        return summarize(mine)
    other = launches[claim.against]
    if claim.quantity is Quantity.SPEED_RATIO:
        return ratio(other, mine)
    if claim.quantity is Quantity.TIME_RATIO:
        return ratio(mine, other)
    if claim.quantity is Quantity.TIME_MORE_S:
        return welch(mine, other)
    return _excess(plan, mine, other)


def _excess(plan: RowPlan, mine: Sequence[float], other: Sequence[float]) -> Estimate:
    assert plan.unit_bytes is not None
    unit = plan.unit_bytes
    return welch([value / unit for value in mine], [value / unit for value in other])


def _against(plan: RowPlan, launches: Mapping[str, Sequence[float]], name: str) -> Estimate | None:
    if plan.baseline is None or name == plan.baseline:
        return None
    baseline = launches.get(plan.baseline)
    mine = launches[name]
    if not baseline or not mine:
        return None
    return _excess(plan, mine, baseline) if plan.unit_bytes else ratio(baseline, mine)


def _meets(value: float, figure: float, *, at_least: bool) -> bool:
    return value >= figure if at_least else value <= figure


def _note(records: Sequence[LaunchRecord], name: str) -> str | None:
    for record in reversed(records):
        if record.contestant == name and record.missing is not None:
            return f"not measured: {record.missing}"
        if record.contestant == name and record.failure is not None:
            return f"failed: {record.failure}"
    return "not measured"
