"""The order of the networks, setting by setting, and where it reverses."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from farandole.format import listed, times
from farandole.labs.faces.points import CPU, GPU, HERE, Point, first, last, measured, published_weak
from farandole.labs.faces.questions import MODELS, ORDER
from farandole.labs.lab import Answered, Found
from farandole.model.statistics import SPEED_MARGIN
from farandole.report.charts import bars
from farandole.report.table import Column, Table

Speeds = Mapping[str, float]
"""Images per second by network."""


def answer_order(found: Found) -> Answered:
    """Answer by the throughputs of weak scaling, at both ends of every curve."""
    settings = speeds(found)
    titles = list(MODELS.values())
    table = Table(
        name="order",
        title="Images per second by network and setting, and their order",
        columns=(
            Column(key="setting", title="setting", text=True),
            *(Column(key=model, title=MODELS[model], show=_two) for model in MODELS),
            Column(key="order", title="order", text=True),
        ),
        rows=tuple(
            (name, *(found_speeds.get(title) for title in titles), order_words(found_speeds))
            for name, found_speeds in settings.items()
        ),
    )
    relative = Table(
        name="order-relative",
        title="Speed over ResNet50's in the same setting",
        columns=(
            Column(key="setting", title="setting", text=True),
            Column(key="model", title="network", text=True),
            Column(key="ratio", title="over ResNet50", show=times),
        ),
        rows=tuple(
            (name, title, own[title] / own["ResNet50"])
            for name, own in settings.items()
            if "ResNet50" in own
            for title in titles
            if title in own
        ),
    )
    return Answered(
        question=ORDER,
        sentences=tuple(_words(settings)),
        tables=(table,),
        figures=(
            bars(
                "order-relative",
                "Speed of the networks over ResNet50's",
                "Images per second over those of ResNet50 in the same setting.",
                relative,
                x="setting",
                y="ratio",
                series="model",
            ),
        ),
    )


def speeds(found: Found) -> dict[str, Speeds]:
    """Return images per second by setting: one worker or node and the most, here and in the lab."""
    points = [*measured(found, "weak"), *published_weak(found)]
    settings: dict[str, dict[str, float]] = {}
    for source in (HERE, CPU, GPU):
        for end in (first, last):
            for title in MODELS.values():
                point = end(points, title, source)
                if point is not None and point.throughput is not None:
                    own = settings.setdefault(setting_name(point), {})
                    own[title] = point.throughput.value
    return {name: own for name, own in settings.items() if len(own) > 1}


def setting_name(point: Point) -> str:
    """Return a setting in words: "here, 2 workers", "lab, GPU, 8 nodes"."""
    noun = "worker" if point.source == HERE else "node"
    return f"{point.source}, {point.count} {noun}{'' if point.count == 1 else 's'}"


def order_words(own: Speeds) -> str:
    """Return the networks from the fastest to the slowest."""
    return " > ".join(sorted(own, key=lambda title: -own[title]))


def reversals(one: Speeds, other: Speeds) -> list[tuple[str, str]]:
    """Return pairs of networks, the faster one in `one` first, whose order `other` reverses."""
    common = [title for title in MODELS.values() if title in one and title in other]
    found = []
    for a, b in combinations(common, 2):
        ahead, behind = (a, b) if one[a] > one[b] else (b, a)
        clear = one[ahead] > (1 + SPEED_MARGIN) * one[behind]
        if clear and other[behind] > (1 + SPEED_MARGIN) * other[ahead]:
            found.append((ahead, behind))
    return found


def _words(settings: Mapping[str, Speeds]) -> list[str]:
    here = {name: own for name, own in settings.items() if name.startswith(HERE)}
    lab = {name: own for name, own in settings.items() if name not in here}
    said = _ordered(here, "Here") if here else ["No throughput was measured here."]
    said += _ordered(lab, "In the lab")
    if here and lab:
        own, (name, theirs) = next(iter(here.values())), next(iter(lab.items()))
        said += [
            f"Against {_place(name)} of the lab, {behind} is ahead of {ahead} here: "
            f"{times(own[behind] / own[ahead])}, there {times(theirs[behind] / theirs[ahead])}."
            for ahead, behind in reversals(theirs, own)
        ]
    said.append(
        "Why it reverses: VGG16 needs about four times as many operations for an image as "
        "ResNet50, in a few large layers. A CPU takes longer nearly in proportion; a GPU runs "
        "large layers at a better rate than many small ones, between which it waits."
    )
    return said


def _ordered(settings: Mapping[str, Speeds], where: str) -> list[str]:
    """Say the order of the first setting, and every pair that a later one reverses first."""
    if not settings:
        return []
    (name, own), *others = settings.items()
    begin = f"{where} the order is {order_words(own)} on {_place(name)}"
    seen: set[tuple[str, str]] = set()
    parts = []
    for other_name, other in others:
        new = [pair for pair in reversals(own, other) if pair not in seen]
        seen.update(new)
        parts += [f"{behind} passes {ahead} on {_place(other_name)}" for ahead, behind in new]
    if parts:
        return [f"{begin}; it reverses: {listed(parts)}."]
    return [f"{begin}, and no other number of workers there reverses it."]


def _place(name: str) -> str:
    """Return a setting's name for a sentence: "8 GPU nodes", "2 workers"."""
    *where, number = name.removeprefix("lab, ").removeprefix(f"{HERE}, ").split(", ")
    count, noun = number.split(" ")
    return " ".join([count, *where, noun])


def _two(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
