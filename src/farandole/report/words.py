"""Sentences of a report: what follows the headline, how it was measured, how to repeat it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from farandole.format import brief, listed, number, percent, plural, size, times
from farandole.model.analyse import ScalingInfo
from farandole.model.verdicts import Verdict
from farandole.report.theme import resource
from farandole.study.command import job_parts
from farandole.study.hosts import function_name
from farandole.study.options import given_options, option_flags
from farandole.version import __version__

if TYPE_CHECKING:
    from jinja2 import Template


def sentences(info: ScalingInfo) -> tuple[str, ...]:
    """Return what follows the headline: limit, accuracy, what the user has today, the rest."""
    answer = info.answer
    lead = [
        f"{text[0].upper()}{text[1:]}." for text in (answer.limit, answer.accuracy_words) if text
    ]
    today = [] if info.today is None or answer.void is not None else [info.today.sentence]
    return tuple(dict.fromkeys([*lead, *answer.sentences[:1], *today, *answer.sentences[1:]]))


def verdicts(info: ScalingInfo) -> tuple[Verdict, ...]:
    """Return all verdicts, first the reasons why cells are void that the headline does not name."""
    void = [
        Verdict(
            kind=found.kind,
            severity="void",
            sentence=f"{found.label}: {found.sentence}",
            action=found.mend,
            evidence=found.evidence,
            labels=(found.label,),
        )
        for found in info.voids
        if found.sentence not in info.answer.headline
    ]
    return (*void, *info.verdicts)


def caption(infos: Sequence[ScalingInfo]) -> str:
    """Return a caption for figures/scaling."""
    names = listed([info.label for info in infos]) if len(infos) > 1 else infos[0].label
    return (
        f"Speedup of {names} against the number of workers. Bars are 95 % intervals over launches; "
        "the dashed line is ideal scaling."
    )


def paragraph(info: ScalingInfo) -> str:
    """Return the methods paragraph that belongs beside a figure of this study."""
    kept = [launch for launch in info.launches if launch.kept]
    per_cell = [row.launches for row in info.rows if row.launches]
    text = _method().render(
        info=info,
        imported=info.launches and all(one.purpose == "imported" for one in info.launches),
        kept=kept,
        per_cell=[min(per_cell), max(per_cell)] if per_cell else [],
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


def machine_rows(machine: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return what is known of the machine as pairs of words."""
    rows = []
    for key, value in machine.items():
        if value in (None, "", (), [], {}):
            continue
        if key.endswith("_bytes") and isinstance(value, int | float):
            rows.append((key.removesuffix("_bytes").replace("_", " "), size(value)))
        else:
            rows.append((key.replace("_", " "), _words(value)))
    return rows


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
