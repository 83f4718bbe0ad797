"""The commands that make a study and its report again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from farandole.model.info.scaling import ScalingInfo
from farandole.study.function import function_name
from farandole.study.launchers import job_parts

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
