"""FD1xx: do the workers train one model together?

The ids: FD101 each trains alone, FD102 DDP bypassed, FD103 weights differ at the start, FD104
weights drift apart, FD105 buffers differ, FD106 a parameter is never averaged, FD107 settings
differ, FD108 another checkpoint or epoch resumed, FD109 a collective on some ranks only, FD110
collectives in another order, FD111 unequal numbers of steps, FD112 optimizer state differs, FD113
another world than the launcher's, FD114 the models differ, FD115 updates without an exchange.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from farandole.doctor.check import NotChecked, Seen, check, several
from farandole.doctor.facts import (
    Calls,
    Gradients,
    Groups,
    Job,
    Machine,
    Model,
    Optimizer,
    Rank,
    State,
    Wrapper,
    say_ranks,
)
from farandole.format import brief, listed, number, percent, plural


def states(job: Job, *, step: int | None = None) -> dict[int, dict[int, State]]:
    """Return states by step and rank, of steps that at least two ranks told of."""
    found: dict[int, dict[int, State]] = {}
    for rank in job.ranks:
        for state in rank.facts(State):
            found.setdefault(state.step, {})[rank.rank] = state
    return {
        at: by_rank
        for at, by_rank in sorted(found.items())
        if len(by_rank) > 1 and step in (None, at)
    }


def differing(hashes: Mapping[int, Sequence[str]]) -> list[int]:
    """Return the places at which ranks have different hashes; unknown ones ("") are passed over."""
    rows = list(hashes.values())
    shortest = min(map(len, rows), default=0)
    return [at for at in range(shortest) if len({row[at] for row in rows if row[at]}) > 1]


def name_parameters(job: Job, places: Sequence[int], *, most: int = 3) -> str:
    """Name parameters by their places: "fc1.weight, fc1.bias and 2 more"."""
    model = next((one for rank in job.ranks if (one := rank.last(Model))), None)
    names = [
        model.names[at] if model and at < len(model.names) else f"parameter {at}" for at in places
    ]
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def optimizer_where(job: Job) -> str:
    """Return where the script makes its optimizer."""
    return next((o.where or o.step_where for r in job.ranks for o in r.facts(Optimizer)), "")


_ELSEWHERE = ("buffers", "parameters", "objects", "other")


def wrappers(rank: Rank) -> list[Wrapper]:
    """Return what is known in the end of each of a rank's DDP modules."""
    return list({one.number: one for one in rank.facts(Wrapper)}.values())


def shown(hashes: Sequence[str]) -> str:
    """Return one short fingerprint of several hashes."""
    total = sum(int(one, 16) for one in hashes if one)
    return f"{total & 0xFFFFFFFF:08x}"


@check(
    "FD101",
    severity="error",
    title="Each worker trains alone",
    meaning="Your {workers:worker} train {workers} separate models: nothing is averaged. The one "
    "that is saved has seen 1/{workers} of the data, and the speedup is worth nothing.",
    fix={
        "torch": "hvd.init()\n"
        "optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())\n"
        "hvd.broadcast_parameters(model.state_dict(), root_rank=0)",
        "ddp": 'torch.distributed.init_process_group("gloo")\nmodel = DDP(model)',
        "accelerate": "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
        "lightning": 'trainer = Trainer(strategy="ddp", devices=2)',
        "keras": "model.compile(hvd.DistributedOptimizer(optimizer), ...)",
        "tensorflow": "tape = hvd.DistributedGradientTape(tape)",
    },
    needs="bytes of gradients that each rank sent until its end",
    explains=("FD103", "FD104", "FD105", "FD106", "FD112"),
    cheap=True,
)
def trains_alone(job: Job) -> Iterator[Seen]:
    """Find workers that exchanged no gradient and did not agree by other means."""
    several(job)
    ranks = [rank for rank in job.training if rank.bytes_sent]
    if len(ranks) < 2:
        raise NotChecked("fewer than 2 workers came to their end")
    if any(rank.bytes_sent.get("gradients", 1) > 0 for rank in ranks):
        return
    # A script may average by hand, through calls whose payload cannot be told from others: then
    # bytes did move, and workers that saw different samples ended with the same weights.
    moved = any(rank.bytes_sent.get(kind, 0) > 0 for rank in ranks for kind in _ELSEWHERE)
    weights = {rank.weights for rank in ranks}
    samples = {rank.sample_hashes for rank in ranks}
    if moved and len(weights) == 1 and None not in weights and len(samples) > 1:
        return
    joined = any((one := rank.last(Machine)) and one.world for rank in ranks)
    how = "" if joined or not ranks[0].detailed else " The script never called init()."
    yield Seen(
        text=f"No gradient was exchanged in {plural(max(r.steps for r in ranks), 'step')}.{how}",
        values={
            rank.rank: f"0 bytes of gradients, weights {(rank.weights or 'not known')[:8]}"
            for rank in ranks
        },
        where=optimizer_where(job),
    )


