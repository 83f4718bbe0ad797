"""What the faces lab got wrong or left unexplained, and the right account of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from farandole.format import listed, percent, times
from farandole.labs.claims import claims_of
from farandole.labs.evidence import interval_words
from farandole.labs.faces.batch import batch_gains
from farandole.labs.faces.points import (
    CPU,
    GPU,
    Point,
    first,
    last,
    measured,
    published_strong,
    published_weak,
    title_of,
)
from farandole.labs.faces.questions import MODELS
from farandole.labs.faces.split import split_words
from farandole.labs.lab import Correction, Found


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A network's speedup on GPUs as the lab gives it, beside its own figures."""

    model: str
    nodes: int
    claimed: float
    most: float
    """Images per second on all nodes."""
    one: float
    """Images per second of one GPU, of the batch sweep."""

    @property
    def implied(self) -> float:
        """What one GPU must have made, for the speedup to be right."""
        return self.most / self.claimed

    @property
    def speedup(self) -> float:
        """By the published figures."""
        return self.most / self.one

    @property
    def off(self) -> float:
        """How far the implied figure lies above the published one, relative."""
        return self.implied / self.one - 1


def corrections(found: Found) -> tuple[Correction, ...]:
    """Say what the original got wrong, with the arithmetic on its own figures."""
    return (
        _superlinear(found),
        _baselines(found),
        _first_on_gpus(found),
        _falls_off(found),
        _best_split(found),
    )


def baselines(found: Found) -> list[Baseline]:
    """Return what the lab's speedups on GPUs say of one GPU."""
    points = published_weak(found)
    rows = []
    for title in MODELS.values():
        one, many = first(points, title, GPU), last(points, title, GPU)
        claim = next(
            (c for c in claims_of("faces") if c.what.startswith(title) and "GPU" in c.what), None
        )
        if not (one and many and claim and one.throughput and many.throughput):
            continue
        rows.append(
            Baseline(
                model=title,
                nodes=many.count,
                claimed=float(claim.claimed),
                most=many.throughput.value,
                one=one.throughput.value,
            )
        )
    return rows


def _superlinear(found: Found) -> Correction:
    rows = [row for row in baselines(found) if row.claimed > row.nodes]
    said = [f"{row.claimed:g} times ({row.model})" for row in rows]
    still = [row for row in rows if row.speedup > row.nodes]
    gone = [row for row in rows if row not in still]
    right = [
        f"{row.model}'s is {times(row.speedup)} by the lab's own figure for one GPU, less than "
        "linear"
        for row in gone
    ]
    right += [
        f"{row.model}'s stays {times(row.speedup)}, {percent(row.speedup / row.nodes - 1)} more "
        "than linear: do not quote it. Averaging gradients cannot make a GPU faster than it is "
        "alone, so that the one GPU was held back by something else"
        for row in still
    ]
    return Correction(
        said=f"8 GPU nodes are {listed(said)} as fast as one.",
        right="; ".join(right) + ".",
        shown_by=" ".join([*_held_back(found, still), *_here_linear(found)]),
    )


def _held_back(found: Found, rows: Sequence[Baseline]) -> list[str]:
    """Say what may have held one GPU back, as far as the figures tell."""
    points = published_weak(found)
    said = []
    for row in rows:
        said.append(
            f"{row.model}: {row.one:g} images/s on one GPU, {row.most / row.nodes:.2f} on each of "
            f"{row.nodes}."
        )
        ratios = {}
        for source in (CPU, GPU):
            other, own = first(points, "ResNet50", source), first(points, row.model, source)
            if other and own and other.throughput and own.throughput:
                ratios[source] = other.throughput.value / own.throughput.value
        if len(ratios) == 2:
            said.append(
                f"An image takes it {times(ratios[CPU])} as long as ResNet50 on a CPU node, and "
                f"{times(ratios[GPU])} on one GPU: as if both had waited for the same thing there, "
                "their input for instance, read for the first time; a batch of 128 that hardly "
                "fits the memory would do it, too."
            )
        gain, needed = batch_gains(found).get(row.model), row.speedup / row.nodes
        if gain is not None:
            verdict = (
                "A batch that suits it less could have held it back as much"
                if gain > needed
                else "A batch that suits it less alone would not explain it"
            )
            said.append(
                f"{verdict}: here the best batch makes {row.model} {times(gain)} as fast as the "
                f"worst, and {times(needed)} are to be explained."
            )
    return said


def _here_linear(found: Found) -> list[str]:
    ends = [
        end
        for title in MODELS.values()
        if (end := last(measured(found, "weak"), title)) is not None and end.speedup is not None
    ]
    if not ends:
        return ["No speedup was measured here."]
    above = [end.model for end in ends if _above_linear(end)]
    parts = [f"{end.model} {interval_words(end.speedup)}" for end in ends if end.speedup]
    verdict = f"more than linear for {listed(above)}" if above else "none of them more than linear"
    said = [f"Here, on {ends[0].count} workers: {listed(parts)} times, {verdict}."]
    if any(end.speedup and end.speedup.low is None for end in ends if end.model in above):
        said.append(
            "Single launches: until repeats tell, that is chance, or a launch of one worker that "
            "something else slowed down."
        )
    return said


def _above_linear(end: Point) -> bool:
    assert end.speedup is not None
    low = end.speedup.value if end.speedup.low is None else end.speedup.low
    return low > end.count


