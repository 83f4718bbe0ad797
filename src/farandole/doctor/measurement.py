"""FD4xx: metrics and evaluation.

The ids: FD401 a part's metrics reported as the whole's, FD402 divided by another number of samples
than was counted, FD403 padded samples counted twice, FD404 mean of unequal means, FD405 each rank
decides by its own metric, FD406 every rank evaluates everything, FD407 evaluation in training mode,
FD408 training in evaluation mode, FD409 a speed with the warm-up in it, FD411 a loss of one rank,
FD412 one rank evaluates, FD413 samples left out; advice: FD410 too few samples for a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise
from statistics import fmean, median

from farandole.doctor.check import NotChecked, Seen, Severity, check, several
from farandole.doctor.facts import (
    Compared,
    Decides,
    Evaluation,
    Item,
    Job,
    Printed,
    Rank,
    Shown,
    say_ranks,
)
from farandole.format import brief, listed, number, percent, plural, seconds

Round = Mapping[int, Evaluation]
"""The same evaluation on every rank that made it."""
_TORCH = ("torch", "ddp", "accelerate", "lightning")
_FEW = 0.01
"""A share of samples below which counting them twice, or not at all, is a note."""
_UNEVEN = 0.05
"""A share by which a mean of means is off from which it is more than a note."""
_WARM = 0.1
"""A share of a measured time that start-up may take."""
_MOSTLY_WARM = 0.3
"""A share that is more than a note: with few steps every time has some."""
_FEWEST = 1000
"""Test samples below which single runs differ by several points by chance."""


def rounds(job: Job) -> list[Round]:
    """Return the evaluations of all ranks, in their order.

    Raises:
        NotChecked: none was seen.
    """
    by_number: dict[int, dict[int, Evaluation]] = {}
    for rank in job.ranks:
        found = rank.facts(Evaluation)
        if len(found) > max(5, rank.steps / 2):
            raise NotChecked("the model is called without gradients in every other step")
        for one in found:
            by_number.setdefault(one.number, {})[rank.rank] = one
    if not by_number:
        raise NotChecked(
            "no evaluation was seen (a trained model called without gradients, or Keras' evaluate);"
            " --epochs 1 waits for one"
        )
    return [by_rank for _, by_rank in sorted(by_number.items())]


def share_of_data(one: Round, workers: int) -> str:
    """Say whether ranks evaluated "parts" of their own or the "same" samples; "" if unknown."""
    if len(one) < 2:
        return ""
    hashed = [set(each.hashes) for each in one.values()]
    known = all(2 * len(found) > len(each.hashes) for found, each in zip(hashed, one.values()))  # noqa: B905
    if known and all(hashed):
        shares = [len(a & b) / min(len(a), len(b)) for a, b in combinations(hashed, 2)]
        if max(shares) < 0.5:
            return "parts"
        return "same" if min(shares) > 0.9 else ""
    if all((each.replicas or 1) > 1 for each in one.values()):
        return "parts"
    return ""


def shared_size(one: Round) -> int | None:
    """Return the size of a data set of which ranks evaluated parts; None where it is not known.

    A data set that was cut beforehand is as large as the part.
    """
    sizes = {each.dataset_size for each in one.values()}
    size = sizes.pop() if len(sizes) == 1 else None
    return size if size and all(each.samples < size for each in one.values()) else None


def in_parts(job: Job) -> list[Round]:
    """Return the evaluations that ranks shared.

    Raises:
        NotChecked: there is none.
    """
    several(job)
    found = [one for one in rounds(job) if share_of_data(one, job.workers) == "parts"]
    if not found:
        raise NotChecked("no evaluation was seen in which ranks had different samples")
    return found


@dataclass(frozen=True, slots=True)
class Reported:
    """A number of an evaluation that the script printed, logged or decided by."""

    value: float
    tolerance: float
    text: str
    where: str

    def is_near(self, other: float, *, counted: bool = True) -> bool:
        """Say whether this may be the other number; a share of what is counted also in percent."""
        if not math.isfinite(other):
            return False
        close = self.tolerance + 1e-7 * abs(other)
        in_percent = (
            counted and 0.01 <= other <= 1.0 and abs(self.value - 100 * other) <= 100 * close
        )
        return in_percent or abs(self.value - other) <= close


def reported(rank: Rank, one: Evaluation) -> list[Reported]:
    """Return what a rank reported of an evaluation, until training went on."""
    found = []
    for line in rank.facts(Printed):
        if line.step == one.step and line.number >= one.number:
            for label, text in line.numbers:
                digits = len(text.lower().partition("e")[0].partition(".")[2])
                tolerance = 0.51 * 10.0**-digits
                said = f"{label} {text}".strip()
                found.append(Reported(float(text.rstrip("% ")), tolerance, said, line.where))
    exact: list[Shown | Compared] = [
        shown
        for shown in rank.facts(Shown)
        if shown.origin[0] == "eval" and shown.origin[2] == one.number
    ]
    exact += [compared for compared in rank.facts(Compared) if compared.step == one.step]
    return found + [Reported(each.value, 1e-9, number(each.value), each.where) for each in exact]


@check(
    "FD401",
    severity="warning",
    title="Metrics of one rank's part are reported as the whole's",
    meaning="Each of your {workers:worker} evaluated a part of the data, and what is reported is "
    "the result of one part. It scatters more than the whole would, and changes with the number "
    "of workers.",
    fix={
        "torch": 'accuracy = hvd.allreduce(torch.tensor(accuracy), name="accuracy").item()\n'
        "# before it is printed, logged or compared; on every rank",
        "ddp": "counts = torch.tensor([correct, total])\n"
        "torch.distributed.all_reduce(counts)   # on every rank\n"
        "accuracy = (counts[0] / counts[1]).item()",
        "accelerate": "predictions, labels = accelerator.gather_for_metrics((predictions, labels))",
        "lightning": 'self.log("val_accuracy", accuracy, sync_dist=True)',
        "keras": "callbacks=[hvd.callbacks.MetricAverageCallback()]",
    },
    needs="samples and exchanges of evaluations, and what was printed, logged or compared then",
    covers=(*_TORCH, "keras"),
)
def metrics_of_a_part(job: Job) -> Iterator[Seen]:
    """Find evaluations in parts of which something is reported and nothing was exchanged."""
    if job.framework == "keras":
        yield from _keras_metrics_differ(job, held_out=True)
        return
    if found := list(_part_of_one_rank(job)):
        yield from found
        return
    for one in in_parts(job):
        if any(each.exchanged for each in one.values()):
            continue
        taken = any(each.items for each in one.values())
        said = {r.rank: reported(r, one[r.rank]) for r in job.ranks if r.rank in one}
        if job.framework != "lightning" and not any(said.values()) and not taken:
            continue
        first = next((each for found in said.values() for each in found), None)
        speaking = [rank for rank, found in said.items() if found]
        labelled = all("rank" in found[0].text.lower() for found in said.values() if found)
        unclear = not speaking and job.framework != "lightning"
        severity: Severity | None = None
        if unclear or (labelled and speaking == list(one)):
            severity = "note"
        what = f", and {say_ranks(speaking)} reported a result of its own" if speaking else ""
        yield Seen(
            text="Each rank evaluated samples of its own, nothing was averaged or gathered until "
            f"training went on{what}.",
            values={
                rank: f"{plural(each.samples, 'sample')}"
                + (f", {said[rank][0].text}" if said.get(rank) else "")
                for rank, each in one.items()
            },
            step=next(iter(one.values())).step,
            where=first.where if first else next(iter(one.values())).where,
            severity=severity,
        )
        return


def _part_of_one_rank(job: Job) -> Iterator[Seen]:
    """Find a rank that evaluates the part that a sampler gives it, and no other does."""
    several(job)
    for one in rounds(job):
        for rank, each in one.items() if len(one) == 1 else ():
            size = each.dataset_size or 0
            if (each.replicas or 1) > 1 and each.whole and each.samples < 0.9 * size:
                yield Seen(
                    text=f"Rank {rank} alone evaluated {each.samples} of {size} samples.",
                    values={rank: plural(each.samples, "sample")},
                    step=each.step,
                    where=each.where,
                )
                return


def _keras_metrics_differ(job: Job, *, held_out: bool) -> Iterator[Seen]:
    several(job)
    by_name: dict[tuple[str, float], dict[int, float]] = {}
    for rank in job.ranks:
        for one in rank.metrics:
            if one.epoch is not None and one.name.startswith("val_") is held_out:
                by_name.setdefault((one.name, one.epoch), {})[rank.rank] = one.value
    by_name = {key: values for key, values in by_name.items() if len(values) > 1}
    if not by_name:
        what = "validation " if held_out else ""
        raise NotChecked(f"no {what}metrics of an epoch were seen on two ranks")
    for (name, epoch), values in by_name.items():
        if max(values.values()) - min(values.values()) > 1e-6 * max(map(abs, values.values())):
            yield Seen(
                text=f"{name} of epoch {brief(epoch)} is another number on every rank.",
                values={rank: f"{name} {number(value)}" for rank, value in values.items()},
            )
            return


@check(
    "FD402",
    severity="error",
    title="A metric is divided by another number of samples than was counted",
    meaning="The numerator and the denominator belong to different sets: one counts the samples of "
    "one rank, the other those of all {workers:worker}. The metric is {workers} times too small, "
    "or too large, and looks like a model that gets worse with more workers.",
    fix={
        "torch": "# a part's correct predictions over that part's samples, then the mean:\n"
        "accuracy = hvd.allreduce(torch.tensor(correct / len(sampler)))",
        "ddp": "counts = torch.tensor([correct, total])   # both of this rank\n"
        "torch.distributed.all_reduce(counts)\n"
        "accuracy = (counts[0] / counts[1]).item()",
    },
    needs="numbers that were reported of an evaluation in parts, and the counts they are made of",
    covers=_TORCH,
    explains=("FD401",),
)
def another_denominator(job: Job) -> Iterator[Seen]:
    """Look for counts of one rank over samples of all, and the other way round."""
    wrong = 0
    for one in in_parts(job):
        counted = sum(each.samples for each in one.values())
        size = shared_size(one) or counted
        totals = _totals(one)
        exchanged = any(each.exchanged for each in one.values())
        for rank in job.ranks:
            mine = one.get(rank.rank)
            if mine is None or not mine.samples or counted < 1.5 * mine.samples:
                continue
            for said in reported(rank, mine):
                found = _misdivided(said, totals, rank.rank, mine.samples, size, exchanged, one)
                wrong += bool(found)
                if found:
                    yield Seen(
                        text=f"{said.text} is {found}.",
                        values={
                            r: f"{plural(e.samples, 'sample')} of {size}" for r, e in one.items()
                        },
                        step=mine.step,
                        where=said.where,
                    )
                    return
    if not any(each.items for one in in_parts(job) for each in one.values()):
        raise NotChecked("the script took no numbers out of tensors in an evaluation")


def _totals(one: Round) -> dict[tuple[str, str], dict[int, float]]:
    """Return sums and last values by line and rank."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    for rank, each in one.items():
        for where, values in each.items.items():
            found.setdefault((where, "sum"), {})[rank] = math.fsum(values)
            found.setdefault((where, "last"), {})[rank] = values[-1]
    return found


