"""What a study is asked for: every flag checked, everything that was left open decided."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from farandole.errors import UsageError
from farandole.study.launchers import job_parts
from farandole.study.masking import MASK, is_secret, mask
from farandole.study.places import Place, per_host

Scaling = Literal["strong", "weak", "both"]
Measure = Literal["speed", "accuracy", "both"]

PRECISION = 0.03
LEAST_STEPS = 20
ENOUGH_S = 60.0
DEFAULT_BATCH = 32
LAUNCH_TIMEOUT_S = 900.0
"""What a launch for speed or one epoch may take; accuracy runs may take ten times as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What of a machine decides a plan."""

    cores: int
    """Cores of each host that can be kept busy."""
    physical: int
    gpus: int = 0
    """GPUs of each host."""
    hosts: int = 1
    slots: int | None = None
    """Workers that each host may have, where the user says so."""

    @property
    def per_host(self) -> int:
        """How many workers fit on a host: one per GPU, or per core, or what the user allows."""
        return min(self.gpus or self.cores, self.slots or self.gpus or self.cores)

    @property
    def workers(self) -> int:
        """How many workers fit on all hosts."""
        return self.per_host * self.hosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One study, fully decided, as study.json keeps it."""

    command: tuple[str, ...]
    """With its placeholders, and with {workers} in its own launcher's flag."""
    room: Room
    workers: tuple[int, ...]
    places: tuple[Place, ...] = ()
    """Workers and hosts of the cells, where there are several hosts; empty: all on one."""
    scaling: Scaling = "weak"
    batches: tuple[int, ...] = ()
    """Per worker; with strong scaling what all workers share. Empty: the script's own."""
    global_batches: tuple[int, ...] = ()
    """Always shared by all workers (`-L global_batch=...`)."""
    find_max: bool = False
    """Whether the largest batch that fits belongs to the batches."""
    threads: tuple[int, ...] = (1,)
    threads_given: bool = False
    """Whether the user chose them; otherwise they follow from the workers."""
    split: bool = False
    """Whether workers and threads go together: all splits of the cores."""
    transports: tuple[str, ...] = ("auto",)
    params: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Further factors, each with its values."""
    measure: Measure = "speed"
    repeats: int = 3
    seeds: int = 3
    precision: float = PRECISION
    steps: int | None = None
    epochs: int | None = None
    epoch_launches: bool = True
    today: bool = True
    time_limit_s: float | None = None
    launch_timeout_s: float | None = None
    memory_bytes: int | None = None
    """Limit of each worker; None: 80 % of what is free, shared out."""
    launcher: str | None = None
    """The command's own launcher; None when Farandole starts the workers."""
    jobs: bool = False
    """Whether each launch is a job of its own, which waits in a scheduler's queue."""
    cwd: Literal["here", "cell"] = "here"
    folder: str = ""
    """Where the command was given; a resumed study runs there again."""
    prepare: tuple[str, ...] = ()
    throughput: str | None = None
    metrics: tuple[str, ...] = ()
    batch_check: bool = True
    retry_busy: bool = True
    """Whether launches that others disturbed are made once more."""
    calibrates: bool = True
    """Whether the link between the workers is measured at the end."""
    horovod_alias: bool = True
    environ: tuple[tuple[str, str], ...] = ()
    """Variables set for the workers (`env` of `farandole.study`)."""

    @property
    def placed(self) -> tuple[Place, ...]:
        """Workers and hosts of the cells."""
        return self.places or tuple((workers, 1) for workers in self.workers)

    @property
    def sets_batch(self) -> bool:
        """Say whether the study sets the script's batch."""
        return bool(self.batches or self.global_batches or self.find_max)

    @property
    def timeout_s(self) -> float:
        """What a launch for speed may take."""
        return self.launch_timeout_s or LAUNCH_TIMEOUT_S

    def stop(self, purpose: str) -> dict[str, float] | None:
        """Say when a launch of this purpose is to end; None: when the script does."""
        if purpose == "accuracy":
            return None
        if purpose == "epoch":
            return {"epochs": 1}
        if self.steps is not None:
            return {"steps": self.steps}
        if self.epochs is not None:
            return {"epochs": self.epochs}
        return {"precision": self.precision, "least_steps": LEAST_STEPS, "enough_s": ENOUGH_S}

    def to_json(self) -> dict[str, Any]:
        """Return what study.json keeps under `spec`: no secret of the command."""
        return {**asdict(self), "command": mask(self.command), "environ": _names(self.environ)}


