"""The options of a study, each written once, and the Spec that follows from them.

The table gives the parser of `farandole study`, the keywords of `farandole.study()`, what
`--resume` refuses, and the command that repeats a study. Values are texts, as a shell has them, or
Python's own: `"1,2"` and `[1, 2]`, `"20m"` and `1200`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, get_args

from farandole.errors import UsageError
from farandole.format import plural
from farandole.study import values
from farandole.study.command import (
    PLACEHOLDERS,
    SPREADING,
    find_in_script,
    find_launcher,
    job_command,
    names_in,
)
from farandole.study.patterns import Pattern, metric_pattern, throughput_pattern
from farandole.study.spec import (
    DEFAULT_BATCH,
    Measure,
    Place,
    Room,
    Scaling,
    Spec,
    default_workers,
    packed,
    parse_places,
    shared_threads,
)
from farandole.world.environment import TRANSPORTS

VARY, MEASURE, WHERE = "what to vary", "how to measure", "output, and where to run"
HOSTS = "several hosts (a SLURM allocation needs no flag: docs/how-to/slurm.md)"

# Names that `-L` may not give values to, and why.
_INSTEAD = {"workers": "use -np", "seed": "use --seeds", "cell_dir": "each launch has its own"}
_DEFAULTS = {field.name: field.default for field in fields(Spec)}


def _join(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a study."""

    group: str
    flags: tuple[str, ...]
    metavar: str
    """What its value is called; empty: a switch."""
    help: str
    name: str
    """Its keyword in `farandole.study()`."""
    field: str = ""
    """The field of the Spec, and of study.json, that it alone decides."""
    read: Callable[..., Any] = lambda value, *, flag: value
    """From a value as given to the field's."""
    value: Callable[[Any], Any] = lambda value: value
    """From the field's value to one that can be given."""
    text: Callable[[Any], str] = _join
    """From a value to what stands behind the flag."""
    repeated: bool = False
    resumable: bool = False
    """Whether a study that was begun may go on with another value."""
    decides: bool = True
    """Whether it is part of what is measured; False: of this session alone."""


def _option(group: str, flags: str, metavar: str, words: str, **more: Any) -> Option:
    """Return an option; its name follows from its last flag, its field of the Spec from its name.

    What is to vary is decided jointly, by `make_spec`, and has no field of its own.
    """
    name = more.pop("name", flags.split()[-1].lstrip("-").replace("-", "_"))
    for field in (name, f"{name}_s", f"{name}_bytes"):
        if field in _DEFAULTS and group in (MEASURE, WHERE):
            more.setdefault("field", field)
    return Option(group, tuple(flags.split()), metavar, words, name, **more)


def _off(flag: str, field: str, words: str, **more: Any) -> Option:
    """Return a switch that turns a field of the Spec off."""
    read = {"read": lambda value, *, flag: not value, "value": lambda value: not value}
    return _option(MEASURE, flag, "", words, field=field, **read, **more)


def _on_or_off(value: Any, *, flag: str) -> bool:
    return bool(values.choice(value, flag=flag, choices=("on", "off")) == "on")


_measured = partial(_option, MEASURE)
_counted = partial(_option, MEASURE, metavar="N", read=values.count)
_time = partial(_option, MEASURE, metavar="TIME", read=values.seconds)
_session = partial(_option, resumable=True, decides=False)
_WORKERS = "numbers of workers: 1,2,4 or 1-4 (default: 1, 2, 4, ... cores or GPUs); "
_WEAK = "weak (default): fixed batch per worker; strong: -L batch is shared by all; "
_FACTOR = "values to compare; batch=32,64,...,max finds the largest batch that fits"
_LINK = "skip measuring the link and the contention between workers"
_JOBS = "submit each launch as a SLURM job, one after the other"
_one_of = partial(partial, values.choice)