def _misdivided(
    said: Reported,
    totals: Mapping[tuple[str, str], Mapping[int, float]],
    rank: int,
    mine: int,
    size: int,
    exchanged: bool,
    one: Round,
) -> str:
    counted = sum(each.samples for each in one.values())
    wrong = ""
    for by_rank in totals.values():
        own = by_rank.get(rank, 0.0)
        if own <= 0 or own in (mine, size):
            continue
        is_global = exchanged and len(by_rank) > 1 and len(set(by_rank.values())) == 1
        whole = own if is_global else math.fsum(by_rank.values())
        right = [whole / counted, whole / size]
        right += [] if is_global else [own / mine]
        if any(said.is_near(value) for value in right) or said.is_near(own):
            return ""
        near = partial(said.is_near, counted=own.is_integer())
        if is_global:
            if near(own / mine):
                wrong = f"{brief(own)} of all ranks over the {mine} samples of rank {rank}"
            continue
        if near(own / size):
            wrong = f"{brief(own)} of rank {rank} alone over all {size} samples"
        elif len(by_rank) == len(one) and near(whole / len(one) / size):
            wrong = (
                f"the mean of what ranks counted, {brief(whole / len(one))}, over all {size} "
                f"samples: {brief(whole)} were counted in all"
            )
        elif len(by_rank) == len(one) and near(whole / mine):
            wrong = f"{brief(whole)} of all ranks over the {mine} samples of rank {rank}"
    return wrong