def _baselines(found: Found) -> Correction:
    rows = baselines(found)
    said = [f"{row.model} {row.claimed:g}" for row in rows]
    agrees = [f"{row.model} {times(row.speedup)}" for row in rows]
    shown = [
        f"{row.most:g} / {row.claimed:g} = {row.implied:.2f} images/s for {row.model}, where the "
        f"batch sweep has {row.one:g} ({row.off:+.1%})"
        for row in rows
    ]
    return Correction(
        said=f"Speedups on 8 GPU nodes: {listed(said)}.",
        right=(
            f"By its own figures for one GPU at the same batch they are {listed(agrees)}: the "
            "speedups were taken over other, unpublished baselines."
        ),
        shown_by=" ".join(
            [f"The baselines that they imply: {listed(shown)}.", *_own_baselines(found)]
        ),
    )


def _own_baselines(found: Found) -> list[str]:
    """Say over which baselines the speedups here are taken."""
    ones = [
        f"{one.model} {interval_words(one.throughput)}"
        for title in MODELS.values()
        if (one := first(measured(found, "weak"), title)) and one.throughput is not None
    ]
    if not ones:
        return []
    return [
        f"Here every speedup is over one worker of the same study and batch: {listed(ones)} "
        "images/s."
    ]


def _first_on_gpus(found: Found) -> Correction:
    points = published_weak(found)
    one = {
        t: p.throughput.value
        for t in MODELS.values()
        if (p := first(points, t, GPU)) and p.throughput
    }
    many = {
        t: p.throughput.value
        for t in MODELS.values()
        if (p := last(points, t, GPU)) and p.throughput
    }
    ahead = max(one, key=lambda title: one[title])
    listed_one = listed([f"{title} {value:g}" for title, value in one.items()])
    listed_many = listed([f"{title} {value:g}" for title, value in many.items()])
    return Correction(
        said="VGG16 is last on CPUs and first on GPUs.",
        right=(
            f"First on 8 GPUs only, by the figure that is more than linear; on one GPU {ahead} is "
            "ahead of it."
        ),
        shown_by=" ".join(
            [f"Images/s on one GPU: {listed_one}; on 8: {listed_many}.", *_order_here(found)]
        ),
    )


def _order_here(found: Found) -> list[str]:
    """Say in which order the networks come on these cores, by most workers."""
    ends = [
        end
        for title in MODELS.values()
        if (end := last(measured(found, "weak"), title)) and end.throughput is not None
    ]
    if not ends:
        return []
    order = sorted(ends, key=lambda end: -end.throughput.value if end.throughput else 0.0)
    each = [f"{end.model} {interval_words(end.throughput)}" for end in order if end.throughput]
    return [f"Here, on {ends[0].count} workers on CPU cores: {listed(each)}."]


def _falls_off(found: Found) -> Correction:
    weak, strong = published_weak(found), published_strong(found)
    pairs = [
        (title, w.speedup.value, s.speedup.value)
        for title in MODELS.values()
        if (w := last(weak, title, CPU)) and (s := last(strong, title, CPU))
        if w.speedup and s.speedup
    ]
    shown = [f"{title} {w:.2f} weak, {s:g} strong ({s / w - 1:+.0%})" for title, w, s in pairs]
    holds = [title for title, w, s in pairs if s < w]
    not_so = [title for title, w, s in pairs if s >= w]
    worst = min(pairs, key=lambda pair: pair[2] / pair[1], default=("none", 1.0, 1.0))[0]
    return Correction(
        said="Strong scaling falls off and weak scaling does not.",
        right=(
            f"On its CPU nodes it does for {listed(holds) or 'none'}, not for "
            f"{listed(not_so) or 'none'}, and clearly only for {worst}: what Amdahl's law bounds "
            "is seen once a step is short beside its gradients, of which that network has most."
        ),
        shown_by=" ".join([f"Times as fast on 8 CPU nodes: {listed(shown)}.", *_both_here(found)]),
    )


def _both_here(found: Found) -> list[str]:
    """Say what both kinds of scaling gave here."""
    weak, strong = measured(found, "weak"), measured(found, "strong")
    pairs = [
        f"{title} {w.speedup.value:.2f} weak, {s.speedup.value:.2f} strong"
        for title in MODELS.values()
        if (w := last(weak, title)) and (s := last(strong, title)) and w.count == s.count
        if w.speedup and s.speedup
    ]
    most = max((end.count for end in weak), default=0)
    return [f"Here, on {most} workers: {listed(pairs)}."] if pairs else []


def _best_split(found: Found) -> Correction:
    split, points = found.published.get("faces_split"), published_weak(found)
    rows = [row for row in (split.cells if split else ()) if row.throughput is not None]
    twice = []
    for row in rows:
        again = first(points, title_of(row.cell), CPU)
        if again and again.throughput and row.throughput and row.cell.workers == 4:
            twice.append((title_of(row.cell), row.throughput.value, again.throughput.value))
    other = [row for row in rows if row.cell.workers == 2 and row.throughput]
    shown = [f"{title} {a:g} and {b:g} ({abs(a / b - 1):.1%})" for title, a, b in twice]
    fast = [f"{title_of(row.cell)} {row.throughput.value:g}" for row in other if row.throughput]
    return Correction(
        said="4 processes x 7 threads are best.",
        right=(
            f"Not for {listed(fast)} at 2 x 14; single runs differ by more than such gains, so "
            "that no best split can be told from them."
        ),
        shown_by=(
            "One CPU node with 4 x 7 at a global batch of 128 was measured twice, for the splits "
            f"and for weak scaling: {listed(shown)}. {split_words(found)}"
        ),
    )
