"""What the recorder wrote about a launch, as the input of every check.

A worker that is recorded with FARANDOLE_RECORD=doctor (or =watch, the cheap part of it) writes more
kinds of lines into rank-N.jsonl than a study needs. Each kind has a record here, registered by
@fact; `rank.facts(Record)` returns them in the order in which they were written, and
`rank.lines("kind")` the plain lines of kinds that have no record.

Facts that exist (fields as in the records below; * also without FARANDOLE_RECORD):

  *Rank        rank, size, host, steps, epochs, bytes_sent, weights, sample_hashes, dataset_size,
               batch_seen, framework, params, learning_rates, metrics, notes, opened, ended
   Machine     threads, affinity, cores, cpus, versions, script, files, ...
   Optimizer   number, name, where, parameters, tensors, groups
   Model       parameters (names), shapes, trainable, buffers, unheld
   State       step, weights, buffers, optimizer, rng: 64-bit hashes per tensor, for rank agreement
   Gradients   step, hashes, norms: gradients as the optimizer used them, per parameter
   Groups      step, optimizer, groups: hyperparameters, whenever they change
   Wrapper     kind_of (ddp), number, where, forwards, bypassed, synced, unsynced, ...
   Calls       sites (operation, file:line), order, counts: collectives that the script calls itself
   Waiting     call, where, since_s: a collective that did not return
   File        path, mode, where: files that the script opened for writing
   Evaluation  samples, dataset_size, hashes, exchanged, items: calls without gradients
   Item, Shown, Printed, Compared   numbers of the script: from tensors, in texts, in decisions
   Decides     name, monitor: callbacks of Keras's that stop or save by a metric

   Loader      where, dataset_size, batch_size, samplers, replicas, sampler_rank, ...
   Pass        loader, number, training, whole, indices, contents: samples of one pass
   Random      loader, number, worker, states, used: where augmentation's random numbers stand
   BadBatch    step, values: batches with NaN
   Fit         epochs, steps: what Keras was asked for

   Local       step, local, used, divisors, ...: what an update was made of
   Schedule    step, name, calls, total: learning rate schedulers
   Scaler, Clip, Plan, Work, BadGradient
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from farandole.errors import UsageError
from farandole.format import plural

_Fact = TypeVar("_Fact")
_KINDS: dict[type, str] = {}

SCHEMA = 1
CONTENT_WIDTH = 12
"""Hexadecimal digits of a sample's hash in Pass.contents (WIDTH in recorder/samples.py)."""


def fact(kind: str) -> Callable[[type[_Fact]], type[_Fact]]:
    """Make a frozen dataclass the record of a kind of lines; every field needs a default."""

    def register(record: type[_Fact]) -> type[_Fact]:
        _KINDS[record] = kind
        return record

    return register


# Which machine and software


@fact("machine")
@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where a worker runs, and with what."""

    threads: int | None = None
    """That one operation of the framework uses."""
    affinity: tuple[int, ...] = ()
    """Cores that the worker may use."""
    cores: float | None = None
    """Cores that all workers of this host may use together, control groups considered."""
    versions: Mapping[str, str] = field(default_factory=dict)
    script: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    """Hashes of the script and of the user's modules, by file."""
    cpus: int | None = None
    """Of the host."""
    open_files: int | None = None
    """How many files the worker may have open (RLIMIT_NOFILE)."""
    shm_free_bytes: int | None = None
    interface: str = ""
    """GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME."""
    address: str = ""
    """Where the workers meet: MASTER_ADDR."""
    backend: str = ""
    """Of torch.distributed, where it is used."""
    device: str = ""
    """cpu, or a GPU by its number and UUID."""
    world: tuple[int, int] | None = None
    """Rank and size that the framework itself was given; None before it joined."""


# Weights, gradients and hyperparameters


@fact("optimizer")
@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """An optimizer that made an update."""

    number: int = 0
    name: str = ""
    where: str = ""
    """file:line where the script made it."""
    step_where: str = ""
    """file:line of its first step()."""
    tensors: int = 0
    parameters: int = 0
    distributed: bool = False
    """Whether it is Farandole's or Horovod's DistributedOptimizer."""