@check(
    "FD403",
    severity="warning",
    title="Padded samples are evaluated twice",
    meaning="The samples cannot be shared out evenly over your {workers:worker}, and the sampler "
    "repeated some to fill up. They count twice in the metric, which is then that of another data "
    "set and changes with the number of workers.",
    fix={
        "torch": "part = torch.utils.data.Subset(test, range(hvd.rank(), len(test), hvd.size()))\n"
        "# unequal parts: sum counts over the ranks, and divide once",
        "accelerate": "predictions, labels = accelerator.gather_for_metrics((predictions, labels))",
        "lightning": "Trainer(use_distributed_sampler=False)   # and a Subset of each rank",
        "keras": 'hvd.shard((x, y), batch_size=500, shuffle=False, remainder="keep")',
    },
    needs="samples that each rank evaluated, and the size of the data set",
    covers=_TORCH,
)
def padded(job: Job) -> Iterator[Seen]:
    """Compare the samples of all ranks with the size of the data set."""
    known = False
    for one in in_parts(job):
        if len(one) < job.workers or not all(e.whole for e in one.values()):
            continue
        known, size = True, shared_size(one)
        if size is None:
            continue  # cut beforehand: no sampler fills it up
        extra = sum(each.samples for each in one.values()) - size
        if extra <= 0 or any(each.trimmed for each in one.values()):
            continue
        operations = {name for each in one.values() for name in each.exchanged}
        # What is gathered may be cut to size by the script.
        gathered = bool(operations) and not any("reduce" in name for name in operations)
        gathered = gathered and job.framework != "accelerate"
        small = extra / size < _FEW or gathered
        yield Seen(
            text=f"{plural(size + extra, 'sample')} were evaluated of a data set of {size}: "
            f"{extra} of them twice" + (", unless the script drops them." if gathered else "."),
            values={rank: plural(each.samples, "sample") for rank, each in one.items()},
            step=next(iter(one.values())).step,
            where=next(iter(one.values())).where,
            severity="note" if small else None,
        )
        return
    if not known:
        raise NotChecked("no DataLoader with a known size was evaluated to its end")


