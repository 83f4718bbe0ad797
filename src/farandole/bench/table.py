"""Rows as text: pure functions that return cells and lines; the command prints them."""

from __future__ import annotations

from farandole.bench.judge import Entry, Judgement, Row, Verdict
from farandole.bench.rows import Quantity, RowPlan
from farandole.model.statistics import Estimate


def title(row: Row) -> str:
    """Return the row's name with its number of ranks, where all contestants have the same."""
    counts = {entry.num_ranks for entry in row.entries}
    if len(counts) > 1 or not row.plan.of_ranks:
        return row.plan.title
    count = counts.pop()
    return f"{row.plan.title} ({count} rank{'s' if count > 1 else ''})"


def header(row: Row) -> list[str]:
    """Return the column names."""
    columns = ["contestant", "median", "95 % interval", "launches"]
    if row.plan.unit_bytes is not None:
        columns.append(f"more than {row.plan.baseline}")
    elif row.plan.baseline is not None:
        columns.append(f"speed, of {row.plan.baseline}")
    return columns


def cells(row: Row) -> list[list[str]]:
    """Return one list of cells per contestant."""
    return [_cells(entry, row.plan) for entry in row.entries]


def notes(row: Row) -> list[str]:
    """Return the lines below the table: who gave no value, then figures to reach and notes."""
    absent = [f"{entry.contestant}: {entry.note}" for entry in row.entries if entry.note]
    told = [verdict_line(judgement) for judgement in row.judgements]
    return absent + told + [judgement.note for judgement in row.judgements if judgement.note]


def plain_lines(row: Row) -> list[str]:
    """Return the whole row as aligned text, for files and pipes."""
    table = [header(row), *cells(row)]
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    lines = [title(row)]
    for line in table:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        lines.append(("  " + "  ".join(padded)).rstrip())
    return [*lines, *(f"  {line}" for line in notes(row))]


def verdict_line(judgement: Judgement) -> str:
    """Return a claim, what was measured of it, and whether it was reached."""
    claim = judgement.claim
    figure = claim.text
    if claim.stretch is not None:
        figure += f" (stretch {_figure(claim.stretch, claim.quantity)})"
    if judgement.estimate is None:
        return f"to reach: {figure}: {judgement.verdict.value}"
    measured = _figure(judgement.estimate.value, claim.quantity)
    low, high = judgement.estimate.low, judgement.estimate.high
    if low is not None and high is not None:
        measured += f" [{_figure(low, claim.quantity)}, {_figure(high, claim.quantity)}]"
    verdict = judgement.verdict.value
    if judgement.verdict is not Verdict.VOID and not judgement.certain:
        verdict += ", not certain"
    return f"to reach: {figure}: {measured}: {verdict}"


def time_text(seconds: float) -> str:
    """Return a duration in the unit that leaves one to three digits before the point."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} us"
    if seconds < 1.0:
        return f"{seconds * 1e3:.2f} ms"
    return f"{seconds:.2f} s"


def memory_text(num_bytes: float) -> str:
    """Return a size in MB of 10^6 bytes."""
    return f"{num_bytes / 1e6:.1f} MB"


def ratio_text(ratio: float) -> str:
    """Return small ratios in percent and large ones as a factor."""
    return f"{ratio:.2f} x" if ratio >= 2.0 else f"{ratio:.1%}".replace("%", " %")


def factor_text(factor: float) -> str:
    """Return a ratio that is near 1."""
    return f"{factor:.4f}"


_SHOW = {"s": time_text, "bytes": memory_text, "ratio": factor_text}


def _cells(entry: Entry, plan: RowPlan) -> list[str]:
    width = len(_relative_columns(plan)) + 4
    if entry.estimate is None:
        # The reason stands below the table: an error message would widen the column for all.
        return [entry.contestant, "none", *[""] * (width - 2)]
    show = _SHOW[plan.unit]
    launches = str(len(entry.launches))
    if entry.void:
        launches += ", all void"
    elif entry.num_void_launches:
        launches += f" and {entry.num_void_launches} void"
    line = [entry.contestant, show(entry.estimate.value), _interval(entry.estimate, plan), launches]
    if _relative_columns(plan):
        line.append(_relative(entry.against_baseline, plan))
    return line


def _relative_columns(plan: RowPlan) -> list[str]:
    return [] if plan.baseline is None else [plan.baseline]


def _interval(estimate: Estimate, plan: RowPlan) -> str:
    if estimate.low is None or estimate.high is None:
        return "one launch"
    show = _SHOW[plan.unit]
    return f"{show(estimate.low)} to {show(estimate.high)}"


def _relative(estimate: Estimate | None, plan: RowPlan) -> str:
    if estimate is None:
        return ""
    if plan.unit_bytes is not None:
        return f"{estimate.value:+.2f} copies of the gradients"
    return ratio_text(estimate.value)


def _figure(value: float, quantity: Quantity) -> str:
    if quantity is Quantity.TIME_S:
        return time_text(value)
    if quantity is Quantity.TIME_MORE_S:
        return f"-{time_text(-value)}" if value < 0 else time_text(value)
    if quantity is Quantity.BYTES:
        return memory_text(value)
    if quantity is Quantity.RANKING:
        return f"{value:.2f}"
    if quantity is Quantity.SPEED_RATIO:
        return ratio_text(value)
    if quantity is Quantity.TIME_RATIO:
        return factor_text(value)
    return f"{value:.2f} copies"