@check(
    "FD102",
    severity="error",
    title="DDP is bypassed",
    meaning="The script trains the module inside of DistributedDataParallel, not DDP itself. DDP "
    "prepares the exchange of gradients in its own forward: without it your {workers:worker} "
    "train {workers} separate models.",
    fix={"ddp": "outputs = model(inputs)   # model = DDP(...), and not model.module(inputs)"},
    needs="calls of DDP modules and of the modules inside of them",
    covers=("ddp", "accelerate", "lightning"),
    explains=("FD101", "FD104", "FD106"),
)
def ddp_bypassed(job: Job) -> Iterator[Seen]:
    """Compare how often DDP and the module inside of it were called in training."""
    found = {rank.rank: one for rank in job.ranks for one in wrappers(rank)}
    if not found:
        raise NotChecked("no DistributedDataParallel was seen")
    bypassed = {rank: one for rank, one in found.items() if one.bypassed}
    if bypassed:
        first = next(iter(bypassed.values()))
        yield Seen(
            text=f"The module inside of DDP was called {plural(first.bypassed, 'time')} in "
            f"training, DDP itself {plural(first.forwards, 'time')}.",
            values={
                rank: f"{one.bypassed} calls past DDP, {one.forwards} through it"
                for rank, one in bypassed.items()
            },
            where=first.bypassed_where or first.where,
            severity="error" if first.bypassed >= first.forwards else "warning",
        )


@check(
    "FD103",
    severity="error",
    title="Weights differ before the first update",
    meaning="Each of your {workers:worker} starts from weights of its own. Averaged gradients keep "
    "the difference for the whole run: you train {workers} different models, and save one.",
    fix={
        "torch": "hvd.broadcast_parameters(model.state_dict(), root_rank=0)\n"
        "hvd.broadcast_optimizer_state(optimizer, root_rank=0)   # both before the first step",
        "ddp": "model = DDP(model)   # broadcasts rank 0's weights; load checkpoints before it",
        "keras": "model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])",
        "tensorflow": "hvd.broadcast_variables(model.variables, root_rank=0)",
    },
    needs="the weights of at least two ranks before their first update",
    explains=("FD104",),
    cheap=True,
)
def weights_differ_at_start(job: Job) -> Iterator[Seen]:
    """Compare the weights before the first update."""
    several(job)
    first = states(job, step=0)
    if not first:
        raise NotChecked("the weights before the first update were not recorded")
    weights = {rank: state.weights for rank, state in first[0].items()}
    places = differing(weights)
    if places:
        total = len(next(iter(weights.values())))
        yield Seen(
            text=f"Before the first update {len(places)} of {plural(total, 'parameter')} differ "
            f"between the ranks: {name_parameters(job, places)}.",
            values={rank: f"weights {shown(row)}" for rank, row in weights.items()},
            step=0,
            where=optimizer_where(job),
        )