@check(
    "FD404",
    severity="warning",
    title="A mean of unequal batches or parts",
    meaning="Means of batches, or of your {workers:worker}' parts, are averaged as if all had as "
    "many samples. The samples of small ones count more, and the metric changes with the batch "
    "size and the number of workers.",
    fix={
        "torch": 'total += torch.nn.functional.cross_entropy(outputs, labels, reduction="sum")\n'
        "seen += len(labels)\n"
        "sums = hvd.allreduce(torch.tensor([total, seen]), op=hvd.Sum)   # then divide once",
        "ddp": "sums = torch.tensor([loss_sum, samples])\n"
        "torch.distributed.all_reduce(sums)   # then divide once",
    },
    needs="batch sizes of an evaluation, numbers taken of it, and numbers reported",
    covers=_TORCH,
)
def mean_of_means(job: Job) -> Iterator[Seen]:
    """Look for reported numbers that weigh unequal batches, or unequal parts, alike."""
    found = rounds(job)
    seen: list[Seen] = []
    for one in found:
        for rank in job.ranks:
            mine = one.get(rank.rank)
            if mine is not None:
                seen += _unequal_batches(rank, one)
        if share_of_data(one, job.workers) == "parts":
            seen += _unequal_parts(job, one)
    if seen:
        yield max(seen, key=lambda each: each.severity is None)
    elif not any(each.items for one in found for each in one.values()):
        raise NotChecked("the script took no numbers out of tensors in an evaluation")


def _unequal_batches(rank: Rank, one: Round) -> Iterator[Seen]:
    mine = one[rank.rank]
    sizes, samples = mine.sizes, sum(mine.sizes)
    if len(set(sizes)) < 2 or not samples:
        return
    for said in reported(rank, mine):
        for where, values in mine.items.items():
            candidates = [_means(mine, where)]
            by_rank = [_means(each, where) for each in one.values()]
            if len(by_rank) > 1:
                parts = [sum(each.sizes) for each in one.values()]
                weighted = sum(mean[1] * n for mean, n in zip(by_rank, parts, strict=True))
                flat = fmean(mean[0] for mean in by_rank)
                candidates.append((flat, weighted / sum(parts)))
            if len(values) == 1 and not values[0].is_integer():
                candidates.append((values[0] / len(sizes), math.nan))
            for flat, weighted in candidates:
                if flat and said.is_near(flat) and not said.is_near(weighted):
                    right = "" if math.isnan(weighted) else f" ({number(weighted)} by samples)"
                    yield Seen(
                        text=f"{said.text} weighs {len(sizes)} batches alike, of {min(sizes)} to "
                        f"{max(sizes)} samples{right}.",
                        values={rank.rank: f"batches of {_short(sizes)}"},
                        step=mine.step,
                        where=said.where,
                        severity=None if _is_off(flat, weighted) else "note",
                    )
                    return


def _is_off(flat: float, weighted: float) -> bool:
    return abs(flat - weighted) > _UNEVEN * abs(weighted)


def _means(one: Evaluation, where: str) -> tuple[float, float]:
    """Return the mean of the batches' values, and that by samples; NaN where there are others."""
    values, sizes = one.items.get(where, ()), one.sizes
    if len(values) != len(sizes) or not sum(sizes):
        return math.nan, math.nan
    weighted = sum(value * n for value, n in zip(values, sizes, strict=True))
    return math.fsum(values) / len(values), weighted / sum(sizes)


