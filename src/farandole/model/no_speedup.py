"""Answers without a speedup: void, empty, or about splits of the cores."""

from __future__ import annotations

from collections.abc import Sequence

from farandole.format import plural
from farandole.model.info.answer import Answer
from farandole.model.info.cores import SplitTable
from farandole.model.info.metric import MetricRow
from farandole.model.info.verdict import Void
from farandole.model.measured import Measured
from farandole.model.void import why_no_speedup


def mend_line(cell: Measured) -> str:
    """Say where to look after a failure, and how to go on."""
    bad = next(one for one in cell.launches if one.outcome not in ("ok", "stopped"))
    if bad.outcome == "out_of_memory":
        return "Use a smaller batch, or give each worker more memory (--memory)."
    if bad.outcome == "timeout":
        return "Give launches more time (--launch-timeout), or fewer steps."
    return (
        f"Look at launches/{bad.id}/output.txt, mend it, and go on with "
        "farandole study --resume DIR."
    )


def split_answer(table: SplitTable) -> Answer:
    """Answer a study of how to share the cores, in which each number of workers has its threads."""
    assert table.best is not None
    workers, threads = table.best
    where = f" ({table.label})" if table.label else ""
    return Answer(
        workers=workers,
        baseline_workers=None,
        speedup=None,
        interval=None,
        efficiency=None,
        accuracy="not_measured",
        limited_by="unknown",
        void=None,
        next=f"Use it: farandole run -np {workers} --threads {threads} ...",
        headline=f"{table.sentence[:-1]}{where}.",
    )


def void_answer(voids: Sequence[Void]) -> Answer:
    """Answer a study whose workers did not train together, or whose work nobody saw."""
    first = min(voids, key=lambda void: void.cell.workers)
    return Answer(
        workers=None,
        baseline_workers=None,
        speedup=None,
        interval=None,
        efficiency=None,
        accuracy="not_measured",
        limited_by="unknown",
        void=first.sentence,
        next=first.mend,
        headline=f"{first.sentence} {first.mend}",
        sentences=(f"No speedup is shown: {why_no_speedup(first.kind)}.",),
    )


def empty_answer(cells: Sequence[Measured], rows: Sequence[MetricRow]) -> Answer:
    """Answer a study without any launch whose speed counts."""
    reasons = [cell.failed or cell.void_for_speed for cell in cells]
    first = next((reason for reason in reasons if reason), "")
    # A cell that ran beside others explains more than one that failed: that has its own verdict.
    busy = any(one.busy for cell in cells if not cell.void_for_speed for one in cell.ended_well)
    if not cells:
        headline = "This study has no launches yet."
        following = (
            "Go on with it: farandole study --resume DIR, with a longer --time-limit if it had one."
        )
    elif all(cell.imported for cell in cells):
        headline = "This table has no times and no throughput, so there is no speedup."
        following = "Add a column throughput, epoch_s, step_s or job_s."
    elif busy:
        shares = [one.foreign_share for cell in cells for one in cell.launches if one.busy]
        known = [share for share in shares if share is not None]
        took = f" (they took up to {max(known):.0%} of the cores)" if known else ""
        headline = f"No launch counts for speed: the machine was busy with other programs{took}."
        if rows:
            headline = f"{headline[:-1]}; accuracy was measured all the same."
        # Only launches for speed are made again by --resume.
        timed = any(one.purpose == "speed" for cell in cells for one in cell.launches)
        following = "Run it again on a quiet machine" + (
            ": farandole study --resume DIR." if timed else ", into a new folder."
        )
    elif rows and not any(cell.failed for cell in cells):
        headline = "Accuracy was measured, but no launch counts for speed" + (
            f" ({first})." if first else "."
        )
        following = "Run it with --measure both."
    else:
        why = f" ({first})" if first else ""
        headline = f"No launch counts: {plural(len(cells), 'cell')}, none with a figure{why}."
        failed = next((cell for cell in cells if cell.failed), None)
        following = "Run it with --measure speed." if failed is None else mend_line(failed)
    return Answer(
        workers=None,
        baseline_workers=None,
        speedup=None,
        interval=None,
        efficiency=None,
        accuracy="inconclusive" if rows else "not_measured",
        limited_by="unknown",
        void=None,
        next=following,
        headline=headline,
    )
