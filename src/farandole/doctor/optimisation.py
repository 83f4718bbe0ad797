"""FD3xx: gradients, updates, learning rates and random numbers.

The ids: FD301 gradients are summed, FD302 averaged twice, FD303 clipped or weighted before the
average, FD304 a loss per token averaged per rank, FD305 accumulation without a division, FD306
gradients left over at an epoch's end, FD307 an exchange in every micro-step, FD308 gradients are
never zeroed, FD309 updates on some ranks only, FD310 the rate scaled without a warm-up, FD311 the
rate not scaled, FD312 a scheduler stepped once per worker, FD313 a schedule for one worker, FD314
a warm-up for one worker, FD315 schedulers differ, FD316 loss scales differ, FD317 equal random
numbers, FD318 a parameter is never updated, FD319 weights change without a gradient, FD320 a
gradient that is not finite.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from farandole.doctor.check import NotChecked, Seen, check, several
from farandole.doctor.data import feeds, usual_batch
from farandole.doctor.facts import (
    BadGradient,
    Clip,
    Gradients,
    Groups,
    Job,
    Local,
    Model,
    Optimizer,
    Pass,
    Plan,
    Rank,
    Scaler,
    Schedule,
    State,
    Work,
    say_ranks,
)
from farandole.doctor.one_job import (
    name_parameters,
    optimizer_where,
    states,
    wrappers,
)
from farandole.format import brief, listed, number, plural

_TORCH = ("torch", "ddp", "accelerate", "lightning")
_CLOSE = 0.03
"""Relative distance below which two factors are the same."""


def locals_by_step(job: Job) -> dict[int, dict[int, Local]]:
    """Return what updates were made of, by step and rank, of steps that all ranks told of."""
    found: dict[int, dict[int, Local]] = {}
    for rank in job.ranks:
        for one in rank.facts(Local):
            found.setdefault(one.step, {})[rank.rank] = one
    return {step: row for step, row in sorted(found.items()) if len(row) == job.workers > 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """How much each rank's own gradient counts in an update."""

    step: int
    by_rank: dict[int, float]
    told_apart: bool
    """Whether the ranks' gradients differ enough to say so for each; else only the sum is known."""

    @property
    def total(self) -> float:
        """1 for an average, the number of workers for a sum."""
        return sum(self.by_rank.values())


def weights_of_ranks(job: Job) -> list[Weights]:
    """Solve, in each sampled step, for the weights by which ranks' gradients were added.

    Steps whose gradients something else has changed are left out. Clipping of the average, as it
    was seen, is taken back.
    """
    import numpy as np

    clips = {(rank.rank, one.step): one for rank in job.ranks for one in rank.facts(Clip)}
    found = []
    for step, by_rank in locals_by_step(job).items():
        if any(one.carried or not one.scale for one in by_rank.values()):
            continue
        columns = {rank: _flat(one.local, 1 / (one.scale or 1.0)) for rank, one in by_rank.items()}
        used = [_flat(one.used, 1.0) for one in by_rank.values()]
        lengths = {len(row) for row in (*columns.values(), *used)}
        if len(lengths) > 1 or not min(lengths) or None in lengths:
            continue
        matrix = np.array(list(columns.values()), float).T
        rows = np.array(used, float)
        size = float(np.abs(rows[0]).max())
        if not np.isfinite(matrix).all() or not np.isfinite(rows).all() or size <= 1e-12:
            continue
        if np.abs(rows - rows[0]).max() > 1e-3 * size:
            continue  # each rank used another gradient
        target = rows[0]
        clip = clips.get((next(iter(by_rank)), step))
        norms = [one.norm for (_, at), one in clips.items() if at == step]
        alike = norms and max(norms) - min(norms) <= 1e-3 * max(norms)
        if clip is not None and alike and clip.norm > clip.most > 0:
            target = target * (clip.norm + 1e-6) / clip.most
        solved, _, _, values = np.linalg.lstsq(matrix, target, rcond=1e-4)
        left = float(np.linalg.norm(matrix @ solved - target))
        if left > 0.03 * float(np.linalg.norm(target)):
            continue
        apart = len(values) == len(columns) and values[-1] > 0.02 * values[0]
        found.append(
            Weights(
                step=step,
                by_rank=dict(zip(columns, map(float, solved), strict=True)),
                told_apart=bool(apart and len(target) > 2 * len(columns)),
            )
        )
    return found


def _flat(rows: Sequence[Sequence[float | None]], factor: float) -> list[float]:
    return [float("nan") if x is None else x * factor for row in rows for x in row]


def total_weight(job: Job) -> float:
    """Return the sum of the ranks' weights, where all sampled steps agree.

    Raises:
        NotChecked: it cannot be told.
    """
    several(job)
    if not locals_by_step(job):
        raise NotChecked("no gradients of all ranks behind the same step were recorded")
    found = weights_of_ranks(job)
    if len(found) < 2:
        raise NotChecked("how the ranks' gradients were combined could not be told")
    usual = median(one.total for one in found)
    if sum(_is(one.total, usual) for one in found) < 0.7 * len(found):
        raise NotChecked("the ranks' gradients were combined in another way in every step")
    return usual


def _is(value: float, wanted: float) -> bool:
    return abs(value - wanted) <= _CLOSE * abs(wanted)


def loss_shrinks(job: Job) -> bool | None:
    """Say whether the script divides its loss by the number of workers; None if it may.

    A divisor of the loss that is the number of workers may be something else: the replay, where
    there is one worker, has another one then.
    """
    rows = [one for by_rank in locals_by_step(job).values() for one in by_rank.values()]
    divisors = {round(x, 6) for one in rows for each in one.divisors for x in each}
    factors = {round(x, 6) for one in rows for each in one.factors for x in each}
    has = job.workers in divisors or any(_is(x, 1 / job.workers) for x in factors)
    if not has:
        return False
    if job.alone is None:
        return None
    alone = [one for rank in job.alone.ranks for one in rank.facts(Local)]
    before = {round(x, 6) for one in alone for each in one.divisors for x in each}
    multiplied = {round(x, 6) for one in alone for each in one.factors for x in each}
    return not (job.workers in before or any(_is(x, 1 / job.workers) for x in multiplied))


