"""SLURM's part of the command line: flags, jobs that are submitted, steps that are joined."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from farandole.cli.flags import add_flag
from farandole.errors import UsageError
from farandole.format import plural

if TYPE_CHECKING:
    from farandole.launch.placement import Shape
    from farandole.launch.plan import Plan
    from farandole.launch.slurm.allocation import Allocation
    from farandole.launch.slurm.script import JobScript
    from farandole.launch.starters import Starter

# Flags of `run` that go on to the `farandole run` inside of the job.
_PASSED = (
    *("threads", "transport", "output_dir", "show_ranks", "start_timeout", "silence_timeout"),
    *("exit_timeout", "horovod_alias", "record", "timeline"),
)

# What needs somebody who hears of all workers.
_HEAD_ONLY = ("output_dir", "show_ranks", "record", "timeline")


def add_run_flags(parser: Any) -> None:
    """Add what `run` has for SLURM."""
    group = parser.add_argument_group("jobs of SLURM (--launcher slurm, docs/slurm.md)")
    add_flag(group, "-N", "--nodes", metavar="N", help="how many nodes the job has")
    add_flag(group, "--ntasks-per-node", metavar="N", help="how many workers each node has")
    add_job_flags(group)
    add_flag(
        group, "--script-only", action="store_true", help="print the job script; submit nothing"
    )


def add_job_flags(group: Any) -> None:
    """Add what says how jobs are submitted."""
    add_flag(
        group,
        "--sbatch",
        action="append",
        default=[],
        metavar="K=V,...",
        help="options of sbatch: account=abc,partition=gpu,time=1:00:00",
    )
    add_flag(group, "--setup", metavar="FILE", help="shell lines to run first: modules, conda")


def wants_job(args: argparse.Namespace) -> bool:
    """Say whether flags of `run` ask for a job to be submitted.

    Raises:
        UsageError: They are for jobs, but --launcher slurm is not given.
    """
    from farandole.launch.slurm.allocation import read_allocation

    only = args.sbatch or args.setup or args.script_only
    if chosen_launcher(args) == "slurm":
        return bool(only) or read_allocation(os.environ) is None
    if only or ((args.nodes or args.ntasks_per_node) and read_allocation(os.environ) is None):
        flag = next(
            name
            for name, given in (
                ("--sbatch", args.sbatch),
                ("--setup", args.setup),
                ("--script-only", args.script_only),
                ("-N", args.nodes),
                ("--ntasks-per-node", args.ntasks_per_node),
            )
            if given
        )
        raise UsageError(f"{flag} is for jobs of SLURM. Add --launcher slurm, or leave it away.")
    return False


def chosen_launcher(args: argparse.Namespace) -> str | None:
    """Return what --launcher or FARANDOLE_LAUNCHER says."""
    chosen: str | None = args.launcher or os.environ.get("FARANDOLE_LAUNCHER")
    return chosen


def submit(args: argparse.Namespace, command: Sequence[str]) -> int:
    """Write a job and submit it, follow it to its end, and return its exit code."""
    from farandole.launch.slurm.client import Slurm
    from farandole.launch.slurm.follow import follow
    from farandole.launch.slurm.script import render

    job = make_job(args, command)
    script = render(job)
    if args.script_only:
        print(script, end="", flush=True)
        return 0
    cluster = Slurm(os.environ)
    try:
        job_id = cluster.submit(script)
    except KeyboardInterrupt:
        _say("interrupted; SLURM may have taken the job all the same: see `squeue --me`.")
        raise
    output = Path(job.cwd, job.output.replace("%j", job_id))
    try:
        _say(f"submitted job {job_id}; its output goes to {output.name}.")
        followed = follow(cluster, job_id, output=output, show=_show, say=_say)
    except KeyboardInterrupt:
        # Before somebody listened for signals, or where they are not ours to catch.
        cluster.cancel(job_id)
        raise
    return followed.exit_code


def make_job(args: argparse.Namespace, command: Sequence[str]) -> JobScript:
    """Decide a job from the flags of `run`.

    Raises:
        UsageError: Something cannot be used as given.
    """
    from farandole.launch.slurm.script import JobScript, job_name, parse_options

    if not command:
        raise UsageError(
            "No command was given. Say what to run: farandole run --launcher slurm -N 2 "
            "--ntasks-per-node 4 -- python train.py"
        )
    if args.hosts or args.hostfile:
        raise UsageError(
            "-H and --hostfile name hosts for ssh, but SLURM chooses the nodes of a job. Leave "
            "them away, or ask for nodes by --sbatch nodelist=n1,n2."
        )
    workers, nodes, per_node = _size(args)
    threads = None if args.threads is None else _whole(args.threads, "--threads")
    options = parse_options(args.sbatch)
    return JobScript(
        command=(
            *(sys.executable, "-m", "farandole.cli.main", "run", "-np", str(workers)),
            *_passed(args),
            "--",
            *command,
        ),
        cwd=str(Path.cwd()),
        num_workers=workers,
        num_nodes=nodes,
        per_node=per_node,
        cpus_per_task=threads,
        name=job_name(command),
        options=options,
        setup=_setup(args.setup),
    )


def allocation_for_run(args: argparse.Namespace, environ: Mapping[str, str]) -> Allocation | None:
    """Return the allocation in which `run` starts steps; None where it starts workers otherwise."""
    chosen = chosen_launcher(args)
    if chosen not in (None, "slurm") or args.hosts or args.hostfile:
        return None
    from farandole.launch.slurm.allocation import nodes_to_reach

    return nodes_to_reach(environ, forced=chosen == "slurm")


def shape_asked(args: argparse.Namespace) -> Shape | None:
    """Return nodes and workers on each where flags of `run` say both; else None.

    Raises:
        UsageError: They contradict each other.
    """
    from farandole.launch.placement import Shape, parse_shape

    if args.nodes is None and args.ntasks_per_node is None and not parse_shape(args.np or ""):
        return None
    workers, nodes, per_node = _size(args)
    if nodes is None or per_node is None:
        raise UsageError(
            f"{plural(workers, 'worker')} cannot be shared evenly by -N {nodes}. Give -np "
            "alone, and "
            "they are packed."
        )
    return Shape(hosts=nodes, workers=per_node)


def starter(environ: Mapping[str, str]) -> Starter:
    """Return what starts agents as a step of the job around us."""
    from farandole.launch.starters.srun import SrunStarter

    return SrunStarter(environ=environ)


def tasks_around(args: argparse.Namespace, environ: Mapping[str, str]) -> int | None:
    """Return how many tasks the srun step has that this process is one worker of; None: it is none.

    Raises:
        UsageError: -np or another flag contradicts that.
    """
    from farandole.launch.slurm.allocation import check_step

    if chosen_launcher(args) not in (None, "slurm") or args.hosts or args.hostfile:
        return None
    tasks = check_step(environ, args.np)
    given = [name for name in _HEAD_ONLY if getattr(args, name) is not None]
    if tasks is not None and given:
        raise UsageError(
            f"--{given[0].replace('_', '-')} is for whoever starts all workers, but srun has "
            f"started {plural(tasks, 'task')} already (SLURM_NTASKS={tasks}). Leave srun "
            "away, or the flag."
        )
    return tasks


def task_threads(args: argparse.Namespace, environ: Mapping[str, str]) -> str | None:
    """Return the threads of a worker that srun has started: its own CPUs, where it has some."""
    from farandole.launch.plan import threads_from

    given: str | None = args.threads
    if given is not None or threads_from(environ) is not None:
        return given
    return environ.get("SLURM_CPUS_PER_TASK")


def join_step(plan: Plan, environ: Mapping[str, str]) -> NoReturn:
    """Become the worker that srun has started this process as (`srun farandole run ...`)."""
    from farandole.launch.slurm.allocation import task_environ
    from farandole.world.slurm import network_name

    made = task_environ(environ, plan, network_name=network_name)
    os.execvpe(plan.argv[0], plan.argv, made)


def _size(args: argparse.Namespace) -> tuple[int, int | None, int | None]:
    """Return workers, nodes and workers per node of a job."""
    from farandole.launch.placement import parse_shape

    nodes = None if args.nodes is None else _whole(args.nodes, "-N")
    per_node = None
    if args.ntasks_per_node is not None:
        per_node = _whole(args.ntasks_per_node, "--ntasks-per-node")
    given = args.np or os.environ.get("FARANDOLE_NP")
    shape = parse_shape(given or "")
    if shape is not None:
        if nodes not in (None, shape.hosts) or per_node not in (None, shape.workers):
            raise UsageError(f"-np {given} contradicts -N or --ntasks-per-node. Give one of them.")
        return shape.size, shape.hosts, shape.workers
    if given is None:
        if per_node is None:
            raise UsageError(
                "How many workers? Give -N 2 --ntasks-per-node 4, or -np 8 and let SLURM choose "
                "the nodes."
            )
        return (nodes or 1) * per_node, nodes or 1, per_node
    workers = _whole(given, "-np")
    if nodes is not None and per_node is not None and nodes * per_node != workers:
        raise UsageError(
            f"You asked for {plural(workers, 'worker')} (-np {workers}), but "
            f"{plural(nodes, 'node')} with {per_node} "
            f"tasks each have {nodes * per_node} (-N {nodes} --ntasks-per-node {per_node}). Leave "
            "-np away, or correct one of them."
        )
    if nodes is not None and per_node is None and workers % nodes == 0:
        per_node = workers // nodes
    return workers, nodes, per_node


def _passed(args: argparse.Namespace) -> list[str]:
    flags: list[str] = []
    for name in _PASSED:
        value = getattr(args, name)
        if value is not None:
            flags += [f"--{name.replace('_', '-')}", str(value)]
    for text in args.env:
        flags += ["--env", text]
    return [*flags, *(["--no-tag"] if args.no_tag else [])]


def _setup(path: str | None) -> str:
    if path is None:
        return ""
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"--setup {path}: the file cannot be read ({reason}).") from error


def _whole(text: str, flag: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"{flag} {text}: give a whole number from 1 up.")
    return int(text)


def _show(data: bytes) -> None:
    from farandole.launch.output import write_out

    write_out("stdout", data)


def _say(line: str) -> None:
    print(f"farandole: {line}", file=sys.stderr, flush=True)
