"""Sentences of a report: what follows the headline, how it was measured, how to repeat it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from farandole.format import brief, listed, number, percent, plural, size, times
from farandole.model.analyse import ScalingInfo
from farandole.model.verdicts import Verdict
from farandole.study.command import function_name
from farandole.study.launchers import job_parts
from farandole.study.options import given_options, option_flags
from farandole.version import __version__


def sentences(info: ScalingInfo) -> tuple[str, ...]:
    """Return what follows the headline: what the user has today, then the rest."""
    said = info.answer.sentences
    if info.today is None or info.answer.void is not None or info.today.sentence in said:
        return said
    return (*said[:1], info.today.sentence, *said[1:])


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
    return " ".join(
        [*_measuring(info), *_apart(info), *_judging(info), _machine_sentence(info.machine)]
    ).strip()


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


def _measuring(info: ScalingInfo) -> list[str]:
    if not info.launches:
        return []
    imported = all(launch.purpose == "imported" for launch in info.launches)
    if imported:
        return [
            f"The figures of {plural(len(info.rows), 'cell')} were imported from a table; each "
            "row counts as one launch."
        ]
    kept = [launch for launch in info.launches if launch.kept]
    per_cell = sorted({cell.launches for cell in info.rows if cell.launches})
    verb = "was" if len(info.rows) == 1 else "were"
    turns = plural(len(info.launches), "launch") + (
        " that took turns" if len(info.launches) > 1 else ""
    )
    counts = "counts" if len(kept) == 1 else "count"
    spread = f" ({_span(per_cell)} per cell)" if per_cell else ""
    sentences = [
        f"{plural(len(info.rows), 'cell')} {verb} measured in {turns}, of which {len(kept)} "
        f"{counts} for speed{spread}."
    ]
    steps = sum(launch.counted_steps for launch in kept)
    warmup = sum(launch.warmup_steps for launch in kept)
    if steps:
        sentences.append(
            f"After {plural(warmup, 'step')} of warm-up, {plural(steps, 'step')} "
            f"{'was' if steps == 1 else 'were'} timed. A "
            "step takes as long as its slowest worker, and a launch enters with its median step."
        )
    return sentences


def _apart(info: ScalingInfo) -> list[str]:
    """Say what workers of a host cost each other, as copies of the script showed."""
    sentences = []
    for one in info.each("contention"):
        workers = one.cell.workers
        if one.slowdown is not None:
            sentences.append(
                f"{workers} copies of the script at once, which sent each other nothing, took "
                f"{times(one.slowdown)} as long for a step as one alone."
            )
        if one.loaded_alone_per_s is not None and one.loaded_together_per_s is not None:
            sentences.append(
                f"With nothing else to do, a worker's loader gave {number(one.loaded_alone_per_s)} "
                f"samples/s alone and {number(one.loaded_together_per_s)} with {workers} at once."
            )
    return sentences


def _judging(info: ScalingInfo) -> list[str]:
    sentences = [
        "Intervals are 95 % of Student's t on the logarithms of the launches' medians, those of "
        "speedups by Welch's t; steps of one launch are not independent and enter no test."
    ]
    margins = []
    for name, margin in info.margins.items():
        shown = percent(margin) if name == "speed" else brief(margin)
        margins.append(f"{shown} for {name}")
    if margins:
        sentences.append(
            f'"Same" means equivalent by two one-sided t tests within {listed(margins)}.'
        )
    return sentences


def _machine_sentence(machine: Mapping[str, object]) -> str:
    parts = []
    if machine.get("cpu"):
        parts.append(str(machine["cpu"]))
    cores = machine.get("physical_cores") or machine.get("cores")
    if cores:
        parts.append(f"{cores} cores")
    memory = machine.get("memory_bytes")
    if isinstance(memory, int | float):
        parts.append(f"{size(memory)} of memory")
    gpus = machine.get("gpus")
    if gpus:
        parts.append(_words(gpus))
    versions = machine.get("versions")
    if isinstance(versions, Mapping) and versions:
        parts.append(
            ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        )
    return f"Machine: {'; '.join(parts)}. Report by Farandole {__version__}." if parts else ""


def _span(counts: Sequence[int]) -> str:
    low, high = counts[0], counts[-1]
    return str(low) if low == high else f"{low} to {high}"


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
