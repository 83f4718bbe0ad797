"""What groups say beside each other: devices that gain nothing, models whose order reverses."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from farandole.model.info.verdict import Verdict
from farandole.model.measured import figure
from farandole.model.statistics import SPEED_MARGIN, Estimate

NOTHING_GAINED = 0.05

_RANKING = ("cpu", "k80", "m60", "p4", "p100", "t4", "v100", "a10", "l4", "a100", "h100", "b200")
"""Devices by training speed, slowest first; a name that holds one of these is compared by it."""


def device_rank(name: str) -> int | None:
    """Return a device's place among those that we know, or None."""
    words = name.lower().replace("-", " ").replace("_", " ").split()
    places = [place for place, known in enumerate(_RANKING) if known in words]
    return places[-1] if places else None


def faster_device_gains_nothing(
    speeds: Mapping[str, Estimate], label: str, unit: str
) -> Verdict | None:
    """Fire when a device that should be faster is not, by 5 % or at all.

    Args:
        speeds: throughput by device, all else equal.
        label: what is equal.
        unit: of the throughputs.
    """
    ranked = sorted(
        (device for device in speeds if device_rank(device) is not None),
        key=lambda device: device_rank(device) or 0,
    )
    for slow, fast in pairwise(ranked):
        if device_rank(slow) == device_rank(fast):
            continue
        found = speeds[fast].value / speeds[slow].value
        if found <= 1 + NOTHING_GAINED:
            return Verdict(
                kind="faster_device_gains_nothing",
                severity="warn",
                sentence=(
                    f"{fast} gains nothing over {slow}: {figure(speeds[fast].value)} and "
                    f"{figure(speeds[slow].value)} {unit}, {found:.2f}x ({label})."
                ),
                action=(
                    "The device is not what bounds it: look at input first (loading, decoding, "
                    "augmentation), then at communication."
                ),
                evidence={"ratio": found, slow: speeds[slow].value, fast: speeds[fast].value},
                labels=(label,),
            )
    return None


def order_reverses(
    speeds: Mapping[str, Mapping[str, Estimate]], factor: str, unit: str
) -> Verdict | None:
    """Say in which order the values of a factor (models, say) come, and where it reverses.

    Args:
        speeds: by setting ("cpu, 8 workers"), throughput by the factor's value.
        factor: its name.
        unit: of the throughputs.
    """
    settings = [name for name, found in speeds.items() if len(found) > 1]
    if not settings:
        return None
    reversed_pairs = []
    first = settings[0]
    for setting in settings[1:]:
        common = [name for name in speeds[first] if name in speeds[setting]]
        for index, one in enumerate(common):
            for other in common[index + 1 :]:
                here, there = speeds[first], speeds[setting]
                if _clear(here[one], here[other]) and _clear(there[one], there[other]):
                    ahead = here[one].value > here[other].value
                    if ahead != (there[one].value > there[other].value):
                        pair = (one, other) if ahead else (other, one)
                        reversed_pairs.append((setting, *pair))
    order = " > ".join(
        f"{name} ({figure(found.value)})"
        for name, found in sorted(speeds[first].items(), key=lambda item: -item[1].value)
    )
    sentence = f"By {factor}, {unit} at {first}: {order}."
    if reversed_pairs:
        setting, ahead_here, ahead_there = reversed_pairs[0]
        sentence += (
            f" The order reverses at {setting}: {ahead_there} is faster than {ahead_here} there."
        )
    evidence: dict[str, float | str] = {
        f"{first}, {name}": found.value for name, found in speeds[first].items()
    }
    for setting, ahead_here, ahead_there in reversed_pairs[:3]:
        evidence[f"{setting}, {ahead_there}"] = speeds[setting][ahead_there].value
        evidence[f"{setting}, {ahead_here}"] = speeds[setting][ahead_here].value
    return Verdict(
        kind="order_reverses" if reversed_pairs else "order",
        severity="note",
        sentence=sentence,
        action="Rank them in the setting that you will use."
        if reversed_pairs
        else "The order holds in every setting measured.",
        evidence=evidence,
        labels=tuple(settings),
    )


def _clear(first: Estimate, second: Estimate) -> bool:
    if None not in (first.low, first.high, second.low, second.high):
        return bool(first.low > second.high or second.low > first.high)  # type: ignore[operator]
    return abs(first.value / second.value - 1) > SPEED_MARGIN
