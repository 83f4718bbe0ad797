"""Numbers as text: one place decides on digits and units, for tables, captions and sentences."""

from __future__ import annotations

import math
import re
from string import Formatter
from typing import Any

NOT_MEASURED, NOT_PUBLISHED = "not measured", "not published"
NOT_APPLICABLE, BUSY = "not applicable", "busy"
TOO_WIDE = "too noisy for bounds"
"""What stands in the place of a figure; the labs' rule is in labs/rows.py."""
_DIGITS = 3


def known(value: float | None) -> bool:
    """Say whether there is a finite figure."""
    return value is not None and math.isfinite(value)


def number(value: float | None, *, decimals: int | None = None) -> str:
    """Return a figure with three significant digits, and no fewer than its whole part has."""
    if value is None or math.isnan(value):
        return NOT_MEASURED
    if math.isinf(value):
        return "infinite" if value > 0 else "minus infinite"
    places = decimals_for(value) if decimals is None else decimals
    return f"{value:,.{places}f}"


def brief(value: float | None) -> str:
    """Return a figure without needless zeros: 5 epochs, a target of 0.98."""
    shown = number(value)
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def optional(value: float | None) -> str:
    """Return a count that need not be there, such as a seed."""
    return "" if value is None else whole(value)


def moment(text: str) -> str:
    """Return a time as written in files, "2026-11-15T22:00:00Z", for people."""
    found = re.match(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?::[\d.]+)?(Z|\+00:00)$", text)
    return f"{found[1]} {found[2]} UTC" if found else text


def whole(value: float | None) -> str:
    """Return a count."""
    return number(value, decimals=0)


def percent(share: float | None) -> str:
    """Return a share of one in percent: whole ones from 1 % on."""
    if not known(share):
        return NOT_MEASURED
    assert share is not None
    shown = 100 * share
    if 0 < abs(shown) < 0.05:
        return "under 0.1 %" if shown > 0 else "above -0.1 %"
    return f"{shown:.0f} %" if abs(shown) >= 0.95 or shown == 0 else f"{shown:.1f} %"


def times(ratio: float | None) -> str:
    """Return a factor: 1.83x."""
    if not known(ratio):
        return NOT_MEASURED
    assert ratio is not None
    return f"{number(ratio, decimals=factor_decimals(ratio))}x"


def seconds(value: float | None) -> str:
    """Return a duration in the unit that leaves one to three digits before the point."""
    if not known(value):
        return NOT_MEASURED
    assert value is not None
    size = abs(value)
    if size < 0.5e-12:
        return "0 s"
    if size < 0.9995e-6:
        return f"{number(value * 1e9)} ns" if size >= 0.9995e-9 else f"{value * 1e9:.1g} ns"
    if size < 0.9995e-3:
        return f"{number(value * 1e6)} us"
    if size < 0.9995:
        return f"{number(value * 1e3)} ms"
    if size < 120:
        return f"{number(value)} s"
    whole_s, sign = round(size), "-" if value < 0 else ""
    if whole_s < 3600:
        (first, rest), units = divmod(whole_s, 60), ("min", "s")
    else:
        (first, rest), units = divmod(whole_s // 60, 60), ("h", "min")
    return f"{sign}{first} {units[0]}" + (f" {rest} {units[1]}" if rest else "")


def size(num_bytes: float | None) -> str:
    """Return bytes in units of 1000."""
    if not known(num_bytes):
        return NOT_MEASURED
    assert num_bytes is not None
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        # 999,950 would be shown as "1,000 kB".
        if abs(num_bytes) >= limit * 0.9995:
            return f"{number(num_bytes / limit)} {unit}"
    return f"{num_bytes:.0f} B"


def rate(bytes_per_s: float | None) -> str:
    """Return bytes per second in units of 1000."""
    return f"{size(bytes_per_s)}/s" if known(bytes_per_s) else NOT_MEASURED


def too_wide(low: float, high: float) -> bool:
    """Tell whether an interval says nothing, as two unequal launches may give: 0.001 to 4,000."""
    return low > 0 and high > 10_000 * low


def between(low: float | None, high: float | None, *, decimals: int | None = None) -> str:
    """Return an interval: "1.79 to 1.87"; empty where there is none."""
    if not known(low) or not known(high):
        return ""
    assert low is not None
    assert high is not None
    if too_wide(low, high):
        return TOO_WIDE
    places = decimals_for(max(abs(low), abs(high))) if decimals is None else decimals
    return f"{number(low, decimals=places)} to {number(high, decimals=places)}"


def decimals_for(value: float) -> int:
    """Return how many decimals leave three significant digits."""
    if value == 0 or not math.isfinite(value):
        return 0
    # Of what is shown: 9.996 has the digits of 10.0.
    exponent = math.floor(math.log10(float(f"{abs(value):.2e}")))
    return max(0, _DIGITS - 1 - exponent)


def factor_decimals(ratio: float) -> int:
    """Return the decimals of a factor: two up to ten, so that 0.98 and 1.02 can be compared."""
    return 2 if abs(ratio) < 9.995 else 1


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: "1 worker", "4 processes", "3 launches", "1,024 steps"."""
    ending = "" if count == 1 else "es" if noun.endswith(("s", "ch")) else "s"
    return f"{count:,} {noun}{ending}"


def listed(parts: list[str]) -> str:
    """Join parts as in a sentence: "1, 2 and 4"."""
    if len(parts) < 2:
        return "".join(parts)
    return ", ".join(parts[:-1]) + " and " + parts[-1]


def interval(estimate: Any) -> str:
    """Return a factor with its bounds, where it has any: "1.83x (1.79 to 1.87)"."""
    bounds = between(estimate.low, estimate.high, decimals=factor_decimals(estimate.value))
    return times(estimate.value) + (f" ({bounds})" if bounds else "")


def fill(template: str, **values: Any) -> str:
    """Write values into a sentence by these functions, counts with their noun.

    "{share:percent} of {step_s:seconds} with {workers:worker}" is "20 % of 1.50 s with 4 workers".
    """
    return _Sentence().vformat(template, (), values)


class _Sentence(Formatter):
    """Formats a field by the function, or else the noun, that stands behind its colon."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return one value as text."""
        if format_spec in ("number", "brief", "percent", "times", "seconds", "size", "rate"):
            return str(globals()[format_spec](value))
        if format_spec == "interval":
            return interval(value)
        return plural(value, format_spec) if format_spec.isalpha() else str(value)
