"""Words of a report on a study: how it was measured, on which machine, how to repeat it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from farandole.format import brief, listed, number, percent, plural, size, times
from farandole.model.analyse import ScalingInfo
from farandole.model.statistics import LEAST_LAUNCHES
from farandole.report.document import Block, Facts, Prose
from farandole.report.render import resource
from farandole.study.command import job_parts
from farandole.study.hosts import function_name
from farandole.study.options import given_options, option_flags
from farandole.version import __version__

if TYPE_CHECKING:
    from jinja2 import Template


def paragraph(info: ScalingInfo) -> str:
    """Return the methods paragraph that belongs beside a figure of this study."""
    kept = [launch for launch in info.launches if launch.kept]
    per_cell = [row.launches for row in info.rows if row.launches]
    text = _method().render(
        info=info,
        imported=info.launches and all(one.purpose == "imported" for one in info.launches),
        kept=kept,
        per_cell=[min(per_cell), max(per_cell)] if per_cell else [],
        enough=LEAST_LAUNCHES,
        steps=sum(launch.counted_steps for launch in kept),
        warmup=sum(launch.warmup_steps for launch in kept),
        margins=[
            f"{percent(margin) if name == 'speed' else brief(margin)} for {name}"
            for name, margin in info.margins.items()
        ],
        machine=machine_parts(info.machine),
        version=__version__,
    )
    return " ".join(text.split())


@cache
def _method() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(undefined=StrictUndefined, autoescape=False)
    shown = {"count": plural, "listed": listed, "number": number, "times": times}
    environment.filters |= shown
    return environment.from_string(resource("method.txt"))


def machine_parts(machine: Mapping[str, object]) -> list[str]:
    """Return the machine in few words: processor, cores, memory, GPUs, versions."""
    cores = machine.get("physical_cores") or machine.get("cores")
    memory = machine.get("memory_bytes")
    parts = (
        machine.get("cpu"),
        f"{cores} cores" if cores else "",
        f"{size(memory)} of memory" if isinstance(memory, int | float) else "",
        _words(machine.get("gpus") or ""),
        _words(machine.get("versions") or ""),
    )
    return [str(part) for part in parts if part]


def machine_facts(machine: Mapping[str, object]) -> Block:
    """Return what is known of a machine as pairs of words."""
    pairs = []
    for key, value in machine.items():
        if value in (None, "", (), [], {}):
            continue
        shown = _words(value)
        if key.endswith("_bytes") and isinstance(value, int | float):
            key, shown = key.removesuffix("_bytes"), size(value)
        pairs.append((key.replace("_", " "), shown))
    return Facts(tuple(pairs)) if pairs else Prose(("Not recorded.",))


def _words(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_words(part)}" for key, part in value.items() if part)
    if isinstance(value, list | tuple):
        return ", ".join(_words(part) for part in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return brief(value) if isinstance(value, float) else str(value)


def commands(info: ScalingInfo) -> list[str]:
    """Return command lines for a shell: the study, then its report."""
    if not info.command:
        return ["farandole study import TABLE.csv --out DIR", "farandole report DIR"]
    options, command = given_options(info.spec), tuple(info.command)
    function = function_name(command)
    if function is not None:
        arguments = ", ".join(f"{name}={value!r}" for name, value in options.items())
        return [f"farandole.study({function}, {arguments}, out='DIR')", "farandole report DIR"]
    flags = option_flags(options)
    if info.spec.get("jobs"):
        job_flags, command = job_parts(command)
        flags += ["--per-cell-jobs", *job_flags]
    argv = ["farandole", "study", *flags, "--out", "DIR", "--", *command]
    return [shlex.join(argv), "farandole report DIR"]
