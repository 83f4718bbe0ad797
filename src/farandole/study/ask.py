"""From flags to a Spec: what the user left out is decided here, and said."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from farandole.errors import UsageError
from farandole.study import values
from farandole.study.launchers import (
    KNOWN,
    SPREADING,
    find_in_script,
    find_launcher,
    job_command,
    names_in,
)
from farandole.study.patterns import Pattern, metric_pattern, throughput_pattern
from farandole.study.spec import (
    DEFAULT_BATCH,
    PRECISION,
    Measure,
    Notes,
    Place,
    Room,
    Scaling,
    Spec,
    default_workers,
    packed,
    parse_places,
    shared_threads,
)
from farandole.world.world import TRANSPORTS

# Names that `-L` may not give values to, and what to use for them.
_FLAG_FOR = {"workers": "-np", "seed": "--seeds", "cell_dir": "nothing: each launch has its own"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The flags of `farandole study` as they were written; None: not given."""

    command: Sequence[str]
    workers: str | None = None
    scaling: str | None = None
    factors: Mapping[str, Sequence[str]] = field(default_factory=dict)
    threads: str | None = None
    split: str | None = None
    transport: str | None = None
    measure: str | None = None
    seeds: str | None = None
    repeats: str | None = None
    steps: str | None = None
    epochs: str | None = None
    precision: str | None = None
    time_limit: str | None = None
    launch_timeout: str | None = None
    memory: str | None = None
    cwd: str | None = None
    prepare: Sequence[str] = ()
    throughput: str | None = None
    metrics: Sequence[str] = ()
    no_epoch: bool = False
    no_today: bool = False
    no_batch_check: bool = False
    keep_busy: bool = False
    no_calibration: bool = False
    horovod_alias: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    job_flags: Sequence[str] | None = None
    """Flags of `farandole run --launcher slurm` (`--per-cell-jobs`); None: no job per launch."""


def make_spec(
    asked: Asked,
    *,
    room: Room,
    folder: str,
    reads: Callable[[str], bool],
    script: str = "",
) -> tuple[Spec, Notes]:
    """Check the flags and decide the rest.

    Args:
        asked: What the user wrote.
        room: What the machine has.
        folder: Where the command is given.
        reads: Whether the script reads a name by `farandole.param`.
        script: The text of the command's shell script, if it has one.

    Raises:
        UsageError: Something cannot be used as given.
    """
    notes = Notes()
    command = tuple(asked.command)
    if not command:
        raise UsageError(
            "No command was given. Say what to study: "
            "farandole study -- python train.py --batch-size '{batch}'"
        )
    found = find_launcher(command) or find_in_script(command, script)
    if found is not None and asked.job_flags is not None:
        raise UsageError(
            f"--per-cell-jobs starts the workers of each job, but the command brings "
            f"{found.launcher.name}. Give the command without it."
        )
    if asked.job_flags is not None:
        alias = _choice(asked.horovod_alias, "--horovod-alias", ("on", "off"), "on")
        command = job_command(command, asked.job_flags, horovod_alias=alias)
        found = find_launcher(command)
        notes.say("Each launch is a job of SLURM's; one is submitted when the one before ended.")
    elif found is not None:
        command = found.command
        notes.say(found.note)
    given = dict(asked.factors)
    transports = _transports(asked.transport, given.pop("transport", ()))
    if "mpi" in transports and (found is None or found.launcher.name not in SPREADING):
        raise UsageError(
            "--transport mpi needs workers that mpirun starts, and this command has none. Use: "
            "farandole study --transport mpi -- mpirun -np '{workers}' python train.py"
        )
    threads_text = asked.threads or ",".join(given.pop("threads", ())) or None
    for name in given:
        _check_name(name, command, reads, found is not None)
    places, threads, split = _split(asked, threads_text, room, notes)
    workers = tuple(sorted({count for count, _ in places}))
    batches, find_max = values.batches(given.pop("batch", ()), name="batch")
    shared, _ = values.batches(given.pop("global_batch", ()), name="global_batch")
    names = names_in(command)
    for name in sorted(names - {*KNOWN, *asked.factors}):
        known = ", ".join(f"{{{one}}}" for one in (*KNOWN, *asked.factors))
        notes.say(f"{{{name}}} is passed on as it stands; placeholders are {known}.")
    if not (batches or find_max or shared) and names & {"batch", "global_batch"}:
        batches = (DEFAULT_BATCH,)
        notes.say(f"No batch was given: {DEFAULT_BATCH} per worker (-L batch=... for others).")
    sets_batch = bool(batches or find_max or shared)
    scaling = _scaling(asked.scaling, sets_batch, bool(shared), bool(batches or find_max), notes)
    measure = _choice(asked.measure, "--measure", get_args(Measure), "speed")
    spec = Spec(
        command=command,
        room=room,
        workers=workers,
        places=places if room.hosts > 1 else (),
        scaling=scaling,
        batches=batches,
        global_batches=shared,
        find_max=find_max,
        threads=threads,
        threads_given=threads_text is not None,
        split=split,
        transports=transports,
        params=tuple((name, tuple(found_values)) for name, found_values in given.items()),
        measure=measure,
        repeats=_number(asked.repeats, "--repeats", 3),
        seeds=_number(asked.seeds, "--seeds", 3),
        precision=(
            PRECISION
            if asked.precision is None
            else values.share(asked.precision, flag="--precision")
        ),
        steps=None if asked.steps is None else values.count(asked.steps, flag="--steps"),
        epochs=None if asked.epochs is None else values.count(asked.epochs, flag="--epochs"),
        epoch_launches=not asked.no_epoch,
        today=not asked.no_today,
        time_limit_s=_seconds(asked.time_limit, "--time-limit"),
        launch_timeout_s=_seconds(asked.launch_timeout, "--launch-timeout"),
        memory_bytes=None if asked.memory is None else values.size(asked.memory, flag="--memory"),
        launcher=None if found is None else found.launcher.name,
        jobs=asked.job_flags is not None,
        cwd=_choice(asked.cwd, "--cwd", ("here", "cell"), "here"),
        folder=folder,
        prepare=tuple(asked.prepare),
        throughput=asked.throughput,
        metrics=tuple(asked.metrics),
        batch_check=not asked.no_batch_check,
        retry_busy=not asked.keep_busy,
        calibrates=not asked.no_calibration,
        horovod_alias=_choice(asked.horovod_alias, "--horovod-alias", ("on", "off"), "on") == "on",
        environ=tuple(asked.environ.items()),
    )
    _check_ends(spec)
    patterns_of(spec)
    return spec, notes


