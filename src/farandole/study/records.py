"""What a study knows, as plain records: cells, launches, ranks, steps, metrics.

The store reads and writes them (docs/reference/study-folder.md), the model computes from them, and
nothing here does either. A figure that was not measured is None or NaN, never 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from farandole.format import plural
from farandole.study.values import typed

if TYPE_CHECKING:
    from farandole.study.rows import Frames

SCHEMA = 1

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

Purpose = Literal["speed", "epoch", "accuracy", "imported"]
"""Why a launch was made: for step times, for the fixed times around one whole epoch, for the
metrics at the script's end, or not by us at all."""

Outcome = Literal["ok", "stopped", "failed", "out_of_memory", "timeout", "interrupted"]
"""`ok`: ran to its end. `stopped`: the study knew enough and ended it at an agreed step."""

BYTE_KINDS = ("gradients", "buffers", "parameters", "objects", "other", "control")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One combination of factors; what is compared with other cells."""

    workers: int
    threads: int | None = None
    """Per worker; None in an imported table that does not say."""
    batch: int | None = None
    """Per worker; None when the command has no {batch} and the recorder saw none."""
    transport: str = "auto"
    hosts: int = 1
    device: str = "cpu"
    params: tuple[tuple[str, str], ...] = ()
    """Further factors (`-L name=...`, recipes), in the order in which they were given."""
    today: bool = False
    """One process with all cores: what the user has without Farandole. Not part of any curve."""

    @property
    def global_batch(self) -> int | None:
        """Samples per step over all workers."""
        return None if self.batch is None else self.batch * self.workers

    @property
    def placement(self) -> str:
        """Hosts x workers on each: `2x4`; `7 on 2 hosts` where these cannot share evenly."""
        if self.workers % self.hosts:
            return f"{self.workers} on {self.hosts} hosts"
        return f"{self.hosts}x{self.workers // self.hosts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """One rank's optimizer steps, one column per figure, all of one length.

    Times of the day are on the host's monotonic clock, which all ranks of one host share.
    """

    end_s: Floats
    """When the step ended."""
    data_s: Floats
    """Waiting for the next batch."""
    optimizer_s: Floats
    """The update itself."""
    communication_s: Floats
    """While any gradient was on its way, exposed or not."""
    exposed_s: Floats
    """What of it training waited for, the wait for slower ranks included."""
    ready_s: Floats
    """When this rank's last gradients were ready to go."""
    done_s: Floats
    """When the last gradients had arrived."""
    passes: Floats
    """Backward passes that it took: with gradient accumulation several."""
    samples: Floats
    """Samples that this rank trained on."""

    def __len__(self) -> int:
        return len(self.end_s)

    @property
    def duration_s(self) -> Floats:
        """From the end of the step before to the end of this one; NaN for the first."""
        return np.diff(self.end_s, prepend=np.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One value that a script reported: `farandole.record`, a pattern, TensorBoard, Keras."""

    name: str
    value: float
    step: int | None = None
    epoch: float | None = None
    time_s: float | None = None
    """Seconds since the launch began."""
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilisation:
    """What a rank used, over time."""

    time_s: Floats
    """Seconds since the launch began, at the end of each interval."""
    cpu: Floats
    """CPU time over wall time; 1.0 is one core."""
    memory_bytes: Floats
    gpu: Floats
    """Share of time that the GPU was busy; NaN without one."""
    gpu_energy_j: Floats
    """Energy since the start; NaN where it cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A file that looks like a checkpoint, opened by a worker."""

    path: str
    write: bool = False
    modified_unix_s: float | None = None
    """When it had last been written to, at the moment of opening it for reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientTimes:
    """When the gradients of one step were ready on one rank, piece by piece as they came."""

    step: int
    """Counting from 0."""
    bytes: tuple[int, ...]
    ready_s: tuple[float, ...]
    """Monotonic, like the times of `Steps`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Squared norms of one optimizer's gradients on one rank, in the updates that were sampled.

    Gradients as optimizers get them, without the scale of a GradScaler; sparse ones are left out.
    """

    optimizer: int
    """Which, where there are several: a number that all ranks have in common."""
    bucket_bytes: tuple[int, ...]
    update: Ints
    """Number of the update, from 1: by this the ranks are joined."""
    step: Ints
    """The step that it was in, a row of `Steps`."""
    samples: Floats
    """Samples that this rank trained on in that step; NaN where that is not known."""
    before: Floats
    """Updates by buckets: of this rank's own gradients."""
    after: Floats
    """Updates by buckets: of the mean over the ranks, as far as it was this rank's to square. The
    sum over all ranks is the squared norm of the whole."""
    parts: int = 1
    """Where one worker sums so many batches in an update: `before` is the mean over these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """What one worker of a launch recorded."""

    rank: int
    host: str
    framework: str = ""
    """What was hooked: farandole.torch, ddp, process_group, torch (an optimizer alone), ..."""
    device: str = "cpu"
    steps: Steps
    begin_s: float
    """Monotonic time at which the worker's interpreter started."""
    end_s: float | None = None
    """Monotonic time of its end; None when it was killed."""
    bytes_sent: Mapping[str, int] = field(default_factory=dict)
    """Payload by kind (BYTE_KINDS), before the transport multiplies it by 2(N-1)/N."""
    gradient_bytes_per_step: int | None = None
    parameters: int | None = None
    """Trainable parameters that optimizers hold."""
    peak_memory_bytes: int | None = None
    peak_gpu_bytes: int | None = None
    weights: str | None = None
    """Fingerprint of all parameters after the last step; equal on all ranks if they trained
    together."""
    sample_hashes: tuple[str, ...] = ()
    """One per sample of the first batches, so that ranks which saw the same ones are found."""
    batch_seen: int | None = None
    """Samples of the first training batch."""
    epochs: tuple[tuple[float, float], ...] = ()
    """Begin and end of each pass over the training data, monotonic."""
    dataset_size: int | None = None
    utilisation: Utilisation
    metrics: tuple[Metric, ...] = ()
    notes: tuple[str, ...] = ()
    """What could not be measured, and why, in sentences."""
    stopped: bool = False
    """Whether it ended because the study knew enough."""
    opened: tuple[Opened, ...] = ()
    """Files that look like checkpoints, in the order in which they were opened."""
    learning_rates: tuple[tuple[int, float], ...] = ()
    """(step from 0, rate that held in it): the first that is known, then each that differs by 1 %
    or more from the one before. Of the parameters with the largest rate, in torch; of Keras at the
    ends of epochs."""
    noise: tuple[Noise, ...] = ()
    """How far gradients scatter: one for each optimizer, and for each layout of its buckets."""
    buckets: tuple[GradientTimes, ...] = ()
    """When gradients were ready, in the steps that were sampled."""
    bucket_bytes: int | None = None
    """How large DDP makes its buckets; None with other wrappers."""
    size: int | None = None
    """How many workers there were, by the launcher's variables or torch's process group."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """The script's own parameters: numbers, switches and choices that it read by argparse or by
    `farandole.param`."""
    modules: tuple[str, ...] = ()
    """Of what takes long to import, what was imported at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """An error that the doctor found in a launch."""

    id: str
    """`farandole doctor --explain` says more."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One launch of one cell."""

    id: str
    cell: Cell
    repeat: int
    seed: int | None
    purpose: Purpose
    outcome: Outcome
    reason: str = ""
    """Why it failed, in one sentence; empty when it did not."""
    last_output: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    """As started, secrets masked."""
    started: str = ""
    """ISO 8601, UTC."""
    begin_s: float | None = None
    """Monotonic time at which the workers were started."""
    wall_s: float | None = None
    foreign_share: float | None = None
    """What other programs took of all cores meanwhile."""
    steal_share: float | None = None
    busy: bool = False
    """Whether others disturbed it so much that its times do not count."""
    warm: bool = False
    """Whether its workers were forked from a process that had their imports: its steps and epochs
    count, its start and its length do not."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Read from output or imported: throughput (samples/s), step_s, epoch_s, job_s, ..."""
    metrics: tuple[Metric, ...] = ()
    """Of the launch as a whole: from patterns and TensorBoard files."""
    mistakes: tuple[Mistake, ...] = ()
    """What the doctor's cheap checks found."""
    ranks: tuple[Rank, ...] = field(default=(), repr=False)

    @property
    def succeeded(self) -> bool:
        """Whether it ended well: by itself, or when the study knew enough."""
        return self.outcome in ("ok", "stopped")

    @property
    def params(self) -> Mapping[str, Any]:
        """The script's parameters: as it recorded them, or else by the flags of its command."""
        recorded = next((rank.params for rank in self.ranks if rank.params), {})
        return {**_flags(self.argv), **recorded}


def _flags(argv: Sequence[str]) -> dict[str, Any]:
    """Return the values that a command gives to flags: `--test-samples 360` is test_samples."""
    found: dict[str, Any] = {}
    for word, after in itertools.pairwise((*argv, "--")):
        if word.startswith("--") and len(word) > 2:
            given = True if after.startswith("--") else typed(after)
            found[word[2:].replace("-", "_")] = given
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A short calibration of what connects the workers."""

    memcpy_bytes_per_s: float | None = None
    peak_bytes_per_s: float | None = None
    """Point to point, one way."""
    latency_s: float | None = None
    allreduce: tuple[tuple[int, int, float], ...] = ()
    """(workers, bytes, seconds), the median of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """Workers of one host that trained each for itself: what they cost each other, without a word.

    Alone: one of them, while the others waited. Together: all at once, the mean over them.
    """

    cell: Cell
    """The cell whose workers they would have been."""
    computing_alone_s: float | None = None
    """Of a step: all but waiting for data and the update."""
    computing_together_s: float | None = None
    update_alone_s: float | None = None
    """The optimizer's."""
    update_together_s: float | None = None
    loaded_alone_per_s: float | None = None
    """Samples per second and worker that came when nothing was done with them."""
    loaded_together_per_s: float | None = None
    foreign_share: float | None = None
    """What other programs and other virtual machines took of all cores meanwhile."""
    why_not: str = ""
    """Why figures are missing, in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Everything that a study folder holds."""

    path: str
    label: str
    command: tuple[str, ...]
    """As the user gave it, with its placeholders."""
    spec: Mapping[str, Any]
    """What was asked for: see docs/reference/study-folder.md."""
    machine: Mapping[str, Any]
    created: str
    launches: tuple[Launch, ...]
    link: Link = field(default_factory=Link)
    apart: tuple[Apart, ...] = ()
    """One for each number of workers on a host."""
    complete: bool = True
    """Whether every planned launch has been made."""
    notes: tuple[str, ...] = ()
    """What of it could not be read, in sentences."""

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Study:
        """Read a study's folder; the same as `farandole.study.read.read_study`."""
        from farandole.study.read import read_study

        return read_study(path)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Return the distinct cells, in the order of their first launches."""
        return tuple(dict.fromkeys(launch.cell for launch in self.launches))

    def __repr__(self) -> str:
        """Name it in a line: all of its records would fill many screens."""
        cells, launches = len(self.cells), len(self.launches)
        open_ones = "" if self.complete else ", not complete"
        return (
            f"<Study {self.label!r}: {plural(cells, 'cell')}, "
            f"{plural(launches, 'launch')}{open_ones}, in {self.path!r}>"
        )

    def _repr_html_(self) -> str:
        """Show the report in a notebook."""
        from farandole.api import inline

        return inline(self)

    def to_pandas(self) -> Frames:
        """Return cells, launches, steps and metrics as DataFrames; needs pandas."""
        from farandole.study.rows import to_pandas

        return to_pandas(self)
