"""The rows of a benchmark: implementations, what compares them, and the figures to reach.

docs/explanation/benchmarks.md has the figures to reach with their reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from farandole.format import plural

PEERS = ("gloo", "openmpi", "horovod", "ddp", "torchrun")
MODELS = {
    "mlp": ("MLP 784-2048-2048-10, batch 32", 5_824_522),
    "cnn": ("small CNN of 1.2 M parameters, batch 128", 1_199_882),
    "resnet18": ("ResNet-18 for CIFAR-10, batch 32", 11_173_962),
}
"""Each network's title and number of parameters."""
BACKENDS = {"torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX"}
"""Of Keras."""
KERAS_MODELS = ("mlp", "cnn")
FARANDOLE, BUCKET, IN_TURNS = "farandole", "farandole bucket", "in turns"
SHARDED, ZERO = "farandole, sharded", "ddp, ZeRO"
FREE, BARRIER, PLAIN = "limit, free", "limit, barrier", "plain PyTorch"
PRECISE, WHOLE = "studied to 3 %", "studied for whole epochs"
STUDY, RUN, REPORT = "farandole study", "farandole run", "farandole report"
WARM = "warm start"

Launcher = Literal["direct", "farandole run", "torchrun", "mpiexec", "horovodrun"]
Quantity = Literal[
    "time",  # the subject's seconds; at most
    "speed ratio",  # the subject's speed over the other's; at least
    "time ratio",  # the subject's time over the other's, or over its own in another state; at most
    "time difference",  # the subject's seconds minus the other's; at most
    "bytes",  # the subject's bytes; at most
    "excess",  # the subject's bytes minus the other's, in copies of the gradients; at most
    "rank correlation",  # Spearman's, of both one's values of the row's `ranked`; at least
]

