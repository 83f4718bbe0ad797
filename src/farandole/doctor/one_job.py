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
from farandole.doctor.facts import Job, Model, Optimizer, State
from farandole.format import plural


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


def shown(hashes: Sequence[str]) -> str:
    """Return one short fingerprint of several hashes."""
    total = sum(int(one, 16) for one in hashes if one)
    return f"{total & 0xFFFFFFFF:08x}"


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
