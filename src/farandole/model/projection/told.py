"""A projection in sentences: the headline, what follows it, offers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from farandole.model.measured import count
from farandole.model.projection import words
from farandole.model.projection.outlook import Goal, OfferOutlook, Outlook, Recommendation
from farandole.model.projection.records import Projected
from farandole.model.projection.rows import Basis

_LIMITS = {
    "compute": "computing",
    "communication": "communication",
    "input": "how fast batches are loaded",
    "epochs": "the epochs that a larger batch needs on top",
    "fixed_cost": "what a job takes beside its epochs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What there is to tell."""

    basis: Basis
    goal: Goal | None
    rows: tuple[Outlook, ...]
    choices: tuple[Outlook, ...]
    """What recommendations were made from: counts that nobody asked for, too."""
    asked: tuple[int, ...]
    recommendations: tuple[Recommendation, ...]
    recipe: str
    unsaid_link: bool
    """Whether three usual links stand in for one that nobody named."""
    not_told: str = ""
    """Why some counts have no time."""


def headline(story: Story) -> str:
    """Return the one sentence to take home.

    One count that was asked for is what it speaks of. Of several it is the recommended one; where
    none of them is worth it, that is said first, and the largest follows that is more than
    indicative.
    """
    asked = [row for row in story.rows if row.workers in story.asked]
    link = _middle_link(asked)
    asked = [row for row in asked if row.link in (None, link)]
    sure = [row for row in asked if not row.indicative]
    largest = (sure or asked)[-1]
    if len(story.asked) == 1:
        return _sentence(story, largest)
    chosen = _recommended(story, link)
    # Counts without a time were not compared with those that have one.
    if chosen is None or (chosen.time_s is None) != (largest.time_s is None):
        return _sentence(story, largest)
    if chosen.workers >= min(story.asked):
        return _sentence(story, chosen)
    enough = count(chosen.workers, "worker")
    return (
        f"More than {enough} hardly pays: {_gain(story, chosen)} there; {_sentence(story, largest)}"
    )


def _sentence(story: Story, row: Outlook) -> str:
    place = f" on {row.link}" if row.link else ""
    parts = [f"{count(row.workers, 'worker')}{place}: {_gain(story, row)}"]
    if row.cost is not None:
        parts.append(f"cost {words.spoken(row.cost)}")
    if row.indicative:
        figures = (row.throughput, row.time_s, row.cost)
        times = words.number(max(figure.ratio for figure in figures if figure is not None))
        parts.append(f"{times} times what was measured, so bounds only")
    else:
        parts.append(f"{_faster(story.basis, row)}; limited by {_LIMITS[row.limited_by]}")
    return "; ".join([", ".join(parts[:2]), *parts[2:]]) + "."


def sentences(story: Story) -> tuple[str, ...]:
    """Return what follows the headline."""
    said = []
    links = {one.link for one in story.recommendations}
    if len(links) > 1:
        said += _by_link(story.recommendations)
    else:
        said += [one.sentence for one in story.recommendations]
    if story.unsaid_link:
        said.append(
            "Nothing says what connects the hosts, so three usual links are shown; --link names "
            "yours."
        )
    if story.not_told:
        said.append(story.not_told)
    if story.goal is not None and story.goal.metric is not None:
        said.append(f"It assumes this learning-rate recipe at every batch: {story.recipe}.")
    elif story.goal is not None and story.basis.scaling == "weak" and story.basis.batch_known:
        said.append(
            "It assumes that a larger global batch needs no more epochs, which holds only while "
            f"the batch is small; the learning-rate recipe: {story.recipe}."
        )
    if story.basis.device.lower() == "cpu":
        said.append("These are CPU runs: they say nothing of how fast GPUs would be.")
    return tuple(said)


def offers_sentence(offers: Sequence[OfferOutlook], goal: Goal | None) -> str:
    """Say which offer is the soonest and which the cheapest."""
    if not offers:
        return ""
    timed = offers
    if any(one.outlook.time_s is None for one in offers):
        best = max(offers, key=lambda one: one.outlook.throughput.value)
        return f"{best.name} is the fastest: {words.spoken(best.outlook.throughput)} a second."
    what = f" {goal.words}" if goal else ""
    soonest = min(timed, key=lambda one: _value(one.outlook.time_s))
    time = words.spoken(_sure(soonest.outlook.time_s), words.time)
    if any(one.outlook.cost is None for one in timed):
        return f"{soonest.name} is the soonest{what}: {time}."
    cheapest = min(timed, key=lambda one: _value(one.outlook.cost))
    cost = words.spoken(_sure(cheapest.outlook.cost))
    if cheapest is soonest:
        return f"{soonest.name} is both the soonest{what} and the cheapest: {time}, for {cost}."
    longer = _value(cheapest.outlook.time_s) / _value(soonest.outlook.time_s)
    saved = _value(soonest.outlook.cost) / _value(cheapest.outlook.cost)
    return (
        f"{soonest.name} is the soonest{what}: {time}. {cheapest.name} is the cheapest: {cost}, "
        f"{words.number(longer)} times as long for 1/{words.number(saved)} of the money."
    )


def _recommended(story: Story, link: str | None) -> Outlook | None:
    """Return the count of the last rule that some count meets."""
    counts = [
        one.workers
        for one in reversed(story.recommendations)
        if one.workers and one.link in (None, link)
    ]
    known = [row for row in story.choices if row.link in (None, link)]
    return next((row for row in known if counts and row.workers == counts[0]), None)


def _middle_link(rows: Sequence[Outlook]) -> str | None:
    names = list(dict.fromkeys(row.link for row in rows if row.link))
    return names[len(names) // 2] if names else None


def _gain(story: Story, row: Outlook) -> str:
    if row.time_s is None or story.goal is None:
        return f"{words.spoken(row.throughput)} {story.basis.unit}"
    return f"{words.spoken(row.time_s, words.time)} {story.goal.words}"


def _faster(basis: Basis, row: Outlook) -> str:
    base = count(basis.workers[0], "worker")
    low, high = words.number(row.speedup.low), words.number(row.speedup.high)
    return f"{words.number(row.speedup.value)}x the throughput of {base} ({low} to {high})"


def _by_link(recommendations: Sequence[Recommendation]) -> list[str]:
    """Say each rule once, with what it gives on every link."""
    said = []
    for rule in dict.fromkeys(one.rule for one in recommendations):
        alike = [one for one in recommendations if one.rule == rule]
        middle = alike[len(alike) // 2]
        counts = {one.workers for one in alike}
        if len(counts) == 1:
            said.append(f"{middle.sentence} So on all links.")
        else:
            others = ", ".join(
                f"{one.workers if one.workers else 'none'} on {one.link}"
                for one in alike
                if one is not middle
            )
            said.append(f"On {middle.link}: {middle.sentence} Elsewhere: {others}.")
    return said


def _sure(figure: Projected | None) -> Projected:
    assert figure is not None
    return figure


def _value(figure: Projected | None) -> float:
    return _sure(figure).value
