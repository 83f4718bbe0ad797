"""What `analyse` finds, as frozen records that the report draws and tabulates.

None stands for "not measured" and is never to be shown as 0. Times are in seconds, rates per
second, shares between 0 and 1. An Estimate without `low` and `high` comes from one launch only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from farandole.model.projection.records import NoiseScale
from farandole.model.statistics import Estimate
from farandole.study.records import Cell

if TYPE_CHECKING:
    from farandole.model.projection.outlook import Projection

AccuracyVerdict = Literal["same", "worse", "better", "inconclusive", "not_measured"]

Bound = Literal[
    "compute", "communication", "input", "straggler", "fixed_cost", "oversubscription", "unknown"
]

Scaling = Literal["strong", "weak"]

VoidKind = Literal["not_averaged", "weights_differ", "same_samples"]

Severity = Literal["void", "warn", "note", "good"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The one thing that a reader takes home."""

    workers: int | None
    """How many to use; None when no launch counts or the study is void."""
    baseline_workers: int | None
    """What the speedup refers to: 1, or the smallest count that was measured."""
    speedup: float | None
    """None when void or when there is nothing to compare."""
    interval: tuple[float, float] | None
    """95 % interval of the speedup; None with one launch on either side."""
    efficiency: float | None
    accuracy: AccuracyVerdict
    limited_by: Bound
    void: str | None
    """Why no speedup may be printed."""
    next: str
    """The command or change to try next; never empty."""
    headline: str
    """One sentence: "2 workers: 1.83x faster (1.79 to 1.87), same accuracy; ..."."""
    sentences: tuple[str, ...] = ()
    """What follows the headline: other groups, today, missing parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """One worker count on a curve."""

    cell: Cell
    workers: int
    batch: int | None
    """Per worker."""
    global_batch: int | None
    throughput: Estimate
    speedup: Estimate | None
    """Against the curve's baseline; None when void."""
    efficiency: Estimate | None
    ideal_throughput: float
    ideal_speedup: float
    step_s: Estimate | None
    launches: int
    valid: bool
    """Whether its speed counts; else `why` says why not. Its speedup is not to be shown then."""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LawFit:
    """A serial fraction fitted to a curve, and what it means in words."""

    law: Literal["amdahl", "gustafson"]
    serial_fraction: Estimate
    limit: float | None
    """Largest speedup that Amdahl's law leaves; None without a limit, and for Gustafson's."""
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Throughput, speedup and efficiency by workers, all other factors fixed."""

    scaling: Scaling
    group: str
    """The other factors in words, "" when there is only one group."""
    label: str
    """For a legend: group and batch."""
    batch: int | None
    """The fixed batch: per worker (weak) or global (strong)."""
    unit: str
    """Of the throughput: samples/s, batches/s, epochs/s or jobs/s."""
    baseline_workers: int
    points: tuple[CurvePoint, ...]
    """By workers, ascending."""
    amdahl: LawFit | None
    gustafson: LawFit | None
    best_workers: int | None
    sentence: str
    main: bool = False
    """Whether the answer speaks of this curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSplit:
    """Where a typical step of a cell goes. The parts that were measured add up to `step_s`."""

    cell: Cell
    label: str
    step_s: float
    data_s: float | None
    compute_s: float | None
    """Forward, backward, and whatever of the others was not measured."""
    transfer_s: float | None
    """Exposed communication without the wait for slower ranks."""
    waiting_s: float | None
    """For the slowest peer; None across hosts."""
    exposed_s: float | None
    """transfer + waiting, known also where the two cannot be told apart."""
    optimizer_s: float | None
    hidden_s: float | None
    """Communication that ran beside computing; not part of the sum."""
    slowest_rank: int | None
    """The rank that the others waited for most often."""
    slowest_share: float | None
    """In which share of the steps."""
    compute_by_rank_s: tuple[tuple[int, float], ...] = ()

    def parts(self) -> dict[str, float | None]:
        """Return the parts in the order in which they are stacked."""
        parts = {
            "data": self.data_s,
            "compute": self.compute_s,
            "transfer": self.transfer_s,
            "waiting": self.waiting_s,
            "optimizer": self.optimizer_s,
        }
        if self.transfer_s is None and self.exposed_s is not None:
            parts["transfer"] = self.exposed_s
        return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """Communication of a cell: measured, and derived as the labs did."""

    cell: Cell
    label: str
    gradient_bytes: int | None
    """Payload per step and rank."""
    measured_s: float | None
    """Per step: the transfer as the rank that waited least saw it, hidden parts included."""
    exposed_s: float | None
    """Per step: what training waited for, mean over ranks."""
    derived_s: float | None
    """Per step: T(N) - T(1) at the same batch per worker; T(N) - T(1)/N at the same global one."""
    derived_epoch_s: float | None
    """Per epoch: T(N) - T(1)/N, the labs' figure."""
    bus_bytes_per_s: float | None
    """2(N-1)/N x gradient bytes / measured_s."""
    derived_bus_bytes_per_s: float | None
    peak_bytes_per_s: float | None
    utilisation: float | None
    """bus_bytes_per_s / peak_bytes_per_s."""
    bytes_by_kind: Mapping[str, float]
    """Payload per step over all ranks, by kind; empty when not measured."""
    total_bytes_by_kind: Mapping[str, int]
    """Over the whole launch and all ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPoint:
    """One all-reduce of the calibration."""

    workers: int
    bytes: int
    seconds: float
    bus_bytes_per_s: float
    utilisation: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilisationRow:
    """What the workers of a cell used, on average and at most."""

    cell: Cell
    label: str
    cpu: float | None
    """Mean share of its threads that a worker kept busy (of one core where threads are unknown)."""
    gpu: float | None
    memory_bytes: float | None
    """Largest high-water mark of any worker."""
    gpu_memory_bytes: float | None
    energy_j: float | None
    by_rank: tuple[tuple[int, float | None, float | None, float | None], ...]
    """(rank, cpu, gpu, memory bytes)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilisationSeries:
    """One worker's utilisation over time, thinned to at most 200 points."""

    cell: Cell
    label: str
    launch: str
    rank: int
    time_s: tuple[float, ...]
    cpu: tuple[float | None, ...]
    gpu: tuple[float | None, ...]
    memory_bytes: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPoint:
    """One batch of a sweep."""

    cell: Cell
    batch: int
    throughput: Estimate | None
    """None when the cell failed."""
    step_s: Estimate | None
    cpu: float | None
    gpu: float | None
    failed: str
    """Why there is no figure; empty when there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSweep:
    """Throughput against batch at a fixed number of workers."""

    group: str
    label: str
    workers: int
    unit: str
    points: tuple[BatchPoint, ...]
    best: int | None
    """The smallest batch that is not clearly slower than the fastest."""
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPoint:
    """One way to share the cores among processes and threads."""

    cell: Cell
    workers: int
    threads: int
    throughput: Estimate
    today: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitTable:
    """Throughput by processes x threads at one global batch, or at one batch of a worker."""

    group: str
    label: str
    unit: str
    points: tuple[SplitPoint, ...]
    best: tuple[int, int] | None
    """(workers, threads)"""
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTime:
    """Job, epoch and fixed time of a cell."""

    cell: Cell
    label: str
    job_s: Estimate | None
    epochs: float | None
    """Of the job that was measured."""
    epoch_s: Estimate | None
    """One pass over the training data, measured or steps per epoch x step time."""
    epoch_measured: bool
    steps_per_epoch: int | None
    startup_s: float | None
    """From the launch to the first step."""
    between_s: float | None
    """Validation, checkpoints and whatever else lies between and after epochs, whole job."""
    fixed_s: float | None
    """job - epochs x epoch."""
    fixed_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricPoint:
    """A metric at one epoch, over seeds."""

    epoch: float
    value: Estimate
    time_s: float | None
    """Mean time since the launch began."""
    seeds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricCurve:
    """A metric by epoch (and by time) of a cell."""

    cell: Cell
    label: str
    metric: str
    points: tuple[MetricPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """A metric at the end of training, over seeds, compared with the fewest workers."""

    cell: Cell
    label: str
    metric: str
    higher_is_better: bool
    final: Estimate | None
    """Mean over seeds of the last value; None when all diverged."""
    seeds: int
    diverged: int
    """Seeds whose last value is not finite."""
    difference: Estimate | None
    """Minus the baseline's; None for the baseline itself."""
    margin: float
    verdict: AccuracyVerdict | None
    """None for the baseline itself."""
    stable_epoch: float | None
    """Median over seeds of the epochs to stability; None when not reached (see `censored`)."""
    stable_s: float | None
    censored: int
    """Seeds that never became stable."""
    target: float | None
    target_epoch: float | None
    target_s: float | None
    target_reached: int
    """Seeds that reached the target."""
    seeds_alike: bool = False
    """Whether all seeds gave the very same values, so that they count as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Money, at a price per worker and hour."""

    cell: Cell
    label: str
    price_per_worker_hour: float
    per_epoch: float | None
    job: float | None
    to_target: float | None
    per_million_samples: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseRow:
    """How far the gradients of a cell's workers scatter."""

    cell: Cell
    label: str
    noise: NoiseScale
    global_batch: float
    """Mean samples per step, of all workers."""
    launches: int
    buckets: tuple[NoiseScale | None, ...]
    """Of each gradient bucket alone; None where too few steps were sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRow:
    """One cell with all that was measured of its speed."""

    cell: Cell
    label: str
    launches: int
    """That count for speed."""
    attempts: int
    step_s: Estimate | None
    throughput: Estimate | None
    unit: str
    failed: str
    """Why no launch of it ended well; empty when one did."""
    void_for_speed: str
    """E.g. more ranks than cores; empty when its speed counts."""
    gradient_bytes: int | None
    parameters: int | None
    steps_per_epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRow:
    """One launch: whether its speed was kept, and why not."""

    id: str
    cell: Cell
    label: str
    purpose: str
    outcome: str
    repeat: int
    seed: int | None
    kept: bool
    why: str
    """Why its speed was left out; empty when kept."""
    outlier: bool
    """Flagged, and kept all the same."""
    steps: int
    """That entered its figure."""
    warmup_steps: int
    """Dropped at the begin."""
    step_s: float | None
    throughput: float | None
    unit: str
    wall_s: float | None
    started: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One sentence with its evidence and what to do."""

    kind: str
    """The rule's name: communication_bound, overfitting, ..."""
    severity: Severity
    sentence: str
    action: str
    evidence: Mapping[str, float | str]
    labels: tuple[str, ...] = ()
    """Of the cells that it speaks of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Void:
    """A reason why workers did not train together."""

    kind: VoidKind
    cell: Cell
    label: str
    launches: tuple[str, ...]
    sentence: str
    mend: str
    evidence: Mapping[str, float | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Today:
    """One process with all cores, beside the answer."""

    cell: Cell
    throughput: Estimate
    unit: str
    gain: Estimate | None
    """Throughput of the answer's cell over today's."""
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingInfo:
    """Everything that a study says."""

    label: str
    answer: Answer
    curves: tuple[Curve, ...]
    """The main one first."""
    today: Today | None
    splits: tuple[StepSplit, ...]
    communication: tuple[Communication, ...]
    link: tuple[LinkPoint, ...]
    utilisation: tuple[UtilisationRow, ...]
    utilisation_series: tuple[UtilisationSeries, ...]
    batch_sweeps: tuple[BatchSweep, ...]
    split_tables: tuple[SplitTable, ...]
    job_times: tuple[JobTime, ...]
    metric_curves: tuple[MetricCurve, ...]
    metrics: tuple[MetricRow, ...]
    main_metric: str | None
    costs: tuple[Cost, ...]
    cells: tuple[CellRow, ...]
    launches: tuple[LaunchRow, ...]
    verdicts: tuple[Verdict, ...]
    voids: tuple[Void, ...]
    notes: tuple[str, ...]
    """What could not be measured or was left out, in sentences."""
    margins: Mapping[str, float]
    """Of the equivalence tests: speed (relative), and the main metric's (absolute)."""
    machine: Mapping[str, object]
    complete: bool
    command: tuple[str, ...] = ()
    """As the user gave it, with its placeholders."""
    spec: Mapping[str, object] = field(default_factory=dict)
    """What was asked for: see docs/study-folder.md."""
    created: str = ""
    """ISO 8601, UTC."""
    noise: tuple[NoiseRow, ...] = ()
    """Of cells with 2 workers or more, or with several batches in an update."""
    projection: Projection | None = None
    """What more workers would give; None where nobody asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """One group and worker count of one study, beside others."""

    study: str
    label: str
    """The cell in words."""
    cell: Cell
    throughput: Estimate | None
    unit: str
    speedup: Estimate | None
    """Within its own study."""
    final_metric: Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Several studies side by side, by label."""

    infos: tuple[ScalingInfo, ...]
    rows: tuple[ComparisonRow, ...]
    ratios: tuple[tuple[str, str, str, Estimate], ...]
    """(study, other study, cell label, throughput over the other's); empty when refused."""
    refused: str | None
    """Why ratios between studies are not given; None when they are."""
    metric: str | None
    verdicts: tuple[Verdict, ...]
