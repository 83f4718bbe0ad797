"""What studies and their reports cost: the rows of `bench study` and `bench report`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from farandole.bench.contestant import Contestant, Role, Starter
from farandole.bench.rows import Claim, Group, Quantity, RowPlan, Settings
from farandole.bench.specimen import Shape

PRECISE = "studied to 3 %"
WHOLE = "studied for whole epochs"
STUDY = "farandole study"
RUN = "farandole run"
REPORT = "farandole report"

# By model: what the row calls it, images in an epoch, batches. ResNet-18 makes some 20 images/s on
# a core; 10,000 of CIFAR-10's 50,000 make the longest epoch that a benchmark can wait for.
_STUDIED: dict[str, tuple[str, int, tuple[int, ...]]] = {
    "cnn": ("small CNN", 50_000, (32, 128)),
    "resnet18": ("ResNet-18", 10_000, (32,)),
}
# Fewer than a study's stopping rule looks at first, so that the script itself ends every launch.
_SHORT_STEPS = 20
_SHORT_SAMPLES = 2_000


def study(settings: Settings) -> list[Group]:
    """Return what a precision costs against whole epochs, and a cell beyond its training."""
    models = [model for model in settings.models if model in _STUDIED]
    return [*(_precision(settings, model) for model in models), _cell(settings)]


def report(settings: Settings) -> list[Group]:
    """Return what the report of a large study takes."""
    shape = Shape()
    contestant = _driver(REPORT, "report_time", {}, Role.SUBJECT)
    title = f"report of {shape.cells} cells, {shape.launches} launches, {shape.steps:,} steps"
    rows = (
        RowPlan(
            key="report-time",
            title=f"{title}: from the command to its end",
            series="report",
            contestants=(REPORT,),
            of_ranks=False,
            claims=(_at_most("10 s at most", Quantity.TIME_S, REPORT, 10.0),),
        ),
        RowPlan(
            key="report-memory",
            title=f"{title}: peak memory of its processes",
            series="peak_memory",
            contestants=(REPORT,),
            of_ranks=False,
            unit="bytes",
            claims=(_at_most("500 MB at most", Quantity.BYTES, REPORT, 500e6),),
        ),
    )
    return [Group(key="report", contestants=(contestant,), rows=rows)]


def cell_name(workers: int, batch: int) -> str:
    """Name a cell, and the series of its throughput."""
    return f"{workers} worker{'s' * (workers != 1)}, batch {batch}"


def _precision(settings: Settings, model: str) -> Group:
    title, samples, batches = _STUDIED[model]
    counts = sorted({1, settings.num_ranks})
    if settings.quick:
        # An epoch cannot be cut without changing what it is compared with; cells can be left out.
        counts = [settings.num_ranks]
    options: dict[str, Any] = {
        "workers": counts,
        "batches": batches,
        "script_flags": ("--model", model, "--samples", str(samples)),
    }
    contestants = (
        _driver(PRECISE, "study_time", options, Role.SUBJECT),
        _driver(WHOLE, "study_time", {**options, "flags": ("--epochs", "1")}, Role.REFERENCE),
    )
    row = RowPlan(
        key=f"study-precision-{model}",
        title=f"{title} on {samples:,} images of 3x32x32: all launches of a study of "
        f"{_workers(counts)}, batch {' and '.join(map(str, batches))}",
        series="launches",
        contestants=(PRECISE, WHOLE),
        of_ranks=False,
        baseline=WHOLE,
        ranked=tuple(cell_name(count, batch) for count in counts for batch in batches),
        claims=(
            Claim(
                text="0.2 of the time of whole epochs at most",
                quantity=Quantity.TIME_RATIO,
                subject=PRECISE,
                against=WHOLE,
                to_reach=0.2,
            ),
            Claim(
                text="the same ranking of the cells by throughput (rank correlation 1)",
                quantity=Quantity.RANKING,
                subject=PRECISE,
                against=WHOLE,
                to_reach=1.0,
            ),
        ),
    )
    # Whole epochs of all cells take about five minutes on 2 cores, and of ResNet-18 fifteen.
    return Group(
        key=f"study-precision-{model}",
        contestants=contestants,
        rows=(row,),
        launches=1,
        time_limit_s=1800.0,
    )


def _cell(settings: Settings) -> Group:
    counts = sorted({1, settings.num_ranks})
    options = {
        "workers": counts,
        "batches": (16,),
        "script_flags": ("--steps", str(_SHORT_STEPS), "--samples", str(_SHORT_SAMPLES)),
    }
    contestants = (
        _driver(STUDY, "study_time", options, Role.SUBJECT),
        _driver(RUN, "run_time", options, Role.REFERENCE),
    )
    rows = (
        RowPlan(
            key="study-cell",
            title="a study's time outside of its launches, for each of its cells",
            series="beyond",
            contestants=(STUDY,),
            of_ranks=False,
            claims=(_at_most("1 s at most", Quantity.TIME_S, STUDY, 1.0),),
        ),
        RowPlan(
            key="study-run",
            title=f"a cell of {_workers(counts)} for {_SHORT_STEPS} steps, as a whole",
            series="cell",
            contestants=(STUDY, RUN),
            of_ranks=False,
            claims=(
                Claim(
                    text="1 s more than farandole run of the same command at most",
                    quantity=Quantity.TIME_MORE_S,
                    subject=STUDY,
                    against=RUN,
                    to_reach=1.0,
                ),
            ),
        ),
    )
    launches = 1 if settings.quick else 3
    return Group(key="study-cell", contestants=contestants, rows=rows, launches=launches)


def _driver(name: str, worker: str, options: Mapping[str, Any], role: Role) -> Contestant:
    """Return a single process that starts Farandole's commands and times them from outside."""
    return Contestant(
        name=name,
        role=role,
        starter=Starter.DIRECT,
        worker=worker,
        num_ranks=1,
        options=options,
    )


def _at_most(text: str, quantity: Quantity, subject: str, to_reach: float) -> Claim:
    return Claim(text=text, quantity=quantity, subject=subject, to_reach=to_reach)


def _workers(counts: list[int]) -> str:
    return f"{' and '.join(map(str, counts))} worker{'s' * (counts != [1])}"
