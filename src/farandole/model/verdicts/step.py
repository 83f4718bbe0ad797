"""What a step is bound by: compute, communication, input, a straggler, too few cores."""

from __future__ import annotations

from collections.abc import Mapping

from farandole.format import plural
from farandole.model.info.answer import Bound
from farandole.model.info.communication import Communication
from farandole.model.info.step import StepSplit
from farandole.model.info.verdict import Verdict
from farandole.study.records import Cell

# Shares of a step above which a part is worth mending.
COMMUNICATION_SHARE = 0.20
INPUT_SHARE = 0.10
STRAGGLER_SHARE = 0.10
STRAGGLER_RATIO = 1.10
COMPUTE_SHARE = 0.80
CONTENTION_RATIO = 1.15


def share(part: float | None, split: StepSplit) -> float:
    """Return a part's share of the step; 0 when it was not measured."""
    return 0.0 if part is None or split.step_s <= 0 else part / split.step_s


def compute_bound(split: StepSplit) -> Verdict | None:
    """Fire when computing takes most of the step and nothing else is worth mending."""
    busy = (split.compute_s or 0.0) + (split.optimizer_s or 0.0)
    if split.exposed_s is None or share(busy, split) < COMPUTE_SHARE:
        return None
    if any((communication_bound(split), input_bound(split), straggler(split))):
        return None
    return Verdict(
        kind="compute_bound",
        severity="good",
        sentence=(
            f"Bound by compute: {share(busy, split):.0%} of a step is forward, backward and update "
            f"({split.label})."
        ),
        action="More workers, a faster device or mixed precision are what shortens it.",
        evidence={"compute share": share(busy, split), "step (s)": split.step_s},
        labels=(split.label,),
    )


def communication_bound(split: StepSplit, found: Communication | None = None) -> Verdict | None:
    """Fire when training waits for the transfer of gradients for more than a fifth of a step."""
    transfer = split.transfer_s if split.transfer_s is not None else split.exposed_s
    exposed = share(transfer, split)
    if split.cell.workers < 2 or exposed <= COMMUNICATION_SHARE:
        return None
    evidence: dict[str, float | str] = {"exposed transfer share": exposed, "step (s)": split.step_s}
    details = ""
    if found and found.bus_bytes_per_s:
        evidence["bus bandwidth (GB/s)"] = found.bus_bytes_per_s / 1e9
        details = f", at {found.bus_bytes_per_s / 1e9:.2f} GB/s"
        if found.utilisation is not None:
            evidence["utilisation of the link"] = found.utilisation
            details += f", {found.utilisation:.0%} of the link's peak"
    return Verdict(
        kind="communication_bound",
        severity="warn",
        sentence=(
            f"Bound by communication: {exposed:.0%} of a step waits for gradients on their way"
            f"{details} ({split.label})."
        ),
        action=(
            "Use a larger batch per worker or accumulate gradients, compress them to float16, or "
            "take a faster transport."
        ),
        evidence=evidence,
        labels=(split.label,),
    )


def input_bound(split: StepSplit) -> Verdict | None:
    """Fire when a step waits for data for more than a tenth of its time."""
    waiting = share(split.data_s, split)
    if waiting <= INPUT_SHARE:
        return None
    return Verdict(
        kind="input_bound",
        severity="warn",
        sentence=(
            f"Bound by input: {waiting:.0%} of a step waits for the next batch ({split.label})."
        ),
        action=(
            "Load ahead in more loader processes (num_workers), decode once and cache, or move "
            "augmentation off the training process."
        ),
        evidence={"data share": waiting, "data wait (s)": split.data_s or 0.0},
        labels=(split.label,),
    )


