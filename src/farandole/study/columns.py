"""What the columns of a table to import mean: names, units, roles; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from farandole.errors import UsageError

Role = Literal["count", "time", "rate", "text", "repeat", "other"]

_COUNTS = {
    "workers": (
        "worker",
        "num_workers",
        "ranks",
        "processes",
        "np",
        "world_size",
        "gpus",
        "num_gpus",
    ),
    "hosts": ("host", "nodes", "node", "num_hosts", "num_nodes"),
    "threads": ("thread", "threads_per_worker", "num_threads"),
    "batch": ("batch_size", "batch_per_worker", "local_batch", "batchsize"),
    "global_batch": ("global_batch_size", "total_batch"),
    "epochs": ("num_epochs",),
    "seed": (),
}
_TEXTS = {"device": ("devices", "gpu", "gpu_type"), "transport": ()}
# Text whatever its values look like: a model may be called 50.
PARAMS = {"model", "network", "net", "dataset", "data", "lab", "recipe", "scaling", "name"}
_REPEATS = {"run", "repeat", "rep", "trial", "repetition"}
_TIMES = {"epoch": "epoch_s", "job": "job_s", "step": "step_s"}
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_UNIT_WORDS = {
    "sec": "s", "secs": "s", "second": "s", "seconds": "s", "msec": "ms", "milliseconds": "ms",
    "mins": "min", "minute": "min", "minutes": "min", "hr": "h", "hrs": "h", "hour": "h",
    "hours": "h", "usec": "us", "microseconds": "us",
}  # fmt: skip
# job_id and epoch_loss are no times; of whatever else follows such a word, a unit is expected.
_NO_UNIT = re.compile(r"acc|loss|err|score|count|num|name|\bid\b|index|stable|auc|f1|lr|rate")
# Names that look like a time, but do not say of what.
_TIME_LIKE = re.compile(
    r"(?:.*_)?(?:\w*time|duration|elapsed|latency|wall|seconds|secs?|ms|mins?|minutes|hours|[sh])"
    r"(?:_(?:us|ms|s|secs?|seconds|mins?|minutes|h|hours))?"
)
_MEASURES = re.compile(r"acc|loss|err|score|auc|f1|mse|mae|perplexity")
_SAMPLES = r"(?:samples?|images?|imgs?|examples?|sequences?|seqs?|records?|rows?)"
_RATE_UNIT = re.compile(rf"(?:{_SAMPLES}_?)?(?:per|/)?_?(s|sec|second|min|minute|h|hour)")
_RATE_NAME = re.compile(rf"{_SAMPLES}_per_(s|sec|second|min|minute|h|hour)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table and what it is taken for."""

    index: int
    given: str
    """Its name as in the file."""
    name: str
    """The figure, factor or metric that it holds."""
    role: Role
    scale: float | None = 1.0
    """What one of its unit is in seconds, or per second; None: only h:mm:ss says."""


def understand(index: int, given: str) -> Column:
    """Tell what a column holds, from its name alone.

    Raises:
        UsageError: It is a known figure in a unit that is not known.
    """
    name = normalized(given)
    for known, aliases in _COUNTS.items():
        if name == known or name in aliases:
            return Column(index=index, given=given, name=known, role="count")
    for known, aliases in _TEXTS.items():
        if name == known or name in aliases:
            return Column(index=index, given=given, name=known, role="text")
    if name in PARAMS:
        return Column(index=index, given=given, name=name, role="text")
    if name in _REPEATS:
        return Column(index=index, given=given, name=name, role="repeat")
    return (
        _time(index, given, name)
        or _rate(index, given, name)
        or Column(index=index, given=given, name=name, role="other")
    )


def unknown_note(column: Column) -> str:
    """Say that a column with numbers became a metric, and what else it might have been."""
    if _MEASURES.search(column.name):
        return f"Column {column.given!r} became a metric."
    hint = ""
    if _TIME_LIKE.fullmatch(column.name):
        hint = " If it is the time of a job, an epoch or a step, call it job_s, epoch_s or step_s."
    return f"Column {column.given!r} is not known and became a metric.{hint}"


def normalized(given: str) -> str:
    """Return a column's name as we spell it: `Job time (min)` is job_time_min."""
    name = re.sub(r"[(\[]\s*(.*?)\s*[)\]]", r" \1", given.strip().lower())
    return re.sub(r"_+", "_", re.sub(r"[^\w/%.]+", "_", name)).strip("_")


def _time(index: int, given: str, name: str) -> Column | None:
    match = re.fullmatch(r"(epoch|job|step)(_times?|_duration)?(?:_(.+))?", name)
    # The number of an epoch or of a step is no time.
    if match is None or match[0] in ("epoch", "step"):
        return None
    unit = match[3]
    if unit is None:
        scale = None
    else:
        unit = _UNIT_WORDS.get(unit, unit)
        if unit not in _UNITS:
            if match[2] is None and _NO_UNIT.search(unit):
                return None
            raise UsageError(
                f"Column {given!r}: {match[3]!r} is no unit that is known here. Use "
                f"{', '.join(f'{match[1]}_{unit}' for unit in _UNITS)}, or h:mm:ss values."
            )
        scale = _UNITS[unit]
    return Column(index=index, given=given, name=_TIMES[match[1]], role="time", scale=scale)


def _rate(index: int, given: str, name: str) -> Column | None:
    if match := _RATE_NAME.fullmatch(name.replace("/", "_per_")):
        unit = match[1]
    elif name == "throughput":
        unit = "s"
    elif name.startswith("throughput_"):
        match = _RATE_UNIT.fullmatch(name.removeprefix("throughput_"))
        if match is None:
            raise UsageError(
                f"Column {given!r}: {name.removeprefix('throughput_')!r} is no unit that is known "
                "here. Use throughput (samples per second) or throughput_per_min."
            )
        unit = match[1]
    else:
        return None
    seconds = _UNITS[_UNIT_WORDS.get(unit, unit)]
    return Column(index=index, given=given, name="throughput", role="rate", scale=1 / seconds)