def _names(environ: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    return [(name, MASK if is_secret(name) else value) for name, value in environ]


def spec_from_json(content: Mapping[str, Any]) -> Spec:
    """Return the Spec that `to_json` wrote; fields of later versions are left out."""
    known = {item.name for item in fields(Spec)}
    try:
        given = {name: _frozen(value) for name, value in content.items() if name in known}
        given["room"] = Room(**content["room"])
        spec = Spec(**given)
    except (KeyError, TypeError) as error:
        raise UsageError(
            "This study has no plan to go on with: its figures were imported, or another version "
            "of Farandole made it. Begin a new one with --out."
        ) from error
    return spec


def check_resumable(spec: Spec) -> None:
    """Refuse a spec that was kept without the secrets of its command.

    Raises:
        UsageError: The command has to be given again.
    """
    if any(MASK in part for part in (*spec.command, *(value for _, value in spec.environ))):
        raise UsageError(
            "The study's command has secrets, which are not kept. Give the whole command again, "
            "with --out DIR instead of --resume DIR: finished launches are kept."
        )


def _studied(spec: Spec) -> tuple[str, ...]:
    """Return the user's own command; how jobs are submitted may change from day to day."""
    return mask(job_parts(spec.command)[1] if spec.jobs else spec.command)


def merge(old: Spec, new: Spec) -> Spec:
    """Extend a study: every value that either asks for, the new one's ways of measuring.

    Raises:
        UsageError: They study different commands.
    """
    ours = (_studied(new), new.jobs, new.cwd, new.folder)
    if (_studied(old), old.jobs, old.cwd, old.folder) != ours:
        raise UsageError(
            "The folder holds a study of another command or folder: "
            f"{' '.join(old.command)} in {old.folder}. Give another --out."
        )
    params = dict(old.params)
    for name, values in new.params:
        params[name] = _union(params.get(name, ()), values)
    if set(params) != set(dict(old.params)) and old.params != ():
        missing = set(params) ^ set(dict(old.params))
        raise UsageError(
            f"The folder's study does not vary {', '.join(sorted(missing))}, so its launches "
            "cannot be compared with the new ones. Give another --out."
        )
    if old.split != new.split:
        raise UsageError(
            "Splits of the cores (--split all) and other cells cannot share a folder. Give another "
            "--out."
        )
    workers = tuple(sorted({*old.workers, *new.workers}))
    places: tuple[Place, ...] = ()
    if old.places or new.places:
        places = tuple(sorted({*old.placed, *new.placed}))
    same = old.measure == new.measure
    return replace(
        new,
        workers=workers,
        places=places,
        scaling=old.scaling if old.scaling == new.scaling else "both",
        batches=tuple(sorted({*old.batches, *new.batches})),
        global_batches=tuple(sorted({*old.global_batches, *new.global_batches})),
        find_max=old.find_max or new.find_max,
        threads=_threads(old, new, workers, places),
        threads_given=old.threads_given or new.threads_given,
        transports=_union(old.transports, new.transports),
        params=tuple(params.items()),
        measure=old.measure if same else "both",
        repeats=max(spec.repeats for spec in _measuring(old, new, unless="accuracy")),
        seeds=max(spec.seeds for spec in _measuring(old, new, unless="speed")),
    )


def _threads(
    old: Spec, new: Spec, workers: tuple[int, ...], places: tuple[Place, ...]
) -> tuple[int, ...]:
    if new.split:
        return tuple(new.room.cores // count for count in workers)
    if old.threads_given or new.threads_given:
        return tuple(sorted({*old.threads, *new.threads}))
    return (shared_threads(new.room, places or tuple((count, 1) for count in workers)),)


def _measuring(old: Spec, new: Spec, *, unless: Measure) -> list[Spec]:
    """Return those that do not measure this alone: only they have a say in other launches."""
    return [spec for spec in (old, new) if spec.measure != unless] or [new]


def _union(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    return first + tuple(value for value in second if value not in first)


def _frozen(value: Any) -> Any:
    """Turn JSON's lists into tuples."""
    return tuple(_frozen(part) for part in value) if isinstance(value, list) else value


@dataclass(slots=True)
class Notes:
    """Sentences that say what was decided for the user."""

    lines: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        """Add a sentence once."""
        if line not in self.lines:
            self.lines.append(line)


def default_workers(room: Room) -> tuple[int, ...]:
    """Return 1, 2, 4, ... up to the GPUs or the physical cores of all hosts, and that number."""
    most = room.hosts * min(room.per_host, room.gpus or max(1, room.physical))
    doubled = {2**power for power in range(int(math.log2(most)) + 1)}
    return tuple(sorted(doubled | {most}))


def shared_threads(room: Room, places: tuple[Place, ...]) -> int:
    """Return the threads of each worker in all cells: what the fullest host that fits leaves."""
    fitting = [full for place in places if (full := per_host(*place)) <= room.per_host]
    return max(1, room.cores // max(fitting, default=room.per_host))
