"""What the mnist lab got wrong, and the right account of it."""

from __future__ import annotations

from farandole.format import listed, plural
from farandole.labs.claims import claims_of
from farandole.labs.evidence import interval_words, only, worker_counts
from farandole.labs.lab import Correction, Found
from farandole.labs.mnist import plan
from farandole.labs.mnist.steps import LAB_TWO_NODES, full_steps
from farandole.labs.settings import settings_of
from farandole.model.jobs import training_steps


def corrections(found: Found) -> tuple[Correction, ...]:
    """Say what the original got wrong, with the arithmetic on its own figures."""
    return (_speedups(found), _size(found), _six(found))


def _speedups(found: Found) -> Correction:
    wrong = [claim for claim in claims_of("mnist") if not claim.agrees]
    said = [f"{claim.claimed} times faster ({claim.what})" for claim in wrong]
    right = [f"{claim.value:.2f} times ({claim.what})" for claim in wrong]
    return Correction(
        said=f"The jobs were {listed(said)}.",
        right=f"They were {listed(right)}: a speedup is the old time over the new one.",
        shown_by=" ".join([*(claim.sentence for claim in wrong), _speedup_here(found)]),
    )


def _speedup_here(found: Found) -> str:
    info = found.studies.get("workers")
    curve = info.curves[0] if info and info.curves else None
    points = [p for p in curve.points if p.valid and p.speedup is not None] if curve else []
    if len(points) < 2:
        return "No speedup was measured here."
    few, many = points[0], points[-1]
    assert many.speedup is not None
    return (
        f"Here {plural(many.workers, 'worker')} make {interval_words(many.throughput)} samples/s "
        f"and {plural(few.workers, 'worker')} {interval_words(few.throughput)}: "
        f"{interval_words(many.speedup)} times, by the same formula."
    )


def _size(found: Found) -> Correction:
    return Correction(
        said="size() is the number of workers of one node.",
        right=(
            "size() counts all workers of all nodes; local_size() counts those of one node. A rate "
            "of 0.001 x size() and a data set shared by size() take all of them into account."
        ),
        shown_by=_size_here(found),
    )


def _size_here(found: Found) -> str:
    info = found.studies.get("workers")
    record = found.records.get("workers")
    if info is None or record is None:
        return "No launch here ran to its end."
    shown = []
    for number in worker_counts(info):
        launch = only([one for one in record.launches if one.outcome == "ok"], workers=number)
        one = next((s for s in settings_of(found, "workers") if s.workers == number), None)
        if launch is None or one is None or one.counted is None:
            continue
        shown.append(
            f"{plural(len(launch.ranks), 'recorded rank')} and {one.counted:,} steps on "
            f"{plural(number, 'worker')}"
        )
    if not shown:
        return "No launch here ran to its end."
    return (
        f"Counted here: {listed(shown)}; the steps of an epoch are shared by all workers, however "
        "they are spread over nodes."
    )


def _six(found: Found) -> Correction:
    epochs, samples, batch = plan.LAB_EPOCHS, plan.LAB_SAMPLES, plan.WORK.batch
    alone = training_steps(epochs, samples, batch)
    fits = [n for n in range(1, 17) if full_steps(epochs, samples, batch, n) == LAB_TWO_NODES]
    gpus = listed([str(number) for number in fits])
    counted = [one for one in settings_of(found, "workers") if one.counted is not None]
    here = ""
    if counted:
        agree = sum(one.counted == one.whole_steps for one in counted)
        here = (
            f" Counted here, {agree} of {plural(len(counted), 'worker count')} take exactly the "
            "steps that whole batches of their shares give."
        )
    return Correction(
        said=f"Two nodes took 152.0235 s with {LAB_TWO_NODES:,} steps; how many GPUs is not said.",
        right=f"It very likely had {gpus} GPUs in all.",
        shown_by=(
            f"{alone:,.0f} steps over {gpus} workers are {alone / fits[0]:,.0f}; without the "
            f"incomplete batch of each epoch they are {epochs} x {samples // (batch * fits[0])} = "
            f"{LAB_TWO_NODES:,}, and no other number of workers up to 16 gives that.{here}"
        ),
    )