def _unequal_parts(job: Job, one: Round) -> Iterator[Seen]:
    sizes = {rank: each.samples for rank, each in one.items()}
    if len(set(sizes.values())) < 2 or not min(sizes.values()):
        return
    samples = sum(sizes.values())
    for by_rank in _totals(one).values():
        if len(by_rank) < len(one) or len(set(by_rank.values())) == 1:
            continue
        # A sum over the part, a mean over the part, or a sum of its batches' means.
        for per in ({r: sizes[r] for r in one}, dict.fromkeys(one, 1), _batches(one)):
            means = {rank: by_rank[rank] / per[rank] for rank in one}
            flat = fmean(means.values())
            weighted = sum(means[rank] * sizes[rank] for rank in one) / samples
            for rank in job.ranks:
                mine = one.get(rank.rank)
                for said in reported(rank, mine) if mine is not None else ():
                    if flat and said.is_near(flat) and not said.is_near(weighted):
                        yield Seen(
                            text=f"{said.text} weighs the parts of {len(one)} ranks alike "
                            f"({number(weighted)} by samples).",
                            values={r: plural(n, "sample") for r, n in sizes.items()},
                            step=mine.step if mine is not None else None,
                            where=said.where,
                            severity=None if _is_off(flat, weighted) else "note",
                        )
                        return


def _batches(one: Round) -> dict[int, int]:
    return {rank: max(1, len(each.sizes)) for rank, each in one.items()}


def _short(sizes: Sequence[int]) -> str:
    shown = [str(size) for size in sizes]
    return listed(shown) if len(shown) < 6 else f"{', '.join(shown[:3])} ... {shown[-1]}"


@check(
    "FD405",
    severity="error",
    title="Each rank decides by a metric of its own",
    meaning="Early stopping, or the choice of the best checkpoint, follows a number that differs "
    "between your {workers:worker}. One of them stops, or saves, when the others go on: the job "
    "hangs, or the checkpoints are of different epochs.",
    fix={
        "torch": 'loss = hvd.allreduce(torch.tensor(loss), name="loss").item()\n'
        "if loss > best: ...   # the same number on every rank",
        "ddp": "value = torch.tensor(loss)\n"
        "torch.distributed.all_reduce(value)\n"
        "stop = value.item() / torch.distributed.get_world_size() > best",
        "lightning": 'self.log("val_loss", loss, sync_dist=True)',
        "keras": "callbacks=[hvd.callbacks.MetricAverageCallback(), EarlyStopping(...)]\n"
        "# in this order",
    },
    needs="comparisons with figures of an evaluation, callbacks of Keras's, and steps of each rank",
    covers=(*_TORCH, "keras"),
    explains=("FD111", "FD109", "FD110"),
)
def decides_alone(job: Job) -> Iterator[Seen]:
    """Compare what ranks compare, and find a rank that stopped behind an evaluation."""
    several(job)
    steps = {rank.rank: rank.steps for rank in job.training}
    last = {rank.rank: found[-1] for rank in job.training if (found := rank.facts(Evaluation))}
    broken = job.ended in ("failed", "hung", "killed")
    going = {
        rank.rank
        for rank in job.training
        if rank.steps > min(steps.values())
        or (broken and (rank.lines("waiting") or rank.end.get("pass_under_way")))
    }
    stopped = [r for r, one in last.items() if one.step == steps[r] and r not in going]
    apart = bool(stopped and going) and job.ended != "stopped"
    by_place: dict[str, dict[int, list[float]]] = {}
    for rank in job.ranks:
        for one in rank.facts(Compared):
            by_place.setdefault(one.where, {}).setdefault(rank.rank, []).append(one.value)
    for where, by_rank in by_place.items():
        for values in zip(*by_rank.values(), strict=False) if len(by_rank) > 1 else ():
            if max(values) - min(values) > 1e-6 * max(map(abs, values)):
                yield Seen(
                    text="The ranks compare different values of the same figure here"
                    + (f"; {say_ranks(stopped)} stopped before the others." if apart else "."),
                    values=dict(zip(by_rank, map(number, values), strict=True)),
                    where=where,
                    severity=None if apart else "warning",
                )
                return
    yield from _saved_apart(job)
    yield from _keras_decides(job)
    if apart and len(last) > 1:
        yield Seen(
            text=f"{say_ranks(stopped).capitalize()} stopped behind an evaluation, and the others "
            "went on.",
            values={rank: plural(count, "step") for rank, count in steps.items()},
            where=last[stopped[0]].where,
        )
    elif not by_place and not last and not any(rank.lines("decides") for rank in job.ranks):
        raise NotChecked("no evaluation was seen, and no decision by one")