@check(
    "FD104",
    severity="error",
    title="Weights drift apart",
    meaning="Your {workers:worker} began with the same weights and hold different ones now: "
    "something changes them on one rank only, or some updates are not averaged. The model that is "
    "saved is one of {workers}.",
    fix={
        "torch": "# every rank does the same: as many calls of optimizer.step(), no batch skipped\n"
        "# by one rank, no weights changed under `if hvd.rank() == 0`",
        "ddp": "# change weights, step and skip on every rank alike, never under `if rank == 0`",
        "keras": "# change weights on every rank alike, and before or after fit",
    },
    needs="the weights of at least two ranks behind the same steps",
    cheap=True,
)
def weights_drift_apart(job: Job) -> Iterator[Seen]:
    """Find the first step behind which weights differ that were the same before."""
    several(job)
    found = states(job)
    agreed: int | None = None
    for step, by_rank in found.items():
        weights = {rank: state.weights for rank, state in by_rank.items()}
        places = differing(weights)
        if not places:
            agreed = step
            continue
        total = len(next(iter(weights.values())))
        since = "" if agreed is None else f"; behind step {agreed} they were the same"
        yield Seen(
            text=f"Behind step {step} {len(places)} of {plural(total, 'parameter')} differ between "
            f"the ranks: {name_parameters(job, places)}{since}.",
            values={rank: f"weights {shown(row)}" for rank, row in weights.items()},
            step=step,
            where=optimizer_where(job),
        )
        return
    if agreed is not None:
        return
    last = {rank.rank: rank.weights for rank in job.ranks if rank.weights is not None}
    if len(last) < 2:
        raise NotChecked("no weights of two ranks behind the same step were recorded")
    if len(set(last.values())) > 1:
        yield Seen(
            text="The weights behind the last step differ between the ranks.",
            values={rank: f"weights {text[:8]}" for rank, text in last.items()},
        )


# A mean that ranks disagree on by more than this share moves what BatchNorm gives.
_BUFFER_GAP = 0.2


@check(
    "FD105",
    severity="warning",
    title="BatchNorm statistics differ",
    meaning="Each of your {workers:worker} normalises by running statistics of its own part of the "
    "data. Evaluation gives another result on every rank, and the model that is saved knows the "
    "statistics of one.",
    fix={
        "torch": "model = convert(model)   # every BatchNorm becomes hvd.SyncBatchNorm\n"
        "hvd.broadcast_parameters(model.state_dict(), root_rank=0)   # or: before evaluation",
        "ddp": "model = DDP(model)   # broadcast_buffers=True is the default\n"
        "model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)   # on GPUs",
        "keras": "keras.layers.BatchNormalization(synchronized=True)",
    },
    needs="floating point buffers of at least two ranks behind the same step",
    explains=(),
)
def buffers_differ(job: Job) -> Iterator[Seen]:
    """Compare buffers behind the last common step; DDP sends rank 0's before each forward."""
    several(job)
    found = {step: one for step, one in states(job).items() if step}
    if not found:
        raise NotChecked("no state of two ranks behind the same step was recorded")
    step, by_rank = list(found.items())[-1]
    if not any(state.buffers for state in by_rank.values()):
        return
    if any(one.broadcast_buffers for rank in job.ranks for one in wrappers(rank)):
        return
    places = differing({rank: state.buffers for rank, state in by_rank.items()})
    if not places:
        return
    gaps = {at: _gap([state.buffer_norms for state in by_rank.values()], at) for at in places}
    worst = max(places, key=lambda at: gaps[at])
    model = next((one for rank in job.ranks if (one := rank.last(Model))), None)
    name = model.buffers[worst] if model and worst < len(model.buffers) else f"buffer {worst}"
    yield Seen(
        text=f"Behind step {step} {plural(len(places), 'buffer')} differ between the ranks, "
        f"{name} by {percent(gaps[worst])} of its norm.",
        values={
            rank: f"mean {number(state.buffer_means[worst])}, "
            f"norm {number(state.buffer_norms[worst])}"
            for rank, state in by_rank.items()
            if worst < len(state.buffer_means)
        },
        step=step,
        severity="warning" if gaps[worst] > _BUFFER_GAP else "note",
    )


def _gap(norms: Sequence[Sequence[float]], at: int) -> float:
    found = [row[at] for row in norms if at < len(row)]
    return (max(found) - min(found)) / max(found) if found and max(found) > 0 else 0.0