OPTIONS: tuple[Option, ...] = (
    _option(VARY, "-np -n -w --workers", "N,...", f"{_WORKERS}2x4: 2 hosts with 4 each"),
    _option(VARY, "--scaling", "WAY", f"{_WEAK}both"),
    _option(VARY, "-L --vary", "NAME=V1,V2", _FACTOR, name="params", repeated=True),
    _option(VARY, "--threads", "N,...", "threads per worker (default: the same in all cells)"),
    _option(VARY, "--split", "all", "every way to split the cores into workers x threads"),
    _option(VARY, "--transport", "NAME,...", "auto, shm, gloo, mpi, nccl (default auto)"),
    _measured(
        *("--measure", "WHAT", "speed (default), accuracy or both"),
        read=_one_of(choices=get_args(Measure)),
    ),
    _counted("--repeats", words="launches per cell for speed (default 3)"),
    _counted("--seeds", words="launches per cell for accuracy (default 3)"),
    _measured(
        *(
            "--precision",
            "SHARE",
            "end a launch when its median step time is known this well (default 3%)",
        ),
        read=values.share,
        text=lambda share: f"{100 * share:g}%" if isinstance(share, float) else str(share),
    ),
    _counted("--steps", words="end each launch for speed after N steps instead"),
    _counted("--epochs", words="end each launch for speed after N epochs instead"),
    _time("--time-limit", words="fit the study into this time: 20m, 1h30m", resumable=True),
    _time("--launch-timeout", words="end a launch after this time (default 15m)"),
    _measured(
        "--memory",
        "SIZE",
        "memory limit of each worker (default: 80% of what is free)",
        read=values.size,
    ),
    _measured("--throughput", "REGEX", "read samples/s from the output"),
    _measured(
        *("--metric", "NAME=REGEX", "read a metric from the output"),
        name="metrics",
        read=values.listed,
        repeated=True,
    ),
    _off(
        "--no-epoch", "epoch_launches", "skip the launch of one whole epoch per number of workers"
    ),
    _off("--no-today", "today", "skip the comparison with one process on all cores"),
    _off("--no-batch-check", "batch_check", "accept a batch size other than the study's"),
    _off("--no-calibration", "calibrates", _LINK),
    _off("--cold", "warm", "start every launch cold, without shared imports", resumable=True),
    _off(
        *("--no-busy-retries --keep-busy", "retry_busy"),
        "do not repeat launches that other programs disturbed (default: at most a fifth)",
        resumable=True,
    ),
    _session(WHERE, "--out", "DIR", "the study's folder; an existing study is extended"),
    _session(WHERE, "--resume", "DIR", "continue an interrupted study"),
    _session(WHERE, "--label", "TEXT", "the study's name in its report"),
    _option(
        *(WHERE, "--cwd", "here|cell", "run in this folder (default), or in each launch's own"),
        read=_one_of(choices=("here", "cell")),
    ),
    _option(
        *(WHERE, "--prepare", "CMD", "a command to run before each launch"),
        read=values.words,
        text=lambda given: given if isinstance(given, str) else shlex.join(given),
    ),
    _option(
        *(WHERE, "--horovod-alias", "on|off", "off: `import horovod` finds an installed Horovod"),
        read=_on_or_off,
        value=lambda on: "on" if on else "off",
    ),
    _session(WHERE, "--live", "", "show the report in a browser while launches finish"),
    _session(WHERE, "--no-report", "", "write no report; `farandole report DIR` does later"),
    _session(WHERE, "--dry-run", "", "print the plan with times, and exit"),
    _session(WHERE, "--json", "", "print the answer as one JSON object (schema 1)"),
    _session(HOSTS, "-H --hosts", "HOSTS", "hosts, by ssh, with the workers on each: n1:4,n2:4"),
    _session(HOSTS, "--hostfile", "FILE", "the same from a file"),
    _session(HOSTS, "--rsh", "COMMAND", "another remote shell, with flags"),
    _session(HOSTS, "--per-cell-jobs", "", _JOBS),
)


def _fields(given: Mapping[str, Any], *, resumable: bool = False) -> dict[str, Any]:
    """Return the fields of the Spec that single options decide."""
    return {
        option.field: option.read(given[option.name], flag=option.flags[0])
        for option in OPTIONS
        if option.field and given.get(option.name) not in (None, False)
        if option.resumable or not resumable
    }


