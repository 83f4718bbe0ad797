"""After how long a stalled operation is reported, and after how long it ends the job."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from farandole.errors import UsageError

WARNING = "FARANDOLE_STALL_WARNING"
SHUTDOWN = "FARANDOLE_STALL_SHUTDOWN"
_HOROVODS = {
    WARNING: "HOROVOD_STALL_CHECK_TIME_SECONDS",
    SHUTDOWN: "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
}
_FLAGS = {WARNING: "--stall-warning", SHUTDOWN: "--stall-shutdown"}
_DISABLED = "HOROVOD_STALL_CHECK_DISABLE"
# Horovod's; an epoch's validation on one rank may well take that long.
DEFAULT_WARNING_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StallTimes:
    """When to speak up."""

    warning_s: float = DEFAULT_WARNING_S
    """Seconds until a report; infinite when there is to be none."""
    shutdown_s: float = math.inf
    """Seconds until the job ends; infinite when it is to go on waiting."""


def read_stall_times(
    environ: Mapping[str, str], given: Mapping[str, str] | None = None
) -> StallTimes:
    """Read Farandole's variables, and Horovod's where those are not set; 0 means never.

    Args:
        environ: The environment.
        given: What flags say in the place of a variable, by its name.

    Raises:
        UsageError: A variable is no number of seconds, or the job would end before the report.
    """
    warning_name, warning_s = _read(environ, WARNING, given or {})
    shutdown_name, shutdown_s = _read(environ, SHUTDOWN, given or {})
    if shutdown_s is None:
        shutdown_s = math.inf
    if warning_s is None:
        # Who wants the end after 10 s wants to hear why.
        warning_s = min(DEFAULT_WARNING_S, shutdown_s)
        if environ.get(_DISABLED, "0").lower() not in ("", "0", "false"):
            warning_s = math.inf
    elif warning_s != math.inf and shutdown_s <= warning_s:
        raise UsageError(
            f"{shutdown_name} would end the job before {warning_name} reports why. Give the end "
            "more seconds than the report."
        )
    return StallTimes(warning_s=warning_s, shutdown_s=shutdown_s)


def _read(
    environ: Mapping[str, str], own: str, given: Mapping[str, str]
) -> tuple[str, float | None]:
    """Return how it was said, and the seconds; None where it was not."""
    name = own if environ.get(own) else _HOROVODS[own]
    text = given.get(own, environ.get(name))
    said = f"{_FLAGS[own]} {text}" if own in given else f"{name}={text}"
    if not text:
        return said, None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0:
        raise UsageError(f"{said}: give a number of seconds from 0 up, for example 60.")
    return said, value or math.inf