@fact("model")
@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The parameters that optimizers hold, when the first step ended, in their order."""

    names: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    trainable: tuple[bool, ...] = ()
    buffers: tuple[str, ...] = ()
    """Names of the floating point buffers of the modules that hold these parameters."""
    unheld: tuple[str, ...] = ()
    """Trainable parameters of the model that no optimizer holds."""


@fact("state")
@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Hashes of what workers should have alike, in the order of Model's names."""

    step: int = 0
    """Steps that had ended: 0 is before the first update."""
    weights: tuple[str, ...] = ()
    weight_norms: tuple[float, ...] = ()
    buffers: tuple[str, ...] = ()
    buffer_means: tuple[float, ...] = ()
    buffer_norms: tuple[float, ...] = ()
    optimizer: tuple[str, ...] = ()
    """Of optimizer state, by parameter; "" where there is none."""
    optimizer_steps: float | None = None
    """The step counter that the optimizer itself keeps."""
    rng: Mapping[str, str] = field(default_factory=dict)
    """By generator: torch, numpy, python."""


@fact("gradients")
@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """Gradients that an update used, in the order of Model's names; "" and NaN for none."""

    step: int = 0
    hashes: tuple[str, ...] = ()
    norms: tuple[float, ...] = ()
    finite: bool = True


@fact("groups")
@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """An optimizer's hyperparameters, when they are first seen and whenever they change."""

    step: int = 0
    optimizer: int = 0
    groups: tuple[Mapping[str, Any], ...] = ()
    """By parameter group: lr, momentum, weight_decay, betas..."""


# What is exchanged


@fact("wrapper")
@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper:
    """What averages gradients, as it was at the end."""

    kind_of: str = ""
    """ddp, the only one so far: optimizers are told of by Optimizer."""
    number: int = 0
    """The last line of each number counts."""
    where: str = ""
    forwards: int = 0
    """Calls of a DDP module in training."""
    bypassed: int = 0
    """Training calls of the module inside of DDP that did not come through DDP."""
    bypassed_where: str = ""
    synced: int = 0
    """Passes whose backward exchanges gradients."""
    unsynced: int = 0
    """Passes under no_sync()."""
    unsynced_updates: int = 0
    """Updates whose last pass was under no_sync()."""
    size: int | None = None
    """Workers in its process group."""
    broadcast_buffers: bool | None = None
    find_unused: bool | None = None
    sync_batch_norm: bool | None = None


@fact("calls")
@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Collectives that the script itself calls, until now: the last line counts."""

    sites: tuple[tuple[str, str], ...] = ()
    """Operation and file:line."""
    counts: tuple[int, ...] = ()
    """Calls by site."""
    order: tuple[int, ...] = ()
    """Sites in the order of the first calls (see MOST_CALLS in recorder/calls.py)."""
    shapes: tuple[str, ...] = ()
    """What was first sent at each site."""


@fact("waiting")
@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A worker that has made no progress for some seconds, and where it is."""

    call: str = ""
    """The collective that it is in; empty where it is in none."""
    where: str = ""
    seconds: float = 0.0
    step: int = 0


@fact("file")
@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file that the script opened for writing."""

    path: str = ""
    mode: str = ""
    where: str = ""
    step: int = 0


# FD2xx data: records of recorder/samples.py


@fact("loader")
@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """What gives batches: a DataLoader, or what a model or Keras was seen to be given."""

    number: int = 0
    kind_of: str = "loader"
    """loader; calls and evaluation of a model; fit and validation of Keras."""
    where: str = ""
    dataset: str = ""
    dataset_size: int | None = None
    base: int | None = None
    """The data set that Subsets are parts of, by its number in this worker."""
    base_size: int | None = None
    subset: tuple[int, ...] | None = None
    """Places in the base, of a Subset."""
    batch_size: int | None = None
    workers: int = 0
    iterable: bool = False
    samplers: tuple[str, ...] = ()
    replicas: int | None = None
    """Parts into which its sampler divides, and which of them it gives."""
    sampler_rank: int | None = None
    sampler_seed: Any = None
    shuffle: bool = False
    replacement: bool = False
    drop_last: bool = False
    batches: int | None = None
    asked: tuple[str, ...] = ()
    """The script's own samplers for this data, that this loader does not use."""
    dividers: tuple[str, ...] = ()
    """Its samplers that divide between ranks."""
    own: str = ""
    """A sampler of the script's own kind, within others perhaps, and its length."""
    own_length: int | None = None


