"""What is measured: groups of contestants, the rows that read them, and what each row must reach.

The figures to reach are those of the issue that founded the project; docs/benchmarks.md repeats
them with their reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from farandole.bench import keras_rows, studies
from farandole.bench.contestant import Contestant, Role, Starter
from farandole.bench.names import names
from farandole.bench.roster import (
    FARANDOLE,
    collectives,
    hvd,
    peer,
    plain,
    recording,
    trainers,
)
from farandole.bench.rows import Claim, Group, Quantity, RowPlan, Settings

RESNET18_PARAMETERS = 11_173_962

_SMALL_ELEMENTS = 1024  # 4 KB of float32
PARAMETERS = {"mlp": 5_824_522, "cnn": 1_199_882, "resnet18": RESNET18_PARAMETERS}
_TITLES = {
    "mlp": "MLP 784-2048-2048-10, batch 32",
    "cnn": "small CNN of 1.2 M parameters, batch 128",
    "resnet18": "ResNet-18 for CIFAR-10, batch 32",
}


def groups(what: str, settings: Settings) -> list[Group]:
    """Return the groups that a word of the command line stands for."""
    builders = keras_rows.BUILDERS if settings.framework == "keras" else BUILDERS
    if what == "all":
        return [group for build in builders.values() for group in build(settings)]
    return builders[what](settings)


def _allreduce(settings: Settings) -> list[Group]:
    sizes = {
        "private": (RESNET18_PARAMETERS, settings.timed(96)),
        "small": (_SMALL_ELEMENTS, settings.timed(1600)),
    }
    count = settings.num_ranks
    bucket = Contestant(
        name="farandole bucket",
        role=Role.SUBJECT,
        starter=Starter.FARANDOLE,
        worker="hvd_bucket",
        num_ranks=count,
        options={
            "module": "farandole.torch",
            "sizes": {"private": (RESNET18_PARAMETERS, settings.timed(96))},
        },
    )
    contestants = (*collectives(settings.peers, sizes, count), bucket)
    names = tuple(c.name for c in contestants if c is not bucket)
    rows = (
        RowPlan(
            key="allreduce-private",
            title=f"all-reduce of {RESNET18_PARAMETERS:,} float32, private tensor, in place",
            series="private",
            contestants=names,
            baseline="gloo",
            claims=(
                _speed("3 x Gloo's speed", "gloo", 3.0, 4.0),
                _speed("2 x Open MPI's speed", "openmpi", 2.0, 2.5),
            ),
        ),
        RowPlan(
            key="allreduce-bucket",
            title="the same in a gradient bucket",
            series="private",
            contestants=(bucket.name, *names[1:]),
            baseline="gloo",
            claims=(_speed("5 x Gloo's speed", "gloo", 5.0, 6.0, subject=bucket.name),),
        ),
        RowPlan(
            key="allreduce-4KB",
            title="all-reduce of 4 KB, blocking",
            series="small",
            contestants=names,
            baseline="gloo",
            claims=(_at_most("100 us at most", 100e-6, 40e-6),),
        ),
    )
    return [_group("allreduce", contestants, rows)]


def _train(settings: Settings) -> list[Group]:
    built = []
    for model in settings.models:
        warmup, steps = settings.steps[model]
        options = {"model": model, "warmup": warmup, "steps": settings.timed(steps)}
        contestants = (
            *trainers(settings.peers, options, settings.num_ranks),
            plain("limit, free", options, settings.num_ranks, barrier="free"),
            plain("limit, barrier", options, settings.num_ranks, barrier="step"),
        )
        # The perceptron's figure is of free-running workers; the others' of workers that meet
        # after each step, because with 95 % to reach the wait for the slowest is what is left.
        if model == "mlp":
            limit, to_reach, stretch = "limit, free", 0.80, 0.85
        else:
            limit, to_reach, stretch = "limit, barrier", 0.95, 0.97
        row = RowPlan(
            key=f"train-{model}",
            title=f"{_TITLES[model]}: one training step",
            series="step",
            contestants=tuple(c.name for c in contestants),
            baseline=limit,
            claims=(
                _speed(
                    f"{100 * to_reach:.0f} % of the limit's speed ({limit})",
                    limit,
                    to_reach,
                    stretch,
                ),
            ),
        )
        built.append(_group(f"train-{model}", contestants, (row,)))
    return built


def _overhead(settings: Settings) -> list[Group]:
    built = []
    for model in settings.models:
        warmup, steps = settings.steps[model]
        options = {"model": model, "warmup": warmup, "steps": settings.timed(2 * steps)}
        contestants = (
            hvd(FARANDOLE, "hvd_train", 1, options),
            plain("plain PyTorch", options, 1, barrier="free"),
        )
        row = RowPlan(
            key=f"overhead-{model}",
            title=f"{_TITLES[model]}: one worker through DistributedOptimizer",
            series="step",
            contestants=tuple(c.name for c in contestants),
            baseline="plain PyTorch",
            claims=(
                Claim(
                    text="2 % slower than plain PyTorch at most",
                    quantity=Quantity.TIME_RATIO,
                    subject=FARANDOLE,
                    against="plain PyTorch",
                    to_reach=1.02,
                    stretch=1.01,
                ),
            ),
        )
        built.append(_group(f"overhead-{model}", contestants, (row,)))
    return built


def _ranks(settings: Settings) -> list[Group]:
    sizes = {"small": (_SMALL_ELEMENTS, settings.timed(1600))}
    largest = max(settings.rank_counts)
    contestants = [
        hvd(
            f"{FARANDOLE}, {count} rank{'s' if count > 1 else ''}",
            "hvd_allreduce",
            count,
            {"sizes": sizes},
        )
        for count in settings.rank_counts
    ]
    # Peers at the largest count only: that is the figure, and eight processes start slowly.
    contestants += [
        replace(other, name=f"{other.name}, {largest} ranks")
        for other in collectives(settings.peers, sizes, largest)[1:]
    ]
    claims: tuple[Claim, ...] = ()
    if 8 in settings.rank_counts:
        claims = (_at_most("500 us at most with 8 ranks", 500e-6, None, "farandole, 8 ranks"),)
    row = RowPlan(
        key="ranks-4KB",
        title="all-reduce of 4 KB, blocking, by number of ranks",
        series="small",
        contestants=tuple(c.name for c in contestants),
        claims=claims,
    )
    return [_group("ranks", contestants, (row,))]


def _memory(settings: Settings) -> list[Group]:
    built = []
    for model in settings.models:
        if model == "cnn":
            continue  # 4.8 MB of gradients would drown in what any library weighs
        options = {"model": model, "warmup": 1, "steps": 2}
        # With these, glibc gives every freed tensor back to the kernel; without, a process's
        # size tells what it once held.
        environment = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
        contestants = tuple(
            replace(contestant, timed=False)
            for contestant in (
                *trainers(settings.peers, options, settings.num_ranks, environment),
                plain("plain PyTorch", options, settings.num_ranks, "step", environment),
            )
        )
        row = RowPlan(
            key=f"memory-{model}",
            title=f"{_TITLES[model]}: memory per rank, gradients alive",
            series="own_pss",
            contestants=tuple(c.name for c in contestants),
            baseline="plain PyTorch",
            unit="bytes",
            unit_bytes=4 * PARAMETERS[model],
            claims=(
                Claim(
                    # Plain PyTorch holds the gradients once too, so a second copy of them or of
                    # the model would show as 1; half of one is more than rounding and slots take.
                    text="gradients once: less than half a copy more than plain PyTorch",
                    quantity=Quantity.EXCESS,
                    subject=FARANDOLE,
                    against="plain PyTorch",
                    to_reach=0.5,
                ),
            ),
        )
        built.append(_group(f"memory-{model}", contestants, (row,)))
    return built


def _start(settings: Settings) -> list[Group]:
    contestants = [hvd(FARANDOLE, "hvd_start", settings.num_ranks, {})]
    if "torchrun" in settings.peers:
        contestants.append(
            peer("torchrun", Starter.TORCHRUN, "torchrun_start", settings.num_ranks, {})
        )
    contestants.append(
        Contestant(
            name="import torch alone",
            role=Role.REFERENCE,
            starter=Starter.DIRECT,
            worker="import_start",
            num_ranks=settings.num_ranks,
        )
    )
    row = RowPlan(
        key="start",
        title="from the command to the first barrier",
        series="start",
        contestants=tuple(c.name for c in contestants),
        baseline="torchrun",
        claims=(
            Claim(
                text="0.65 of torchrun's time at most",
                quantity=Quantity.TIME_RATIO,
                subject=FARANDOLE,
                against="torchrun",
                to_reach=0.65,
            ),
        ),
    )
    return [_group("start", contestants, (row,))]


def _recorder(settings: Settings) -> list[Group]:
    warmup, steps = settings.steps["mlp"]
    options = {"model": "mlp", "warmup": warmup, "steps": settings.timed(8 * steps)}
    built = []
    for count in sorted({1, settings.num_ranks}):
        contestant = recording(options, count)
        key = f"recorder-{count}"
        row = RowPlan(
            key=key,
            title=f"{_TITLES['mlp']}: one step of {count} worker{'s' if count > 1 else ''}, "
            "DataLoader and record() included, recorded over not recorded",
            series="ratio",
            unit="ratio",
            contestants=(contestant.name,),
            claims=(
                Claim(
                    text="1 % slower than without the recorder at most",
                    quantity=Quantity.TIME_RATIO,
                    subject=contestant.name,
                    to_reach=1.01,
                    stretch=1.005,
                ),
            ),
        )
        built.append(_group(key, (contestant,), (row,)))
    return built


BUILDERS: dict[str, Callable[[Settings], list[Group]]] = {
    "allreduce": _allreduce,
    "train": _train,
    "overhead": _overhead,
    "ranks": _ranks,
    "names": names,
    "memory": _memory,
    "start": _start,
    "recorder": _recorder,
    "study": studies.study,
    "report": studies.report,
}


def _group(key: str, contestants: Sequence[Contestant], rows: Sequence[RowPlan]) -> Group:
    return Group(key=key, contestants=tuple(contestants), rows=tuple(rows))


def _speed(
    text: str, against: str, to_reach: float, stretch: float, *, subject: str = FARANDOLE
) -> Claim:
    return Claim(
        text=text,
        quantity=Quantity.SPEED_RATIO,
        subject=subject,
        against=against,
        to_reach=to_reach,
        stretch=stretch,
    )


def _at_most(text: str, to_reach: float, stretch: float | None, subject: str = FARANDOLE) -> Claim:
    return Claim(
        text=text, quantity=Quantity.TIME_S, subject=subject, to_reach=to_reach, stretch=stretch
    )
