"""Sentences of a report: what follows the headline, how it was measured, how to repeat it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from farandole.format import brief, listed, number, percent, plural, size, times
from farandole.model.analyse import ScalingInfo
from farandole.model.verdicts import Verdict
from farandole.study.command import function_name
from farandole.study.launchers import job_parts
from farandole.version import __version__

# Flags with one value, and the value that needs no saying.
_SIMPLE = {
    "scaling": ("--scaling", "weak"),
    "measure": ("--measure", "speed"),
    "repeats": ("--repeats", 3),
    "seeds": ("--seeds", 3),
    "precision": ("--precision", 0.03),
    "steps": ("--steps", None),
    "epochs": ("--epochs", None),
    "time_limit_s": ("--time-limit", None),
    "launch_timeout_s": ("--launch-timeout", None),
    "memory_bytes": ("--memory", None),
    "cwd": ("--cwd", "here"),
    "throughput": ("--throughput", None),
}
# Flags that turn something off.
_OFF = {
    "epoch_launches": ("--no-epoch",),
    "today": ("--no-today",),
    "batch_check": ("--no-batch-check",),
    "calibrates": ("--no-calibration",),
    "retry_busy": ("--keep-busy",),
    "horovod_alias": ("--horovod-alias", "off"),
}


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
    function = function_name(info.command)
    if function is not None:
        return [_call(function, info.spec), "farandole report DIR"]
    flags, command = _flags(info.spec), tuple(info.command)
    if info.spec.get("jobs"):
        job_flags, command = job_parts(command)
        flags += ["--per-cell-jobs", *job_flags]
    argv = ["farandole", "study", *flags, "--out", "DIR", "--", *command]
    return [shlex.join(argv), "farandole report DIR"]


def _call(function: str, spec: Mapping[str, Any]) -> str:
    """Return the call in Python that studies a function."""
    given: dict[str, Any] = {"workers": list(spec.get("workers") or ())}
    params: dict[str, list[Any]] = {
        name: list(values) for name, values in _pairs(spec.get("params"))
    }
    for name, key in (("batch", "batches"), ("global_batch", "global_batches")):
        params |= {name: list(spec[key])} if spec.get(key) else {}
    if spec.get("find_max"):
        params["batch"] = [*params.get("batch", ()), "max"]
    given |= {"params": params} if params else {}
    for key, (flag, usual) in _SIMPLE.items():
        value = spec.get(key, usual)
        if value is not None and value != usual:
            given[_keyword(flag)] = value
    if spec.get("split"):
        given["split"] = "all"
    elif threads := spec.get("threads"):
        given["threads"] = list(threads)
    transports = _values(spec.get("transports"))
    if transports and transports != ["auto"]:
        given["transport"] = ",".join(transports)
    for key in ("metrics", "prepare"):
        given |= {key: _values(spec[key])} if spec.get(key) else {}
    for key, words in _OFF.items():
        if spec.get(key) is False:
            given[_keyword(words[0])] = words[1] if len(words) > 1 else True
    arguments = ", ".join(f"{name}={value!r}" for name, value in given.items())
    return f"farandole.study({function}, {arguments}, out='DIR')"


def _keyword(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def _flags(spec: Mapping[str, Any]) -> list[str]:
    flags: list[str] = []
    if places := _pairs(spec.get("places")):
        flags += ["-np", ",".join(_place(int(workers), int(hosts)) for workers, hosts in places)]
    elif workers := _values(spec.get("workers")):
        flags += ["-np", ",".join(dict.fromkeys(workers))]
    for key, (flag, usual) in _SIMPLE.items():
        value = spec.get(key, usual)
        if value is not None and value != usual:
            flags += [flag, f"{100 * value:g}%" if key == "precision" else str(value)]
    batches = _values(spec.get("batches")) + (["max"] if spec.get("find_max") else [])
    if batches:
        flags += ["-L", f"batch={','.join(batches)}"]
    if shared := _values(spec.get("global_batches")):
        flags += ["-L", f"global_batch={','.join(shared)}"]
    for name, values in _pairs(spec.get("params")):
        flags += ["-L", f"{name}={','.join(_values(values))}"]
    if spec.get("split"):
        flags += ["--split", "all"]
    elif threads := _values(spec.get("threads")):
        flags += ["--threads", ",".join(threads)]
    transports = _values(spec.get("transports"))
    if transports and transports != ["auto"]:
        flags += ["--transport", ",".join(transports)]
    for metric in _values(spec.get("metrics")):
        flags += ["--metric", metric]
    if prepare := _values(spec.get("prepare")):
        flags += ["--prepare", shlex.join(prepare)]
    for key, words in _OFF.items():
        if spec.get(key) is False:
            flags += words
    return flags


def _place(workers: int, hosts: int) -> str:
    """Write workers and hosts as -np takes them; what hosts cannot share evenly is a count."""
    return str(workers) if workers % hosts else f"{hosts}x{workers // hosts}"


def _values(value: Any) -> list[str]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [str(part) for part in value]
    return [] if value is None else [str(value)]


def _pairs(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(str(name), part) for name, part in value.items()]
    parts = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    return [(str(part[0]), part[1]) for part in parts if len(part) == 2]
