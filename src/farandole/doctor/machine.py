"""FD5xx: machine, launch and files.

The ids: FD501 more threads than cores, FD502 an interface that reaches no other host (several
hosts), FD503 workers pinned to the same cores, FD504 workers share a GPU (GPUs), FD505 all ranks
write one file, FD506 versions differ, FD507 too few open files, FD508 little shared memory, FD509
the scripts differ; advice: FD510 many loader processes, FD511 idle cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any

from farandole.doctor.check import NotChecked, Seen, check
from farandole.doctor.facts import File, Job, Machine, Rank
from farandole.format import listed, plural, size
from farandole.recorder.checkpoints import is_checkpoint

_OVERSUBSCRIBED = 1.25
"""Threads over cores from which workers slow each other down."""
_NOT_OUTSIDE = ("lo", "docker", "veth", "br-", "virbr")
_FEWEST_FILES = 512
_LEAST_SHM_BYTES = 256e6


def machines(job: Job) -> dict[int, Machine]:
    """Return what is known of each rank's machine.

    Raises:
        NotChecked: nothing is.
    """
    found = {rank.rank: one for rank in job.ranks if (one := rank.last(Machine)) is not None}
    if not found:
        raise NotChecked("the workers' machine was not recorded")
    return found


def by_host(job: Job) -> dict[str, list[Rank]]:
    """Return the ranks of each host."""
    found: dict[str, list[Rank]] = {}
    for rank in job.ranks:
        found.setdefault(rank.host, []).append(rank)
    return found


@check(
    "FD501",
    severity="warning",
    title="More threads than cores",
    meaning="The threads of your {workers:worker} take turns on the same cores. Steps take longer "
    "than with fewer threads, and times scatter.",
    fix={
        "torch": "farandole run -np 2 --threads 1 ...   # cores divided by workers; no\n"
        "# torch.set_num_threads(os.cpu_count()) in the script",
        "keras": "farandole run -np 2 --threads 1 ...   # cores divided by workers",
    },
    needs="threads of each worker, and the cores that they may use",
    covers=("torch", "ddp", "accelerate", "lightning"),
)
def threads_oversubscribed(job: Job) -> Iterator[Seen]:
    """Compare threads with cores, host by host."""
    known = machines(job)
    if all(one.threads is None for one in known.values()):
        raise NotChecked("the number of threads was not recorded")
    for host, ranks in by_host(job).items():
        here = {rank.rank: known[rank.rank] for rank in ranks if rank.rank in known}
        threads = sum(one.threads or 1 for one in here.values())
        cores = max((one.cores or 0.0 for one in here.values()), default=0.0)
        several = any((one.threads or 1) > 1 for one in here.values())
        if cores and several and threads > _OVERSUBSCRIBED * cores:
            yield Seen(
                text=f"{plural(len(here), 'worker')} use {plural(threads, 'thread')} on "
                f"{plural(int(cores), 'core')} of {host or 'this host'}.",
                values={rank: plural(one.threads or 1, "thread") for rank, one in here.items()},
            )


@check(
    "FD502",
    severity="error",
    title="An interface that reaches no other host",
    meaning="The workers talk through an interface that ends on its own host, or at a container's "
    "bridge. Over several hosts that hangs, or takes a slow way round.",
    fix={"torch": "export GLOO_SOCKET_IFNAME=eth0   # the one of `ip route get OTHER_HOST`"},
    needs="workers on several hosts",
)
def interface_inside(job: Job) -> Iterator[Seen]:
    """Look for loopback and bridges where workers are on several hosts."""
    known = machines(job)
    if len(job.hosts) < 2:
        raise NotChecked("all workers ran on one host")
    inside = {r: one for r, one in known.items() if one.interface.startswith(_NOT_OUTSIDE)}
    if inside:
        yield Seen(
            text=f"{plural(len(job.hosts), 'host')} are used, and workers were told to use an "
            "interface of one host.",
            values={rank: one.interface for rank, one in inside.items()},
        )


@check(
    "FD503",
    severity="warning",
    title="Workers are pinned to the same cores",
    meaning="Your {workers:worker} may only use the same few cores while others idle: they take "
    "turns, and a second worker brings nothing.",
    fix={
        "torch": "# give every rank cores of its own, or none at all:\n"
        "os.sched_setaffinity(0, {hvd.local_rank()})\n"
        "# mpirun --bind-to none, srun --cpu-bind=cores"
    },
    needs="the cores that each worker may use",
)
def pinned_together(job: Job) -> Iterator[Seen]:
    """Find hosts whose workers share fewer cores than they are, beside idle ones."""
    known = machines(job)
    if not any(one.affinity for one in known.values()):
        raise NotChecked("this system does not tell which cores a process may use")
    for ranks in by_host(job).values():
        here = {rank.rank: known[rank.rank] for rank in ranks if rank.rank in known}
        cores = {core for one in here.values() for core in one.affinity}
        cpus = max((one.cpus or 0 for one in here.values()), default=0)
        if len(here) > 1 and len(cores) < len(here) <= cpus:
            yield Seen(
                text=f"{plural(len(here), 'worker')} share {plural(len(cores), 'core')} of {cpus}.",
                values={
                    r: f"cores {listed([str(c) for c in m.affinity])}" for r, m in here.items()
                },
            )


@check(
    "FD504",
    severity="warning",
    title="Workers share a GPU",
    meaning="Several workers compute on one GPU while others may idle; they take turns, and share "
    "its memory.",
    fix={"torch": "torch.cuda.set_device(hvd.local_rank())   # before the model is made"},
    needs="GPUs",
)
def shared_gpu(job: Job) -> Iterator[Seen]:
    """Find devices that several ranks of a host use."""
    known = machines(job)
    if not any(one.device.startswith("cuda") for one in known.values()):
        raise NotChecked("no worker used a GPU")
    by_device: dict[tuple[str, str], dict[int, str]] = {}
    for rank in job.ranks:
        one = known.get(rank.rank)
        if one is not None and one.device.startswith("cuda"):
            by_device.setdefault((rank.host, one.device), {})[rank.rank] = one.device
    for (_, device), ranks in by_device.items():
        if len(ranks) > 1:
            yield Seen(text=f"{plural(len(ranks), 'worker')} use {device}.", values=ranks)


@check(
    "FD505",
    severity="warning",
    title="All ranks write one file",
    meaning="Your {workers:worker} write the same file at the same time: what is left of it is "
    "that of the last one, or a mixture that cannot be read.",
    fix={
        "torch": 'if hvd.rank() == 0:\n    torch.save(model.state_dict(), "model.pt")',
        "ddp": "if torch.distributed.get_rank() == 0:\n"
        '    torch.save(model.module.state_dict(), "model.pt")',
        "accelerate": 'if accelerator.is_main_process:\n    torch.save(state, "model.pt")',
        "keras": "callbacks=[ModelCheckpoint(...)] if hvd.rank() == 0 else []",
    },
    needs="files that at least two ranks opened for writing",
)
def one_file(job: Job) -> Iterator[Seen]:
    """Find paths that several ranks opened for writing from the beginning."""
    if not any(rank.detailed for rank in job.ranks):
        raise NotChecked("files that the script writes were not recorded")
    by_path: dict[tuple[str, str], dict[int, File]] = {}
    for rank in job.ranks:
        for one in rank.facts(File):
            if one.mode == "w":
                by_path.setdefault((rank.host, one.path), {})[rank.rank] = one
    shared = {path: ranks for (_, path), ranks in by_path.items() if len(ranks) > 1}
    for path, ranks in list(shared.items())[:3]:
        more = f" (and {len(shared) - 1} more)" if len(shared) > 1 else ""
        yield Seen(
            text=f"{plural(len(ranks), 'rank')} wrote {PurePath(path).name}{more}.",
            values={rank: f"{path}, step {one.step}" for rank, one in ranks.items()},
            where=next(iter(ranks.values())).where,
            severity="error" if is_checkpoint(path) else "warning",
        )
        return


@check(
    "FD506",
    severity="warning",
    title="Versions differ between ranks",
    meaning="Your {workers:worker} run different software: results may differ in the last digits, "
    "which averages never level out, or fail in ways that are hard to place.",
    fix={
        "torch": "# one environment for all hosts: a shared folder, a container, or the same lock\n"
        "# file; PYTHONPATH must not differ by rank"
    },
    needs="versions of Python and of the libraries of at least two ranks",
)
def versions_differ(job: Job) -> Iterator[Seen]:
    """Compare the versions of what all ranks have imported."""
    yield from _different(job, lambda one: one.versions, "version")


@check(
    "FD509",
    severity="warning",
    title="The script differs between ranks",
    meaning="The ranks run different code: an old copy on one host, for example.",
    fix={"torch": "# run from a folder that all hosts share, or copy it before each run"},
    needs="the script and the user's modules of at least two ranks",
)
def scripts_differ(job: Job) -> Iterator[Seen]:
    """Compare the files of code that all ranks have loaded."""
    yield from _different(job, lambda one: one.files, "content of")


def _different(job: Job, of: Callable[[Machine], Any], what: str) -> Iterator[Seen]:
    known = {rank: dict(of(one)) for rank, one in machines(job).items() if of(one)}
    if len(known) < 2:
        raise NotChecked("fewer than 2 workers told of it")
    shared = set.intersection(*map(set, known.values()))
    odd = [n for n in sorted(shared) if len({values[n] for values in known.values()}) > 1]
    if odd:
        yield Seen(
            text=f"The ranks have another {what} {listed([PurePath(name).name for name in odd])}.",
            values={
                r: ", ".join(f"{PurePath(n).name} {v[n]}" for n in odd) for r, v in known.items()
            },
        )


@check(
    "FD507",
    severity="warning",
    title="Few files may be open",
    meaning="Loader processes, sockets and shared memory take descriptors. At the limit training "
    'fails with "Too many open files", often hours later.',
    fix={
        "torch": "ulimit -n 65536   # before the start\n"
        'torch.multiprocessing.set_sharing_strategy("file_system")'
    },
    needs="the limit of open files of each worker",
)
def few_open_files(job: Job) -> Iterator[Seen]:
    """Compare the limit with what a few loader processes need."""
    low = {
        rank: one.open_files
        for rank, one in machines(job).items()
        if one.open_files is not None and one.open_files < _FEWEST_FILES
    }
    if low:
        yield Seen(
            text=f"A worker may have {min(low.values())} files open; {_FEWEST_FILES} are few.",
            values={rank: plural(count, "file") for rank, count in low.items()},
        )


@check(
    "FD508",
    severity="warning",
    title="Little shared memory",
    meaning="Loader processes hand over batches in /dev/shm, and workers of a host exchange "
    "gradients there. When it is full they end with SIGBUS.",
    fix={"torch": "docker run --shm-size=8g ...   # or --ipc=host"},
    needs="the free memory of /dev/shm of each host",
)
def little_shared_memory(job: Job) -> Iterator[Seen]:
    """Look at what is free."""
    known = {r: one.shm_free_bytes for r, one in machines(job).items()}
    if all(free is None for free in known.values()):
        raise NotChecked("this system has no /dev/shm")
    low = {r: free for r, free in known.items() if free is not None and free < _LEAST_SHM_BYTES}
    if low:
        yield Seen(
            text=f"/dev/shm has {size(min(low.values()))} left.",
            values={rank: size(free) for rank, free in low.items()},
        )


@check(
    "FD510",
    severity="note",
    title="More loader processes than cores",
    meaning="Each worker has loader processes of its own. They take cores from training.",
    fix={"torch": "DataLoader(..., num_workers=max(1, cores // workers - 1))"},
    needs="the training data's DataLoader of each worker",
    covers=("torch", "ddp", "accelerate", "lightning"),
    advice=True,
)
def many_loader_processes(job: Job) -> Iterator[Seen]:
    """Compare loader processes of a host with its cores."""
    known = machines(job)
    loaders = {
        rank.rank: max(int(one.get("workers") or 0) for one in rank.lines("loader"))
        for rank in job.ranks
        if rank.lines("loader")
    }
    if not loaders:
        raise NotChecked("no DataLoader was seen")
    for ranks in by_host(job).values():
        here = [rank.rank for rank in ranks if rank.rank in loaders and rank.rank in known]
        total = sum(loaders[rank] for rank in here)
        cores = max((known[rank].cores or 0.0 for rank in here), default=0.0)
        if cores and total > 2 * cores:
            yield Seen(
                text=f"{plural(total, 'loader process')} on {plural(int(cores), 'core')}.",
                values={rank: plural(loaders[rank], "loader process") for rank in here},
            )


@check(
    "FD511",
    severity="note",
    title="Idle cores",
    meaning="Your {workers:worker} together use fewer threads than half of the cores they may use.",
    fix={"torch": "farandole run -np 2 --threads 4 ...   # torchrun sets OMP_NUM_THREADS=1"},
    needs="threads of each worker, and the cores that they may use",
    covers=("torch", "ddp", "accelerate", "lightning"),
    advice=True,
)
def idle_cores(job: Job) -> Iterator[Seen]:
    """Compare threads with cores, host by host."""
    known = machines(job)
    if all(one.threads is None for one in known.values()):
        raise NotChecked("the number of threads was not recorded")
    for host, ranks in by_host(job).items():
        here = {rank.rank: known[rank.rank] for rank in ranks if rank.rank in known}
        threads = sum(one.threads or 1 for one in here.values())
        cores = max((one.cores or 0.0 for one in here.values()), default=0.0)
        if here and 2 * threads < cores:
            yield Seen(
                text=f"{plural(threads, 'thread')} on {plural(int(cores), 'core')} of "
                f"{host or 'this host'}.",
                values={rank: plural(one.threads or 1, "thread") for rank, one in here.items()},
            )
