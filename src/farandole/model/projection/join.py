"""Steps and epochs joined: time to a goal, its cost, the metric, and what limits.

`collect` takes the step times of a study. `StepTimes` fits them by forms, by a replay, or by both;
`epochs.py` fits the epochs to the goal. `Projector` multiplies the two, with intervals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Literal

from farandole.errors import UsageError
from farandole.format import number, plural, seconds
from farandole.model.analyse import ScalingInfo
from farandole.model.communication import payload_bytes, quiet
from farandole.model.curves import Curve, CurvePoint, group_of
from farandole.model.measured import (
    Measured,
    common_unit,
    dataset_size,
    measure,
    positive,
    usable_cores,
)
from farandole.model.metrics import Series
from farandole.model.projection import intervals
from farandole.model.projection.allreduce import usable
from farandole.model.projection.epochs import (
    choose_goal,
    epoch_rows,
    fit_epochs,
    global_batch_of,
    metric_after,
    schedule_of,
    series_of,
)
from farandole.model.projection.intervals import Prediction
from farandole.model.projection.question import Cluster, LinkSpeed, Offer, Question, default_links
from farandole.model.projection.replay import (
    Change,
    Replay,
    computing_contention,
    gather_replay,
    input_rate,
    times_gradients,
)
from farandole.model.projection.steps import StepFit, StepRow, fit_steps
from farandole.model.statistics import PROJECTION_CONFIDENCE, geometric_mean
from farandole.study.records import Apart, Study

Limit = Literal["compute", "communication", "input", "epochs", "fixed_cost"]

_FACTORS = ("device", "transport", "threads", "batch", "hosts")
# Times and throughput of one row differ by warm-up or validation, not by this: ms for s is 1,000.
_OTHER_UNITS = 10.0
# Share of the time that something must take to be called the limit in place of computing.
_NOTABLE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedCost:
    """What a job takes beside training, which more workers do not shorten."""

    once_s: float = 0.0
    """Start-up."""
    per_epoch_s: float = 0.0
    """Validation, checkpoints and whatever else lies between epochs."""


@dataclass(frozen=True, kw_only=True)
class StudyData:
    """Measured step times with what is known around them."""

    rows: tuple[StepRow, ...]
    cells: tuple[Measured, ...]
    """Whose launches the rows are."""
    curve: Curve
    samples: float | None
    """Of an epoch; None when unknown. A made-up number where only times of epochs are known."""
    steps_known: bool
    """Whether `step_s` is a step's time; else it is a multiple of one, the same for all rows."""
    unit: str
    """Of the throughput to show."""
    host_size: int
    """Workers that fit the measured host, or one of them."""
    fixed_costs: Mapping[int, FixedCost]
    """By workers; empty where nobody knows."""
    assumptions: tuple[str, ...]
    apart: tuple[Apart, ...] = ()
    """What workers of these cells took each for itself, where nobody else disturbed them."""

    @cached_property
    def workers(self) -> tuple[int, ...]:
        """The counts that were measured."""
        return tuple(sorted({row.workers for row in self.rows}))

    @property
    def device(self) -> str:
        """What the workers computed on."""
        return self.curve.points[0].cell.device

    @property
    def batch(self) -> int:
        """Per worker (weak) or of all workers (strong); 1 where it is not known."""
        return self.curve.batch or 1

    @cached_property
    def crosses_hosts(self) -> bool:
        """Whether a network between hosts was measured."""
        return any(row.hosts > 1 for row in self.rows)

    def batch_of(self, workers: int) -> int:
        """Return the batch per worker of a count, as the study scales."""
        return self.batch if self.curve.scaling == "weak" else math.ceil(self.batch / workers)

    def throughput(self, step_s: float, global_batch: int) -> float:
        """Return a throughput in `unit`."""
        rate = global_batch / step_s
        return rate if self.unit == "samples/s" else rate / (self.samples or 1.0)