def given_options(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that ask for a Spec, from its JSON; those at their default are left out.

    The threads are always there: what they would be follows from the machine.
    """
    batches = [*(content.get("batches") or ()), *(["max"] if content.get("find_max") else [])]
    params = {"batch": batches, "global_batch": content.get("global_batches")}
    params |= dict(content.get("params") or ())
    workers: list[Any] = list(dict.fromkeys(content.get("workers") or ()))
    if content.get("places"):
        # What hosts cannot share evenly is a count.
        places = content["places"]
        workers = [str(n) if n % hosts else f"{hosts}x{n // hosts}" for n, hosts in places]
    transports = list(content.get("transports") or ())
    given: dict[str, Any] = {
        "workers": workers,
        "scaling": None if content.get("scaling") == "weak" else content.get("scaling"),
        "params": {name: list(found) for name, found in params.items() if found},
        "split": "all" if content.get("split") else None,
        "threads": None if content.get("split") else list(content.get("threads") or ()),
        "transport": None if transports == ["auto"] else transports,
    }
    for option in OPTIONS:
        value = content.get(option.field)
        if option.field and value is not None and value != _DEFAULTS[option.field]:
            given[option.name] = option.value(value)
    return {name: value for name, value in given.items() if value not in (None, [], {}, ())}


def option_flags(given: Mapping[str, Any]) -> list[str]:
    """Write options as the flags of `farandole study`, in the table's order."""
    flags: list[str] = []
    for option in OPTIONS:
        value = given.get(option.name)
        if value is None or value is False:
            continue
        if not option.metavar:
            flags.append(option.flags[0])
            continue
        if option.name == "params":
            value = [f"{name}={_join(one)}" for name, one in values.factors(value).items()]
        for one in value if option.repeated else [value]:
            flags += [option.flags[0], option.text(one)]
    return flags


def read_flags(flags: Sequence[str]) -> dict[str, Any]:
    """Return the options that `option_flags` wrote, as texts."""
    by_flag = {flag: option for option in OPTIONS for flag in option.flags}
    given: dict[str, Any] = {}
    words = iter(flags)
    for word in words:
        option = by_flag[word]
        if option.repeated:
            given.setdefault(option.name, []).append(next(words))
        else:
            given[option.name] = next(words) if option.metavar else True
    return given


def resumed(spec: Spec, given: Mapping[str, Any]) -> Spec:
    """Return the Spec of a study that goes on with options that it may change."""
    return replace(spec, **_fields(given, resumable=True))


def check_resume(given: Mapping[str, Any], folder: str) -> None:
    """Refuse options that a study in a folder has decided already."""
    for option in OPTIONS:
        if not option.resumable and given.get(option.name) not in (None, False, []):
            raise UsageError(
                f"--resume {folder} continues the study as it was: leave out {option.flags[0]}. "
                f"To change it, use --out {folder} with the whole command."
            )


def make_spec(
    command: Sequence[str],
    options: Mapping[str, Any],
    *,
    room: Room,
    folder: str,
    reads: Callable[[str], bool],
    script: str = "",
    job_flags: Sequence[str] | None = None,
) -> tuple[Spec, list[str]]:
    """Check the options and decide what was left open; return the Spec, and what to say of it.

    Args:
        command: What to study.
        options: Values by the names of the table; None: not given. `env` has variables to set.
        room: What the machine has.
        folder: Where the command is given.
        reads: Whether the script reads a name by `farandole.param`.
        script: The text of the command's shell script, if it has one.
        job_flags: Of `farandole run --launcher slurm`, where each launch is a job.
    """
    unknown = set(options) - {option.name for option in OPTIONS if option.decides} - {"env"}
    if unknown:
        raise UsageError(f"study() has no argument {min(unknown)!r}.")
    options = {name: value for name, value in options.items() if value not in (None, False)}
    command = tuple(command)
    if not command:
        raise UsageError(
            "No command was given. Say what to study: "
            "farandole study -- python train.py --batch-size '{batch}'"
        )
    simple = _fields(options)
    notes: list[str] = []
    found = find_launcher(command) or find_in_script(command, script)
    if job_flags is not None:
        if found is not None:
            raise UsageError(
                f"--per-cell-jobs starts the workers of each job, but the command brings "
                f"{found.launcher.name}. Give the command without it."
            )
        alias = "on" if simple.get("horovod_alias", True) else "off"
        found = find_launcher(job_command(command, job_flags, horovod_alias=alias))
        notes.append("Each launch is a SLURM job; the next is submitted when one has ended.")
    elif found is not None:
        notes.append(found.note)
    command = command if found is None else found.command
    params = values.factors(options.get("params", ()))
    names = names_in(command)
    for name in sorted(names - {*PLACEHOLDERS, *params}):
        known = ", ".join(f"{{{one}}}" for one in (*PLACEHOLDERS, *params))
        notes.append(f"{{{name}}} is passed unchanged; placeholders are {known}.")
    given = options.get("transport") or params.pop("transport", "auto")
    transports = tuple(dict.fromkeys(_join(given).lower().split(",")))
    for name in transports:
        values.choice(name, flag="--transport", choices=TRANSPORTS)
    if "mpi" in transports and (found is None or found.launcher.name not in SPREADING):
        raise UsageError(
            "--transport mpi needs workers that mpirun starts, and this command has none. Use: "
            "farandole study --transport mpi -- mpirun -np '{workers}' python train.py"
        )
    threads_given = options.get("threads") or params.pop("threads", None)
    for name in params:
        _check_name(name, names, reads)
    places, threads = _workers_and_threads(options, threads_given, room, notes)
    batches, find_max = values.batches(params.pop("batch", ()), name="batch")
    shared, _ = values.batches(params.pop("global_batch", ()), name="global_batch")
    if not (batches or find_max or shared) and names & {"batch", "global_batch"}:
        batches = (DEFAULT_BATCH,)
        notes.append(f"No batch was given: {DEFAULT_BATCH} per worker (-L batch=... for others).")
    spec = Spec(
        command=command,
        room=room,
        workers=tuple(sorted({count for count, _ in places})),
        places=places if room.hosts > 1 else (),
        scaling=_scaling(options.get("scaling"), bool(shared), bool(batches or find_max), notes),
        batches=batches,
        global_batches=shared,
        find_max=find_max,
        threads=threads,
        threads_given=threads_given is not None,
        split="split" in options,
        transports=transports,
        params=tuple(params.items()),
        launcher=None if found is None else found.launcher.name,
        jobs=job_flags is not None,
        folder=folder,
        environ=tuple(options.get("env", {}).items()),
        **simple,
    )
    if spec.steps is not None and spec.epochs is not None:
        raise UsageError("--steps and --epochs both say when a launch ends. Give one of them.")
    patterns_of(spec)
    return spec, notes


def patterns_of(spec: Spec) -> list[Pattern]:
    """Return what is to be looked for in the output."""
    found = [metric_pattern(text) for text in spec.metrics]
    return found if spec.throughput is None else [*found, throughput_pattern(spec.throughput)]


def _check_name(name: str, names: frozenset[str], reads: Callable[[str], bool]) -> None:
    """Refuse a factor that would change nothing: in no argument, and read by nobody."""
    if name in _INSTEAD:
        raise UsageError(f"-L {name}=...: {_INSTEAD[name]}.")
    wanted = {"batch", "global_batch"} if name in ("batch", "global_batch") else {name}
    if wanted & names or any(reads(one) for one in wanted):
        return
    there = f"The command has {', '.join(f'{{{one}}}' for one in sorted(names))}." if names else ""
    raise UsageError(
        f"-L {name}=...: the command has no {{{name}}}, and its script does not read "
        f'farandole.param("{name}"), so this would change nothing. Put {{{name}}} where its value '
        f"belongs. {there}".rstrip()
    )


def _workers_and_threads(
    options: Mapping[str, Any], threads_given: Any, room: Room, notes: list[str]
) -> tuple[tuple[Place, ...], tuple[int, ...]]:
    """Decide workers, their hosts, and threads."""
    default = default_workers(room)
    workers = _join(options["workers"]) if "workers" in options else None
    if "split" in options:
        values.choice(options["split"], flag="--split", choices=("all",))
        if threads_given is not None:
            raise UsageError("--split all decides the threads. Leave out --threads.")
        wanted = tuple(range(1, room.cores + 1))
        if workers is not None:
            wanted = values.counts(workers, flag="-np", auto=default)
        every = [n for n in wanted if room.cores % n == 0]
        if not every:
            raise UsageError(
                f"-np {workers} with --split all: {room.cores} cores cannot be split evenly "
                "among so many workers."
            )
        return tuple((n, 1) for n in every), tuple(room.cores // n for n in every)
    if workers is None:
        places = tuple(packed(count, room) for count in default)
        what = "GPUs" if room.gpus else "cores"
        where = "this machine" if room.hosts == 1 else f"{room.hosts} hosts"
        noun = "worker" if default == (1,) else "workers"
        listed = ", ".join(map(str, default))
        notes.append(f"No -np was given: using {listed} {noun}, up to the {what} of {where}.")
    else:
        places = parse_places(workers, room=room, auto=default)
    if threads_given is not None:
        return places, values.counts(_join(threads_given), flag="--threads")
    threads = shared_threads(room, places)
    each = plural(threads, "thread")
    notes.append(f"{each} per worker in all cells, so only the number of workers differs.")
    return places, (threads,)


def _scaling(text: str | None, shared: bool, per_worker: bool, notes: list[str]) -> Scaling:
    if text is None and shared and not per_worker:
        return "strong"
    if text is None:
        notes.append(
            "Weak scaling: the batch per worker is fixed, the global batch grows "
            "(--scaling strong or both for the other)."
            if shared or per_worker
            else "Weak scaling: every worker uses the script's own batch "
            "(put {batch} into the command to study others)."
        )
        return "weak"
    chosen: Scaling = values.choice(text, flag="--scaling", choices=get_args(Scaling))
    if chosen != "weak" and not (shared or per_worker):
        raise UsageError(
            f"--scaling {chosen} changes the batch per worker, but the command takes none. "
            "Put {batch} where the script's batch size belongs: --batch-size '{batch}'."
        )
    if chosen == "weak" and shared:
        raise UsageError(
            "-L global_batch=... is shared by all workers, which is strong scaling, but "
            "--scaling weak was given. Use -L batch=..., or --scaling strong."
        )
    return chosen
