"""What a study is asked for: every flag checked, everything that was left open decided."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from farandole.errors import UsageError
from farandole.format import plural
from farandole.launch.placement import parse_shape
from farandole.study import values
from farandole.study.codec import decode
from farandole.study.command import MASK, is_secret, job_parts, mask

Scaling = Literal["strong", "weak", "both"]
Measure = Literal["speed", "accuracy", "both"]
Place = tuple[int, int]
"""Workers, and the hosts that share them."""

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
    precision: float = 0.03
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
    warm: bool = True
    """Whether repeats may be forked from a process that has imported their frameworks."""
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
        environ = [(name, MASK if is_secret(name) else value) for name, value in self.environ]
        return {**asdict(self), "command": mask(self.command), "environ": environ}


def spec_from_json(content: Mapping[str, Any]) -> Spec:
    """Return the Spec that `to_json` wrote; fields of later versions are left out."""
    try:
        return decode(Spec, content)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            "This study has no plan to resume: its figures were imported, or another version "
            "of Farandole made it. Start a new one with --out."
        ) from error


def check_resumable(spec: Spec) -> None:
    """Refuse a spec that was kept without the secrets of its command."""
    if any(MASK in part for part in (*spec.command, *(value for _, value in spec.environ))):
        raise UsageError(
            "The study's command has secrets, which are not stored. Give the whole command again, "
            "with --out DIR instead of --resume DIR; finished launches are kept."
        )


def merge(old: Spec, new: Spec) -> Spec:
    """Extend a study: every value that either asks for, the new one's ways of measuring."""
    if _studied(old) != _studied(new):
        raise UsageError(
            "The folder holds a study of another command or folder: "
            f"{' '.join(old.command)} in {old.folder}. Give another --out."
        )
    before, params = dict(old.params), dict(old.params)
    for name, given in new.params:
        params[name] = _union(before.get(name, ()), given)
    if before and set(params) != set(before):
        raise UsageError(
            f"The folder's study does not vary {', '.join(sorted(set(params) - set(before)))}, so "
            "its launches cannot be compared with the new ones. Give another --out."
        )
    if old.split != new.split:
        raise UsageError(
            "Splits of the cores (--split all) and other cells cannot share a folder. Give another "
            "--out."
        )
    merged = replace(
        new,
        workers=tuple(sorted({*old.workers, *new.workers})),
        places=tuple(sorted({*old.placed, *new.placed})) if old.places or new.places else (),
        scaling=old.scaling if old.scaling == new.scaling else "both",
        batches=tuple(sorted({*old.batches, *new.batches})),
        global_batches=tuple(sorted({*old.global_batches, *new.global_batches})),
        find_max=old.find_max or new.find_max,
        threads_given=old.threads_given or new.threads_given,
        transports=_union(old.transports, new.transports),
        params=tuple(params.items()),
        measure=old.measure if old.measure == new.measure else "both",
        # Repeats are speed's, seeds are accuracy's: who measures neither has no say in them.
        repeats=max([x.repeats for x in (old, new) if x.measure != "accuracy"] or [new.repeats]),
        seeds=max([x.seeds for x in (old, new) if x.measure != "speed"] or [new.seeds]),
    )
    threads = tuple(sorted({*old.threads, *new.threads}))
    if new.split:
        threads = tuple(new.room.cores // count for count in merged.workers)
    elif not merged.threads_given:
        threads = (shared_threads(new.room, merged.placed),)
    return replace(merged, threads=threads)


def _studied(spec: Spec) -> tuple[object, ...]:
    """Return the user's own command and where it runs; how jobs are submitted may change."""
    command = job_parts(spec.command)[1] if spec.jobs else spec.command
    return mask(command), spec.jobs, spec.cwd, spec.folder


def _union(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def default_workers(room: Room) -> tuple[int, ...]:
    """Return 1, 2, 4, ... up to the GPUs or the physical cores of all hosts, and that number."""
    most = room.hosts * min(room.per_host, room.gpus or max(1, room.physical))
    doubled = {2**power for power in range(int(math.log2(most)) + 1)}
    return tuple(sorted(doubled | {most}))


def shared_threads(room: Room, places: tuple[Place, ...]) -> int:
    """Return the threads of each worker in all cells: what the fullest host that fits leaves."""
    fitting = [full for place in places if (full := per_host(*place)) <= room.per_host]
    return max(1, room.cores // max(fitting, default=room.per_host))


def parse_places(text: str, *, room: Room, auto: Sequence[int]) -> tuple[Place, ...]:
    """Read counts and shapes; a count takes as few hosts as have room for it."""
    found: set[Place] = set()
    counts = []
    for part in text.split(","):
        shape = parse_shape(part)
        if shape is None:
            counts.append(part)
        elif shape.hosts <= room.hosts:
            found.add((shape.size, shape.hosts))
        else:
            raise UsageError(
                f"-np {shape} needs {plural(shape.hosts, 'host')}, but this study has "
                f"{plural(room.hosts, 'host')}. Run it inside of a SLURM allocation, or name "
                "hosts: -H h1:4,h2:4."
            )
    if counts:
        numbers = values.counts(",".join(counts), flag="-np", auto=auto)
        found |= {packed(count, room) for count in numbers}
    return tuple(sorted(found))


def packed(workers: int, room: Room) -> Place:
    """Put workers on as few hosts as have room for them, all of them if none have."""
    return workers, min(room.hosts, workers, math.ceil(workers / room.per_host))


def per_host(workers: int, hosts: int) -> int:
    """Return the workers of the fullest host; hosts share workers as evenly as they can."""
    return math.ceil(workers / hosts)
