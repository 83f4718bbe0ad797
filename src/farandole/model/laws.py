"""Amdahl's and Gustafson's laws: the share of work that more workers do not shorten."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from farandole.model.info.curve import LawFit
from farandole.model.statistics import Estimate


def amdahl_fraction(workers: Sequence[float], speedups: Sequence[float]) -> float:
    """Fit the serial fraction f of 1/S = f + (1-f)/N by least squares over all points.

    With one point this is Karp and Flatt's experimentally determined serial fraction (1990).
    Negative when the speedup is more than linear.
    """
    above, below = 0.0, 0.0
    for number, speedup in zip(workers, speedups, strict=True):
        lever = 1 - 1 / number
        above += (1 / speedup - 1 / number) * lever
        below += lever * lever
    return above / below


def gustafson_fraction(workers: Sequence[float], speedups: Sequence[float]) -> float:
    """Fit the serial fraction f of S = N - f(N-1) by least squares over all points."""
    above, below = 0.0, 0.0
    for number, speedup in zip(workers, speedups, strict=True):
        lever = number - 1
        above += (number - speedup) * lever
        below += lever * lever
    return above / below


def fit_amdahl(workers: Sequence[float], speedups: Sequence[Estimate]) -> LawFit | None:
    """Fit Amdahl's law and say what it means; None without a point above one worker."""
    fraction = _fit(amdahl_fraction, workers, speedups)
    if fraction is None:
        return None
    value = fraction.value
    if value <= 0:
        return LawFit(
            law="amdahl",
            serial_fraction=fraction,
            limit=None,
            sentence="Amdahl's law finds no serial part: the speedup is linear or more.",
        )
    if value >= 1:
        return LawFit(
            law="amdahl",
            serial_fraction=fraction,
            limit=1.0,
            sentence="By Amdahl's law nothing of the work is shared: more workers do not help.",
        )
    return LawFit(
        law="amdahl",
        serial_fraction=fraction,
        limit=1 / value,
        sentence=(
            f"{_percent(value)} of the work does not get shorter with more workers: by Amdahl's "
            f"law no number of them gives more than {1 / value:.3g}x."
        ),
    )


def fit_gustafson(workers: Sequence[float], speedups: Sequence[Estimate]) -> LawFit | None:
    """Fit Gustafson's law and say what it means; None without a point above one worker."""
    fraction = _fit(gustafson_fraction, workers, speedups)
    if fraction is None:
        return None
    value = fraction.value
    if value <= 0:
        sentence = "Gustafson's law finds no serial part: each worker adds a whole worker or more."
    elif value >= 1:
        sentence = "By Gustafson's law a further worker adds nothing."
    else:
        sentence = (
            f"{_percent(value)} of the time on many workers is not shared: by Gustafson's law each "
            f"further worker adds {1 - value:.2f} of a worker."
        )
    return LawFit(law="gustafson", serial_fraction=fraction, limit=None, sentence=sentence)


def _fit(
    law: Callable[[Sequence[float], Sequence[float]], float],
    workers: Sequence[float],
    speedups: Sequence[Estimate],
) -> Estimate | None:
    points = [
        (number, speedup)
        for number, speedup in zip(workers, speedups, strict=True)
        if number > 1 and speedup.value > 0
    ]
    if not points:
        return None
    numbers = [number for number, _ in points]
    lows = [speedup.low for _, speedup in points if speedup.low is not None]
    highs = [speedup.high for _, speedup in points if speedup.high is not None]
    # A higher speedup is a lower fraction. Shifting all points at once is on the safe side.
    low = law(numbers, highs) if len(highs) == len(points) else None
    high = law(numbers, lows) if len(lows) == len(points) else None
    return Estimate(value=law(numbers, [s.value for _, s in points]), low=low, high=high)


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"
