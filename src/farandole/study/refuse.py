"""What a launch shows that would make its study worthless: said before hours are spent; pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from farandole.errors import FarandoleError, UsageError
from farandole.format import plural
from farandole.launch.slurm.status import REFUSED
from farandole.study.folder import OUTPUT_FILE
from farandole.study.progress import cell_words
from farandole.study.records import Launch
from farandole.study.spec import Spec


class StudyRefusedError(FarandoleError, RuntimeError):
    """A study that would measure something else than it says; the message says what to change."""


def batch_seen(launch: Launch) -> int | None:
    """Return the samples of the first training batch that rank 0 had; None when nobody looked."""
    seen = [rank.batch_seen for rank in launch.ranks if rank.batch_seen is not None]
    return seen[0] if seen else None


def batch_mismatch(spec: Spec, launch: Launch) -> str | None:
    """Say that a script trained with another batch than its cell's, with both numbers."""
    seen, wanted = batch_seen(launch), launch.cell.batch
    if not (spec.sets_batch and spec.batch_check) or seen is None or wanted in (None, seen):
        return None
    if seen * launch.cell.workers == wanted:
        why = "The script divides the batch among the workers itself: pass it {global_batch}."
    elif wanted is not None and seen > wanted and seen == wanted * launch.cell.workers:
        why = "The script multiplies the batch by the workers itself."
    elif wanted is not None and seen < wanted:
        why = "Its data may be too few for such a batch, or its flag does not reach the loader."
    else:
        why = "Check that the flag reaches the loader."
    return (
        f"the cell has a batch of {wanted} per worker, but the script trained with {seen}. {why} "
        "(--no-batch-check to go on all the same)"
    )


def workers_mismatch(spec: Spec, launch: Launch) -> str | None:
    """Say that a launcher of the command's own started another number of workers than the cell's.

    Two workers that are one would pass for a speedup of 1, or of 2 where samples are not counted.
    """
    sizes = [rank.size for rank in launch.ranks if rank.size is not None and len(rank.steps)]
    if spec.launcher is None or not sizes or sizes[0] == launch.cell.workers:
        return None
    return (
        f"the cell has {plural(launch.cell.workers, 'worker')}, but "
        f"{spec.launcher} started {sizes[0]}. Put {{workers}} where it takes their number, or "
        "leave the launcher away: then Farandole starts the workers"
    )


def mismatch(spec: Spec, launch: Launch) -> str | None:
    """Say what of a launch that trained was not as its cell has it."""
    return workers_mismatch(spec, launch) or batch_mismatch(spec, launch)


def never_trained(spec: Spec, launch: Launch) -> str | None:
    """Say what was expected of a script that ended well without a single step."""
    if launch.outcome not in ("ok", "stopped") or launch.figures or launch.metrics:
        return None
    if any(len(rank.steps) for rank in launch.ranks):
        return None
    if any(rank.metrics for rank in launch.ranks):
        return None
    looked = "No line of its output matched --throughput or --metric either. " * bool(
        spec.throughput or spec.metrics
    )
    return (
        "The script ended without a training step that could be seen. Expected were calls of a "
        "torch optimizer's step() (or Keras' fit) in the workers' own Python. "
        f"{looked}Figures that it prints can be read by --throughput 'img/sec: ([0-9.]+)'."
    )


def refuse(spec: Spec, launch: Launch, done: Sequence[Launch], place: Path) -> None:
    """Stop a study whose first launch shows that it would measure something else, or nothing.

    Raises:
        StudyRefusedError: It would.
        UsageError: SLURM does not take its jobs.
    """
    if done:
        return
    if spec.jobs and launch.reason.startswith(REFUSED):
        raise UsageError(f"{launch.reason}. Change --sbatch.")
    other = mismatch(spec, launch)
    if other is not None:
        raise StudyRefusedError(f"{cell_words(launch.cell)}: {other}.")
    nothing = never_trained(spec, launch)
    if nothing is not None:
        raise StudyRefusedError(f"{nothing} Its output is in {place / OUTPUT_FILE}.")