@fact("pass")
@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass over a loader, as far as it went; the last line of each counts."""

    loader: int = 0
    number: int = 0
    training: bool = False
    whole: bool = False
    begin: int = 0
    """The step of its first batch."""
    steps: int = 0
    """Updates until its end."""
    samples: int = 0
    pending: int = 0
    """Backward passes behind its end that no update used."""
    discrete: bool = False
    """Whether its inputs are whole numbers, as tokens are."""
    sizes: tuple[tuple[int, int], ...] = ()
    """Runs of equal batches: samples and count."""
    indices: tuple[int, ...] = ()
    """Of the first samples, in their order; places in the loader's data set."""
    contents: str = ""
    """Hashes of the first samples, CONTENT_WIDTH digits each."""
    labels: str = ""
    """Of their labels, two digits each."""


@fact("random")
@dataclass(frozen=True, slots=True, kw_only=True)
class Random:
    """Where random numbers stood when a loader's process (-1: the worker itself) began a pass."""

    loader: int = 0
    number: int = 0
    worker: int = -1
    states: Mapping[str, str] = field(default_factory=dict)
    used: tuple[str, ...] = ()
    """Those that the first batch drew from."""


@fact("bad_batch")
@dataclass(frozen=True, slots=True, kw_only=True)
class BadBatch:
    """A batch with values that are NaN or infinite."""

    step: int = 0
    batch: int = 0
    values: int = 0
    where: str = ""


@fact("fit")
@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What Keras was asked to fit."""

    epochs: int | None = None
    steps: int | None = None
    """Per epoch."""
    where: str = ""


# FD3xx optimisation: records of recorder/schedules.py


@fact("local")
@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """What one update was made of, in a sampled step."""

    step: int = 0
    passes: int = 0
    """Backward passes since the last update."""
    sites: tuple[str, ...] = ()
    """Where the script called backward."""
    losses: tuple[float | None, ...] = ()
    """By pass."""
    local: tuple[tuple[float | None, ...], ...] = ()
    """Some values of some gradients, as this rank computed them (all passes together)."""
    used: tuple[tuple[float | None, ...], ...] = ()
    """The same values as the update used them."""
    scale: float | None = 1.0
    """Of the loss, by a GradScaler."""
    carried: bool = False
    """Whether the gradients of the last update were still there."""
    divisors: tuple[tuple[float, ...], ...] = ()
    """By pass: numbers by which the loss was divided."""
    factors: tuple[tuple[float, ...], ...] = ()
    counts: tuple[tuple[tuple[float, float], ...], ...] = ()
    """By pass and criterion: targets that count, and all targets."""
    known: bool = False
    """Whether the loss's graph was understood."""


@fact("bad_gradient")
@dataclass(frozen=True, slots=True, kw_only=True)
class BadGradient:
    """A loss or a gradient of this rank's own that is not finite."""

    step: int = 0
    what: str = ""


@fact("schedule")
@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A learning rate scheduler, when it is first seen and whenever it has changed."""

    step: int = 0
    number: int = 0
    name: str = ""
    where: str = ""
    calls: float | None = None
    """Of its step() so far."""
    total: int | None = None
    """Calls after which it is at its end."""
    numbers: tuple[int, ...] = ()
    """Whole numbers that a LambdaLR's functions know."""
    best: float | None = None
    num_bad_epochs: int | None = None


@fact("scaler")
@dataclass(frozen=True, slots=True, kw_only=True)
class Scaler:
    """The scale of a GradScaler, whenever it changes."""

    step: int = 0
    scale: float = 1.0


@fact("clip")
@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """A clipping of gradients by their norm, in a sampled step."""

    step: int = 0
    norm: float = 0.0
    most: float = 0.0
    where: str = ""


@fact("plan")
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the script's variables say about how long it means to train."""

    epochs: int = 0


