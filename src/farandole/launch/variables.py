"""The environment of a worker: torchrun's variables, Horovod's, and Farandole's own."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from farandole.launch.plan import INTER_OP_VARIABLE, THREAD_VARIABLES, Plan

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
    "FARANDOLE_HOOKED",
    "FARANDOLE_MASTER_FD",
)
# Who starts the workers itself says all this to them; ours would contradict it.
_OWN = re.compile(
    r"(FARANDOLE|HOROVOD)_((LOCAL_|CROSS_)?(RANK|SIZE)|JOB|BOARD|LAUNCHER_PID|HOSTNAME|CONTROLLER)"
    r"|(LOCAL_|GROUP_|ROLE_)?RANK|(LOCAL_|GROUP_|ROLE_)?WORLD_SIZE|MASTER_(ADDR|PORT)"
    r"|TORCHELASTIC_\w+"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What all workers of one launch have in common."""

    job_id: str
    launcher_pid: int
    board_path: str
    master_port: int
    hostname: str


def worker_environ(base: Mapping[str, str], plan: Plan, job: Job, rank: int) -> dict[str, str]:
    """Build one worker's environment from the launcher's."""
    size = str(plan.num_workers)
    me = str(rank)
    environ = {name: value for name, value in base.items() if name not in _OUTER}
    # torchrun: scripts for torch.distributed run as they are.
    environ |= {
        "RANK": me,
        "WORLD_SIZE": size,
        "LOCAL_RANK": me,
        "LOCAL_WORLD_SIZE": size,
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "ROLE_RANK": me,
        "ROLE_WORLD_SIZE": size,
        "MASTER_ADDR": _LOOPBACK,
        "MASTER_PORT": str(job.master_port),
        "TORCHELASTIC_RUN_ID": job.job_id,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        # Rank 0 serves the store itself: the launcher has no torch to serve it with.
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }
    # Horovod: scripts that look at its variables see what they expect.
    environ |= {
        "HOROVOD_HOSTNAME": job.hostname,
        "HOROVOD_RANK": me,
        "HOROVOD_SIZE": size,
        "HOROVOD_LOCAL_RANK": me,
        "HOROVOD_LOCAL_SIZE": size,
        "HOROVOD_CROSS_RANK": "0",
        "HOROVOD_CROSS_SIZE": "1",
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
    }
    environ |= {
        "FARANDOLE_RANK": me,
        "FARANDOLE_SIZE": size,
        "FARANDOLE_LOCAL_RANK": me,
        "FARANDOLE_LOCAL_SIZE": size,
        "FARANDOLE_CROSS_RANK": "0",
        "FARANDOLE_CROSS_SIZE": "1",
        "FARANDOLE_HOSTNAME": job.hostname,
        "FARANDOLE_JOB": job.job_id,
        "FARANDOLE_BOARD": job.board_path,
        "FARANDOLE_LAUNCHER_PID": str(job.launcher_pid),
        "FARANDOLE_TRANSPORT": plan.transport,
        "FARANDOLE_THREADS": str(plan.threads),
        "FARANDOLE_START_TIMEOUT": f"{plan.start_timeout_s:g}",
        # Lines appear when they are printed, not when a buffer is full.
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": _join(str(SITE), base.get("PYTHONPATH")),
        "FARANDOLE_HOROVOD_ALIAS": "on" if plan.horovod_alias else "off",
    }
    _set_threads(environ, plan)
    _set_record(environ, plan)
    for name in _INTERFACES:
        environ.setdefault(name, "lo" if os.uname().sysname == "Linux" else "lo0")
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
