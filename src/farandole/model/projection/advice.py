"""What more workers would give: a question answered from a study, with advice in sentences."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from farandole.errors import UsageError
from farandole.format import number, percent, plural, seconds, times
from farandole.model.analyse import ScalingInfo
from farandole.model.curves import RECOMMENDED, Prefer, Scaling
from farandole.model.curves import recommend as recommend_workers
from farandole.model.projection.epochs import Goal, stable_sentence
from farandole.model.projection.intervals import FARTHEST, Prediction, track_record
from farandole.model.projection.join import ProjectionRow, Projector
from farandole.model.projection.question import LinkSpeed, Question, default_links
from farandole.model.projection.steps import few_settings
from farandole.study.records import Study

_DAY_S = 86400.0
_OWN_RECIPE = "as your script sets it"
_REPEATS = 3
_IMPORT = "farandole study import TABLE.csv --out NEW"
_LIMITS = {
    "compute": "computing",
    "communication": "communication",
    "input": "data loading",
    "epochs": "the extra epochs a larger batch needs",
    "fixed_cost": "start-up, validation and other fixed costs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """How many workers to use, by one rule, and why."""

    rule: Literal["knee", "deadline", "budget"]
    workers: int | None
    """None when no count meets the rule."""
    link: str | None
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferRow:
    """What one offer gives."""

    name: str
    text: str
    """As the user wrote it."""
    speed: float
    """Of computing, over the measured machine's."""
    outlook: ProjectionRow
    """Its name in projection.json."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRow:
    """All workers of a fleet, shared out among jobs of one size."""

    workers: int
    """Of one job."""
    jobs: int
    """At once."""
    link: str | None
    """Between the hosts of one job; None: as measured, no other link is needed."""
    time_s: Prediction
    """Of one job."""
    per_day: Prediction
    """Jobs that all of the fleet finishes in a day."""
    cost: Prediction | None
    """Of one job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """The cheapest measurement that would narrow a projection."""

    sentence: str
    spec: Mapping[str, object] | None
    """What to change in the study's spec; None when no launch of it is needed."""
    command: str = ""
    """In place of a study's: a command as it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """Everything that a projection says."""

    headline: str
    sentences: tuple[str, ...]
    goal: Goal | None
    """None: neither an epoch's time nor the number of samples is known, so only speed is."""
    scaling: Scaling
    group: str
    """Which of the study's cells it stands on, in words; "" when there is one group."""
    device: str
    recipe: str
    """Of the learning rate, which the epochs assume."""
    metric: str | None
    unit: str
    """Of the throughput."""
    measured_workers: tuple[int, ...]
    per_host: int
    price: str
    """As the user wrote it; "" without one."""
    rows: tuple[ProjectionRow, ...]
    """Measured ones first, then those of the question, by link and workers."""
    curve: tuple[ProjectionRow, ...]
    """More counts in between, for drawing."""
    recommendations: tuple[Recommendation, ...]
    offers: tuple[OfferRow, ...]
    offers_sentence: str
    fleet: tuple[FleetRow, ...]
    fleet_sentence: str
    forms: tuple[tuple[str, float], ...]
    """Of the step time, with their weights."""
    critical_batch: Prediction | None
    assumptions: tuple[str, ...]
    next: NextStep
    track_record: str
    """How right such projections were on public clusters at this distance."""


