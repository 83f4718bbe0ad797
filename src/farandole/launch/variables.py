"""The environment of a worker: torchrun's variables, Horovod's, and Farandole's own."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from farandole.errors import UsageError
from farandole.launch.placement import HostShare, Placement
from farandole.launch.plan import INTER_OP_VARIABLE, THREAD_VARIABLES, Plan
from farandole.world.environment import place_among

SITE = Path(__file__).parent / "site"
_LOOPBACK = "127.0.0.1"
_INTERFACES = (
    "GLOO_SOCKET_IFNAME",
    "TP_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",
    "HOROVOD_GLOO_IFACE",
)
# What an outer launcher said about this process is not true for the workers it starts.
_OUTER = (
    "GROUP_WORLD_SIZE",
    "TORCHELASTIC_ERROR_FILE",
    "TORCHELASTIC_USE_AGENT_STORE",
    "HOROVOD_ELASTIC",
    "FARANDOLE_WORKER",
    "FARANDOLE_STORED_STATE",
    "FARANDOLE_HOOKED",
    "FARANDOLE_MASTER_FD",
    "FARANDOLE_CALL_FD",
    "FARANDOLE_RESULT_FD",
    "FARANDOLE_HOSTS",
    "FARANDOLE_ADDRESS",
)
# Who starts the workers itself says all this to them; ours would contradict it.
_OWN = re.compile(
    r"(FARANDOLE|HOROVOD)_((LOCAL_|CROSS_)?(RANK|SIZE)|JOB|BOARD|LAUNCHER_PID|HOSTNAME|CONTROLLER"
    r"|HOSTS|ADDRESS)"
    r"|(LOCAL_|GROUP_|ROLE_)?RANK|(LOCAL_|GROUP_|ROLE_)?WORLD_SIZE|MASTER_(ADDR|PORT)"
    r"|TORCHELASTIC_\w+"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What all workers of one launch have in common."""

    job_id: str
    launcher_pid: int
    """Whoever has started the workers of this host."""
    board_path: str
    master_port: int
    hostname: str
    master_addr: str = _LOOPBACK
    """Where rank 0 serves torch's store."""
    placement: Placement | None = None
    """The ranks of all hosts; None when all are on this one."""
    address: str = _LOOPBACK
    """The address of this host that the others reach."""
    interface: str = "lo" if sys.platform == "linux" else "lo0"
    """The network interface that has it; '' when it is not known."""


# What users set for a job goes to other hosts; what a host says about itself stays there.
_PASSED = re.compile(
    r"PATH|LD_LIBRARY_PATH|KERAS_BACKEND|(PYTHON|NCCL_|CUDA_|OMP_|HOROVOD_|FARANDOLE_)\w*"
)


def passed_on(environ: Mapping[str, str], extra: Sequence[str] = ()) -> dict[str, str]:
    """Choose the variables that workers on other hosts get: those of a job, and the named ones.

    Args:
        environ: The launcher's environment.
        extra: What `--env` was given: NAME, or NAME=VALUE.

    Raises:
        UsageError: A name is none, or has no value here.
    """
    threads = (*THREAD_VARIABLES, INTER_OP_VARIABLE)
    chosen = {
        name: value
        for name, value in environ.items()
        if (_PASSED.fullmatch(name) or name in threads)
        and not _OWN.fullmatch(name)
        and name not in _OUTER
    }
    return chosen | named_variables(environ, extra)


def named_variables(environ: Mapping[str, str], texts: Sequence[str]) -> dict[str, str]:
    """Read what `--env` was given: NAME, or NAME=VALUE.

    Raises:
        UsageError: A name is none, or has no value here.
    """
    chosen = {}
    for text in texts:
        name, given, value = text.partition("=")
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise UsageError(f"--env {text}: give NAME or NAME=VALUE.")
        if not given and name not in environ:
            raise UsageError(
                f"--env {name}: there is no such variable here. Set it, or give --env {name}=VALUE."
            )
        chosen[name] = value if given else environ[name]
    return chosen