@check(
    "FD106",
    severity="error",
    title="A parameter is never averaged",
    meaning="Some parameters are updated with each rank's own gradient while the others are "
    "averaged. They drift apart on your {workers:worker}, and the model that is saved has the "
    "ones of a single rank.",
    fix={
        "torch": "# every parameter that the optimizer holds goes into the exchange:\n"
        "optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())\n"
        "# made after the last add_param_group",
        "ddp": "model.head = new_head   # before the wrap, or DDP does not know it\n"
        "model = DDP(model)",
        "keras": "# variables that are to be averaged must not be registered as local:\n"
        "# optimizer.register_local_var(v) leaves v to each worker",
    },
    needs="gradients of at least two ranks as the same updates used them",
    covers=("torch", "ddp", "accelerate", "lightning"),
    explains=("FD104",),
)
def never_reduced(job: Job) -> Iterator[Seen]:
    """Find parameters whose gradients always differ between ranks, beside others that agree."""
    several(job)
    steps: dict[int, dict[int, Gradients]] = {}
    for rank in job.ranks:
        for one in rank.facts(Gradients):
            steps.setdefault(one.step, {})[rank.rank] = one
    steps = {step: by_rank for step, by_rank in steps.items() if len(by_rank) > 1}
    if not steps:
        raise NotChecked("no gradients of two ranks behind the same step were recorded")
    always: set[int] | None = None
    agreed: set[int] = set()
    for by_rank in steps.values():
        rows = [one.hashes for one in by_rank.values()]
        places = range(min(map(len, rows)))
        known = {at for at in places if all(row[at] for row in rows)}
        differ = {at for at in known if len({row[at] for row in rows}) > 1}
        agreed |= known - differ
        always = differ if always is None else always & differ
    alone = sorted((always or set()) - agreed)
    if not alone or not agreed:
        return
    step, by_rank = next(iter(steps.items()))
    yield Seen(
        text=f"{plural(len(alone), 'parameter')} had another gradient on every rank in each update "
        f"that was compared, while {len(agreed)} had the same: {name_parameters(job, alone)}.",
        values={
            rank: f"gradient norm {number(one.norms[alone[0]])} in step {step}"
            for rank, one in by_rank.items()
            if alone[0] < len(one.norms)
        },
        step=step,
        where=optimizer_where(job),
    )


@check(
    "FD107",
    severity="error",
    title="Hyperparameters differ between ranks",
    meaning="Your {workers:worker} update their copies with different settings: the same averaged "
    "gradient gives {workers} different models.",
    fix={
        "torch": "hvd.broadcast_optimizer_state(optimizer, root_rank=0)\n"
        "# or: compute the setting from the same numbers on every rank",
        "ddp": "# compute the setting from the same numbers on every rank, or broadcast it:\n"
        "torch.distributed.broadcast(lr, src=0)",
        "keras": "# compute the setting from the same numbers on every rank, or broadcast it:\n"
        "lr = hvd.broadcast_object(lr, root_rank=0)",
    },
    needs="optimizer settings of at least two ranks in the same steps",
    explains=("FD104",),
    cheap=True,
)
def hyperparameters_differ(job: Job) -> Iterator[Seen]:
    """Compare each setting of each parameter group in every step in which a rank changed one."""
    several(job)
    by_rank = {rank.rank: _settings(rank) for rank in job.training}
    if sum(map(bool, by_rank.values())) < 2:
        raise NotChecked("no optimizer settings were recorded")
    last = min(rank.steps for rank in job.training)
    steps = sorted({at for told in by_rank.values() for at, _ in told if at < last})
    for step in steps:
        now = {
            rank: {name: value for at, values in told if at <= step for name, value in values}
            for rank, told in by_rank.items()
        }
        shared = set.intersection(*(set(values) for values in now.values()))
        for name in sorted(shared):
            values = {rank: found[name] for rank, found in now.items()}
            if len(set(map(repr, values.values()))) > 1:
                said = ", ".join(f"{value} on rank {rank}" for rank, value in values.items())
                yield Seen(
                    text=f"In step {step}, {name} is {said}.",
                    values={rank: f"{name} {value}" for rank, value in values.items()},
                    step=step,
                    where=optimizer_where(job),
                )
                return