def patterns_of(spec: Spec) -> list[Pattern]:
    """Return what is to be looked for in the output.

    Raises:
        UsageError: A pattern cannot be used.
    """
    found = [metric_pattern(text) for text in spec.metrics]
    if spec.throughput is not None:
        found.append(throughput_pattern(spec.throughput))
    return found


def _check_ends(spec: Spec) -> None:
    if spec.steps is not None and spec.epochs is not None:
        raise UsageError("--steps and --epochs both say when a launch ends. Give one of them.")


def _transports(flag: str | None, factor: Sequence[str]) -> tuple[str, ...]:
    chosen = tuple((flag or ",".join(factor) or "auto").lower().split(","))
    for name in chosen:
        if name not in TRANSPORTS:
            raise UsageError(
                f"--transport {name}: choose a transport from {', '.join(TRANSPORTS)}."
            )
    return tuple(dict.fromkeys(chosen))


def _check_name(
    name: str, command: Sequence[str], reads: Callable[[str], bool], foreign: bool
) -> None:
    """Refuse a factor that would change nothing: in no argument, and read by nobody."""
    if name in _FLAG_FOR:
        raise UsageError(f"-L {name}=...: use {_FLAG_FOR[name]} for this.")
    wanted = {name}
    if name in ("batch", "global_batch"):
        wanted = {"batch", "global_batch"}
    if wanted & names_in(command) or any(reads(one) for one in wanted):
        return
    known = sorted((names_in(command) - set(KNOWN)) | (names_in(command) & set(KNOWN)))
    there = f"The command has {', '.join('{' + one + '}' for one in known)}." if known else ""
    raise UsageError(
        f"-L {name}=...: the command has no {{{name}}}, and its script does not read "
        f'farandole.param("{name}"), so this would change nothing. Put {{{name}}} where its value '
        f"belongs. {there}".rstrip()
    )


def _split(
    asked: Asked, threads_text: str | None, room: Room, notes: Notes
) -> tuple[tuple[Place, ...], tuple[int, ...], bool]:
    """Decide workers, their hosts, and threads."""
    default = default_workers(room)
    if asked.split is not None:
        _choice(asked.split, "--split", ("all",), "all")
        if threads_text is not None:
            raise UsageError("--split all decides the threads. Leave --threads away.")
        every = tuple(n for n in range(1, room.cores + 1) if room.cores % n == 0)
        if asked.workers is not None:
            wanted = values.counts(asked.workers, flag="-np", auto=default)
            every = tuple(n for n in wanted if n in every)
        if not every:
            raise UsageError(
                f"-np {asked.workers} with --split all: {room.cores} cores cannot be split evenly "
                "among so many workers."
            )
        return tuple((n, 1) for n in every), tuple(room.cores // n for n in every), True
    if asked.workers is None:
        places = tuple(packed(count, room) for count in default)
        what = "GPUs" if room.gpus else "cores"
        where = "this machine" if room.hosts == 1 else f"{room.hosts} hosts"
        listed = ", ".join(map(str, default))
        notes.say(
            f"No -np was given: {listed} {'worker' if listed == '1' else 'workers'}, up to the "
            f"{what} of {where}."
        )
    else:
        places = parse_places(asked.workers, room=room, auto=default)
    if threads_text is not None:
        return places, values.counts(threads_text, flag="--threads"), False
    threads = shared_threads(room, places)
    plural = "" if threads == 1 else "s"
    notes.say(f"{threads} thread{plural} per worker in all cells, so that only workers differ.")
    return places, (threads,), False


def _scaling(
    text: str | None, sets_batch: bool, shared: bool, per_worker: bool, notes: Notes
) -> Scaling:
    if text is None:
        if shared and not per_worker:
            return "strong"
        notes.say(
            "Weak scaling: the batch per worker stays, the global batch grows "
            "(--scaling strong or both for the other way)."
            if sets_batch
            else "Weak scaling: every worker keeps the script's own batch "
            "(put {batch} into the command to study others)."
        )
        return "weak"
    chosen: Scaling = _choice(text, "--scaling", get_args(Scaling), "weak")
    if chosen != "weak" and not sets_batch:
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


def _choice(text: str | None, flag: str, choices: Sequence[str], default: str) -> Any:
    if text is None:
        return default
    if text not in choices:
        raise UsageError(f"{flag} {text}: choose from {', '.join(choices)}.")
    return text


def _number(text: str | None, flag: str, default: int) -> int:
    return default if text is None else values.count(text, flag=flag)


def _seconds(text: str | None, flag: str) -> float | None:
    return None if text is None else values.seconds(text, flag=flag)