def straggler(split: StepSplit) -> Verdict | None:
    """Fire when the others wait for one rank that computes longer, or is mostly the last."""
    waiting = share(split.waiting_s, split)
    if split.cell.workers < 2 or waiting <= STRAGGLER_SHARE or split.slowest_rank is None:
        return None
    times = dict(split.compute_by_rank_s)
    others = sorted(time for rank, time in times.items() if rank != split.slowest_rank)
    own = times.get(split.slowest_rank)
    slower = own / others[len(others) // 2] if own and others and others[len(others) // 2] else 0.0
    # Among N equal ranks each is last in 1/N of the steps.
    fair = 1 / split.cell.workers
    often = (split.slowest_share or 0.0) > fair + (1 - fair) / 2
    evidence: dict[str, float | str] = {
        "waiting share": waiting,
        "slowest rank": float(split.slowest_rank),
        "last in share of steps": split.slowest_share or 0.0,
    }
    if slower > STRAGGLER_RATIO or often:
        if slower:
            evidence["its compute over the others'"] = slower
        longer = f"it computes {slower:.2f} times as long as they do"
        last = f"it is last in {split.slowest_share or 0.0:.0%} of them"
        return Verdict(
            kind="straggler",
            severity="warn",
            sentence=(
                f"Held up by rank {split.slowest_rank}: the others wait for it for {waiting:.0%} "
                f"of a step; {longer if slower > STRAGGLER_RATIO else last} ({split.label})."
            ),
            action=(
                f"Look at what else runs where rank {split.slowest_rank} is, and whether its share "
                f"of the data is larger or longer."
            ),
            evidence=evidence,
            labels=(split.label,),
        )
    return Verdict(
        kind="uneven_steps",
        severity="note",
        sentence=(
            f"Workers wait for each other for {waiting:.0%} of a step, for no one in particular "
            f"({split.label})."
        ),
        action="Even out the work per batch (lengths, sizes), or free the cores of other programs.",
        evidence=evidence,
        labels=(split.label,),
    )


def oversubscription(cell: Cell, label: str, cores: float | None) -> Verdict | None:
    """Fire when the workers' threads outnumber the cores of their host."""
    if cores is None or cell.threads is None or cell.device != "cpu":
        return None
    per_host = -(-cell.workers // max(cell.hosts, 1)) * cell.threads
    if per_host <= cores:
        return None
    return Verdict(
        kind="oversubscription",
        severity="warn",
        sentence=(
            f"Too few cores: {cell.workers} x {plural(cell.threads, 'thread')} share "
            f"{plural(round(cores), 'core')} "
            f"({label})."
        ),
        action=(
            f"Use at most {plural(round(cores), 'thread')} in all: fewer workers, or --threads 1."
        ),
        evidence={"threads in all": float(per_host), "cores": cores},
        labels=(label,),
    )


def contention(one: StepSplit, many: StepSplit) -> Verdict | None:
    """Fire when computing itself gets slower beside other workers, at the same batch."""
    if not one.compute_s or not many.compute_s or one.cell.batch != many.cell.batch:
        return None
    slower = many.compute_s / one.compute_s
    if many.cell.workers <= one.cell.workers or slower <= CONTENTION_RATIO:
        return None
    return Verdict(
        kind="contention",
        severity="note",
        sentence=(
            f"Computing alone takes {slower:.2f} times as long beside other workers "
            f"({one.compute_s * 1e3:.3g} ms, then {many.compute_s * 1e3:.3g} ms, {many.label}): "
            f"they share memory and caches."
        ),
        action="No transport mends that: spread the workers over more hosts, or pin them to cores.",
        evidence={"compute, few (s)": one.compute_s, "compute, many (s)": many.compute_s},
        labels=(one.label, many.label),
    )


def limited_by(split: StepSplit | None, fired: Mapping[str, Verdict]) -> Bound:
    """Return what limits a cell most, by the shares of its step and the rules that fired."""
    if "oversubscription" in fired:
        return "oversubscription"
    if split is None or split.exposed_s is None:
        if split is not None and input_bound(split):
            return "input"
        return "fixed_cost" if "fixed_cost" in fired else "unknown"
    shares: dict[Bound, float] = {
        "communication": share(
            split.transfer_s if split.transfer_s is not None else split.exposed_s, split
        )
        if communication_bound(split)
        else 0.0,
        "input": share(split.data_s, split) if input_bound(split) else 0.0,
        "straggler": share(split.waiting_s, split) if straggler(split) else 0.0,
    }
    most = max(shares, key=lambda name: shares[name])
    if shares[most] > 0:
        return most
    return "fixed_cost" if "fixed_cost" in fired else "compute"