def project(study: Study, info: ScalingInfo, question: Question) -> Projection:
    """Say what other numbers of workers would give, by a study that is measured or imported.

    Raises:
        UsageError: when flags do not go together, or the study cannot answer.
        DataError: when its figures cannot be.
    """
    question.check()
    projector = Projector(study, info, question)
    data, goal = projector.data, projector.goal
    links = projector.links()
    points = [point for point in data.curve.points if point.valid]
    measured = [row for point in points if (row := projector.measured(point)) is not None]
    # Unless the question changes something, what was measured is not projected.
    other_batch = question.batch is not None and (
        data.curve.scaling == "strong" or question.batch != data.batch
    )
    changed = other_batch or question.accumulate > 1 or question.changes_buckets
    known = [] if changed else measured

    def place(row: ProjectionRow) -> tuple[int, int | None]:
        # Where the user says how many are on a host, hosts tell counts apart, too.
        return row.workers, None if question.per_host is None else row.hosts

    def unmeasured(rows: Sequence[ProjectionRow]) -> list[ProjectionRow]:
        return [row for row in rows if place(row) not in set(map(place, known))]

    rows = (*measured, *unmeasured(_rows(projector, question.workers, links)))
    curve = _rows(projector, _counts(projector), links) if question.workers else []
    choices = []
    for link in links:
        own = [row for row in curve if row.link in (None, link.name if link else None)]
        each = {row.workers: row for row in (*known, *unmeasured(own))}
        choices.append(list(each.values()) if own else [])
    offers = tuple(
        OfferRow(
            name=offer.name,
            text=offer.text,
            speed=offer.speed,
            outlook=projector.at(projector.offer_cluster(offer)),
        )
        for offer in question.offers
    )
    fleet = _fleet(projector, links, known)
    link_unknown = len(links) > 1 and not question.links
    critical = projector.epochs.critical_batch if projector.epochs else None
    farthest = max(one.throughput.ratio for one in (*rows, *(offer.outlook for offer in offers)))
    recipes = {dict(found.cell.params).get("recipe") for found in data.cells}
    recipe = (
        f"recipe {recipes.pop()}" if len(recipes - {None}) == 1 == len(recipes) else _OWN_RECIPE
    )
    projection = Projection(
        headline="",
        sentences=(),
        goal=goal,
        scaling=data.curve.scaling if question.batch is None else "weak",
        group=data.curve.group,
        device=data.device,
        recipe=recipe,
        metric=projector.metric,
        unit=data.unit,
        measured_workers=data.workers,
        per_host=projector.per_host,
        price=question.price.text if question.price else "",
        rows=rows,
        curve=tuple(curve),
        recommendations=tuple(one for each in choices for one in recommend(each, goal, question)),
        offers=offers,
        offers_sentence=_offers_sentence(offers, goal),
        fleet=fleet,
        fleet_sentence=_fleet_sentence(fleet, goal, data.workers[-1], len(question.links)),
        forms=projector.steps.forms,
        critical_batch=None if projector.known_batches is not None else critical,
        assumptions=tuple(dict.fromkeys(filter(None, _assumptions(projector)))),
        next=_next_step(projector, study.spec, rows, link_unknown=link_unknown),
        track_record=track_record().sentence(farthest, few=few_settings(data.rows)),
    )
    headline = projection.fleet_sentence or projection.offers_sentence
    if question.workers:
        counted = [row for each in choices for row in each]
        headline = _headline(projection, question.workers, counted)
    sentences = _sentences(projection, projector, link_unknown=link_unknown)
    return replace(projection, headline=headline, sentences=tuple(filter(None, sentences)))


def _rows(
    projector: Projector, counts: Sequence[int], links: Sequence[LinkSpeed | None]
) -> list[ProjectionRow]:
    """Project each count, on each link where it is on several hosts."""
    settings = dict.fromkeys(projector.setting(n, link) for n in counts for link in links)
    return [projector.at(setting) for setting in settings]