def _saved_apart(job: Job) -> Iterator[Seen]:
    """Find checkpoints that ranks write behind different evaluations."""
    by_place: dict[str, dict[int, list[int]]] = {}
    for rank in job.ranks:
        evaluated = {one.step for one in rank.facts(Evaluation)}
        for line in rank.lines("saved"):
            if line["step"] in evaluated:
                steps = by_place.setdefault(str(line["where"]), {})
                steps.setdefault(rank.rank, []).append(int(line["step"]))
    for where, by_rank in by_place.items():
        shared = min(rank.steps for rank in job.training)
        found = {rank: [at for at in steps if at <= shared] for rank, steps in by_rank.items()}
        if len(found) == job.workers and len(set(map(tuple, found.values()))) > 1:
            yield Seen(
                text="The ranks save behind different evaluations.",
                values={rank: f"behind steps {_short(steps)}" for rank, steps in found.items()},
                where=where,
                severity="warning",
            )
            return
        if len(found) == job.workers and _alone(job):
            yield Seen(
                text="Every rank saves behind an evaluation of its own part, of which nothing was "
                "averaged: if the best is kept, each rank chooses another.",
                values={rank: f"behind steps {_short(steps)}" for rank, steps in found.items()},
                where=where,
                severity="note",
            )
            return


def _alone(job: Job) -> bool:
    """Say whether ranks evaluated parts of their own, and exchanged nothing."""
    try:
        found = in_parts(job)
    except NotChecked:
        return False
    return not any(each.exchanged for one in found for each in one.values())


def _keras_decides(job: Job) -> Iterator[Seen]:
    by_monitor: dict[tuple[str, str], set[int]] = {}
    for rank in job.ranks:
        for one in rank.facts(Decides):
            by_monitor.setdefault((one.name, one.monitor), set()).add(rank.rank)
    for (name, monitor), ranks in by_monitor.items():
        values: dict[float, dict[int, float]] = {}
        for rank in job.ranks:
            for metric in rank.metrics:
                if metric.name == monitor and metric.epoch is not None:
                    values.setdefault(metric.epoch, {})[rank.rank] = metric.value
        saves = name == "ModelCheckpoint"
        for epoch, by_rank in values.items():
            found = list(by_rank.values())
            differ = max(found) - min(found) > 1e-6 * max(map(abs, found))
            if differ and (len(ranks) > 1 or not saves):
                yield Seen(
                    text=f"{name} decides by {monitor}, which differs between the ranks in epoch "
                    f"{brief(epoch)}.",
                    values={rank: f"{monitor} {number(v)}" for rank, v in by_rank.items()},
                    severity="warning" if saves else None,
                )
                return


@check(
    "FD406",
    severity="note",
    title="Every rank evaluates the whole set",
    meaning="Your {workers:worker} all evaluate the same samples: the result is right, and takes "
    "as long as on one worker.",
    fix={
        "torch": "sampler = DistributedSampler(test, hvd.size(), hvd.rank(), shuffle=False)\n"
        "# then sum counts over the ranks, and divide once",
        "keras": 'validation_data=hvd.shard((x, y), 500, shuffle=False, remainder="keep")',
    },
    needs="samples that each rank evaluated",
    covers=(*_TORCH, "keras"),
)
def evaluates_everything(job: Job) -> Iterator[Seen]:
    """Find evaluations in which all ranks had the same samples."""
    several(job)
    found = rounds(job)
    for one in found:
        if len(one) == job.workers and share_of_data(one, job.workers) == "same":
            yield Seen(
                text="All ranks evaluated the same samples.",
                values={rank: plural(each.samples, "sample") for rank, each in one.items()},
                where=next(iter(one.values())).where,
            )
            return
    if not any(share_of_data(one, job.workers) for one in found):
        raise NotChecked("the samples of evaluations could not be compared")


@check(
    "FD407",
    severity="warning",
    title="Evaluation in training mode",
    meaning="Dropout drops and BatchNorm normalises by the batch, and learns from it, while the "
    "model is evaluated. Results are too low, change with the batch size, and training is "
    "disturbed by the test data.",
    fix={"torch": "model.eval()\nwith torch.no_grad():\n    ...\nmodel.train()"},
    needs="modes of layers while a trained model is called without gradients",
    covers=("torch", "ddp", "accelerate", "lightning"),
)
def evaluates_in_training_mode(job: Job) -> Iterator[Seen]:
    """Look for layers in training mode in an evaluation."""
    for one in rounds(job):
        wrong = {rank: each for rank, each in one.items() if each.training}
        if wrong:
            first = next(iter(wrong.values()))
            yield Seen(
                text=f"{plural(len(first.training), 'layer')} were in training mode: "
                f"{listed(list(first.training[:3]))}.",
                values={rank: plural(len(e.training), "layer") for rank, e in wrong.items()},
                step=first.step,
                where=first.where,
            )
            return
    if job.framework == "keras":
        raise NotChecked("Keras sets the mode itself")


