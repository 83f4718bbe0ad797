"""What a study is asked for: every flag checked, everything that was left open decided.

Secrets in its command are masked before it is written, so that a study can be shown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from farandole.errors import UsageError
from farandole.format import plural
from farandole.launch.placement import Shape, parse_shape
from farandole.study import values
from farandole.study.launchers import job_parts

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
    for name, given in new.params:
        params[name] = _union(params.get(name, ()), given)
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


def default_workers(room: Room) -> tuple[int, ...]:
    """Return 1, 2, 4, ... up to the GPUs or the physical cores of all hosts, and that number."""
    most = room.hosts * min(room.per_host, room.gpus or max(1, room.physical))
    doubled = {2**power for power in range(int(math.log2(most)) + 1)}
    return tuple(sorted(doubled | {most}))


def shared_threads(room: Room, places: tuple[Place, ...]) -> int:
    """Return the threads of each worker in all cells: what the fullest host that fits leaves."""
    fitting = [full for place in places if (full := per_host(*place)) <= room.per_host]
    return max(1, room.cores // max(fitting, default=room.per_host))


Place = tuple[int, int]
"""Workers, and the hosts that share them."""


def parse_places(text: str, *, room: Room, auto: Sequence[int]) -> tuple[Place, ...]:
    """Read counts and shapes; a count takes as few hosts as have room for it.

    Raises:
        UsageError: A part cannot be read, or needs more hosts than there are.
    """
    parts = [part.strip() for part in text.split(",")]
    shapes = {part: shape for part in parts if (shape := parse_shape(part)) is not None}
    for shape in shapes.values():
        _check(shape, room)
    found = {(shape.size, shape.hosts) for shape in shapes.values()}
    counts = [part for part in parts if part not in shapes]
    if counts:
        found |= {
            packed(count, room) for count in values.counts(",".join(counts), flag="-np", auto=auto)
        }
    return tuple(sorted(found))


def packed(workers: int, room: Room) -> Place:
    """Put workers on as few hosts as have room for them, all of them if none have."""
    return workers, min(room.hosts, workers, math.ceil(workers / room.per_host))


def per_host(workers: int, hosts: int) -> int:
    """Return the workers of the fullest host; hosts share workers as evenly as they can."""
    return math.ceil(workers / hosts)


def _check(shape: Shape, room: Room) -> None:
    if shape.hosts <= room.hosts:
        return
    have = plural(room.hosts, "host")
    raise UsageError(
        f"-np {shape} needs {plural(shape.hosts, 'host')}, but this study has {have}. Run "
        "it inside of a "
        "SLURM allocation, or name hosts: -H h1:4,h2:4."
    )


MASK = "***"

# Words of a flag's or variable's name. `key` alone is none: --key may name a column. Plurals of
# token are counts (--max-tokens 512).
_SECRET = {"token", "secret", "secrets", "password", "passwd", "passphrase", "pwd", "credential"}
_SECRET |= {"credentials", "apikey", "authorization", "auth"}
_BEFORE_KEY = {"api", "access", "secret", "private", "account", "auth", "signing", "license"}
_BEFORE_KEY |= {"encryption", "ssh", "wandb", "comet", "openai", "master", "service", "storage"}
# Tokens of text and ways of authenticating: --token-length, --pad-token, --auth-method.
_PLAIN_WITH = {"length", "len", "count", "num", "max", "min", "id", "ids", "size", "type", "dim"}
_PLAIN_WITH |= {"pad", "eos", "bos", "mask", "unk", "sep", "cls", "per", "file", "path", "method"}
_PLAIN_WITH |= {"dropout", "embedding", "embeddings", "mode", "rate", "pooling", "mixing"}

_ASSIGNMENT = re.compile(r"(--?[\w.-]+|[A-Za-z_][\w.-]*)=(.*)", re.DOTALL)
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")
# scheme://user:password@host and scheme://token@host.
_URL = re.compile(r"([A-Za-z][\w+.-]*://)([^/\s@]+)@")
_QUERY = re.compile(r"([?&]([\w.-]+)=)([^&\s#]+)")
_HEADER = re.compile(r"(?i)\b(authorization\s*:\s*(?:\w+\s+)?|bearer\s+)([^\s'\"]+)")
# Well-known shapes of tokens, wherever they stand.
_SHAPES = re.compile(
    r"\b(?:sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|hf_[A-Za-z0-9]{20,}"
    r"|AKIA[0-9A-Z]{16}|xox[abprs]-[A-Za-z0-9-]{10,}|glpat-[\w-]{16,})"
)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def mask(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command with the values of secrets as `***`.

    Masked are values of flags and variables whose names say so (`--api-key K`, `WANDB_API_KEY=K`),
    credentials in URLs, headers, and tokens of well-known shapes. Numbers after a `token` flag
    are counts and stay.
    """
    masked: list[str] = []
    follows: str | None = None
    for word in argv:
        if follows is not None and not _is_flag(word) and not _is_count(follows, word):
            masked.append(MASK)
            follows = None
            continue
        follows = word if _FLAG.fullmatch(word) and is_secret(word) else None
        masked.append(_mask_word(word))
    return tuple(masked)


def is_secret(name: str) -> bool:
    """Tell whether a flag or variable of this name holds a secret."""
    words = [word for word in re.split(r"[^a-z0-9]+", _split_case(name).lower()) if word]
    if _PLAIN_WITH.intersection(words):
        return False
    if _SECRET.intersection(words):
        return True
    return any(
        word == "key" and index and words[index - 1] in _BEFORE_KEY
        for index, word in enumerate(words)
    ) or (name.isupper() and words[-1:] == ["key"])


def _mask_word(word: str) -> str:
    assignment = _ASSIGNMENT.fullmatch(word)
    if assignment and is_secret(assignment[1]) and not _is_count(assignment[1], assignment[2]):
        return f"{assignment[1]}={MASK}"
    word = _URL.sub(_mask_user, word)
    word = _QUERY.sub(lambda m: m[1] + (MASK if is_secret(m[2]) else m[3]), word)
    word = _HEADER.sub(lambda m: m[1] + MASK, word)
    return _SHAPES.sub(MASK, word)


def _mask_user(match: re.Match[str]) -> str:
    user, colon, _ = match[2].partition(":")
    # ssh://git@host names an account, and nothing to hide.
    if not colon and match[1] in ("ssh://", "git+ssh://"):
        return match[0]
    return f"{match[1]}{user}:{MASK}@" if colon else f"{match[1]}{MASK}@"


def _is_flag(word: str) -> bool:
    return _FLAG.fullmatch(word) is not None or (word.startswith("--") and "=" in word)


def _is_count(name: str, value: str) -> bool:
    """Tell whether this is a number of text tokens; a password of digits is still one."""
    return "token" in name.lower() and _NUMBER.fullmatch(value) is not None


def _split_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