def _settings(rank: Rank) -> list[tuple[int, list[tuple[str, object]]]]:
    """Return by step what a rank's settings became; group 0's lr is "lr", group 1's "lr (1)"."""
    found: list[tuple[int, list[tuple[str, object]]]] = []
    for one in rank.facts(Groups):
        several_groups = len(one.groups) > 1 or one.optimizer > 0
        values = [
            (f"{name} of group {one.optimizer}.{at}" if several_groups else name, value)
            for at, group in enumerate(one.groups)
            for name, value in group.items()
        ]
        found.append((one.step, values))
    if found:
        return found
    # What every launch records; a schedule is told of in steps of 1 %.
    told = rank.lines("learning_rate")
    return [(int(one["step"]), [("lr", float(one["value"]))]) for one in told]


@check(
    "FD108",
    severity="error",
    title="Ranks resume from different checkpoints",
    meaning="Your {workers:worker} go on from different places of an earlier training. Averaged "
    "gradients do not mend that: {workers} different models are trained.",
    fix={
        "torch": "# read on rank 0, then give it to all:\n"
        "hvd.broadcast_parameters(model.state_dict(), root_rank=0)\n"
        "hvd.broadcast_optimizer_state(optimizer, root_rank=0)\n"
        "start = hvd.broadcast_object(start, root_rank=0)",
        "ddp": "# every rank reads the same file, of a path that rank 0 chooses:\n"
        "torch.distributed.broadcast_object_list(paths, src=0)",
        "keras": "start = hvd.broadcast_object(start, root_rank=0)\n"
        "callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)]",
    },
    needs="checkpoints that ranks read, and the state or the epochs that followed",
    explains=("FD103", "FD104", "FD107", "FD111", "FD112"),
)
def other_checkpoint(job: Job) -> Iterator[Seen]:
    """Find ranks that read other checkpoints, and began with another state or epoch."""
    several(job)
    read = {
        rank.rank: sorted({str(one["path"]) for one in rank.lines("opened") if not one["write"]})
        for rank in job.training
    }
    if not any(read.values()):
        raise NotChecked("no checkpoint was read")
    if len(set(map(tuple, read.values()))) == 1:
        return
    first = states(job, step=0).get(0, {})
    what = []
    if differing({rank: state.weights for rank, state in first.items()}):
        what.append("weights")
    if differing({rank: state.optimizer for rank, state in first.items()}):
        what.append("optimizer state")
    if len({state.optimizer_steps for state in first.values()}) > 1:
        what.append("the optimizer's step count")
    if len({repr(told[:1]) for rank in job.training if (told := _settings(rank))}) > 1:
        what.append("hyperparameters")
    if job.ended == "ok" and len({rank.epochs for rank in job.training}) > 1:
        what.append("the number of epochs")
    if what:
        yield Seen(
            text=f"The ranks read different checkpoints, and began with different {listed(what)}.",
            values={rank: ", ".join(paths) or "none read" for rank, paths in read.items()},
            step=0,
        )


@check(
    "FD109",
    severity="error",
    title="A collective on some ranks only",
    meaning="A collective needs all {workers:worker}. Where one rank calls it and the others do "
    "not, the job hangs, or the call is answered by another one's data.",
    fix={
        "torch": "value = hvd.allreduce(value)   # on every rank\n"
        "if hvd.rank() == 0:\n    print(value)",
        "ddp": "torch.distributed.all_reduce(value)   # on every rank\n"
        "if torch.distributed.get_rank() == 0:\n    print(value)",
    },
    needs="collectives that the script calls itself, by file and line",
    covers=("torch", "ddp", "accelerate", "lightning"),
    explains=("FD104", "FD110"),
)
def collective_on_some_ranks(job: Job) -> Iterator[Seen]:
    """Find places that some ranks called and others never, whose operation those lack."""
    several_called(job)
    sites = {rank.rank: _sites(rank) for rank in job.ranks}
    totals = {rank: _by_operation(found) for rank, found in sites.items()}
    for site in dict.fromkeys(site for found in sites.values() for site in found):
        operation, where = site
        without = [rank for rank, found in sites.items() if site not in found]
        having = [rank for rank, found in sites.items() if site in found]
        if not without:
            continue
        # The same operation at another line (`else: broadcast(...)`) makes up for it.
        most = max(totals[rank].get(operation, 0) for rank in without)
        if min(totals[rank].get(operation, 0) for rank in having) <= most:
            continue
        # A rank that failed before it came there says nothing.
        if job.ended == "failed" and not _came_past(job, having, without):
            continue
        yield Seen(
            text=f"{operation} was called on {say_ranks(having)} and never on "
            f"{say_ranks(without)}.",
            values={
                rank: f"{found.get(site, 0)} calls of {operation} here"
                for rank, found in sites.items()
            },
            where=where,
        )
        return