# By name: what starts it, and the option `library` of its workers.
_LIBRARIES: dict[str, tuple[Launcher, str]] = {
    FARANDOLE: ("farandole run", "farandole.torch"),
    BUCKET: ("farandole run", "farandole buckets"),
    IN_TURNS: ("farandole run", "farandole.torch"),
    SHARDED: ("farandole run", "farandole sharded"),
    ZERO: ("direct", "zero"),
    "gloo": ("direct", "gloo"),
    "openmpi": ("mpiexec", "openmpi"),
    "horovod": ("horovodrun", "horovod.torch"),
    "ddp": ("direct", "gloo"),
    "torchrun": ("torchrun", "gloo"),
}
_COLLECTIVES = (FARANDOLE, "gloo", "openmpi", "horovod")
_TRAINERS = (FARANDOLE, "ddp", "horovod")
# By network: warm-up steps and timed steps, two to fifteen seconds of training.
_STEPS = {"mlp": (10, 80), "cnn": (4, 24), "resnet18": (2, 8)}
# JAX computes while Python goes on. Waiting for each step would take that from the limit, which
# does not communicate, so its steps are timed in blocks, with one wait at the end of each.
_JAX_BLOCK = {"mlp": 10, "cnn": 4}
# By network and Keras' backend: the limit, the share of its speed to reach, and the stretch. The
# perceptron's figure is of free-running workers; the others' of workers that meet after each step,
# because with 95 % to reach the wait for the slowest is what is left.
_SPEED: dict[tuple[str, str | None], tuple[str, float, float | None]] = {
    ("mlp", None): (FREE, 0.80, 0.85),
    ("mlp", "torch"): (FREE, 0.80, None),
    ("mlp", "tensorflow"): (FREE, 0.75, None),
    ("mlp", "jax"): (FREE, 0.50, None),
}
_KERAS_ENVIRONMENT = {
    # Not the user's keras.json, which may choose another precision or order of channels.
    "KERAS_HOME": "{scratch}",
    "CUDA_VISIBLE_DEVICES": "",
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    # One thread computes. With two inter-op threads, both would.
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    # Not enough by itself: JAX's workers are pinned to a core, too.
    "PJRT_NPROC": "1",
}
# By model: what the row calls it, images in an epoch, batches. ResNet-18 makes some 20 images/s on
# a core; 10,000 of CIFAR-10's 50,000 make the longest epoch that a benchmark can wait for.
_STUDIES: dict[str, tuple[str, int, tuple[int, ...]]] = {
    "cnn": ("small CNN", 50_000, (32, 128)),
    "resnet18": ("ResNet-18", 10_000, (32,)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """One way to do the task that a group of launches times."""

    name: str
    launcher: Launcher = "direct"
    """"direct" is one command per rank; the ranks share a folder and a file for their barrier."""
    num_ranks: int
    options: Mapping[str, Any] = field(default_factory=dict)
    """What the workers receive as their JSON argument."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """`{scratch}` in a value stands for the launch's own folder."""
    synchronized: bool = False
    """Whether all ranks must end with the same weights."""
    timed: bool = True
    """Whether its values are times, which others' use of the machine spoils."""


@dataclass(frozen=True, slots=True)
class Target:
    """A figure to reach, and how it is read from a row."""

    text: str
    quantity: Quantity
    subject: str
    against: str | None
    to_reach: float
    stretch: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One table: a series of some implementations of the group."""

    key: str
    title: str
    series: str
    names: tuple[str, ...]
    targets: tuple[Target, ...] = ()
    baseline: str | None = None
    """The implementation whose speed is 100 %."""
    unit: Literal["s", "bytes", "ratio"] = "s"
    """Of the series; "ratio" is of times, compared within a launch."""
    gradient_bytes: int | None = None
    """For memory beside a baseline's: the bytes of one copy of the gradients."""
    ranked: tuple[str, ...] = ()
    """Series whose order is compared: a throughput for each cell of a study, named after it."""


@dataclass(frozen=True, slots=True)
class Group:
    """Implementations whose launches are interleaved, and the rows that come of them."""

    key: str
    implementations: tuple[Implementation, ...]
    rows: tuple[Row, ...]
    launches: int | None = None
    """How many of each unless the user says; None: as everywhere. For groups that take long."""
    time_limit_s: float = 300.0
    """Of one launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the command line chose."""

    num_ranks: int = 2
    rank_counts: tuple[int, ...] = (1, 2, 4, 8)
    models: tuple[str, ...] = tuple(MODELS)
    peers: tuple[str, ...] = PEERS
    framework: Literal["torch", "keras"] = "torch"
    backends: tuple[str, ...] = tuple(BACKENDS)
    """Of Keras, when that is the framework."""
    quick: bool = False

    def timed(self, number: int) -> int:
        """Return how many of `number` steps or repeats to time: a third when quick."""
        return max(2, number // 3) if self.quick else number


def groups(what: str, settings: Settings) -> list[Group]:
    """Return the groups that a word of the command line stands for."""
    every = ("train", "overhead") if settings.framework == "keras" else BUILDERS
    return [g for word in (every if what == "all" else [what]) for g in BUILDERS[word](settings)]


def cell_name(workers: int, batch: int) -> str:
    """Name a cell of a study, and the series of its throughput."""
    return f"{plural(workers, 'worker')}, batch {batch}"


def _allreduce(settings: Settings) -> Iterator[Group]:
    elements = MODELS["resnet18"][1]
    private = {"private": (elements, settings.timed(96))}
    task = "torch_tasks.allreduce"
    every = _implementations(task, settings, _COLLECTIVES, sizes=private | _small(settings))
    names = _names(every)
    every += _implementations(task, settings, (BUCKET,), sizes=private)
    title = f"all-reduce of {elements:,} float32, private tensor, in place"
    targets = (
        Target("3 x Gloo's speed", "speed ratio", FARANDOLE, "gloo", 3.0, 4.0),
        Target("2 x Open MPI's speed", "speed ratio", FARANDOLE, "openmpi", 2.0, 2.5),
    )
    same = "the same in a gradient bucket"
    bucket = Target("5 x Gloo's speed", "speed ratio", BUCKET, "gloo", 5.0, 6.0)
    latency = Target("100 us at most", "time", FARANDOLE, None, 100e-6, 40e-6)
    rows = (
        Row("allreduce-private", title, "private", names, targets, "gloo"),
        Row("allreduce-bucket", same, "private", (BUCKET, *names[1:]), (bucket,), "gloo"),
        Row("allreduce-4KB", "all-reduce of 4 KB, blocking", "small", names, (latency,), "gloo"),
    )
    yield Group("allreduce", every, rows)


def _small(settings: Settings) -> dict[str, tuple[int, int]]:
    """Return the elements and repeats of the all-reduces of 4 KB."""
    return {"small": (1024, settings.timed(1600))}


def _train(settings: Settings) -> Iterator[Group]:
    for key, title, model, backend in _networks("train", settings):
        others = (FREE, 0.90, None) if backend else (BARRIER, 0.95, 0.97)
        limit, to_reach, stretch = _SPEED.get((model, backend), others)
        names = (FARANDOLE,) if backend else _TRAINERS
        every = _trainers("train", settings, (*names, FREE, BARRIER), model, backend)
        text = f"{100 * to_reach:.0f} % of the limit's speed ({limit})"
        target = Target(text, "speed ratio", FARANDOLE, limit, to_reach, stretch)
        title += ": one step of fit" if backend else ": one training step"
        yield _group(key, title, "step", every, target, baseline=limit)


def _sharded(settings: Settings) -> Iterator[Group]:
    for optimizer, to_reach, stretch in (("sgd", 0.85, 0.92), ("adam", 0.90, 1.0)):
        names = (FARANDOLE, SHARDED, ZERO, FREE)
        every = _trainers("train", settings, names, "mlp", optimizer=optimizer)
        targets = (
            Target(
                f"{100 * to_reach:.0f} % of the limit's speed ({FREE})",
                *("speed ratio", SHARDED, FREE, to_reach, stretch),
            ),
            Target("2 x the speed of DDP with ZeRO", "speed ratio", SHARDED, ZERO, 2.0),
        )
        title = f"{MODELS['mlp'][0]}, {optimizer.upper()}: one training step"
        yield _group(f"sharded-{optimizer}", title, "step", every, *targets, baseline=FREE)
    # Weights and state of 100 million parameters, which four workers have together.
    four = replace(settings, num_ranks=min(4, 2 * settings.num_ranks))
    options = {"model": "wide", "warmup": 1, "steps": 1, "optimizer": "adam"}
    every = _implementations("torch_tasks.held", four, (FARANDOLE, SHARDED), **options)
    one = _implementations("torch_tasks.held", replace(four, num_ranks=1), (PLAIN,), **options)
    every = tuple(replace(each, timed=False) for each in (*every, *one))
    title = f"100 M parameters, Adam, {plural(four.num_ranks, 'worker')}: weights and state"
    target = Target("1.1 x of one worker's at most", "time ratio", SHARDED, PLAIN, 1.1, 1.0)
    row = {"unit": "bytes", "baseline": PLAIN}
    yield _group("sharded-memory", f"{title} on the host", "held", every, target, **row)


def _overhead(settings: Settings) -> Iterator[Group]:
    alone = replace(settings, num_ranks=1)
    for key, title, model, backend in _networks("overhead", settings):
        title += ": one worker through DistributedOptimizer"
        if backend is None:
            every = _trainers("train", alone, (FARANDOLE, PLAIN), model, times=2)
            text = "2 % slower than plain PyTorch at most"
            target = Target(text, "time ratio", FARANDOLE, PLAIN, 1.02, 1.01)
            yield _group(key, title, "step", every, target, baseline=PLAIN)
        else:
            factor = 1.10 if backend == "jax" else 1.03
            every = _trainers("overhead", alone, (IN_TURNS,), model, backend, times=4)
            text = f"{100 * (factor - 1):.0f} % slower than plain Keras at most"
            target = Target(text, "time ratio", IN_TURNS, None, factor)
            yield _group(key, f"{title} over plain Keras", "ratio", every, target, unit="ratio")


def _networks(word: str, settings: Settings) -> list[tuple[str, str, str, str | None]]:
    """Return the key, the title, the network and Keras' backend of each row of a word."""
    if settings.framework == "torch":
        return [(f"{word}-{name}", MODELS[name][0], name, None) for name in settings.models]
    return [
        (f"{word}-keras-{backend}-{name}", f"Keras on {title}, {MODELS[name][0]}", name, backend)
        for backend, title in BACKENDS.items()
        for name in settings.models
        if backend in settings.backends and name in KERAS_MODELS
    ]


def _trainers(
    task: str,
    settings: Settings,
    names: Sequence[str],
    model: str,
    backend: str | None = None,
    times: int = 1,
    **more: Any,
) -> tuple[Implementation, ...]:
    """Return those that train, with `times` as many timed steps as usual."""
    warmup, steps = _STEPS[model]
    options: dict[str, Any] = {"model": model, "warmup": warmup, **more}
    options["steps"] = settings.timed(times * steps)
    if backend is None:
        task = task if "." in task else f"torch_tasks.{task}"
        return _implementations(task, settings, names, **options)
    block = _JAX_BLOCK[model] if backend == "jax" else 1
    options |= {"backend": backend, "block": block, "pin": backend == "jax"}
    options["steps"] = max(2, options["steps"] // block) * block
    if task == "overhead":
        # Long enough for a median, short enough for the machine to be the same in the next turn.
        options["turn"] = max(8, block) // block * block
    environment = {"KERAS_BACKEND": backend, **_KERAS_ENVIRONMENT}
    every = _implementations(f"keras_tasks.{task}", settings, names, **options)
    return tuple(replace(one, environment=environment) for one in every)


def _ranks(settings: Settings) -> Iterator[Group]:
    every: list[Implementation] = []
    for count in settings.rank_counts:
        # Peers at the largest count only: that is the figure, and eight processes start slowly.
        names = _COLLECTIVES if count == max(settings.rank_counts) else (FARANDOLE,)
        these, sizes = replace(settings, num_ranks=count), _small(settings)
        every += [
            replace(one, name=f"{one.name}, {plural(count, 'rank')}")
            for one in _implementations("torch_tasks.allreduce", these, names, sizes=sizes)
        ]
    target = Target("500 us at most with 8 ranks", "time", f"{FARANDOLE}, 8 ranks", None, 500e-6)
    title = "all-reduce of 4 KB, blocking, by number of ranks"
    targets = (target,) if 8 in settings.rank_counts else ()
    yield Group("ranks", tuple(every), (Row("ranks-4KB", title, "small", _names(every), targets),))


def _agreement(settings: Settings) -> Iterator[Group]:
    # The parameter tensors of ResNet-50.
    options = {"tensors": 161, "steps": settings.timed(300), "rounds": settings.timed(60)}
    options |= {"operations": 1000, "elements": 256}
    every = _implementations("torch_tasks.names", settings, (FARANDOLE, "horovod"), **options)
    one = Target("200 us at most", "time", FARANDOLE, None, 200e-6)
    many = Target("25 ms at most", "time", FARANDOLE, None, 25e-3)
    title = "synchronize() of 161 gradients of one number each"
    opposite = "1,000 named all-reduces of 256 float32, in opposite orders"
    rows = (
        Row("names-agreement", title, "agreement", _names(every), (one,)),
        Row("names-opposite", opposite, "opposite", _names(every), (many,)),
    )
    yield Group("names", every, rows)


def _memory(settings: Settings) -> Iterator[Group]:
    # With these, glibc gives every freed tensor back to the kernel; without, a process's size
    # tells what it once held.
    environment = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    for model in settings.models:
        if model == "cnn":
            continue  # 4.8 MB of gradients would drown in what any library weighs
        options = {"model": model, "warmup": 1, "steps": 2, "meet": True}
        every = _implementations("torch_tasks.train", settings, (*_TRAINERS, PLAIN), **options)
        every = tuple(replace(one, environment=environment, timed=False) for one in every)
        # Plain PyTorch holds the gradients once too, so a second copy of them or of the model
        # would show as 1; half of one is more than rounding and slots take.
        text = "gradients once: less than half a copy more than plain PyTorch"
        target = Target(text, "excess", FARANDOLE, PLAIN, 0.5)
        title, parameters = MODELS[model]
        title += ": memory per rank, gradients alive"
        size = {"unit": "bytes", "gradient_bytes": 4 * parameters, "baseline": PLAIN}
        yield _group(f"memory-{model}", title, "own_pss", every, target, **size)


def _start(settings: Settings) -> Iterator[Group]:
    names = (FARANDOLE, "torchrun", "import torch alone")
    every = _implementations("torch_tasks.start", settings, names)
    text = "0.65 of torchrun's time at most"
    target = Target(text, "time ratio", FARANDOLE, "torchrun", 0.65)
    title = "from the command to the first barrier"
    yield _group("start", title, "start", every, target, baseline="torchrun")


def _recorder(settings: Settings) -> Iterator[Group]:
    for count in sorted({1, settings.num_ranks}):
        these = replace(settings, num_ranks=count)
        (one,) = _trainers("recorder_task.train", these, (IN_TURNS,), "mlp", times=8)
        one = replace(one, environment={"FARANDOLE_RECORD_DIR": "{scratch}"})
        text = "1 % slower than without the recorder at most"
        target = Target(text, "time ratio", IN_TURNS, None, 1.01, 1.005)
        title = f"{MODELS['mlp'][0]}: one step of {plural(count, 'worker')}, "
        title += "DataLoader and record() included, recorded over not recorded"
        yield _group(f"recorder-{count}", title, "ratio", (one,), target, unit="ratio")


def _study(settings: Settings) -> Iterator[Group]:
    counts = sorted({1, settings.num_ranks})
    # An epoch cannot be cut without changing what it is compared with; cells can be left out.
    studied = [settings.num_ranks] if settings.quick else counts
    for model in settings.models:
        if model not in _STUDIES:
            continue
        name, samples, batches = _STUDIES[model]
        flags = ("--model", model, "--samples", str(samples))
        options = {"workers": studied, "batches": batches, "script_flags": flags}
        title = f"{name} on {samples:,} images of 3x32x32: all launches of a study of "
        title += f"{_workers(studied)}, batch {' and '.join(map(str, batches))}"
        every = (
            _command(PRECISE, "study", options),
            _command(WHOLE, "study", {**options, "flags": ("--epochs", "1")}),
        )
        same = "the same ranking of the cells by throughput (rank correlation 1)"
        targets = (
            Target("0.2 of the time of whole epochs at most", "time ratio", PRECISE, WHOLE, 0.2),
            Target(same, "rank correlation", PRECISE, WHOLE, 1.0),
        )
        cells = tuple(cell_name(count, batch) for count in studied for batch in batches)
        more = {"baseline": WHOLE, "ranked": cells}
        group = _group(f"study-precision-{model}", title, "launches", every, *targets, **more)
        # Whole epochs of all cells take about five minutes on 2 cores, and of ResNet-18 fifteen.
        yield replace(group, launches=1, time_limit_s=1800.0)
    # Fewer steps than a study's stopping rule looks at first: the script itself ends every launch.
    flags = ("--steps", "20", "--samples", "2000")
    options = {"workers": counts, "batches": (16,), "script_flags": flags}
    beyond = "a study's time outside of its launches, for each of its cells"
    at_most = Target("1 s at most", "time", STUDY, None, 1.0)
    title = f"a cell of {_workers(counts)} for 20 steps, as a whole"
    text = "1 s more than farandole run of the same command at most"
    more_than = Target(text, "time difference", STUDY, RUN, 1.0)
    rows = (
        Row("study-cell", beyond, "beyond", (STUDY,), (at_most,)),
        Row("study-run", title, "cell", (STUDY, RUN), (more_than,)),
    )
    commands = (_command(STUDY, "study", options), _command(RUN, "run", options))
    yield Group("study-cell", commands, rows, launches=1 if settings.quick else 3)


def _warm(settings: Settings) -> Iterator[Group]:
    pairs = 3 if settings.quick else 8
    options = {"workers": settings.num_ranks, "batch": 32, "steps": 120, "pairs": pairs}
    who = f"{plural(settings.num_ranks, 'worker')} forked with their imports over fresh ones"
    steps = Target("within 1 %", "time ratio", WARM, None, 1.01)
    length = Target("0.6 at most", "time ratio", WARM, None, 0.6)
    rows = (
        Row("warm-step", f"{who}: a step", "step", (WARM,), (steps,), unit="ratio"),
        Row("warm-launch", f"{who}: all of it", "length", (WARM,), (length,), unit="ratio"),
    )
    group = Group("warm", (_command(WARM, "warm", options),), rows)
    yield replace(group, launches=1, time_limit_s=900.0)


def _report(_: Settings) -> Iterator[Group]:
    from farandole.bench.synthetic_study import Shape

    shape = Shape()
    title = f"report of {shape.cells} cells, {shape.launches} launches, {shape.steps:,} steps"
    time, memory = f"{title}: from the command to its end", f"{title}: peak memory of its processes"
    seconds = Target("10 s at most", "time", REPORT, None, 10.0)
    size = Target("500 MB at most", "bytes", REPORT, None, 500e6)
    rows = (
        Row("report-time", time, "report", (REPORT,), (seconds,)),
        Row("report-memory", memory, "peak_memory", (REPORT,), (size,), unit="bytes"),
    )
    yield Group("report", (_command(REPORT, "report", {}),), rows)


BUILDERS: dict[str, Callable[[Settings], Iterator[Group]]] = {
    "allreduce": _allreduce,
    "train": _train,
    "sharded": _sharded,
    "overhead": _overhead,
    "ranks": _ranks,
    "names": _agreement,
    "memory": _memory,
    "start": _start,
    "recorder": _recorder,
    "study": _study,
    "warm": _warm,
    "report": _report,
}
"""By the word of the command line, in the order of `all`."""


def _implementations(
    task: str, settings: Settings, names: Sequence[str], **options: Any
) -> tuple[Implementation, ...]:
    """Return those that do a task, without the peers that the user left out."""
    built = []
    for name in names:
        peer = name.partition(",")[0]
        if peer in PEERS and peer not in settings.peers:
            continue
        launcher, library = _LIBRARIES.get(name, ("direct", "none"))
        if task.startswith("keras_tasks"):
            library = library.replace(".torch", ".keras")
        own = {"task": task, "library": library, "meet": name == BARRIER, **options}
        together = task.endswith(".train") and library != "none"
        where: dict[str, Any] = {"launcher": launcher, "num_ranks": settings.num_ranks}
        built.append(Implementation(name=name, options=own, synchronized=together, **where))
    return tuple(built)


def _command(name: str, function: str, options: Mapping[str, Any]) -> Implementation:
    """Return a single process that starts Farandole's commands and times them from outside."""
    task = {"task": f"study_tasks.{function}"}
    return Implementation(name=name, num_ranks=1, options={**task, **options})


def _group(
    key: str,
    title: str,
    series: str,
    implementations: tuple[Implementation, ...],
    *targets: Target,
    **more: Any,
) -> Group:
    """Return a group of one row of all its implementations."""
    row = Row(key, title, series, _names(implementations), targets, **more)
    return Group(key, implementations, (row,))


def _names(implementations: Sequence[Implementation]) -> tuple[str, ...]:
    return tuple(one.name for one in implementations)


def _workers(counts: Sequence[int]) -> str:
    *first, last = counts
    return " and ".join([*map(str, first), plural(last, "worker")])