@check(
    "FD408",
    severity="warning",
    title="Training in evaluation mode",
    meaning="The model is not put back to training mode behind an evaluation: from then on dropout "
    "is off and BatchNorm keeps its statistics, so that training is another one than at first.",
    fix={"torch": "for epoch in range(epochs):\n    model.train()   # behind every model.eval()"},
    needs="modes of a trained model in each update",
    covers=("torch", "ddp", "accelerate", "lightning"),
)
def trains_in_evaluation_mode(job: Job) -> Iterator[Seen]:
    """Count updates in evaluation mode of a model that was in training mode before."""
    counted = {
        rank.rank: int(rank.end["trained_in_evaluation_mode"])
        for rank in job.training
        if "trained_in_evaluation_mode" in rank.end
    }
    if not counted:
        raise NotChecked("the mode of the model was not recorded")
    if any(counted.values()):
        where = next((e.where for r in job.ranks for e in r.facts(Evaluation)), "")
        yield Seen(
            text=f"{plural(max(counted.values()), 'update')} were made in evaluation mode, others "
            "before in training mode.",
            values={rank: plural(count, "update") for rank, count in counted.items()},
            where=where,
        )


@check(
    "FD409",
    severity="warning",
    title="A speed with the warm-up in it",
    meaning="The time behind this figure began before the first step: it contains start-up, first "
    "allocations and compilation. More workers start slower, so that the speedup is wrong too.",
    fix={
        "torch": "for step, batch in enumerate(loader):\n"
        "    if step == 5:   # behind the first steps\n"
        "        start, seen = time.perf_counter(), 0\n    ...",
        "keras": "# leave the first epoch out",
    },
    needs="numbers shown that were divided by a time of the script's clock, and times of steps",
)
def speed_with_warm_up(job: Job) -> Iterator[Seen]:
    """Find rates over times that begin before the first step has ended."""
    known = False
    wrong: dict[str, dict[int, tuple[float, float, float]]] = {}
    for rank in job.training:
        ends = [end for end in rank.end_s if end is not None]
        rates: dict[str, list[Shown]] = {}
        for one in rank.facts(Shown):
            if one.origin[0] == "rate":
                rates.setdefault(one.where, []).append(one)
        for where, shown in rates.items():
            known = True
            last = shown[-1]
            begin, end = float(last.origin[1]), float(last.origin[2])
            inside = [at for at in ends if begin < at <= end]
            if len(inside) < 3 or not ends or inside[0] != ends[0]:
                continue
            step = median(b - a for a, b in pairwise(inside))
            warm = inside[0] - begin - step
            if warm > _WARM * (end - begin):
                wrong.setdefault(where, {})[rank.rank] = (warm, end - begin, last.value)
    for where, by_rank in wrong.items():
        warm, whole, value = next(iter(by_rank.values()))
        yield Seen(
            text=f"{seconds(warm)} of the {seconds(whole)} behind {number(value)} passed before "
            f"the first step ended, {percent(warm / whole)}.",
            values={r: f"{number(v)}, {seconds(w)} of warm-up" for r, (w, _, v) in by_rank.items()},
            where=where,
            severity=None if warm > _MOSTLY_WARM * whole else "note",
        )
        return
    if not known:
        raise NotChecked("no speed was shown that the script's own clock gave")


@check(
    "FD410",
    severity="note",
    title="Too few samples for a verdict from one run",
    meaning="One run on so few test samples tells only large differences from chance. Compare "
    "settings over several seeds.",
    fix={
        "torch": "farandole study --measure accuracy --seeds 5 -- python train.py --seed '{seed}'"
    },
    needs="samples that were evaluated, and something reported of them",
    advice=True,
    covers=(*_TORCH, "keras"),
)
def too_few_samples(job: Job) -> Iterator[Seen]:
    """Compare the number of test samples with what one run can tell."""
    counts = []
    for one in rounds(job):
        parts = share_of_data(one, job.workers) == "parts"
        counts.append((sum if parts else max)(each.samples for each in one.values()))
    samples = max(counts)
    if 0 < samples < _FEWEST:
        points = 100 * 1.96 * math.sqrt(2 * 0.25 / samples)
        yield Seen(
            text=f"With {plural(samples, 'test sample')}, accuracies of two runs that differ by "
            f"less than {brief(round(points, 1))} points may differ by chance."
        )