def collect(
    study: Study, info: ScalingInfo, cells: Sequence[Measured], question: Question
) -> StudyData:
    """Gather the step times of the study's main curve and of other batches beside it.

    Raises:
        UsageError: when the workers did not train together, no cell is as the question has it, or
            no time counts.
    """
    if info.answer.void is not None:
        raise UsageError(f"There is nothing to project from: {info.answer.void}")
    curve = _choose_curve(info, cells, question)
    group = group_of(curve.points[0].cell)
    void = {found.cell for found in info.voids}
    counted = [
        found
        for found in cells
        if group_of(found.cell) == group
        and not found.cell.today
        and found.cell not in void
        and found.paces
        and _has(found, [pair for pair in question.only if pair[0] == "hosts"])
    ]
    unit = common_unit(counted)
    counted = [found for found in counted if found.rates(unit)]
    if curve.batch is None:
        # Rows of an unknown batch cannot stand beside others.
        counted = [found for found in counted if found.worker_batch is None]
    _check_units(counted)
    timing = _timing(counted, unit, study.spec)
    if not timing.rows:
        raise UsageError("There is nothing to project from: no launch of this study has a time.")
    if any(pace.launch.busy for found in counted for pace in found.paces):
        timing.assumptions.append(
            "Other programs used the machine during these runs: times are rough, not quotable."
        )
    if curve.scaling == "strong":
        timing.assumptions.append(
            f"The global batch stays {curve.batch}, so each worker's share shrinks."
        )
    return StudyData(
        rows=tuple(timing.rows),
        cells=tuple(counted),
        curve=curve,
        samples=timing.samples,
        steps_known=timing.steps_known,
        unit=timing.unit,
        host_size=_host_size(counted, study.machine),
        fixed_costs=_fixed_costs(counted, info),
        assumptions=tuple(timing.assumptions),
        apart=tuple(one for one in quiet(study.apart) if group_of(one.cell) == group),
    )


@dataclass(slots=True)
class _Timing:
    """The steps of launches, and how their figures became times."""

    rows: list[StepRow]
    samples: float | None
    steps_known: bool
    unit: str
    assumptions: list[str]


def _timing(cells: Sequence[Measured], unit: str, spec: Mapping[str, object]) -> _Timing:
    """Turn the figures of launches, throughput in `unit`, into times of a step."""
    sizes = [size for c in cells for one in c.launches if (size := dataset_size(one, spec))]
    samples = float(sizes[0]) if sizes else None
    assumptions = []
    both = {"samples/s", "epochs/s"}
    rates = [pace.rates for cell in cells for pace in cell.paces if both <= pace.rates.keys()]
    if samples is None and rates:
        # Launches that have both throughput and epoch time tell the samples of an epoch.
        samples = median(each["samples/s"] / each["epochs/s"] for each in rates)
        assumptions.append(
            f"Assumed {samples:,.0f} samples per epoch: its time multiplied by the throughput."
        )
    steps_known = all(found.batch for found in cells)
    in_samples = unit == "samples/s" or (samples is not None and steps_known)
    if unit == "batches/s" and not steps_known:
        samples = None
    if unit in ("epochs/s", "jobs/s"):
        if not in_samples:
            # Any number will do: it cancels when steps become epochs again.
            samples, steps_known = float(cells[0].worker_batch or 1), False
            assumptions.append(
                "Only epochs are known, not steps: the number of samples or the batch is missing."
            )
        if unit == "jobs/s":
            assumptions.append(
                "Only times of whole jobs are known: start-up is counted as training."
            )
    rows = []
    for found in cells:
        workers, global_batch = found.cell.workers, found.global_batch or found.cell.workers
        for pace in found.paces:
            step_s = pace.step_s if unit in ("samples/s", "batches/s") else None
            if step_s is None and unit in pace.rates:
                work: float = workers if unit == "batches/s" else global_batch
                if unit in ("epochs/s", "jobs/s"):
                    own = positive(pace.launch.figures.get("epochs"))
                    epochs = own or positive(spec.get("epochs")) or 1.0
                    work /= (epochs if unit == "jobs/s" else 1.0) * (samples or 1.0)
                step_s = work / pace.rates[unit]
            if step_s is not None:
                batch = found.worker_batch or 1
                hosts = found.cell.hosts
                rows.append(StepRow(workers=workers, hosts=hosts, batch=batch, step_s=step_s))
    shown = "samples/s" if in_samples else "epochs/s"
    return _Timing(rows, samples, steps_known, shown, assumptions)