def _counts(projector: Projector) -> list[int]:
    """Return counts to draw and to choose from: doublings up to the largest of the question."""
    data, question = projector.data, projector.question
    counts = {*data.workers, *question.workers}
    low, limit = data.workers[0], max(counts)
    doublings = [low << k for k in range((limit // low).bit_length())]
    if data.curve.scaling == "strong" and question.batch is None:
        limit = data.batch // question.accumulate
    return sorted(n for n in counts | set(doublings) if n <= limit)


def recommend(
    counts: Sequence[ProjectionRow], goal: Goal | None, question: Question
) -> tuple[Recommendation, ...]:
    """Return one recommendation per rule: the study's own, and what the question limits.

    Passed over are indicative counts of a link, and those without a time beside some that have one.
    """
    sure = sorted((one for one in counts if not one.indicative), key=lambda one: one.workers)
    sure = [one for one in sure if one.time_s is not None] or sure
    if not sure:
        return ()
    link = next((one.link for one in reversed(sure) if one.link), None)
    found = [_by_rule(sure, link, question.prefer)]
    if question.deadline_s is not None:
        found.append(_within("deadline", sure, question.deadline_s, goal, link))
    if question.budget is not None:
        found.append(_within("budget", sure, question.budget, goal, link))
    return tuple(found)


def _by_rule(sure: Sequence[ProjectionRow], link: str | None, prefer: Prefer) -> Recommendation:
    """Recommend by the rule that a study's headline follows: `curves.recommend`."""
    speeds = {
        one.workers: one.throughput.value if one.time_s is None else 1 / one.time_s.value
        for one in sure
    }
    costs = {one.workers: one.cost.value for one in sure if one.cost is not None}
    known = costs if costs.keys() == speeds.keys() else None
    chosen = recommend_workers(speeds, prefer, costs=known)
    fastest = max(speeds, key=speeds.__getitem__)
    why = RECOMMENDED[prefer]
    if len(sure) == 1:
        why = "the only count"
    elif chosen != fastest:
        faster = percent(speeds[fastest] / speeds[chosen] - 1)
        why += f"; {plural(fastest, 'worker')} would be {faster} faster"
    sentence = f"{plural(chosen, 'worker')}: {why}."
    return Recommendation(rule="knee", workers=chosen, link=link, sentence=sentence)


def _within(
    rule: Literal["deadline", "budget"],
    sure: Sequence[ProjectionRow],
    limit: float,
    goal: Goal | None,
    link: str | None,
) -> Recommendation:
    """Recommend the cheapest count within a deadline, or the soonest within a budget."""
    is_time = rule == "deadline"
    write = seconds if is_time else number
    what = goal.words if goal else ""
    pairs = [(one.time_s if is_time else one.cost, one) for one in sure]
    known = [(figure, one) for figure, one in pairs if figure is not None]
    inside = [pair for pair in known if pair[0].value <= limit]
    chosen = None
    if inside:

        def other(pair: tuple[Prediction, ProjectionRow]) -> float:
            return _value(pair[1].cost if is_time else pair[1].time_s)

        figure, chosen = min(inside, key=other)
        best = "the cheapest" if chosen.cost else "the fewest workers"
        cost = f" for {number(chosen.cost.value)}" if chosen.cost else ""
        sentence = f"{best} within {write(limit)} {what}, {figure.text(write)}{cost}."
        if not is_time:
            took = seconds(_value(chosen.time_s))
            sentence = f"the fastest {what} that costs at most {write(limit)}, "
            sentence += f"{figure.text(write)} and {took}."
        doubt = "" if figure.high <= limit else " Not certain: its interval goes beyond that."
        sentence = f"{plural(chosen.workers, 'worker')} for the {rule}: {sentence}{doubt}"
    elif known:
        figure, nearest = min(known, key=lambda pair: pair[0].value)
        sentence = (
            f"No count {'takes' if is_time else 'costs'} {write(limit)} or less {what}. The "
            f"{'fastest' if is_time else 'cheapest'} is {plural(nearest.workers, 'worker')}: "
            f"{figure.text(write)}."
        )
    else:
        sentence = (
            f"The {'time' if is_time else 'cost'} {what} is unknown here, so no count can be "
            f"checked against the {rule}."
        )
    workers = chosen.workers if chosen else None
    return Recommendation(rule=rule, workers=workers, link=link, sentence=sentence)


def _value(figure: Prediction | None) -> float:
    return 0.0 if figure is None else figure.value


def _fleet(
    projector: Projector, links: Sequence[LinkSpeed | None], measured: Sequence[ProjectionRow]
) -> tuple[FleetRow, ...]:
    """Return what a fleet does with jobs of every size, halves of the whole and one, small first.

    Times of measured counts are the measured ones. All hosts of the fleet are paid for, and jobs
    share the cost. Jobs that run at once are taken not to disturb each other.
    """
    fleet = projector.question.fleet
    if not fleet:
        return ()
    link = links[len(links) // 2]
    if link is None and projector.needs_link(fleet, projector.per_host):
        link = default_links()[1]
    known = {row.workers: row for row in measured}
    cost_per_s = projector.setting(fleet, link).cost_per_s
    halves = {fleet >> k for k in range(fleet.bit_length()) if fleet % (1 << k) == 0}
    found = []
    for size in sorted({1, *halves}):
        one = known.get(size) or projector.at(projector.setting(size, link))
        if one.time_s is not None:
            jobs = fleet // size
            found.append(
                FleetRow(
                    workers=size,
                    jobs=jobs,
                    link=one.link,
                    time_s=one.time_s,
                    per_day=one.time_s.inverted(jobs * _DAY_S),
                    cost=None if cost_per_s is None else one.time_s.scaled(cost_per_s / jobs),
                )
            )
    if not found or found[-1].workers < fleet:
        raise UsageError(
            f"--fleet {fleet} needs the time of a job on all of it. "
            f"{_why_no_times(projector)} Leave --fleet out here."
        )
    return tuple(found)


def _fleet_sentence(
    rows: Sequence[FleetRow], goal: Goal | None, usual: int, links_named: int
) -> str:
    """Say what small jobs gain in number and lose in time against one on the whole fleet.

    `usual` is the size to compare with, the largest that was measured. Unless the user named one
    link, the one that is taken is said.
    """
    if not rows or goal is None:
        return ""

    def jobs(row: FleetRow) -> str:
        name = "one job" if row.jobs == 1 else f"{row.jobs} jobs"
        on = f" on {row.link}" if row.link else ""
        return f"{name} of {plural(row.workers, 'worker')}{on}"

    whole = rows[-1]
    sentence = f"{jobs(whole)} {goal.words}: {whole.time_s.text(seconds)}."
    if small := [row for row in rows[:-1] if row.workers <= max(usual, rows[0].workers)]:
        more = small[-1].per_day.value / whole.per_day.value
        longer = small[-1].time_s.value / whole.time_s.value
        hedge = " (indicative: only bounds are known)" if whole.time_s.indicative else ""
        sentence = (
            f"{jobs(small[-1])} finish {number(more)} times as many experiments per day as "
            f"{jobs(whole)}, but each takes {number(longer)} times as long {goal.words}{hedge}."
        )
    if whole.link is None or links_named == 1:
        return sentence
    if links_named:
        return f"{sentence} Of your links, this uses {whole.link}."
    return (
        f"{sentence} The network between hosts is unknown: larger jobs are assumed to use "
        f"{whole.link}. Give yours with --link."
    )


def _offers_sentence(offers: Sequence[OfferRow], goal: Goal | None) -> str:
    """Say which offer is the fastest and which the cheapest."""
    if not offers:
        return ""
    if any(one.outlook.time_s is None for one in offers):
        best = max(offers, key=lambda one: one.outlook.throughput.value)
        return f"{best.name} is the fastest: {best.outlook.throughput.text()} per second."
    what = f" {goal.words}" if goal else ""
    soonest = min(offers, key=lambda one: _value(one.outlook.time_s))
    time, cost = soonest.outlook.time_s, soonest.outlook.cost
    assert time is not None
    soon = f"{soonest.name} is the fastest{what}: {time.text(seconds)}."
    if cost is None or any(one.outlook.cost is None for one in offers):
        return soon
    cheapest = min(offers, key=lambda one: _value(one.outlook.cost))
    least = cheapest.outlook.cost or cost
    if cheapest is soonest:
        return (
            f"{soonest.name} is both the fastest{what} and the cheapest: {time.text(seconds)}, for "
            f"{cost.text()}."
        )
    longer = _value(cheapest.outlook.time_s) / time.value
    return (
        f"{soon} {cheapest.name} is the cheapest: {least.text()}, {number(longer)} times as long "
        f"for 1/{number(cost.value / least.value)} of the money."
    )


def _headline(found: Projection, counts: Sequence[int], choices: Sequence[ProjectionRow]) -> str:
    """Return the one sentence to take home.

    One count in the question is what it speaks of. Of several it is the recommended one; where
    none of them is worth it, that is said first, and the largest follows that is more than
    indicative. `choices` are what recommendations were made from: counts in between, too.
    """
    rows = [row for row in found.rows if row.workers in counts]
    names = list(dict.fromkeys(row.link for row in rows if row.link))
    links = (None, names[len(names) // 2] if names else None)
    rows = [row for row in rows if row.link in links]
    largest = ([row for row in rows if not row.indicative] or rows)[-1]
    # The count of the last rule that some count meets.
    advised = [one.workers for one in found.recommendations if one.workers and one.link in links]
    chosen = next((r for r in choices if r.link in links and r.workers in advised[-1:]), None)
    # Counts without a time were not compared with those that have one.
    if len(counts) == 1 or chosen is None or (chosen.time_s is None) != (largest.time_s is None):
        return _row_sentence(found, largest)
    if chosen.workers >= min(counts):
        return _row_sentence(found, chosen)
    return (
        f"More than {plural(chosen.workers, 'worker')} hardly pays off: "
        f"{_gain(found, chosen)} there; {_row_sentence(found, largest)}"
    )


def _row_sentence(found: Projection, row: ProjectionRow) -> str:
    place = f" on {row.link}" if row.link else ""
    cost = f", cost {row.cost.text()}" if row.cost is not None else ""
    fewest = plural(found.measured_workers[0], "worker")
    if row.indicative:
        figures = [one for one in (row.throughput, row.time_s, row.cost) if one is not None]
        ratio = max(figure.ratio for figure in figures)
        rest = "bounds only: too far from what was measured for an estimate"
        if ratio > FARTHEST:
            rest = f"bounds only: {number(ratio)} times the measured size"
        elif len(found.measured_workers) == 1:
            rest = f"bounds only: between no gain and linear, since only {fewest} was measured"
    else:
        low, high = times(row.speedup.low), times(row.speedup.high)
        rest = (
            f"{times(row.speedup.value)} the throughput of {fewest} ({low} to {high}); limited by "
            f"{_LIMITS[row.limited_by]}"
        )
    separator = "; " if cost else ", "
    return f"{plural(row.workers, 'worker')}{place}: {_gain(found, row)}{cost}{separator}{rest}."


def _gain(found: Projection, row: ProjectionRow) -> str:
    if row.time_s is None or found.goal is None:
        return f"{row.throughput.text()} {found.unit}"
    return f"{row.time_s.text(seconds)} {found.goal.words}"


def _sentences(found: Projection, projector: Projector, *, link_unknown: bool) -> Iterator[str]:
    """Say what follows the headline."""
    data, goal = projector.data, found.goal
    several = len({one.link for one in found.recommendations}) > 1
    # Each rule once, with what it gives on every link.
    for rule in dict.fromkeys(one.rule for one in found.recommendations):
        alike = [one for one in found.recommendations if one.rule == rule]
        middle = alike[len(alike) // 2]
        others = [f"{o.workers or 'none'} on {o.link}" for o in alike if o is not middle]
        if not several:
            yield from (one.sentence for one in alike)
        elif len({one.workers for one in alike}) == 1:
            yield f"{middle.sentence} The same on every link."
        else:
            yield f"On {middle.link}: {middle.sentence} On other links: {', '.join(others)}."
    if link_unknown:
        yield (
            "The network between hosts is unknown, so three common links are shown. Give yours "
            "with --link."
        )
    yield _why_no_times(projector)
    if projector.question.target and all(row.time_s is None for row in found.rows):
        metric, value = projector.question.target
        why = "no run of a measured count reached it"
        yield f"No answer for the target {metric}={value:g}: {why}."
    if goal is not None and goal.metric is not None:
        yield f"This assumes one learning-rate recipe at every batch: {found.recipe}."
    elif goal is not None and data.curve.scaling == "weak" and data.curve.batch is not None:
        yield (
            "This assumes that a larger global batch needs no more epochs, which holds only while "
            f"the batch is small. Learning-rate recipe: {found.recipe}."
        )
    if found.device.lower() == "cpu":
        yield "These are CPU runs: they say nothing about GPUs."


def _why_no_times(projector: Projector) -> str:
    """Say why other global batches have no time to the goal; "" where all have."""
    if projector.known_batches is None or projector.goal is None:
        return ""
    why = "the batch is unknown. Add a column batch to the table"
    if projector.schedule.kind == "decaying":
        why = (
            f"{projector.schedule.detail}, and a point within a decaying schedule is not the end "
            "of a shorter one. Train at a constant rate"
        )
    return (
        f"The epochs {projector.goal.words} at other global batches cannot be projected from this "
        f"study: {why} to project them. Until then, unmeasured batches have only a speed."
    )


def _assumptions(projector: Projector) -> Iterator[str]:
    data, question, goal = projector.data, projector.question, projector.goal
    yield from data.assumptions
    yield from projector.steps.assumptions
    named = [*question.links, *(offer.link for offer in question.offers if offer.link)]
    if data.crosses_hosts and named:
        names = ", ".join(dict.fromkeys(link.name for link in named))
        yield f"The study ran on several hosts, so its own network is used instead of {names}."
    if goal is None and question.price is not None:
        yield (
            "--price was not used: a cost needs the length of an epoch. Add a column epoch_s to "
            "the table."
        )
    yield stable_sentence(data.cells, goal)
    if projector.epochs is not None:
        yield from projector.epochs.assumptions
        if data.curve.batch is None:
            yield "The batch is unknown: assumed to be the same per worker."
        if projector.schedule.kind == "unknown":
            yield (
                "No learning rate was recorded: assumed not to decay. With a decaying schedule, "
                "epochs to the goal at other global batches could not be projected."
            )
    yield projector.why_no_metric
    if data.fixed_costs and goal is not None and goal.kind != "epoch":
        most = max(data.fixed_costs)
        fixed = data.fixed_costs[most]
        each = f" and {seconds(fixed.per_epoch_s)} per epoch" if fixed.per_epoch_s else ""
        yield (
            f"Fixed costs of a job (start-up, validation) stay as with {plural(most, 'worker')}: "
            f"{seconds(fixed.once_s)}{each}."
        )
    if projector.input is not None and any("input" in r.parts for r in projector.rows.values()):
        yield (
            f"One worker's loader gives at most {number(projector.input.alone_per_s)} samples/s, "
            "as measured with nothing else running; more workers on a host slow loaders down as "
            "measured, and other hosts read data as fast as this one."
        )


def _next_step(
    projector: Projector,
    spec: Mapping[str, object],
    rows: Sequence[ProjectionRow],
    *,
    link_unknown: bool,
) -> NextStep:
    """Return what to measure next: of what makes the interval wide, the cheapest to learn."""
    data, goal = projector.data, projector.goal
    workers = data.workers
    imported = all(found.imported for found in data.cells)
    decays = projector.known_batches is not None

    def measure(sentence: str, **changes: object) -> NextStep:
        if imported:
            sentence += " Add the rows to the table, and import it again."
            return NextStep(sentence=sentence, spec=None, command=_IMPORT)
        return NextStep(sentence=sentence, spec=changes)

    if len(workers) == 1:
        return measure(
            f"Every launch had {plural(workers[0], 'worker')}. Measure a second count: it shows "
            "what communication costs here.",
            workers=[workers[0], 2 * workers[0]],
        )
    if link_unknown:
        flags = projector.question.flags()
        return NextStep(
            sentence="The network between hosts makes the largest difference and costs nothing to "
            "look up: give --link.",
            spec=None,
            command=shlex.join(["farandole", "project", "DIR", *flags, "--link", "25Gbit"]),
        )
    if decays and (untimed := [row for row in rows if row.time_s is None]):
        nearest = min(untimed, key=lambda row: row.workers)
        batch = nearest.global_batch
        if batch is None:
            return measure(
                "Epochs are known only for the measured counts. Add the batch to the table, or "
                "train at a constant rate, to project others.",
                measure="both",
            )
        each = math.ceil(batch / workers[-1]) if data.curve.scaling == "weak" else batch
        return measure(
            "The learning rate decays, so a run shows the epochs of its own global batch only. "
            f"Train {plural(workers[-1], 'worker')} to the end at global batch {batch} to learn "
            f"those of {plural(nearest.workers, 'worker')}, or train at a constant rate.",
            measure="both",
            batches=[data.batch, each],
        )
    if min(sum(row.workers == n for row in data.rows) for n in workers) < _REPEATS:
        return measure(
            "Some counts were launched fewer than three times. Repeat them to narrow the interval.",
            repeats=_REPEATS,
        )
    if goal is None or goal.metric is None:
        return measure(
            "Extra epochs for a larger global batch were not measured and are assumed to be none. "
            "Train to the end and record a metric.",
            measure="both",
        )
    if len({row.global_batch for row in projector.epoch_rows}) == 1 and not decays:
        return measure(
            "Epochs to the goal are known for one global batch only. Measure a batch four times "
            "as large on the same workers.",
            measure="both",
            batches=[data.batch, 4 * data.batch],
        )
    projected = [row for row in rows if not row.measured and not row.indicative]
    far = max(projected, key=lambda row: row.workers, default=None)
    if far and far.epochs is not None and far.epochs.width > far.throughput.width:
        seeds = spec.get("seeds")
        return measure(
            f"Most of the interval at {plural(far.workers, 'worker')} comes from the epochs. "
            "Measure more seeds.",
            measure="both",
            seeds=2 * (seeds if isinstance(seeds, int) and seeds > 0 else 3),
        )
    if not imported and 2 * workers[-1] > data.host_size:
        return NextStep(
            sentence="This host has no room for more workers. Measuring "
            f"{2 * workers[-1]} workers on two such hosts would narrow the interval most: study "
            "them there (-H), or add a measured step time to a table with this study's rows "
            "(workers, hosts, batch, step_s).",
            spec=None,
            command=_IMPORT,
        )
    return measure(
        "Most of the interval comes from the distance. Measure twice the largest count so far.",
        workers=[*workers, 2 * workers[-1]],
    )
