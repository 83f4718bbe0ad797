"""What an elastic run may do: its flags, checked, with Horovod's names and defaults."""

from __future__ import annotations

import math
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from farandole.errors import UsageError
from farandole.format import plural
from farandole.launch.placement import Slots

DEFAULT_TIMEOUT_S = 600.0

Blacklist = Literal["slot", "host"]

FLAGS = {
    "min_np": "--min-np",
    "max_np": "--max-np",
    "host_discovery_script": "--host-discovery-script",
    "slots_per_host": "--slots-per-host",
    "elastic_timeout": "--elastic-timeout",
    "reset_limit": "--reset-limit",
    "blacklist": "--blacklist",
    "blacklist_cooldown_range": "--blacklist-cooldown-range",
    "max_restarts": "--max-restarts",
}
"""Arguments of `read_options`, each with its flag; its variable is FARANDOLE_ and the name."""

# Any of these makes a run elastic; the others say how.
_ENABLING = ("min_np", "max_np", "host_discovery_script")
_OTHER_VARIABLES = {"elastic_timeout": "HOROVOD_ELASTIC_TIMEOUT"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticOptions:
    """How a run goes on when workers die, or hosts come and go."""

    min_np: int
    """With fewer workers than this, training waits for more."""
    max_np: int
    """With this many workers, no more are started."""
    in_place: bool = True
    """Whether the others go on in their processes. Otherwise a failure ends all, and all are
    started again, up to `max_restarts` times."""
    hosts: tuple[Slots, ...] = ()
    """The hosts that were named, with all their slots; () when none were."""
    discovery_command: tuple[str, ...] | None = None
    """Prints the hosts that there are now, a line for each: `host` or `host:slots`."""
    slots_per_host: int = 1
    """Workers on a host for which the script prints no number."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    """How long training waits for enough workers."""
    reset_limit: int | None = None
    """How many new generations may be formed after the first; None: any number."""
    blacklist: Blacklist = "slot"
    """What a failure excludes. `slot`: a failed worker is replaced in its place, and its host is
    excluded when the replacement fails at once, too. `host`: the host, at the first failure."""
    cooldown_range_s: tuple[float, float] | None = None
    """How long a host is excluded, the first time and at most; None: for good."""
    max_restarts: int = 0
    """How often all workers are started again when too few are left to go on."""


def read_options(
    given: Mapping[str, object],
    *,
    num_workers: int,
    hosts: Sequence[Slots] | None = None,
    environ: Mapping[str, str],
) -> ElasticOptions | None:
    """Check the flags of elastic runs; None when the run is not elastic.

    Args:
        given: Values by their names in `FLAGS`; None where the variable or the default counts.
        num_workers: What -np says: training starts with that many.
        hosts: The hosts that were named.
        environ: Where variables are read.

    Raises:
        UsageError: Something cannot be used as given.
    """
    values, names = _values(given, environ)
    in_place = any(values[name] is not None for name in _ENABLING)
    restarts = _number(values["max_restarts"], names["max_restarts"], least=0) or 0
    if not in_place:
        _refuse_without_elastic(given)
        if not restarts:
            return None
        return ElasticOptions(
            min_np=num_workers,
            max_np=num_workers,
            in_place=False,
            hosts=tuple(hosts or ()),
            max_restarts=restarts,
        )
    script = values["host_discovery_script"]
    if script is not None and hosts:
        raise UsageError(
            f"{names['host_discovery_script']}{script} finds the hosts, but "
            f"{', '.join(f'{host.name}:{host.count}' for host in hosts)} are named too. "
            "Leave out one of them."
        )
    least = _number(values["min_np"], names["min_np"]) or num_workers
    if values["max_np"] == "auto":
        most = sum(host.count for host in hosts or ()) or num_workers
        if script is not None:
            most = max(num_workers, _MOST_FOUND)
    else:
        most = _number(values["max_np"], names["max_np"]) or max(least, num_workers)
    _check_numbers(least, num_workers, most, names)
    seconds = _seconds(values["elastic_timeout"], names["elastic_timeout"])
    return ElasticOptions(
        min_np=least,
        max_np=most,
        hosts=tuple(hosts or ()),
        discovery_command=None
        if script is None
        else _command(script, names["host_discovery_script"], environ.get("PATH")),
        slots_per_host=_number(values["slots_per_host"], names["slots_per_host"]) or 1,
        timeout_s=DEFAULT_TIMEOUT_S if seconds is None else seconds,
        reset_limit=_number(values["reset_limit"], names["reset_limit"], least=0),
        blacklist=_blacklist(values["blacklist"], names["blacklist"]),
        cooldown_range_s=_range(
            values["blacklist_cooldown_range"], names["blacklist_cooldown_range"]
        ),
        max_restarts=restarts,
    )


def asked_for(given: Mapping[str, object], environ: Mapping[str, str]) -> str:
    """Return what asks for an elastic run or for restarts, such as `--min-np 2`; '' for nothing."""
    values, names = _values(given, environ)
    for name in (*_ENABLING, "max_restarts"):
        if values[name] not in (None, "0"):
            return f"{names[name]}{values[name]}"
    return ""


def _values(
    given: Mapping[str, object], environ: Mapping[str, str]
) -> tuple[dict[str, object], dict[str, str]]:
    """Return the value of each flag, and how it was said."""
    values: dict[str, object] = {}
    names: dict[str, str] = {}
    for name, flag in FLAGS.items():
        values[name], names[name] = given.get(name), f"{flag} "
        for variable in (f"FARANDOLE_{name.upper()}", _OTHER_VARIABLES.get(name, "")):
            if values[name] is None and environ.get(variable):
                values[name], names[name] = environ[variable], f"{variable}="
    return values, names


# What a script may find is not known yet, and each possible worker has a place on the launcher's
# board.
_MOST_FOUND = 64


def _refuse_without_elastic(given: Mapping[str, object]) -> None:
    for name, flag in FLAGS.items():
        if name != "max_restarts" and given.get(name) is not None:
            raise UsageError(
                f"{flag} is for elastic runs, and this is none. Add --min-np N, the number of "
                "workers that training may go on with."
            )


def _check_numbers(least: int, start: int, most: int, names: Mapping[str, str]) -> None:
    low, high = f"{names['min_np']}{least}", f"{names['max_np']}{most}"
    if least > most:
        raise UsageError(
            f"{low} is more than the run may have ({high}). Lower the one or raise the other."
        )
    if start < least:
        raise UsageError(
            f"-np {start} is less than {low}: training starts with -np workers. Raise -np to "
            f"{least}, or lower --min-np."
        )
    if start > most:
        raise UsageError(
            f"-np {start} is more than {high}: training starts with -np workers. Lower -np to "
            f"{most}, or raise --max-np."
        )


def _number(value: object, name: str, *, least: int = 1) -> int | None:
    if value is None:
        return None
    try:
        number = int(str(value))
    except ValueError:
        number = least - 1
    if number < least:
        raise UsageError(f"{name}{value}: give a number from {least} up.")
    return number


def _seconds(value: object, name: str) -> float | None:
    if value is None:
        return None
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise UsageError(f"{name}{value}: give a number of seconds above 0, for example 600.")
    return number


def _range(value: object, name: str) -> tuple[float, float] | None:
    if value is None:
        return None
    parts = value.replace(",", " ").split() if isinstance(value, str) else list(_items(value))
    shown = " ".join(map(str, parts))
    if len(parts) != 2:
        raise UsageError(f"{name}{shown}: give two numbers of seconds, for example 10 120.")
    low, high = (_seconds(part, name) for part in parts)
    assert low is not None
    assert high is not None
    if low > high:
        raise UsageError(f"{name}{shown}: the first is the shorter time. Use {high:g} {low:g}.")
    return low, high


def _items(value: object) -> Sequence[object]:
    return value if isinstance(value, Sequence) else [value]


def _blacklist(value: object, name: str) -> Blacklist:
    if value in (None, "slot"):
        return "slot"
    if value == "host":
        return "host"
    raise UsageError(f"{name}{value}: choose slot or host.")


def _command(value: object, name: str, path: str | None) -> tuple[str, ...]:
    """Find the program of a discovery script, which may have arguments."""
    text = str(value)
    words = [text] if Path(text).is_file() else shlex.split(text)
    if not words:
        raise UsageError(f"{name.rstrip(' =')}: give a script that prints the hosts.")
    program, *rest = words
    found = shutil.which(program, path=path)
    if found is None and os.sep not in program and Path(program).is_file():
        found = shutil.which(f".{os.sep}{program}")
    if found is not None:
        return (str(Path(found).absolute()), *rest)
    if Path(program).is_file():
        raise UsageError(f"{name}{text}: it is not executable. Make it so: chmod +x {program}")
    raise UsageError(f"{name}{text}: there is no such script in {Path.cwd()}.")


def describe(options: ElasticOptions) -> str:
    """Say in a few words how many workers an elastic run may have."""
    if not options.in_place:
        return f"started again up to {plural(options.max_restarts, 'time')} after a failure"
    return f"elastic, {options.min_np} to {plural(options.max_np, 'worker')}"