def _check_units(cells: Sequence[Measured]) -> None:
    """Refuse rows of a table whose step time and throughput cannot both be true."""
    for found in cells:
        for pace in found.paces:
            figures = pace.launch.figures
            step_s, stated = (positive(figures.get(name)) for name in ("step_s", "throughput"))
            if step_s is None or stated is None or found.batch is None:
                continue
            reckoned = found.batch * found.cell.workers / step_s
            if not 1 / _OTHER_UNITS < reckoned / stated < _OTHER_UNITS:
                raise UsageError(
                    f"{plural(found.cell.workers, 'worker')} of batch {found.batch} with steps of "
                    f"{seconds(step_s)} train {number(reckoned)} samples a second, but the table "
                    f"says {number(stated)}. Correct the units (step_s, step_ms; samples a second "
                    "of all workers together), and import it again."
                )


def _choose_curve(info: ScalingInfo, cells: Sequence[Measured], question: Question) -> Curve:
    only = question.only
    found = {cell.cell: cell for cell in cells}
    hosts = [pair for pair in only if pair[0] == "hosts"]
    others = [pair for pair in only if pair[0] != "hosts"]
    alike = []
    for curve in info.curves:
        # Hosts may grow along a curve: of the points that are on so many.
        points = tuple(point for point in curve.points if _has(found[point.cell], hosts))
        if points and all(_has(found[point.cell], others) for point in points):
            alike.append(replace(curve, points=points))
    if alike:
        wanted = ("weak", question.batch)
        return next((c for c in alike if (c.scaling, c.batch) == wanted), alike[0])
    if not info.curves:
        raise UsageError(f"There is nothing to project from. {info.answer.headline}")
    shown = ", ".join(f"{name}={value}" for name, value in only)
    if timed := [c for c in cells if c.paces and not c.cell.today and _has(c, only)]:
        counts = " and ".join(map(str, sorted({c.cell.workers for c in timed})))
        raise UsageError(
            f"{shown} was measured with {counts} workers, and no two counts at one batch. Measure "
            "two numbers of workers at one batch, or leave --only out."
        )
    parts = []
    for name, _ in only:
        values = sorted({v for c in cells if (v := _factor(c, name)) is not None})
        if not values:
            names = sorted({*_FACTORS, *(n for c in cells for n, _ in c.cell.params)})
            parts = [f"It has no factor {name}; choose from {', '.join(names)}."]
            break
        parts.append(f"{'There, ' if not parts else ''}{name} is {' or '.join(values)}")
    raise UsageError(f"No curve of this study has {shown}. {', '.join(parts).rstrip('.')}.")


def _has(found: Measured, only: Sequence[tuple[str, str]]) -> bool:
    return all(value.lower() == (_factor(found, name) or "").lower() for name, value in only)


def _factor(found: Measured, name: str) -> str | None:
    if name == "batch":
        return None if found.worker_batch is None else str(found.batch)
    if name in _FACTORS:
        return str(getattr(found.cell, name))
    return dict(found.cell.params).get(name)