@check(
    "FD301",
    severity="error",
    title="Gradients are summed, not averaged",
    meaning="Each update uses {workers} times the gradient: the learning rate is {workers} times "
    "as high as it says. Training diverges, or needs another rate for every number of workers.",
    fix={
        "torch": "optimizer = hvd.DistributedOptimizer(optimizer, ..., op=hvd.Average)  # default",
        "ddp": "torch.distributed.all_reduce(p.grad)\np.grad /= torch.distributed.get_world_size()",
    },
    needs="gradients of every rank before and behind the exchange",
    covers=_TORCH,
)
def summed(job: Job) -> Iterator[Seen]:
    """Compare the gradients that updates used with each rank's own."""
    total = total_weight(job)
    if _is(total, job.workers) and loss_shrinks(job) is False:
        yield _combined(job, f"Updates use {number(total)} times the mean of the ranks' gradients.")


@check(
    "FD302",
    severity="error",
    title="Gradients are averaged twice",
    meaning="Gradients are divided by {workers} twice, once by the script and once by who averages "
    "them: updates are {workers} times too small, and the more workers, the slower is training.",
    fix={
        "torch": "loss.backward()   # hvd.DistributedOptimizer averages; no `loss / hvd.size()`",
        "ddp": "loss.backward()   # DDP averages; neither `loss / size` nor `p.grad /= size`",
    },
    needs="gradients of every rank before and behind the exchange, and how the loss was divided",
    covers=_TORCH,
)
def averaged_twice(job: Job) -> Iterator[Seen]:
    """Look for a second division, of the gradients or of the loss."""
    total = total_weight(job)
    if _is(total, 1 / job.workers):
        yield _combined(job, f"Updates use {number(total)} of the mean of the ranks' gradients.")
    elif _is(total, 1.0):
        passes = max(
            (one.passes for row in locals_by_step(job).values() for one in row.values()), default=1
        )
        shrinks = loss_shrinks(job)
        if shrinks is None or (shrinks and passes == job.workers):
            raise NotChecked("the loss is divided by a number that need not be that of the workers")
        if shrinks:
            yield _combined(
                job, f"The loss is divided by {job.workers}, and gradients are averaged besides."
            )


def _combined(job: Job, text: str) -> Seen:
    last = weights_of_ranks(job)[-1]
    return Seen(
        text=text,
        values={
            rank: f"its gradient counts {number(one)} in step {last.step}"
            for rank, one in last.by_rank.items()
        },
        step=last.step,
        where=optimizer_where(job),
    )


@check(
    "FD303",
    severity="warning",
    title="Gradients are clipped before they are averaged",
    meaning="Every rank scales its own gradient before the average: a rank with a large gradient "
    "counts less. The average is another one than that of the global batch, and its norm is below "
    "the limit where that was not meant.",
    fix={
        "torch": "optimizer.synchronize()   # average first\n"
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        "with optimizer.skip_synchronize():\n    optimizer.step()",
        "ddp": "loss.backward()   # outside of no_sync(): DDP averages here\n"
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    },
    needs="norms that clipping saw on every rank, or gradients before and behind the exchange",
    covers=_TORCH,
)
def clipped_before(job: Job) -> Iterator[Seen]:
    """Compare the norms that clipping saw, and the weights with which ranks count."""
    several(job)
    by_step: dict[int, dict[int, Clip]] = {}
    for rank in job.ranks:
        for one in rank.facts(Clip):
            by_step.setdefault(one.step, {})[rank.rank] = one
    locally = locals_by_step(job)
    compared = differing = 0
    seen: dict[int, Clip] = {}
    for step, row in by_step.items():
        if len(row) < job.workers or (step in locally and not _same_used(locally[step])):
            continue
        norms = [one.norm for one in row.values()]
        compared += 1
        if max(norms) - min(norms) > 1e-3 * max(norms):
            differing += 1
            seen = row
    if differing > 1 or (differing and job.ended == "failed"):
        first = next(iter(seen.values()))
        yield Seen(
            text=f"In {differing} of {compared} steps, ranks clipped gradients of different norms.",
            values={rank: f"norm {number(one.norm)}" for rank, one in seen.items()},
            step=first.step,
            where=first.where,
        )
        return
    found = [one for one in weights_of_ranks(job) if one.told_apart]
    unequal = [one for one in found if _uneven(one) and not _by_samples(job, one)]
    if len(unequal) > 1 and len(unequal) > 0.5 * len(found):
        last = unequal[-1]
        yield Seen(
            text=f"In {len(unequal)} of {len(found)} updates the ranks' gradients had unequal "
            "weights.",
            values={
                rank: f"counts {number(one)} in step {last.step}"
                for rank, one in last.by_rank.items()
            },
            step=last.step,
            where=optimizer_where(job),
        )
    elif not compared and not found:
        raise NotChecked("neither clipping nor the weights of the ranks' gradients were seen")


def _same_used(row: dict[int, Local]) -> bool:
    used = [_flat(one.used, 1.0) for one in row.values()]
    size = max((abs(x) for x in used[0]), default=0.0)
    return all(
        len(each) == len(used[0])
        and all(abs(a - b) <= 1e-3 * size for a, b in zip(each, used[0], strict=True))
        for each in used
    )


def _uneven(one: Weights) -> bool:
    return _spread(list(one.by_rank.values())) > 0.03


def _spread(values: Sequence[float]) -> float:
    return (max(values) - min(values)) / (max(map(abs, values)) or 1.0)