@check(
    "FD110",
    severity="error",
    title="Ranks call collectives in another order",
    meaning="torch.distributed matches collectives by their order. Your {workers:worker} call them "
    "in different orders or numbers: results are mixed up, or the job hangs.",
    fix={
        "ddp": "# the same calls in the same order on every rank, such as over sorted names:\n"
        "for name in sorted(metrics):\n    torch.distributed.all_reduce(metrics[name])",
        "torch": "hvd.allreduce(metrics[name], name=name)   # names make the order irrelevant",
    },
    needs="collectives that the script calls itself, by file and line",
    covers=("torch", "ddp", "accelerate", "lightning"),
    explains=("FD104",),
)
def collectives_in_another_order(job: Job) -> Iterator[Seen]:
    """Compare the sequence of operations and shapes, and their numbers."""
    several_called(job)
    found = {rank.rank: one for rank in job.ranks if (one := rank.last(Calls)) is not None}
    if job.framework in ("torch", "keras", "tensorflow"):
        raise NotChecked("named operations need no order")
    orders = {
        rank: [(one.sites[at][0], one.shapes[at], one.sites[at][1]) for at in one.order]
        for rank, one in found.items()
    }
    shortest = min(map(len, orders.values()))
    for place in range(shortest):
        here = {rank: order[place] for rank, order in orders.items()}
        if len({(operation, shape) for operation, shape, _ in here.values()}) > 1:
            yield Seen(
                text=f"The {place + 1}. collective differs between the ranks.",
                values={
                    rank: f"{operation} of {shape or 'an object'} at {where}"
                    for rank, (operation, shape, where) in here.items()
                },
                where=next(iter(here.values()))[2],
            )
            return
    shared = set.intersection(*(set(one.sites) for one in found.values()))
    places = {
        rank: [one.sites[at][1] for at in one.order if one.sites[at] in shared]
        for rank, one in found.items()
    }
    for place in range(min(map(len, places.values()))):
        if len({order[place] for order in places.values()}) > 1:
            yield Seen(
                text="The ranks call the same collectives in another order: what one rank sends "
                "of the one is added to another's of the other.",
                values={rank: f"first {order[place]}" for rank, order in places.items()},
                where=next(iter(places.values()))[place],
            )
            return
    totals = {rank: sum(one.counts) for rank, one in found.items()}
    if job.ended in ("ok", "stopped") and len(set(totals.values())) > 1:
        yield Seen(
            text="The ranks called different numbers of collectives.",
            values={rank: f"{total} calls" for rank, total in totals.items()},
            where=next(iter(found.values())).sites[0][1],
        )


def several_called(job: Job) -> None:
    """Refuse to compare calls where the script made none, or ranks were not followed.

    Raises:
        NotChecked: there is nothing to compare.
    """
    if job.workers < 2:
        raise NotChecked("there is one worker")
    if not any(rank.lines("calls") for rank in job.ranks):
        raise NotChecked("the script calls no collectives itself")
    if len(job.ranks) < job.workers:
        raise NotChecked("not all workers were recorded")


def _sites(rank: Rank) -> dict[tuple[str, str], int]:
    last = rank.last(Calls)
    return {} if last is None else dict(zip(last.sites, last.counts, strict=True))