def _host_size(cells: Sequence[Measured], machine: Mapping[str, object]) -> int:
    """Return how many workers fit one of the measured hosts."""
    most = max(math.ceil(one.cell.workers / max(one.cell.hosts, 1)) for one in cells)
    if any(found.cell.hosts > 1 or found.imported for found in cells):
        return most
    cell = cells[0].cell
    if cell.device != "cpu":
        gpus = machine.get("gpus")
        return max(most, len(gpus) if isinstance(gpus, list | tuple) else 0)
    return max(most, int((usable_cores(machine) or 0) // (cell.threads or 1)))


def _fixed_costs(cells: Sequence[Measured], info: ScalingInfo) -> dict[int, FixedCost]:
    known = {found.cell for found in cells}
    found: dict[int, FixedCost] = {}
    for job in info.each("job"):
        if job.cell in known and job.startup_s is not None:
            between = (job.between_s or 0.0) / job.epochs if job.epochs else 0.0
            found[job.cell.workers] = FixedCost(once_s=job.startup_s, per_epoch_s=between)
        elif job.cell in known and job.fixed_s is not None and job.fixed_s > 0:
            # A table does not tell the two apart; below 0 it is a slip of the table.
            found[job.cell.workers] = FixedCost(once_s=job.fixed_s)
    return found


class StepTimes:
    """Step times of any setting: one fit per link between hosts, changes of the question applied.

    Rows across hosts, whose network no calibration knows, are fitted by closed forms. Where a study
    of one host recorded when gradients were ready, a replay competes with them; it is alone where
    there is one number of workers. Without it, one number gives bounds.
    """

    def __init__(self, study: Study, data: StudyData, question: Question) -> None:
        self._study, self._data, self._question = study, data, question
        sizes = (payload_bytes(found, study.spec) for found in data.cells)
        self._gradient_bytes = next((size for size in sizes if size), None)
        self._fits: dict[LinkSpeed | None, tuple[StepFit | None, Replay | None]] = {}
        self._crossed: dict[LinkSpeed | None, None] = {}
        self._known: dict[tuple[LinkSpeed | None, int, int, int], Prediction] = {}
        self._change = Change(
            bucket_bytes=question.bucket_bytes,
            half_precision=question.fp16,
            accumulation=question.accumulate,
        )
        # One host needs no fit of its own: that of the first link shown will do. But without a
        # calibration a replay would take that link for what connects the workers of a host: closed
        # forms alone are fitted then, unless the question needs a replay.
        guessed = times_gradients(data.cells) and not usable(study.link.allreduce)
        self._needs_link = question.changes_buckets or len(data.workers) == 1
        self._inside: LinkSpeed | None = (*question.links, *default_links())[0]
        if data.crosses_hosts or (guessed and not self._needs_link):
            self._inside = None

    def _fit(self, link: LinkSpeed | None) -> tuple[StepFit | None, Replay | None]:
        """Return the fit for a link between hosts, if any; and the replay in it, if any."""
        if link in self._fits:
            return self._fits[link]
        data, question = self._data, self._question
        played = None
        if not data.crosses_hosts:  # what was calibrated is the memory of one host
            played = gather_replay(data.cells, self._study.link, link=link, apart=data.apart)
        if played is None and question.changes_buckets:
            flag = "--fp16" if question.bucket_bytes is None else "--bucket-size"
            raise UsageError(
                f"{flag} needs to know when gradients are ready and how fast the network is, which "
                "this study did not record. Study the script with this version of Farandole and "
                "with 2 workers or more, or leave the flag out."
            )
        fitted = None
        if played is not None or len(data.workers) > 1:
            contention = computing_contention(data.apart)
            fitted = fit_steps(
                data.rows,
                link=link,
                gradient_bytes=self._gradient_bytes,
                contention=None if contention is None else contention.at,
                replays=() if played is None else played.forms(),
                assumptions=() if played is None else played.assumptions,
            )
        self._fits[link] = fitted, played
        return self._fits[link]

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What all fits so far took for granted; of links only where one was crossed."""
        # What fits say of each link alike is said once for all.
        names: dict[str, list[str]] = {}
        for link in self._crossed or (self._inside,):
            name = link.name if link else ""
            fitted, played = self._fit(link)
            for said in fitted.assumptions if fitted else ():
                if self._crossed or self._needs_link or not said.of_link:
                    text = said.text.replace(name, "{link}") if name else said.text
                    names.setdefault(text, []).append(name)
            if played is None and fitted is None:
                names[
                    f"Every launch had {plural(self._data.workers[0], 'worker')}: other counts lie "
                    "between no gain and a linear speedup. Measure a second count to find out."
                ] = []
            elif played is not None and len(self._data.workers) > 1 and self._change != Change():
                names[
                    "The effect of a change comes from replaying recorded steps, bucket by bucket."
                ] = []
        return tuple(said.replace("{link}", ", ".join(each)) for said, each in names.items())

    @property
    def forms(self) -> tuple[tuple[str, float], ...]:
        """The forms of the first fit, with their weights."""
        fitted = next((fitted for fitted, _ in self._fits.values()), None)
        return (("bounds", 1.0),) if fitted is None else fitted.forms

    def alone_s(self, setting: Cluster, batch: int) -> float:
        """Return what a worker computes in a step when nobody else is there."""
        return self._at(setting.link or self._inside, 1, 1, batch).value / setting.speed

    def step_s(self, setting: Cluster, batch: int) -> Prediction:
        """Return the seconds of an optimizer step.

        A faster worker shortens computing alone: what training waits for gradients stays.
        """
        link = setting.link or self._inside
        whole = self._at(link, setting.workers, setting.linked, batch)
        if setting.speed == 1.0:
            return whole
        alone = min(whole.value, self._at(link, 1, 1, batch).value)
        return whole.scaled(1 - alone * (1 - 1 / setting.speed) / whole.value)

    def _at(self, link: LinkSpeed | None, workers: int, hosts: int, batch: int) -> Prediction:
        place = workers, hosts, batch
        if hosts > 1:
            self._crossed[link] = None
        key = (link, *place)
        if key in self._known:
            return self._known[key]
        fitted, played = self._fit(link)
        if fitted is None:
            # No gain, and linear speedup.
            ratio = workers / self._data.rows[0].workers
            per_sample = [row.step_s / row.batch for row in self._data.rows]
            step_s = geometric_mean(per_sample).value * batch
            low, high = sorted((step_s, step_s * ratio))
            middle, far = math.sqrt(low * high), ratio != 1
            found = Prediction(value=middle, low=low, high=high, ratio=ratio, indicative=far)
        else:
            found = fitted.at(*place)
            if played is not None and self._change != Change():
                # As much longer as the replay says, of steps as they were measured.
                found = found.scaled(played.ratio(fitted, place, self._change))
            elif self._change.accumulation > 1:
                # All passes but the last have nothing to send.
                alone_s = fitted.at(1, 1, batch).value
                found = found.scaled(1 + (self._change.accumulation - 1) * alone_s / found.value)
        self._known[key] = found
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionRow:
    """What one number of workers gives, on one kind of link.

    Times are in seconds, rates per second, money in the currency of the price. Intervals of
    measured rows are over launches and runs. None stands for "not known".
    """

    workers: int
    hosts: int
    link: str | None
    """None: as measured, no other link is needed."""
    batch: int | None
    """Per worker and backward pass."""
    global_batch: int | None
    measured: bool
    step_s: Prediction | None
    """None where steps cannot be told from epochs: an imported table without a data set's size."""
    throughput: Prediction
    speedup: Prediction
    """Over the smallest measured count, of throughput."""
    epoch_s: Prediction | None
    epochs: Prediction | None
    """To the goal."""
    time_s: Prediction | None
    """To the goal, fixed times included."""
    cost: Prediction | None
    """Of that time, whole hosts billed."""
    metric: Prediction | None
    """At the epochs of the measured runs."""
    limited_by: Limit
    parts: Mapping[str, float]
    """Shares of the time: compute, communication, input (what loaders hold steps up for, beyond
    what measured steps waited), epochs (more than the smallest count needs), fixed_cost. They add
    up to 1."""

    @property
    def indicative(self) -> bool:
        """Whether its speed, its time or its cost has bounds only: workers or batch are far off."""
        figures = (self.throughput, self.time_s, self.cost)
        return any(figure is not None and figure.indicative for figure in figures)


class Projector:
    """Projects settings from one study, for one question.

    Raises:
        UsageError: the study cannot answer the question.
    """

    def __init__(self, study: Study, info: ScalingInfo, question: Question) -> None:
        cells, _ = measure(study)
        self.question = question
        self.data = data = collect(study, info, cells, question)
        self.per_host = question.per_host or data.host_size
        self.goal = choose_goal(data.cells, info, question.target)
        self.epoch_rows = epoch_rows(data.cells, self.goal) if self.goal else []
        # The noise scale of the cell in which most steps were sampled.
        known = {found.cell for found in data.cells}
        noise = max(
            (row.noise.noise for row in info.rows if row.noise and row.cell in known),
            key=lambda noise: noise.measurements,
            default=None,
        )
        self.epochs = fit_epochs(self.epoch_rows, noise=noise) if self.epoch_rows else None
        self.schedule = schedule_of(launch for found in data.cells for launch in found.launches)
        self.known_batches: frozenset[int] | None = None
        """Global batches whose epochs can be told; None: any."""
        if self.epochs and (self.schedule.kind == "decaying" or data.curve.batch is None):
            self.known_batches = frozenset(r.global_batch for r in self.epoch_rows if r.reached)
        # Curves of the metric to project, by global batch.
        metric = self.goal.metric if self.goal and self.goal.metric else info.main_metric
        self._runs: dict[int, list[Series]] = {}
        for found, series in series_of(data.cells, metric) if metric and self.epochs else ():
            # One value is no curve to read.
            if len(series.epochs) > 1:
                self._runs.setdefault(global_batch_of(found), []).append(series)
        self.metric = metric if self._runs else None
        self.why_no_metric = ""
        self.steps = StepTimes(study, data, question)
        self.input = input_rate(data.apart, data.rows)
        self.rows: dict[Cluster, ProjectionRow] = {}
        """All that were projected so far."""
        for flag, given in (
            ("--deadline", question.deadline_s),
            ("--budget", question.budget),
            ("--fleet", question.fleet),
        ):
            if given is not None and (self.goal is None or data.samples is None):
                raise UsageError(
                    f"{flag} needs times, and this study knows neither the time of an epoch nor "
                    "how many samples one has. Import a table with a column dataset_size or "
                    f"epoch_s, or leave {flag} out."
                )
        fewest = data.workers[0]
        self._base_throughput = fewest * self._worker_throughput(fewest)

    def _ideal(self, setting: Cluster) -> float:
        """Return what one worker brings at best: as much as one of the most measured ones.

        Workers on emptier hosts than those, or fewer than those, as much as any measured ones.
        """
        most = self.data.workers[-1]
        local = min(math.ceil(most / row.hosts) for row in self.data.rows if row.workers == most)
        alike = setting.workers > most and math.ceil(setting.workers / setting.hosts) >= local
        counts = (most,) if alike else self.data.workers
        return max(map(self._worker_throughput, counts)) * setting.speed

    def _worker_throughput(self, workers: int) -> float:
        """Return what one of so many measured workers brings, at the study's batch."""
        data, batch = self.data, self.data.batch_of(workers)
        rows = [row for row in data.rows if row.workers == workers]
        times_s = [row.step_s for row in rows if row.batch == batch] or [r.step_s for r in rows]
        return data.throughput(geometric_mean(times_s).value, batch)

    def needs_link(self, workers: int, per_host: int) -> bool:
        """Tell whether these workers are on more hosts than were measured."""
        return workers > per_host and not self.data.crosses_hosts

    def links(self) -> tuple[LinkSpeed | None, ...]:
        """Return the links to show beyond the measured host."""
        if self.data.crosses_hosts:
            return (None,)
        if self.question.links:
            return self.question.links
        beyond = any(self.needs_link(n, self.per_host) for n in self.question.workers)
        return default_links() if beyond else (None,)

    def setting(self, workers: int, link: LinkSpeed | None) -> Cluster:
        """Return a count of workers as the user's flags have it."""
        return Cluster(
            workers=workers,
            per_host=self.per_host,
            link=link if workers > self.per_host else None,
            price=self.question.price,
            whole_hosts=self.question.per_host is not None,
        )

    def offer_cluster(self, offer: Offer) -> Cluster:
        """Return an offer as a setting.

        Raises:
            UsageError: when nothing says what connects its hosts.
        """
        per_host = offer.per_host or offer.workers
        link = offer.link
        if link is None and offer.workers > per_host and self.question.links:
            link = self.question.links[0]
        if link is None and self.needs_link(offer.workers, per_host):
            hosts = plural(math.ceil(offer.workers / per_host), "host")
            raise UsageError(
                f"The offer {offer.name} has {hosts} and does not say what connects them. Add a "
                f"link to it: '{offer.name}: {offer.text}, 25Gbit'."
            )
        return Cluster(
            workers=offer.workers,
            per_host=per_host,
            link=None if self.data.crosses_hosts else link,
            price=offer.price or self.question.price,
            whole_hosts=True,
            speed=offer.speed,
        )

    def measured(self, point: CurvePoint) -> ProjectionRow | None:
        """Return a measured count as a row; None when its launches gave no time."""
        hosts, batch = point.cell.hosts, point.worker_batch or 1
        place = (point.workers, hosts, batch)
        rows = [row for row in self.data.rows if (row.workers, row.hosts, row.batch) == place]
        if not rows:
            return None
        mean = geometric_mean([row.step_s for row in rows], confidence=PROJECTION_CONFIDENCE)
        setting = replace(
            self.setting(point.workers, None),
            # A host that held so many is no smaller than that.
            per_host=max(self.per_host, math.ceil(point.workers / hosts)),
            measured_hosts=hosts,
        )
        return self._row(setting, batch, 1, intervals.measured(mean), 0.0)

    def at(self, setting: Cluster) -> ProjectionRow:
        """Project one setting.

        Raises:
            UsageError: when there are more workers than samples in the global batch.
        """
        if setting not in self.rows:
            passes, batch = self.question.accumulate, self._batch(setting.workers)
            step = self.steps.step_s(setting, batch)
            # Nothing is promised that is better than ideal: linear from the most measured, or, of
            # another batch, what a worker computes by itself.
            ideal_s = self.steps.alone_s(setting, batch)
            if passes == 1 and batch == self.data.batch_of(setting.workers):
                ideal_s = self.data.throughput(1.0, batch) / self._ideal(setting)
            step = step.at_least(ideal_s)
            loading_s = 0.0
            if self.input is not None:
                # On a host like the measured one.
                rate = self.input.at(math.ceil(setting.workers / setting.hosts))
                loading_s = batch * passes / rate
            fed = step.at_least(loading_s)
            self.rows[setting] = self._row(setting, batch, passes, fed, fed.value - step.value)
        return self.rows[setting]

    def _batch(self, workers: int) -> int:
        if self.question.batch is not None:
            return self.question.batch
        data, passes = self.data, workers * self.question.accumulate
        if data.curve.scaling == "strong" and passes > data.batch:
            raise UsageError(
                f"A global batch of {data.batch}, which this study keeps fixed, cannot be shared "
                f"by {passes} workers. Ask for at most {data.batch}, or for a "
                "batch per worker: --batch 32."
            )
        return data.batch_of(passes)

    def _row(
        self, setting: Cluster, batch: int, passes: int, step: Prediction, starved_s: float
    ) -> ProjectionRow:
        data, workers = self.data, setting.workers
        is_measured = setting.measured_hosts is not None
        global_batch = batch * workers * passes
        throughput = step.inverted(data.throughput(1.0, global_batch))
        steps = None if data.samples is None else data.samples / global_batch
        epoch = None if steps is None else step.scaled(steps)
        epochs = self._epochs(global_batch, is_measured=is_measured) if epoch else None
        fixed = FixedCost()
        if data.fixed_costs and self.goal is not None and self.goal.kind != "epoch":
            # Of the most workers where none is of so many. One epoch has no job around it.
            fixed = data.fixed_costs.get(workers) or data.fixed_costs[max(data.fixed_costs)]
        time = cost = None
        if epoch is not None and epochs is not None:
            each = epoch.shifted(fixed.per_epoch_s)
            time = intervals.product(each, epochs).shifted(fixed.once_s)
            cost = time.scaled(setting.cost_per_s) if setting.cost_per_s is not None else None
        alone = self.steps.alone_s(setting, batch) * passes / self.question.accumulate
        fed_s = step.value - starved_s
        parts = {"compute": min(fed_s, alone), "communication": max(0.0, fed_s - alone)}
        if starved_s > 0:
            parts["input"] = starved_s
        whole_s = step.value
        if time is not None and epochs is not None and steps is not None:
            # Computing for the epochs of the smallest batch, and what comes on top.
            fewest = epochs.value
            if self.epochs is not None:
                smallest = min(row.global_batch for row in self.epoch_rows)
                fewest = min(fewest, self.epochs.at(smallest).value)
            compute_s = steps * parts["compute"]
            parts = {name: epochs.value * steps * part_s for name, part_s in parts.items()}
            parts["compute"] = fewest * compute_s
            parts["epochs"] = (epochs.value - fewest) * compute_s
            parts["fixed_cost"] = fixed.once_s + epochs.value * fixed.per_epoch_s
            whole_s = time.value
        parts = {name: part_s / whole_s for name, part_s in parts.items()}
        limit = max((name for name in parts if name != "compute"), key=parts.__getitem__)
        batch_known = data.curve.batch is not None or self.question.batch is not None
        return ProjectionRow(
            workers=workers,
            hosts=setting.hosts,
            link=setting.link.name if setting.link else None,
            batch=batch if batch_known else None,
            global_batch=global_batch if batch_known else None,
            measured=is_measured,
            step_s=step if data.steps_known else None,
            throughput=throughput,
            speedup=throughput.scaled(1 / self._base_throughput),
            epoch_s=epoch,
            epochs=epochs,
            time_s=time,
            cost=cost,
            metric=self._metric(global_batch),
            limited_by=limit if parts[limit] >= _NOTABLE else "compute",  # type: ignore[arg-type]
            parts=parts,
        )

    def _epochs(self, global_batch: int, *, is_measured: bool) -> Prediction | None:
        if self.goal is None:
            return None
        if self.epochs is None:
            return None if self.goal.epochs is None else intervals.exactly(self.goal.epochs)
        if self.known_batches is not None and global_batch not in self.known_batches:
            return None
        fitted = self.epochs.at(global_batch)
        runs = [row for row in self.epoch_rows if row.global_batch == global_batch]
        if not is_measured or not runs or not all(row.reached for row in runs):
            return fitted
        ends = [row.epochs for row in runs]
        own = geometric_mean(ends, confidence=PROJECTION_CONFIDENCE)
        if len(set(ends)) > 1:
            return intervals.measured(own)
        # One run, or as many epochs in all: how far runs spread is what the fit says.
        low, high = min(fitted.low, own.value), max(fitted.high, own.value)
        return replace(intervals.exactly(own.value), low=low, high=high)

    def _metric(self, global_batch: int) -> Prediction | None:
        """Return the metric after the epochs of the measured runs; None where it is unknown."""
        if self.epochs is None or not self._runs:
            return None
        budget = min(series.epochs[-1] for runs in self._runs.values() for series in runs)
        found = metric_after(budget, global_batch, self._runs, self.epochs, self.schedule)
        if isinstance(found, str):
            self.why_no_metric = self.why_no_metric or found
            return None
        return found