def _by_samples(job: Job, one: Weights) -> bool:
    """Say whether ranks count by their numbers of targets: a loss that is weighted on purpose."""
    row = locals_by_step(job)[one.step]
    counts = {rank: _normaliser(each) for rank, each in row.items()}
    known = {rank: count for rank, count in counts.items() if count}
    if len(known) < len(counts):
        return False
    left = _spread([one.by_rank[rank] / count for rank, count in known.items()])
    return left <= 0.1 and left < 0.5 * _spread(list(one.by_rank.values()))


def _normaliser(one: Local) -> float | None:
    """Return over how many targets a rank took its mean: of criterions, or of a division."""
    counted = [pair[0] for each in one.counts for pair in each]
    if counted:
        return sum(counted)
    divided = [x for each in one.divisors for x in each if x > 1 and x == int(x)]
    return sum(divided) if divided else None


@check(
    "FD304",
    severity="warning",
    title="A loss per token is averaged per rank",
    meaning="Every rank divides its loss by its own number of tokens, and these numbers differ. In "
    "the average over your {workers:worker}, tokens of a rank with few of them count more.",
    fix={
        "torch": "total = hvd.allreduce(count, op=hvd.Sum)   # of all ranks\n"
        "loss = summed_loss * hvd.size() / total",
        "ddp": "torch.distributed.all_reduce(count)\nloss = summed_loss * size / count",
    },
    needs="by what each rank divides its loss",
    covers=_TORCH,
)
def tokens_per_rank(job: Job) -> Iterator[Seen]:
    """Compare the divisors of losses between ranks."""
    several(job)
    rows = locals_by_step(job)
    known: dict[int, dict[int, float]] = {}
    for step, row in rows.items():
        counts = {rank: _normaliser(one) for rank, one in row.items()}
        if None not in counts.values():
            known[step] = {rank: count for rank, count in counts.items() if count}
    if not known:
        raise NotChecked("by what losses are divided was not seen")
    weights = {one.step: one for one in weights_of_ranks(job)}
    odd = {
        step: counts
        for step, counts in known.items()
        if counts
        and max(counts.values()) - min(counts.values()) > 0.1 * max(counts.values())
        and all(count == int(count) for count in counts.values())
        and not (step in weights and weights[step].told_apart and _uneven(weights[step]))
        and not _fewer_samples(rows[step])
    }
    if len(odd) >= 3 and len(odd) > 0.5 * len(known):
        step, last = list(odd.items())[-1]
        yield Seen(
            text=f"In {len(odd)} of {len(known)} steps the ranks divided their losses by different "
            "counts.",
            values={rank: f"{brief(count)} in step {step}" for rank, count in last.items()},
            step=step,
            where=next(iter(rows[step].values())).sites[0] if rows[step] else "",
        )


def _fewer_samples(row: dict[int, Local]) -> bool:
    """Say whether ranks had batches of different sizes, none of whose targets is left out."""
    pairs = [pair for one in row.values() for each in one.counts for pair in each]
    return bool(pairs) and all(valid == total for valid, total in pairs)


@check(
    "FD305",
    severity="warning",
    title="Accumulated gradients are not divided",
    meaning="Several backward passes add up to one update, and the loss is not divided by their "
    "number: the gradient is so many times as large as that of one batch of that size.",
    fix={
        "torch": "loss = criterion(model(inputs), labels) / accumulate\nloss.backward()",
        "accelerate": "accelerator.backward(loss)   # divides by gradient_accumulation_steps",
    },
    needs="passes per update, and how losses were divided",
    covers=_TORCH,
)
def not_divided(job: Job) -> Iterator[Seen]:
    """Look for updates of several passes whose losses were not divided."""
    per_update = accumulated(job)
    found = [
        one
        for rank in job.training
        for one in rank.facts(Local)
        if one.passes > 1 and len(one.sites) == 1
    ]
    if per_update < 2 or not found:
        return
    plain = [
        one for one in found if one.known and not any(map(any, one.divisors)) and not _scaled(one)
    ]
    if not any(one.known for one in found):
        raise NotChecked("how the loss was divided could not be seen")
    totals = weights_of_ranks(job)
    if totals and not any(_is(median(x.total for x in totals), n) for n in (1.0, job.workers)):
        return  # the gradients were divided instead
    if len(plain) > 0.7 * len(found):
        yield Seen(
            text=f"An update adds the gradients of {plural(per_update, 'pass')}, and the loss of "
            "none was divided.",
            values={
                rank.rank: f"losses {', '.join(number(x) for x in one.losses[:4] if x is not None)}"
                for rank in job.training
                for one in rank.facts(Local)[-1:]
            },
            where=plain[0].sites[0],
        )


def _scaled(one: Local) -> bool:
    """Say whether a factor was applied to the loss that is not a GradScaler's."""
    return any(
        abs(x - 1.0) > 1e-9 and (one.scale is None or abs(x - one.scale) > 1e-6 * one.scale)
        for each in one.factors
        for x in each
    )


def accumulated(job: Job) -> int:
    """Return how many passes an update usually has.

    Raises:
        NotChecked: that was not seen.
    """
    if not job.training:
        raise NotChecked("no optimizer step was seen")
    passes = [one for rank in job.training for one in rank.passes if one]
    if not passes:
        raise NotChecked("backward passes were not seen")
    return int(median(passes))