@fact("work")
@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Backward passes and updates until now: the last line counts."""

    passes: int = 0
    updates: int = 0


# FD4xx measurement and evaluation: records of recorder/evaluation.py


@fact("evaluation")
@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A trained model that was called without gradients, until training went on."""

    number: int = 0
    step: int = 0
    where: str = ""
    samples: int = 0
    sizes: tuple[int, ...] = ()
    """Samples by batch."""
    dataset_size: int | None = None
    sampler: str = ""
    replicas: int | None = None
    whole: bool = False
    """Whether a loader was gone through to its end."""
    hashes: tuple[str, ...] = ()
    """Of the inputs of the first samples."""
    training: tuple[str, ...] = ()
    """Layers that were in training mode."""
    exchanged: tuple[str, ...] = ()
    """Operations that averaged or gathered something, from its begin until training went on."""
    trimmed: bool = False
    """Whether Accelerate's gather_for_metrics left out what was padded."""
    items: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Numbers that the script took out of tensors meanwhile, by file:line."""


@fact("item")
@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A number that the script took out of a tensor in training."""

    step: int = 0
    where: str = ""
    value: float = 0.0
    exchanged: bool = False
    """Whether the script averaged or gathered something in this step before."""


@fact("shown")
@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A number that was turned into text, and what it was made from."""

    step: int = 0
    where: str = ""
    value: float = 0.0
    origin: tuple[Any, ...] = ("",)
    """("train" or "eval", file:line of the tensor's), or ("rate", begin_s, end_s, numerator)."""


@fact("printed")
@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """Numbers in a line that was printed or logged, with evaluations behind it."""

    step: int = 0
    where: str = ""
    number: int = 0
    """Of the last evaluation."""
    numbers: tuple[tuple[str, str], ...] = ()
    """What stands before each, and its text."""


@fact("compared")
@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A figure of an evaluation that the script compared with another number."""

    step: int = 0
    where: str = ""
    value: float = 0.0


@fact("decides")
@dataclass(frozen=True, slots=True, kw_only=True)
class Decides:
    """A callback of Keras's that stops, or saves, by a metric."""

    name: str = ""
    monitor: str = ""


# A launch


Ended = Literal["ok", "stopped", "failed", "hung", "killed", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A figure that the script reported."""

    name: str
    value: float
    step: int | None = None
    epoch: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """What one worker wrote."""

    rank: int
    size: int
    host: str = ""
    steps: int = 0
    epochs: int = 0
    end_s: tuple[float, ...] = ()
    """Ends of steps on the host's monotonic clock."""
    samples: tuple[float | None, ...] = ()
    """By step."""
    passes: tuple[float | None, ...] = ()
    """Backward passes by step."""
    setup: Mapping[str, Any] = field(default_factory=dict)
    """What is the same in all steps: framework, dataset_size, batch_seen, params, ..."""
    end: Mapping[str, Any] = field(default_factory=dict)
    """The last line; empty where the worker did not come to write it."""
    metrics: tuple[Metric, ...] = ()
    notes: tuple[str, ...] = ()
    told: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)

    def lines(self, kind: str) -> tuple[Mapping[str, Any], ...]:
        """Return the lines of a kind as they were written."""
        return self.told.get(kind, ())

    def facts(self, record: type[_Fact]) -> tuple[_Fact, ...]:
        """Return the facts of a kind, in the order in which they were written."""
        known = {each.name for each in fields(cast(Any, record))}
        return tuple(
            record(**{name: _frozen(value) for name, value in line.items() if name in known})
            for line in self.lines(_KINDS[record])
        )

    def last(self, record: type[_Fact]) -> _Fact | None:
        """Return the last fact of a kind, which counts where each line has all until then."""
        found = self.facts(record)
        return found[-1] if found else None

    @property
    def framework(self) -> str:
        """What averages gradients: farandole.torch, ddp, torch, farandole.keras, ..."""
        return str(self.setup.get("framework") or "")

    @property
    def weights(self) -> str | None:
        """One fingerprint of all weights behind the last step."""
        return self.end.get("weights")

    @property
    def bytes_sent(self) -> Mapping[str, int]:
        """Payload by kind: gradients, buffers, parameters, objects, other, control."""
        return self.end.get("bytes_sent") or {}

    @property
    def sample_hashes(self) -> tuple[str, ...]:
        """Of the first samples that this worker trained on."""
        return tuple(self.setup.get("sample_hashes") or ())

    @property
    def detailed(self) -> bool:
        """Whether the recorder was asked for a doctor's facts."""
        return bool(self.lines("machine"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One launch: what all its workers wrote."""

    ranks: tuple[Rank, ...]
    workers: int
    ended: Ended = ""
    reason: str = ""
    """Why it did not end well."""
    alone: Job | None = None
    """The same script on one worker with the same global batch, where it was replayed."""

    @property
    def training(self) -> tuple[Rank, ...]:
        """The workers that made steps."""
        return tuple(rank for rank in self.ranks if rank.steps)

    @property
    def framework(self) -> str:
        """What fixes are written for: torch (Farandole or Horovod), ddp, accelerate, lightning,
        keras or tensorflow."""
        named = [rank.framework for rank in self.ranks]
        modules = {name for rank in self.ranks for name in rank.end.get("modules") or ()}
        if any("keras" in name for name in named):
            return "keras"
        if any("tensorflow" in name for name in named):
            return "tensorflow"
        if any(name == "farandole.torch" for name in named):
            return "torch"
        if "accelerate" in modules:
            return "accelerate"
        if modules & {"lightning", "pytorch_lightning"}:
            return "lightning"
        return "ddp" if any(name in ("ddp", "process_group") for name in named) else "torch"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that workers ran on, each once."""
        return tuple(dict.fromkeys(rank.host for rank in self.ranks))


def read_job(folder: Path, *, workers: int, ended: Ended = "", reason: str = "") -> Job:
    """Read what the workers of a launch recorded into a folder.

    Raises:
        UsageError: a file cannot be read.
    """
    try:
        files = sorted(folder.glob("rank-*.jsonl"), key=lambda file: (len(file.name), file.name))
        found = [read_rank(file.read_bytes()) for file in files if ".events." not in file.name]
    except OSError as error:
        raise UsageError(f"{folder} cannot be read ({error.strerror}).") from error
    ranks = tuple(rank for rank in found if rank is not None)
    return Job(ranks=ranks, workers=workers, ended=ended, reason=reason)


def read_rank(text: bytes | str) -> Rank | None:
    """Read a worker's lines; None without a first one. Damaged lines are passed over."""
    told: dict[str, list[Mapping[str, Any]]] = {}
    for line in text.splitlines():
        try:
            content = json.loads(line)
            told.setdefault(str(content["kind"]), []).append(content)
        except (ValueError, TypeError, KeyError, RecursionError):
            continue  # the last line of a worker that was killed
    if "begin" not in told:
        return None
    begin = told["begin"][0]
    columns = [one.get("columns") or {} for one in told.get("steps", ())]
    setup = _merged(told.get("setup", ()))
    return Rank(
        rank=int(begin["rank"]),
        size=int(begin.get("size") or 1),
        host=str(begin.get("host", "")),
        steps=sum(len(one.get("end_s") or ()) for one in columns),
        epochs=len(told.get("epoch", ())),
        end_s=_column(columns, "end_s"),
        samples=_column(columns, "samples"),
        passes=_column(columns, "passes"),
        setup=setup,
        end=_merged(told.get("end", ())[-1:]),
        metrics=tuple(_metric(one) for one in told.get("metric", ())),
        notes=tuple(str(one.get("text", "")) for one in told.get("note", ())),
        told={kind: tuple(lines) for kind, lines in told.items()},
    )


def say_ranks(ranks: Iterable[int]) -> str:
    """Name ranks as in a sentence: "rank 1", "ranks 0 and 2", "4 ranks"."""
    ordered = sorted(ranks)
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    if len(ordered) > 4:
        return plural(len(ordered), "rank")
    return f"ranks {', '.join(map(str, ordered[:-1]))} and {ordered[-1]}"


def _column(blocks: Iterable[Mapping[str, Sequence[Any]]], name: str) -> tuple[Any, ...]:
    return tuple(
        value
        for block in blocks
        for value in block.get(name) or [None] * len(block.get("end_s") or ())
    )


def _metric(line: Mapping[str, Any]) -> Metric:
    step, epoch = line.get("step"), line.get("epoch")
    return Metric(
        name=str(line.get("name")),
        value=float(line.get("value", "nan")),
        step=None if step is None else int(step),
        epoch=None if epoch is None else float(epoch),
    )


def _merged(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for line in lines for name, value in line.items() if value is not None}


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