def _by_operation(sites: Mapping[tuple[str, str], int]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for (operation, _), count in sites.items():
        totals[operation] = totals.get(operation, 0) + count
    return totals


def _came_past(job: Job, having: Sequence[int], without: Sequence[int]) -> bool:
    """Say whether ranks that lack a call went on with something else, waiting there or ahead."""
    steps = {rank.rank: rank.steps for rank in job.ranks}
    waits = {rank.rank for rank in job.ranks if rank.lines("waiting")}
    ahead = min(steps[rank] for rank in without) >= min(steps[rank] for rank in having)
    return ahead or bool(waits.intersection(without))


@check(
    "FD111",
    severity="error",
    title="Ranks have unequal numbers of steps",
    meaning="One rank runs out of batches before the others. They wait for it, or go on with "
    "gradients of another epoch; the job hangs or fails at its end.",
    fix={
        "torch": "sampler = DistributedSampler(dataset)   # pads to equal parts\n"
        "hvd.join()   # or: at the end of each epoch, where parts are unequal",
        "ddp": "sampler = DistributedSampler(dataset, drop_last=True)\n"
        "with Join([model]):   # or, around the epoch, where parts are unequal\n    ...",
        "keras": "model.fit(hvd.shard((x, y), batch_size=32))   # equal parts",
    },
    needs="steps per epoch of at least two ranks",
    cheap=True,
)
def unequal_steps(job: Job) -> Iterator[Seen]:
    """Compare the steps in each rank's first epoch, or all steps of a script that ended."""
    several(job)
    per_epoch = {rank.rank: _steps_in_first_epoch(rank) for rank in job.training}
    whole = {rank: count for rank, count in per_epoch.items() if count}
    said = "in the first epoch"
    if len(whole) < 2:
        if job.ended in ("stopped", "killed"):
            raise NotChecked("no whole epoch of two ranks was seen")
        whole, said = {rank.rank: rank.steps for rank in job.training}, "until the end"
        if job.ended != "ok" and max(whole.values()) - min(whole.values()) < 2:
            raise NotChecked("no whole epoch of two ranks was seen")
    if len(set(whole.values())) > 1 and not _joins(job):
        yield Seen(
            text=f"The ranks made different numbers of steps {said}: "
            f"{min(whole.values())} to {max(whole.values())}.",
            values={rank: plural(count, "step") for rank, count in whole.items()},
            severity="error" if job.ended != "ok" else "warning",
        )


def _steps_in_first_epoch(rank: Rank) -> int:
    epochs = rank.lines("epoch")
    if not epochs:
        return 0
    begin, end = float(epochs[0]["begin_s"]), float(epochs[0]["end_s"])
    return sum(begin < at <= end for at in rank.end_s if at is not None)


def _joins(job: Job) -> bool:
    return any(operation == "join" for rank in job.ranks for operation, _ in _sites(rank))


@check(
    "FD112",
    severity="error",
    title="Optimizer state differs before the first update",
    meaning="Momentum and step counters differ between your {workers:worker}, as after a resume on "
    "one rank only. The same gradient then gives different weights.",
    fix={
        "torch": "hvd.broadcast_optimizer_state(optimizer, root_rank=0)",
        "ddp": 'optimizer.load_state_dict(torch.load("checkpoint.pt")["optimizer"])   # every rank',
        "keras": "callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)]",
    },
    needs="optimizer state of at least two ranks before their first update",
    covers=("torch", "ddp", "accelerate", "lightning"),
    explains=("FD104",),
    cheap=True,
)
def optimizer_state_differs(job: Job) -> Iterator[Seen]:
    """Compare optimizer state before the first update."""
    several(job)
    first = states(job, step=0).get(0, {})
    known = {rank: state for rank, state in first.items() if state.weights}
    if len(known) < 2:
        raise NotChecked("the state before the first update was not recorded")
    rows = {rank: [one or "none" for one in state.optimizer] for rank, state in known.items()}
    places = differing(rows)
    counters = {rank: state.optimizer_steps for rank, state in known.items()}
    if places or len(set(counters.values())) > 1:
        yield Seen(
            text=f"Before the first update the state of {plural(len(places), 'parameter')} differs "
            "between the ranks.",
            values={
                rank: f"{sum(one != 'none' for one in rows[rank])} states, "
                f"step count {brief(counters[rank]) if counters[rank] is not None else 'none'}"
                for rank in known
            },
            step=0,
            where=optimizer_where(job),
        )


@check(
    "FD113",
    severity="error",
    title="The script joined another world",
    meaning="{workers:worker} were started, but the script itself set up a job of another size: "
    "your {workers:worker} do not know of each other.",
    fix={
        "ddp": "torch.distributed.init_process_group(backend)   # no rank=, no world_size=",
        "torch": "hvd.init()   # without arguments: rank and size come from the launcher",
        "lightning": 'Trainer(strategy="ddp", devices=2, num_nodes=1)',
    },
    needs="rank and size of the process group that the script made",
    explains=("FD101",),
)
def another_world(job: Job) -> Iterator[Seen]:
    """Compare the size that the script's process group has with the number of workers."""
    found = {
        rank.rank: one.world for rank in job.ranks if (one := rank.last(Machine)) and one.world
    }
    if not found:
        raise NotChecked("no process group was seen")
    if any(size != job.workers for _, size in found.values()):
        yield Seen(
            text=f"{plural(job.workers, 'worker')} were started, and a process group has "
            f"{plural(min(size for _, size in found.values()), 'member')}.",
            values={rank: f"rank {at} of {size}" for rank, (at, size) in found.items()},
        )


@check(
    "FD114",
    severity="error",
    title="The models differ between ranks",
    meaning="Your {workers:worker} train models of different shape, or freeze different "
    "parameters: what is averaged does not belong together.",
    fix={
        "torch": "# build the model from the same settings on every rank, and freeze on every rank",
        "keras": "# build the model from the same settings on every rank",
    },
    needs="names, shapes and trainability of the parameters of at least two ranks",
    covers=("torch", "ddp", "accelerate", "lightning"),
    explains=("FD103", "FD104", "FD106", "FD112"),
)
def models_differ(job: Job) -> Iterator[Seen]:
    """Compare names, shapes and requires_grad."""
    found = {rank.rank: one for rank in job.ranks if (one := rank.last(Model)) is not None}
    if len(found) < 2:
        raise NotChecked("fewer than 2 workers told of their parameters")
    rows = {
        rank: list(zip(one.names, one.shapes, one.trainable, strict=True))
        for rank, one in found.items()
    }
    first = next(iter(rows.values()))
    if all(row == first for row in rows.values()):
        return
    shared = set.intersection(*map(set, rows.values()))
    odd = {
        rank: [
            f"{name} ({shape}{'' if free else ', frozen'})"
            for name, shape, free in row
            if (name, shape, free) not in shared
        ]
        for rank, row in rows.items()
    }
    yield Seen(
        text=f"{max(map(len, odd.values()))} of {plural(len(first), 'parameter')} differ in name, "
        "shape or in whether they are trained.",
        values={
            rank: ", ".join(names[:3]) or "as many, ordered otherwise"
            for rank, names in odd.items()
        },
        where=optimizer_where(job),
    )


@check(
    "FD115",
    severity="error",
    title="Updates without an exchange of gradients",
    meaning="The optimizer steps on gradients that were accumulated under no_sync() only: each "
    "rank applies its own, and your {workers:worker} drift apart.",
    fix={
        "ddp": "last = step % accumulate == accumulate - 1\n"
        "with contextlib.nullcontext() if last else model.no_sync():\n"
        "    loss(model(x), y).backward()\n"
        "if last:\n    optimizer.step()",
        "accelerate": "with accelerator.accumulate(model):\n    ...",
    },
    needs="passes of DDP modules with and without an exchange",
    covers=("ddp", "accelerate", "lightning"),
    explains=("FD101", "FD104", "FD106"),
)
def updates_without_exchange(job: Job) -> Iterator[Seen]:
    """Count updates whose last pass was under no_sync()."""
    found = {rank.rank: one for rank in job.ranks for one in wrappers(rank)}
    if not found:
        raise NotChecked("no DistributedDataParallel was seen")
    wrong = {rank: one for rank, one in found.items() if one.unsynced_updates}
    if wrong:
        first = next(iter(wrong.values()))
        yield Seen(
            text=f"{plural(first.unsynced_updates, 'update')} followed a backward under no_sync().",
            values={
                rank: f"{one.unsynced_updates} updates, {one.unsynced} passes under no_sync(), "
                f"{one.synced} others"
                for rank, one in wrong.items()
            },
            where=first.where,
        )