@check(
    "FD306",
    severity="warning",
    title="Gradients are left over at an epoch's end",
    meaning="An epoch's batches do not divide by the number of passes per update. What is left is "
    "lost, or goes into the next epoch's first update, which is larger than the others.",
    fix={
        "torch": "last = number + 1 == len(loader)\n"
        "if (number + 1) % accumulate == 0 or last:\n    optimizer.step()\n"
        "    optimizer.zero_grad()",
    },
    needs="backward passes behind the end of an epoch that had no update",
    covers=_TORCH,
)
def left_over(job: Job) -> Iterator[Seen]:
    """Look for passes behind the end of an epoch that no update used before the next one began."""
    per_update = accumulated(job)
    if per_update < 2:
        return
    whole = [(r, one) for r in job.training for one in r.facts(Pass) if one.training and one.whole]
    if not whole:
        raise NotChecked("no whole epoch was seen")
    odd = {rank.rank: one for rank, one in whole if one.pending}
    if odd:
        first = next(iter(odd.values()))
        yield Seen(
            text=f"{plural(first.pending, 'pass')} behind the last update of an epoch had none, "
            f"where an update usually has {per_update}.",
            values={rank: f"{plural(one.pending, 'pass')} left" for rank, one in odd.items()},
            step=first.begin + first.steps,
        )


@check(
    "FD307",
    severity="note",
    title="Every micro-step exchanges gradients",
    meaning="An update accumulates several passes, and DDP exchanges gradients in each of them: "
    "that is so many times the communication that is needed.",
    fix={
        "ddp": "with contextlib.nullcontext() if last else model.no_sync():\n    loss.backward()",
        "accelerate": "with accelerator.accumulate(model):\n    ...",
    },
    needs="passes of DDP modules with and without an exchange",
    covers=("ddp", "accelerate", "lightning"),
)
def exchange_in_every_pass(job: Job) -> Iterator[Seen]:
    """Compare passes that exchange with updates."""
    found = {rank.rank: one for rank in job.ranks for one in wrappers(rank)}
    if not found:
        raise NotChecked("no DistributedDataParallel was seen")
    per_update = accumulated(job)
    if per_update > 1 and all(one.synced > 1 and not one.unsynced for one in found.values()):
        yield Seen(
            text=f"An update has {plural(per_update, 'pass')}, and each exchanged gradients.",
            values={
                rank: f"{one.synced} passes with an exchange, none without"
                for rank, one in found.items()
            },
            where=next(iter(found.values())).where,
        )


@check(
    "FD308",
    severity="error",
    title="Gradients are never zeroed",
    meaning="Every update uses the sum of all gradients so far, not those of its own batch: old "
    "ones never go.",
    fix={"torch": "optimizer.zero_grad()   # before each update's first backward"},
    needs="gradients before the first backward pass of an update",
    covers=_TORCH,
)
def never_zeroed(job: Job) -> Iterator[Seen]:
    """Look for updates at whose beginning the gradients of the last one were still there."""
    found = {rank.rank: [x for x in rank.facts(Local) if x.step > 1] for rank in job.training}
    if not any(any(map(len, one.used)) for each in found.values() for one in each):
        raise NotChecked("no gradients of two updates were recorded")
    old = {rank: [one for one in each if one.carried] for rank, each in found.items()}
    odd = {rank: each for rank, each in old.items() if len(each) > 1}
    if odd:
        first = next(iter(odd.values()))[0]
        yield Seen(
            text=f"When step {first.step} began, the gradients of the step before were still "
            "there.",
            values={
                rank: f"in {len(each)} of {len(found[rank])} steps" for rank, each in odd.items()
            },
            step=first.step,
            where=first.sites[0] if first.sites else optimizer_where(job),
        )


@check(
    "FD309",
    severity="error",
    title="Updates on some ranks only",
    meaning="A rank skips optimizer.step() that others make, with as many backward passes: the "
    "copies drift apart, and averages are taken of gradients of different models.",
    fix={
        "torch": "optimizer.step()   # on every rank, whatever its own loss is\n"
        "# to skip a batch, agree on it: skip = hvd.allreduce(bad, op=hvd.Max)",
        "ddp": "torch.distributed.all_reduce(bad, op=torch.distributed.ReduceOp.MAX)\n"
        "if not bad:\n    optimizer.step()   # on all ranks or on none",
    },
    needs="backward passes and updates of every rank",
    covers=_TORCH,
    explains=("FD104", "FD111", "FD112"),
)
def updates_on_some_ranks(job: Job) -> Iterator[Seen]:
    """Compare updates per backward pass between ranks: one may make none at all."""
    if job.workers < 2:
        raise NotChecked("there is one worker")
    work = {rank.rank: one for rank in job.ranks if (one := rank.last(Work)) is not None}
    if len(work) < job.workers:
        raise NotChecked("not all ranks told of their updates")
    shares = {rank: one.updates / one.passes for rank, one in work.items() if one.passes >= 8}
    if len(shares) < len(work):
        raise NotChecked("fewer than 8 backward passes were seen")
    counts = [one.updates for one in work.values()]
    fewer = max(shares.values()) * 0.97 > min(shares.values())
    # A rank that was ended in the middle of a window has fewer, too.
    missing = [max(shares.values()) * one.passes - one.updates for rank, one in work.items()]
    if fewer and max(missing) >= 2 and max(counts) - min(counts) >= 1:
        yield Seen(
            text="The ranks made different numbers of updates for their backward passes.",
            values={
                rank: f"{one.updates} updates in {one.passes} passes" for rank, one in work.items()
            },
            where=optimizer_where(job),
        )


# Learning rates


def rates(rank: Rank) -> list[tuple[int, float]]:
    """Return a rank's learning rate from the steps on in which it changed."""
    found = [
        (one.step, float(one.groups[0]["lr"]))
        for one in rank.facts(Groups)
        if one.optimizer == 0 and one.groups and isinstance(one.groups[0].get("lr"), int | float)
    ]
    if found:
        return found
    return [(int(one["step"]), float(one["value"])) for one in rank.lines("learning_rate")]