def worker_environ(base: Mapping[str, str], plan: Plan, job: Job, rank: int) -> dict[str, str]:
    """Build one worker's environment from the launcher's."""
    size = str(plan.num_workers)
    me = str(rank)
    hosts = (
        job.placement.hosts
        if job.placement is not None
        else (HostShare(name=job.hostname, ranks=tuple(range(plan.num_workers))),)
    )
    host, local_rank, local_size, cross_rank, cross_size = map(
        str, place_among(rank, [len(share.ranks) for share in hosts])
    )
    environ = {name: value for name, value in base.items() if name not in _OUTER}
    # torchrun: scripts for torch.distributed run as they are.
    environ |= {
        "RANK": me,
        "WORLD_SIZE": size,
        "LOCAL_RANK": local_rank,
        "LOCAL_WORLD_SIZE": local_size,
        "GROUP_RANK": host,
        "GROUP_WORLD_SIZE": str(len(hosts)),
        "ROLE_NAME": "default",
        "ROLE_RANK": me,
        "ROLE_WORLD_SIZE": size,
        "MASTER_ADDR": job.master_addr,
        "MASTER_PORT": str(job.master_port),
        "TORCHELASTIC_RUN_ID": job.job_id,
        "TORCHELASTIC_RESTART_COUNT": str(plan.restart),
        "TORCHELASTIC_MAX_RESTARTS": str(plan.elastic.max_restarts if plan.elastic else 0),
        # Rank 0 serves the store itself: the launcher has no torch to serve it with.
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }
    # Horovod: scripts that look at its variables see what they expect.
    environ |= {
        "HOROVOD_HOSTNAME": job.hostname,
        "HOROVOD_RANK": me,
        "HOROVOD_SIZE": size,
        "HOROVOD_LOCAL_RANK": local_rank,
        "HOROVOD_LOCAL_SIZE": local_size,
        "HOROVOD_CROSS_RANK": cross_rank,
        "HOROVOD_CROSS_SIZE": cross_size,
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
    }
    environ |= {
        "FARANDOLE_RANK": me,
        "FARANDOLE_SIZE": size,
        "FARANDOLE_LOCAL_RANK": local_rank,
        "FARANDOLE_LOCAL_SIZE": local_size,
        "FARANDOLE_CROSS_RANK": cross_rank,
        "FARANDOLE_CROSS_SIZE": cross_size,
        "FARANDOLE_HOSTNAME": job.hostname,
        "FARANDOLE_JOB": job.job_id,
        "FARANDOLE_BOARD": job.board_path,
        "FARANDOLE_LAUNCHER_PID": str(job.launcher_pid),
        "FARANDOLE_TRANSPORT": plan.transport,
        "FARANDOLE_THREADS": str(plan.threads),
        "FARANDOLE_START_TIMEOUT": f"{plan.start_timeout_s:g}",
        "FARANDOLE_RESTART": str(plan.restart),
        # Lines appear when they are printed, not when a buffer is full.
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": _join(str(SITE), base.get("PYTHONPATH")),
        "FARANDOLE_HOROVOD_ALIAS": "on" if plan.horovod_alias else "off",
    }
    if job.placement is not None:
        environ["FARANDOLE_HOSTS"] = ",".join(f"{h.name}:{len(h.ranks)}" for h in hosts)
        environ["FARANDOLE_ADDRESS"] = job.address
    _set_threads(environ, plan)
    _set_record(environ, plan)
    for name in _INTERFACES if job.interface else ():
        environ.setdefault(name, job.interface)
    return environ


def launcher_environ(base: Mapping[str, str], plan: Plan) -> dict[str, str]:
    """Build the environment of a command that starts the workers itself."""
    environ = {name: value for name, value in base.items() if not _OWN.fullmatch(name)}
    for name in _OUTER:
        environ.pop(name, None)
    environ |= {
        "FARANDOLE_TRANSPORT": plan.transport,
        "FARANDOLE_THREADS": str(plan.threads),
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": _join(str(SITE), base.get("PYTHONPATH")),
        # Whoever brings a launcher, mpirun or horovodrun, means the Horovod that is installed.
        "FARANDOLE_HOROVOD_ALIAS": "missing" if plan.horovod_alias else "off",
    }
    _set_threads(environ, plan)
    _set_record(environ, plan)
    return environ


def _set_record(environ: dict[str, str], plan: Plan) -> None:
    if plan.record_dir is not None:
        environ["FARANDOLE_RECORD_DIR"] = str(plan.record_dir)
    if plan.timeline is not None:
        environ["FARANDOLE_TIMELINE"] = "1"


def _set_threads(environ: dict[str, str], plan: Plan) -> None:
    for name in THREAD_VARIABLES:
        if plan.override_threads or not environ.get(name):
            environ[name] = str(plan.threads)
    if plan.override_threads or not environ.get(INTER_OP_VARIABLE):
        # One more: it waits in the exchange of gradients, while others fetch the next batch.
        environ[INTER_OP_VARIABLE] = str(plan.threads + 1)


def _join(first: str, rest: str | None) -> str:
    parts = [part for part in (rest or "").split(os.pathsep) if part and part != first]
    return os.pathsep.join([first, *parts])