@check(
    "FD411",
    severity="note",
    title="A training loss of one rank",
    meaning="What is shown as the loss is that of one rank's batch, 1 of {workers}. It scatters "
    "more than the mean, and hides it when another rank diverges.",
    fix={
        "torch": 'loss = hvd.allreduce(loss.detach(), name="loss")   # on every rank\n'
        "if hvd.rank() == 0:\n    print(loss.item())",
        "ddp": "mean = loss.detach().clone()\n"
        "torch.distributed.all_reduce(mean)   # on every rank\n"
        "mean /= torch.distributed.get_world_size()",
        "lightning": 'self.log("loss", loss, sync_dist=True)',
        "keras": "callbacks=[hvd.callbacks.MetricAverageCallback()]",
    },
    needs="numbers of training that were shown, and the tensors that they come from",
    covers=(*_TORCH, "keras"),
)
def loss_of_one_rank(job: Job) -> Iterator[Seen]:
    """Find shown numbers whose source differs between ranks, or that no exchange came before."""
    several(job)
    if job.framework == "keras":
        yield from _keras_metrics_differ(job, held_out=False)
        return
    items: dict[str, dict[int, list[Item]]] = {}
    for rank in job.ranks:
        for item in rank.facts(Item):
            items.setdefault(item.where, {}).setdefault(rank.rank, []).append(item)
    shown = {
        str(one.origin[1]): one
        for rank in job.ranks
        for one in reversed(rank.facts(Shown))
        if one.origin[0] == "train"
    }
    if not shown:
        raise NotChecked("no number of training was shown")
    for source, one in shown.items():
        by_rank = items.get(source, {})
        if by_rank and _is_local(by_rank):
            yield Seen(
                text="A number is shown that no exchange came before"
                + (": it differs between the ranks." if len(by_rank) > 1 else "."),
                values={r: f"{number(found[0].value)} (step {found[0].step})"
                        for r, found in by_rank.items()},
                where=one.where,
            )  # fmt: skip
            return


def _is_local(by_rank: Mapping[int, Iterable[Item]]) -> bool:
    if len(by_rank) == 1:
        return not any(one.exchanged for found in by_rank.values() for one in found)
    steps = [{one.step: one.value for one in found} for found in by_rank.values()]
    shared = set.intersection(*map(set, steps))
    return any(len({values[step] for values in steps}) > 1 for step in shared)


@check(
    "FD412",
    severity="note",
    title="One rank evaluates, and the others wait",
    meaning="Evaluation takes as long as on one worker, while the others of your {workers:worker} "
    "idle; where it takes longer than a time limit of a collective, the job fails.",
    fix={
        "torch": "sampler = DistributedSampler(test, hvd.size(), hvd.rank(), shuffle=False)\n"
        "# every rank evaluates its part; sum counts over the ranks, and divide once"
    },
    needs="evaluations of each rank",
    covers=(*_TORCH, "keras"),
)
def one_rank_evaluates(job: Job) -> Iterator[Seen]:
    """Find evaluations that some ranks did not make."""
    several(job)
    found = {rank.rank: len(rank.facts(Evaluation)) for rank in job.training}
    one = rounds(job)[0]
    idle = [rank for rank, count in found.items() if not count]
    if idle:
        yield Seen(
            text=f"{say_ranks(one).capitalize()} evaluated, {say_ranks(idle)} never did.",
            values={rank: plural(count, "evaluation") for rank, count in found.items()},
            where=next(iter(one.values())).where,
        )


@check(
    "FD413",
    severity="warning",
    title="Samples are left out of the evaluation",
    meaning="Some samples of the evaluation set are never evaluated, others with another number of "
    "workers: the metric is that of another data set.",
    fix={
        "torch": "DataLoader(test, batch_size=64, drop_last=False)\n"
        "# and DistributedSampler(test, ..., drop_last=False), or a Subset of each rank",
        "keras": 'hvd.shard((x, y), batch_size=500, shuffle=False, remainder="keep")',
    },
    needs="samples of evaluations that went through a loader to its end, and the data set's size",
    covers=_TORCH,
)
def left_out(job: Job) -> Iterator[Seen]:
    """Compare the samples of all ranks with the size of the data set."""
    known = False
    found = rounds(job)
    for one in found:
        how = share_of_data(one, job.workers) if job.workers > 1 else "same"
        size = next((each.dataset_size for each in one.values() if each.dataset_size), None)
        size = shared_size(one) if how == "parts" else size
        complete = all(each.whole for each in one.values()) and len(one) == job.workers
        if not how or not complete:
            continue
        known = True
        if size is None:
            continue
        seen = (sum if how == "parts" else max)(each.samples for each in one.values())
        # PyTorch's ImageNet example evaluates the rest apart.
        step = next(iter(one.values())).step
        rest = any(
            each.dataset_size == size - seen and each.step == step
            for other in found
            for each in other.values()
        )
        if seen < size and not rest:
            yield Seen(
                text=f"{seen} of {size} samples were evaluated.",
                values={rank: plural(each.samples, "sample") for rank, each in one.items()},
                where=next(iter(one.values())).where,
                severity="note" if (size - seen) / size < _FEW else None,
            )
            return
    if not known:
        raise NotChecked("no DataLoader with a known size was evaluated to its end")