def _rates_of(job: Job) -> tuple[float, float, list[tuple[int, float]]]:
    """Return the highest rate of the job and of the replay, and the job's rates.

    Raises:
        NotChecked: one is not known.
    """
    several(job)
    assert job.alone is not None
    together = next((found for rank in job.training if (found := rates(rank))), [])
    alone = next((found for rank in job.alone.training if (found := rates(rank))), [])
    if not together or not alone:
        raise NotChecked("learning rates were not recorded")
    return max(r for _, r in together), max(r for _, r in alone), together


def _batches(job: Job) -> tuple[int, int] | None:
    """Return a rank's batch with all workers, and the one of a worker alone as the script asks."""
    assert job.alone is not None
    sizes = []
    for launch, times in ((job, 1), (job.alone, job.workers)):
        feed = next((f for r in launch.training for f in feeds(r, training=True)[:1]), None)
        if feed is None or not feed.first.sizes:
            return None
        if feed.loader.kind_of == "calls":
            times = 1  # only DataLoaders' batches are multiplied
        sizes.append((usual_batch(feed.first) or feed.first.sizes[0][0]) // times)
    return sizes[0], sizes[1]


@check(
    "FD310",
    severity="note",
    title="The rate is scaled without a warm-up",
    meaning="The learning rate is multiplied by the workers from the first step on. Large "
    "rates in the first steps often make training diverge; with many workers a warm-up of some "
    "epochs prevents that.",
    fix={
        "torch": "warmup = torch.optim.lr_scheduler.LinearLR(\n"
        "    optimizer, start_factor=1 / hvd.size(), total_iters=5 * len(loader))",
        "keras": "callbacks=[hvd.callbacks.LearningRateWarmupCallback(initial_lr=lr, "
        "warmup_epochs=5)]",
    },
    needs="learning rates with all workers and with one",
    covers=_TORCH,
    replay=True,
)
def scaled_without_warmup(job: Job) -> Iterator[Seen]:
    """Compare the first rate with the highest, and both with those of one worker."""
    most, alone, found = _rates_of(job)
    if alone <= 0 or most / alone < 0.9 * job.workers:
        return
    if found[0][1] > 0.7 * most:
        yield Seen(
            text=f"The rate is {number(most / alone)} times that of one worker, and "
            f"{number(found[0][1])} in the first step.",
            values={rank.rank: f"rate {number(most)}" for rank in job.training},
            step=0,
            where=optimizer_where(job),
            severity="warning" if job.workers >= 8 else None,
        )


@check(
    "FD311",
    severity="note",
    title="The rate is not scaled",
    meaning="The global batch is {workers} times that of one worker, and the learning rate is the "
    "same. With SGD, as many epochs then make less progress; the usual rule is a rate that grows "
    "with the global batch.",
    fix={
        "torch": "optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size())",
        "ddp": "optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * world_size)",
    },
    needs="learning rates and batches with all workers and with one",
    covers=_TORCH,
    replay=True,
)
def not_scaled(job: Job) -> Iterator[Seen]:
    """Compare rate and batch with those of one worker, for SGD."""
    most, alone, found = _rates_of(job)
    names = {one.name for rank in job.training for one in rank.facts(Optimizer)}
    if not any("SGD" in name for name in names):
        raise NotChecked("the rule is for SGD")
    batches = _batches(job)
    if batches is None:
        raise NotChecked("the size of batches was not seen")
    if batches[0] < 0.9 * batches[1]:
        return  # the script divides its batch: the global one is the same
    if len(found) > 2 and found[-1][1] == most and found[0][1] < 0.7 * most:
        raise NotChecked("the rate was still rising when the launch ended")
    if most < 1.1 * alone:
        yield Seen(
            text=f"The global batch is {job.workers * batches[0]} where one worker has "
            f"{batches[1]}, and the rate is {number(most)} in both.",
            values={rank.rank: f"rate {number(most)}" for rank in job.training},
            where=optimizer_where(job),
        )


def _schedules(rank: Rank) -> dict[int, list[Schedule]]:
    found: dict[int, list[Schedule]] = {}
    for one in rank.facts(Schedule):
        found.setdefault(one.number, []).append(one)
    return found


def _calls_per_update(found: Sequence[Schedule]) -> float | None:
    """Return calls of a scheduler per update; None where it does not go with updates."""
    known = [one for one in found if one.calls is not None and one.step > 0]
    if len(known) < 3:
        return None
    steps = known[-1].step - known[0].step
    calls = (known[-1].calls or 0.0) - (known[0].calls or 0.0)
    return calls / steps if steps >= 3 else None


def _horizon(one: Schedule) -> int | None:
    """Return after how many calls a schedule ends; of a LambdaLR the largest number it knows."""
    return one.total or (max(one.numbers) if one.numbers else None)


def planned_updates(job: Job) -> int | None:
    """Return how many updates the script makes in all, if it ended or says so."""
    steps = max((rank.steps for rank in job.ranks), default=0)
    if job.ended == "ok":
        return steps
    for rank in job.training:
        plan = rank.last(Plan)
        feed = next(iter(feeds(rank, training=True)), None)
        whole = next((x for x in feed.passes if x.whole and x.steps), None) if feed else None
        if plan is not None and plan.epochs and whole is not None:
            return plan.epochs * whole.steps
    return None


@check(
    "FD312",
    severity="warning",
    title="The scheduler is stepped once per worker",
    meaning="The schedule goes {workers} steps ahead with each update, as Accelerate's prepared "
    "schedulers do, but was made for the updates that {workers:worker} make: the learning rate is "
    "at its end after 1/{workers} of training.",
    fix={
        "accelerate": "total = epochs * len(loader)   # of the loader before prepare(); or:\n"
        "Accelerator(step_scheduler_with_optimizer=False), scheduler not in prepare()",
        "torch": "scheduler.step()   # once per update",
    },
    needs="calls of schedulers per update, and updates in all",
    covers=_TORCH,
)
def stepped_per_worker(job: Job) -> Iterator[Seen]:
    """Find schedules that advance with every update by the number of workers, and end early."""
    several(job)
    found = {rank.rank: _schedules(rank) for rank in job.training}
    if not any(found.values()):
        raise NotChecked("no learning rate scheduler was seen")
    first = next(each for each in found.values() if each)
    unknown = False
    for which, told in first.items():
        per_update = _calls_per_update(told)
        if per_update is None or abs(per_update - job.workers) > 0.05 * job.workers:
            continue
        last = told[-1]
        total, updates = _horizon(last), planned_updates(job)
        early = None
        if total and updates:
            early = total / per_update < 0.8 * updates
        elif total and job.alone is not None and (one := _replayed(job.alone, which)):
            early = total < 1.5 * one
        if early is None:
            unknown = True
        elif early:
            yield Seen(
                text=f"{last.name} goes {number(per_update)} steps ahead with each update; it is "
                f"at its end after {total} steps, which are {int((total or 0) / per_update)} "
                "updates.",
                values={
                    rank: f"{brief(each[which][-1].calls)} steps of the schedule at update "
                    f"{each[which][-1].step}"
                    for rank, each in found.items()
                    if which in each
                },
                where=last.where,
            )
            return
    if unknown:
        raise NotChecked("where the schedule ends, or training, is not known")


def _replayed(alone: Job, which: int) -> int | None:
    told = next((_schedules(rank).get(which) for rank in alone.training), None)
    return _horizon(told[-1]) if told else None


@check(
    "FD313",
    severity="warning",
    title="A schedule for one worker",
    meaning="The schedule was made for the steps of one worker. With {workers:worker} there "
    "are 1/{workers} as many: training ends before the learning rate has come down.",
    fix={
        "torch": "total = epochs * len(loader)   # of the divided data, not len(dataset) // batch\n"
        "scheduler = CosineAnnealingLR(optimizer, T_max=total)",
    },
    needs="the end of schedules, and updates in all",
    covers=_TORCH,
)
def schedule_of_one_worker(job: Job) -> Iterator[Seen]:
    """Compare the end of schedules that go with updates with the updates there are."""
    several(job)
    told = next((found for rank in job.training if (found := _schedules(rank))), None)
    if told is None:
        raise NotChecked("no learning rate scheduler was seen")
    going = {
        which: (each[-1], rate)
        for which, each in told.items()
        if (rate := _calls_per_update(each)) is not None and rate > 0.9
    }
    if not going:
        return
    updates = planned_updates(job)
    if updates is None:
        raise NotChecked("how many updates the script makes in all is not known")
    ends = [(one, rate, total) for one, rate in going.values() if (total := _horizon(one))]
    if not ends:
        raise NotChecked("where the schedules end is not known")
    one, rate, total = max(ends, key=lambda each: each[2])
    ratio = total / rate / updates
    lambda_only = one.total is None
    fits = abs(ratio - job.workers) <= (0.05 if lambda_only else 0.12) * job.workers
    if one.name == "MultiStepLR":
        fits = 1.05 < ratio <= 1.1 * job.workers
    if fits:
        yield Seen(
            text=f"{one.name} ends after {int(total / rate)} updates; training has {updates}.",
            values={
                rank.rank: f"rate {number(mine[0][1])} at first, {number(mine[-1][1])} when last "
                "seen"
                if (mine := rates(rank))
                else f"{brief(one.calls)} calls"
                for rank in job.training
            },
            where=one.where,
        )


@check(
    "FD314",
    severity="warning",
    title="A warm-up for one worker",
    meaning="The warm-up has as many steps as with one worker, and each is {workers} times as much "
    "data: it takes {workers} times as many epochs, and a large part of training.",
    fix={
        "torch": "warmup = LinearLR(optimizer, start_factor=0.1, total_iters=epochs * "
        "len(loader))   # of the divided data",
        "keras": "hvd.callbacks.LearningRateWarmupCallback(initial_lr=lr, warmup_epochs=3)   # no "
        "steps_per_epoch, or that of the divided data",
    },
    needs="the learning rate in each step until the warm-up ends, and updates in all",
    covers=_TORCH,
)
def warmup_of_one_worker(job: Job) -> Iterator[Seen]:
    """Compare the end of the warm-up with the length of training and of an epoch."""
    several(job)
    found = next((told for rank in job.training if (told := rates(rank))), None)
    if found is None:
        raise NotChecked("learning rates were not recorded")
    ends = _warmup_ends(found)
    if ends is None:
        return
    updates = planned_updates(job)
    feed = next((f for r in job.training for f in feeds(r, training=True)[:1]), None)
    whole = next((one for one in feed.passes if one.whole and one.steps), None) if feed else None
    schedules = next((s for rank in job.training if (s := _schedules(rank))), {})
    totals = [
        one.total for each in schedules.values() for one in each[-1:] if one.name == "LinearLR"
    ]
    if totals and totals[0]:
        ends = totals[0]
    long_for_training = updates is not None and ends > 0.55 * updates
    of_one = whole is not None and abs(ends - job.workers * whole.steps) <= job.workers
    if updates is None and whole is None:
        raise NotChecked("neither the length of training nor of an epoch was seen")
    if long_for_training or of_one:
        of = f" of {updates} updates" if updates is not None else " updates"
        per = f"; an epoch has {whole.steps}" if whole is not None else ""
        yield Seen(
            text=f"The learning rate rises for {ends}{of}{per}.",
            values={
                rank.rank: f"rate {number(told[0][1])} to {number(max(r for _, r in told))}"
                for rank in job.training
                if (told := rates(rank))
            },
            where=optimizer_where(job),
        )


def _warmup_ends(found: Sequence[tuple[int, float]]) -> int | None:
    """Return the step at which a rate that began low is at its highest; None without a warm-up."""
    most = max(rate for _, rate in found)
    if found[0][1] > 0.6 * most:
        return None
    top = next(step for step, rate in found if rate >= 0.999 * most)
    rising = [rate for step, rate in found if step <= top]
    if len(rising) < 4 or any(a > b * 1.0001 for a, b in pairwise(rising)):
        return None
    return top


@check(
    "FD315",
    severity="error",
    title="Schedulers differ between ranks",
    meaning="A scheduler stands elsewhere on another rank, or follows a figure of that rank's own, "
    "such as its part of the validation loss. Learning rates differ sooner or later, and with them "
    "the models of your {workers:worker}.",
    fix={
        "torch": "loss = hvd.allreduce(loss)   # the same on every rank\nscheduler.step(loss)",
        "ddp": "torch.distributed.all_reduce(loss, op=torch.distributed.ReduceOp.AVG)\n"
        "scheduler.step(loss)",
    },
    needs="the state of schedulers on at least two ranks behind the same steps",
    covers=_TORCH,
    explains=("FD107",),
)
def schedulers_differ(job: Job) -> Iterator[Seen]:
    """Compare calls, best figure and patience of each scheduler, step by step."""
    several(job)
    # Behind the very last update a script may step its scheduler once more.
    last = min(rank.steps for rank in job.training) - 1
    told = {rank.rank: _schedules(rank) for rank in job.training}
    if sum(map(bool, told.values())) < 2:
        raise NotChecked("no learning rate scheduler was seen on two ranks")
    first = next(each[0] for found in told.values() for each in found.values())
    steps = sorted({one.step for f in told.values() for each in f.values() for one in each})
    shared = set.intersection(*map(set, told.values()))
    for step, which in ((s, w) for s in steps if s <= last for w in sorted(shared)):
        # What does not change is told of once.
        until = {r: [one for one in f[which] if one.step <= step] for r, f in told.items()}
        if not all(until.values()):
            continue
        values = {
            rank: (each[-1].calls, each[-1].best, each[-1].num_bad_epochs)
            for rank, each in until.items()
        }
        if len(set(values.values())) > 1:
            yield Seen(
                text=f"Behind step {step} the scheduler differs between the ranks.",
                values={
                    rank: f"{brief(calls)} calls" + ("" if best is None else f", best {best:.6g}")
                    for rank, (calls, best, _) in values.items()
                },
                step=step,
                where=first.where,
            )
            return


@check(
    "FD316",
    severity="error",
    title="Loss scales differ between ranks",
    meaning="The GradScalers of your {workers:worker} have different scales: gradients that are "
    "averaged are scaled by different factors, and one rank skips updates that others make.",
    fix={
        "torch": "optimizer.synchronize()\nscaler.unscale_(optimizer)   # behind the average: inf "
        "is on all ranks or on none",
        "ddp": "# one GradScaler per rank, with the same settings, updated in every step on every "
        "rank",
    },
    needs="scales of the GradScalers of at least two ranks",
    covers=_TORCH,
    explains=("FD104", "FD111", "FD309"),
)
def scales_differ(job: Job) -> Iterator[Seen]:
    """Compare scales in every step in which a rank changed one."""
    several(job)
    told = {rank.rank: rank.facts(Scaler) for rank in job.training}
    if not any(told.values()):
        raise NotChecked("no GradScaler was seen")
    last = min(rank.steps for rank in job.training)
    for step in sorted({one.step for each in told.values() for one in each if one.step <= last}):
        now = {
            rank: [one.scale for one in each if one.step <= step][-1:]
            for rank, each in told.items()
        }
        known = {rank: each[0] for rank, each in now.items() if each}
        if len(known) == len(told) and len(set(known.values())) > 1:
            yield Seen(
                text=f"Behind step {step} the loss scales differ.",
                values={rank: f"scale {brief(scale)}" for rank, scale in known.items()},
                step=step,
                where=optimizer_where(job),
            )
            return


@check(
    "FD317",
    severity="note",
    title="All ranks draw the same random numbers",
    meaning="The random numbers of training steps are equal on your {workers:worker}: dropout "
    "drops the same units, augmentation makes the same crops. Averages over workers bring less "
    "than they could.",
    fix={
        "torch": "torch.manual_seed(seed)             # the same, for the model's weights\n"
        "model = Net()\n"
        "torch.manual_seed(seed + hvd.rank())   # different from here on",
        "ddp": "torch.manual_seed(seed + torch.distributed.get_rank())   # behind the model",
    },
    needs="the state of random numbers of at least two ranks behind the same steps",
    covers=_TORCH,
)
def equal_random_numbers(job: Job) -> Iterator[Seen]:
    """Find generators that all ranks have alike, and that move from one step to the next."""
    several(job)
    found = {step: row for step, row in states(job).items() if step and len(row) == job.workers}
    if len(found) < 2:
        raise NotChecked("random numbers behind two steps were not recorded")
    begins = {one.begin + 1 for rank in job.training for one in rank.facts(Pass) if one.training}
    names = sorted({name for row in found.values() for one in row.values() for name in one.rng})
    for name in names:
        moved = same = 0
        seen: dict[int, State] = {}
        at = 0
        for step, row in found.items():
            before = found.get(step - 1)
            if before is None or step in begins or step + 1 in begins:
                continue  # an epoch's begin draws its own
            here = {rank: one.rng.get(name) for rank, one in row.items()}
            if all(one.rng.get(name) != here[rank] for rank, one in before.items()):
                moved += 1
                if len(set(here.values())) == 1:
                    same, seen, at = same + 1, row, step
        if moved and same == moved:
            yield Seen(
                text=f"Numbers of {'numpy.random' if name == 'numpy' else name} are drawn in every "
                "step, and are the same on all ranks.",
                values={rank: f"state {one.rng.get(name)}" for rank, one in seen.items()},
                step=at,
            )
            return


# Parameters


def _rows(job: Job) -> tuple[dict[int, State], Model]:
    """Return the states of a rank by step, and its parameters.

    Raises:
        NotChecked: fewer than 5 steps lie between them.
    """
    if not job.training:
        raise NotChecked("no optimizer step was seen")
    rank = job.training[0]
    model = rank.last(Model)
    found = {one.step: one for one in rank.facts(State)}
    if model is None or len(found) < 2 or max(found) - min(found) < 5:
        raise NotChecked("the weights of steps that lie apart were not recorded")
    return dict(sorted(found.items())), model


@check(
    "FD318",
    severity="warning",
    title="A parameter is never updated",
    meaning="The optimizer holds parameters, or the model has some that no optimizer holds, whose "
    "values never change: they take no part in the loss, or were replaced after the optimizer was "
    "made.",
    fix={
        "torch": "optimizer = torch.optim.SGD(model.parameters(), lr=0.01)   # behind the last "
        "change of the model\nparameter.requires_grad_(False)   # what is meant to stay",
        "ddp": "model = DDP(model, find_unused_parameters=True)   # if that is meant",
    },
    needs="weights behind steps that lie apart",
    covers=_TORCH,
)
def never_updated(job: Job) -> Iterator[Seen]:
    """Find trainable parameters whose hash stays while others' change."""
    found, model = _rows(job)
    first, last = next(iter(found.values())), list(found.values())[-1]
    count = min(len(first.weights), len(last.weights), len(model.trainable))
    stayed = [
        at
        for at in range(count)
        if model.trainable[at]
        and first.weights[at]
        and first.weights[at] == last.weights[at]
        and all(
            one.weights[at] == first.weights[at] for one in found.values() if at < len(one.weights)
        )
    ]
    changed = [at for at in range(count) if first.weights[at] != last.weights[at]]
    if not changed:
        raise NotChecked("no parameter changed")
    idle = any(
        all(
            float(group.get("lr") or 0.0) == 0.0
            for one in rank.facts(Groups)
            for group in one.groups[at : at + 1]
        )
        for rank in job.training[:1]
        for at in range(max((len(one.groups) for one in rank.facts(Groups)), default=0))
    )
    if stayed and not idle:
        yield Seen(
            text=f"{plural(len(stayed), 'parameter')} of {count} never changed in "
            f"{plural(max(found), 'step')}: {name_parameters(job, stayed)}.",
            values={job.training[0].rank: f"{len(changed)} others changed"},
            where=optimizer_where(job),
        )
    elif model.unheld and len(model.unheld) < len(model.names):
        yield Seen(
            text=f"No optimizer holds {plural(len(model.unheld), 'parameter')} that could train: "
            f"{listed(list(model.unheld[:3]))}.",
            values={job.training[0].rank: f"{len(model.names)} others are held"},
            where=optimizer_where(job),
            severity="note",
        )


@check(
    "FD319",
    severity="warning",
    title="Weights change without a gradient",
    meaning="Parameters whose gradient is zero, since they take no part in the loss, change all "
    "the same: weight decay shrinks them to nothing.",
    fix={
        "torch": "optimizer.zero_grad()   # set_to_none=True, the default: no gradient, no update\n"
        "# or leave them out of the optimizer",
    },
    needs="weights and gradients behind the same steps",
    covers=_TORCH,
)
def changed_without_gradient(job: Job) -> Iterator[Seen]:
    """Find parameters whose gradient is always zero and whose hash changes."""
    found, _ = _rows(job)
    gradients = job.training[0].facts(Gradients)
    if len(gradients) < 2:
        raise NotChecked("no gradients were recorded")
    first, last = next(iter(found.values())), list(found.values())[-1]
    count = min(len(first.weights), len(last.weights), *(len(one.norms) for one in gradients))
    odd = [
        at
        for at in range(count)
        if first.weights[at] != last.weights[at] and all(one.norms[at] == 0.0 for one in gradients)
    ]
    if odd and len(odd) < count:
        yield Seen(
            text=f"{plural(len(odd), 'parameter')} changed with gradients of zero: "
            f"{name_parameters(job, odd)}.",
            values={job.training[0].rank: f"gradient 0 in {len(gradients)} sampled steps"},
            where=optimizer_where(job),
        )


@check(
    "FD320",
    severity="error",
    title="A gradient that is not finite",
    meaning="The loss or the gradient of a rank became NaN or infinite. The average is NaN on all "
    "your {workers:worker}, and every weight with it.",
    fix={
        "torch": "bad = torch.tensor(float(not torch.isfinite(loss)))\n"
        "if hvd.allreduce(bad, op=hvd.Sum) == 0:   # skip on all ranks or on none\n"
        "    optimizer.step()",
        "ddp": "# find the cause on the rank that is named; skip a batch on all ranks or on none",
    },
    needs="losses and gradients of every rank in every step",
    covers=_TORCH,
    explains=("FD104",),
)
def bad_gradient(job: Job) -> Iterator[Seen]:
    """Find the ranks on which the first value that is not finite came up."""
    if not any(rank.lines("local") for rank in job.training):
        raise NotChecked("losses and gradients were not recorded")
    bad = {
        rank.rank: min(found, key=lambda one: one.step)
        for rank in job.training
        if (found := rank.facts(BadGradient))
    }
    if not bad:
        return
    first = min(one.step for one in bad.values())
    odd = {rank: one for rank, one in bad.items() if one.step == first}
    what = listed(sorted({one.what for one in odd.values()}))
    yield Seen(
        text=f"In step {first} the {what} of {say_ranks(odd)} was not finite.",
        values={rank: f"{one.what} not finite in step {one.step}" for rank, one in bad.items()},
        step=first,
        where=optimizer_where(job),
    )
