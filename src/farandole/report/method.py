"""How a study was measured and on what, in sentences for a page and for a paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from farandole.model.info.scaling import ScalingInfo
from farandole.report.text import brief, listed, number, percent, plural, size, times
from farandole.version import __version__


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
            f"The figures of {plural(len(info.cells), 'cell')} were imported from a table; each "
            "row counts as one launch."
        ]
    kept = [launch for launch in info.launches if launch.kept]
    per_cell = sorted({cell.launches for cell in info.cells if cell.launches})
    verb = "was" if len(info.cells) == 1 else "were"
    turns = plural(len(info.launches), "launch") + (
        " that took turns" if len(info.launches) > 1 else ""
    )
    counts = "counts" if len(kept) == 1 else "count"
    spread = f" ({_span(per_cell)} per cell)" if per_cell else ""
    sentences = [
        f"{plural(len(info.cells), 'cell')} {verb} measured in {turns}, of which {len(kept)} "
        f"{counts} for speed{spread}."
    ]
    steps = sum(launch.steps for launch in kept)
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
    for one in info.apart:
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
