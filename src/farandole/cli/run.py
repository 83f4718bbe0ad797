"""`farandole run`: start a script on several workers of this host or of several, or as a SLURM job.

One table has the flags; the parser, the list of variables, the plan and the command inside of a
job follow from it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import shlex
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole.cli.flags import add_flag, add_job_flags, add_stall_flags, tell_workers
from farandole.errors import UsageError
from farandole.format import plural

if TYPE_CHECKING:
    from farandole.launch.output import Stream
    from farandole.launch.placement import Placement, Shape
    from farandole.launch.plan import Plan
    from farandole.launch.slurm.script import JobScript
    from farandole.launch.supervision import Outcome

_EPILOG = """\
examples:
  farandole run -np 2 python train.py --lr 0.1
  farandole run -np auto train.py
  farandole run -np 4 --threads 1 --output-dir logs -- python -m package.train
  farandole run -H n1:2,n2:2 python train.py
  farandole run --launcher slurm -N 2 --ntasks-per-node 4 --sbatch time=1:00:00 -- python train.py

Scripts for torchrun and for Horovod run as they are. Flags of farandole come before the command.
"""

_LAUNCHERS = ("local", "ssh", "slurm", "ray")


# Flags by their parameter of `make_plan`: what they take, and what they are for.
_PLAN_FLAGS = {
    "np": ("N", "how many workers, or auto: one per GPU, or per physical core"),
    "threads": ("N", "threads per worker (default: OMP_NUM_THREADS, or the cores shared out)"),
    "transport": (
        "NAME",
        "auto, shm, gloo or nccl (default auto: shared memory where it can be had)",
    ),
    "output_dir": ("DIR", "keep DIR/rank.<rank>/stdout and stderr too"),
    "show_ranks": (
        "RANKS",
        "show output of these ranks only: 0, or 0,2, or 0-3 (default all); files keep all",
    ),
    "start_timeout": (
        "S",
        "seconds to wait for all ranks to call init (default 60, more if they share cores)",
    ),
    "silence_timeout": (
        "S",
        "seconds after which a worker that is stopped and silent has failed (default 30)",
    ),
    "exit_timeout": (
        "S",
        "seconds that exit handlers (atexit) may take, silently, once no worker runs its script "
        "any more (default 300)",
    ),
    "horovod_alias": (
        "on|off",
        "off: `import horovod` finds an installed Horovod (default on: it resolves to Farandole)",
    ),
    "record": (
        "DIR",
        "keep what each worker records (steps, communication, use) as DIR/rank-<rank>.jsonl",
    ),
    "timeline": (
        "FILE",
        "write a timeline of all workers to FILE when the run ends, for ui.perfetto.dev",
    ),
}
_HOST_FLAGS = {
    "hosts": ("HOSTS", "run on these hosts: n1:2,n2:2 (workers on each)"),
    "hostfile": ("FILE", "the same from a file: lines such as `n1 slots=2` or `n1:2`"),
    "rsh": (
        "COMMAND",
        'another remote shell, with flags: "ssh -p 2222" (it gets a host and a command)',
    ),
    "launcher": (
        "NAME",
        f"how hosts are reached: {', '.join(_LAUNCHERS)} (default: what fits the hosts; in a SLURM "
        "job steps of it)",
    ),
}
# Other spellings than --name and FARANDOLE_NAME.
_NAMES = {"np": ("-np", "-n", "-w", "--workers"), "hosts": ("-H", "--hosts")}
_ALIASES = {
    "np": ("--nproc-per-node", "--num-proc", "--np"),
    "output_dir": ("--output-filename",),
    "show_ranks": ("--local-ranks-filter",),
}
_VARIABLES = {"record": "FARANDOLE_RECORD_DIR", "timeline": "FARANDOLE_TIMELINE_FILE"}
# What needs somebody who hears of all workers: no task of an srun step does.
_HEAD_ONLY = ("output_dir", "show_ranks", "record", "timeline")


def add_parser(subparsers: Any) -> None:
    """Add `run` to the command line's parsers."""
    flags = {**_PLAN_FLAGS, **_HOST_FLAGS}
    with_variables = [*flags, "stall_warning", "stall_shutdown"]
    variables = [_VARIABLES.get(name, f"FARANDOLE_{name.upper()}") for name in with_variables]
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "run",
        help="start a training script on several workers",
        description="Start a command on several workers, here or on several hosts, and end them "
        "together.",
        usage="farandole run -np N [options] [--] COMMAND ...",
        epilog=_EPILOG
        + textwrap.fill(f"Each flag has a variable: {', '.join(variables)}.", 100)
        + "\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # `--th` for `--threads` would break the day another flag begins so.
        allow_abbrev=False,
    )
    for name, (metavar, text) in flags.items():
        options = {"dest": name, "metavar": metavar, "help": text}
        add_flag(parser, *_names(name), aliases=_ALIASES.get(name, ()), **options)
    add_stall_flags(parser)
    add_flag(
        parser, "--no-tag", action="store_true", help="do not put [rank]<stdout>: before lines"
    )
    add_flag(
        parser,
        "--env",
        metavar="NAME[=V]",
        action="append",
        default=[],
        help="pass this variable to workers on other hosts too; may be given several times",
    )
    jobs = parser.add_argument_group("jobs of SLURM (--launcher slurm, docs/how-to/slurm.md)")
    add_flag(jobs, "-N", "--nodes", metavar="N", help="how many nodes the job has")
    add_flag(jobs, "--ntasks-per-node", metavar="N", help="how many workers each node has")
    add_job_flags(jobs)
    add_flag(
        jobs, "--script-only", action="store_true", help="print the job script; submit nothing"
    )
    parser.add_argument(
        "-m",
        dest="module",
        nargs=argparse.REMAINDER,
        metavar="MODULE",
        help="run a module of the current Python with the rest as its arguments",
    )
    parser.add_argument("command_line", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(func=main)


def _names(name: str) -> tuple[str, ...]:
    return _NAMES.get(name, (f"--{name.replace('_', '-')}",))


def main(args: argparse.Namespace) -> int:
    """Launch what the flags say; return 0, the failing rank's code, or 130 on Ctrl-C."""
    if sys.platform == "win32":
        raise UsageError("workers cannot be started on Windows itself. Use WSL2, and run it there.")
    from farandole.launch.message import failure_lines
    from farandole.launch.placement import named_hosts, pack, parse_shape, spread
    from farandole.launch.slurm.allocation import nodes_to_reach

    tell_workers(args)
    command = _command(args)
    chosen: str | None = args.launcher or os.environ.get("FARANDOLE_LAUNCHER")
    if _wants_job(args, chosen):
        return _submit(args, command)
    job = None
    if chosen in (None, "slurm") and not args.hosts and not args.hostfile:
        _join_step(args, command)
        job = nodes_to_reach(os.environ, forced=chosen == "slurm")
    slots = named_hosts(args.hosts, args.hostfile, os.environ) if job is None else job.room
    shape = parse_shape(args.np or "") if job is None else _job_shape(args)
    if shape is not None and slots is None:
        raise UsageError(f"-np {args.np}: name the hosts too, such as -H n1:2,n2:2.")
    num_slots = None if slots is None else sum(host.count for host in slots)
    plan = _plan(
        args,
        command,
        np=args.np if shape is None else shape.size,
        num_slots=num_slots if job is None else job.num_slots,
    )
    placement = None
    if slots is not None:
        place = job.place if job is not None else functools.partial(pack, slots)
        placement = place(plan.num_workers) if shape is None else spread(slots, shape)
    launcher = "slurm" if job is not None else _launcher(chosen, placement)
    if plan.transport == "mpi":
        python = ["python"] if command[0] == "-m" or command[0].endswith(".py") else []
        raise UsageError(
            "--transport mpi needs workers that mpirun starts; `farandole run` starts its own. Use "
            f"FARANDOLE_TRANSPORT=mpi mpirun -np {plan.num_workers} "
            f"{shlex.join([*python, *command])}"
        )
    with _recording(plan) as plan:
        outcome, rank_hosts = _launch(plan, launcher, placement, args)
    lines = failure_lines(
        outcome.verdict,
        step=outcome.step,
        last_lines=outcome.last_lines,
        silence_timeout_s=plan.silence_timeout_s,
        rank_hosts=rank_hosts,
    )
    if outcome.asked_to_stop and outcome.verdict.kind == "done":
        lines = ["farandole: stopped cleanly on SIGUSR1, a scheduler's warning."]
    if lines:
        print("\n".join(lines), file=sys.stderr, flush=True)
    return outcome.verdict.exit_code


def _command(args: argparse.Namespace) -> list[str]:
    if args.module is not None:
        return ["-m", *args.module]
    command: list[str] = args.command_line
    return command[1:] if command[:1] == ["--"] else command


def _plan(args: argparse.Namespace, command: Sequence[str], **decided: Any) -> Plan:
    """Decide a launch from the flags, and what else is known."""
    from farandole.launch.plan import count_gpus, make_plan
    from farandole.world.cores import read_cores

    given: dict[str, Any] = {name: getattr(args, name) for name in _PLAN_FLAGS}
    given |= {"environ": os.environ, **decided}
    return make_plan(
        command=command,
        tag=not args.no_tag,
        cores=read_cores(),
        num_gpus=count_gpus(os.environ),
        **given,
    )


def _launcher(chosen: str | None, placement: Placement | None) -> str:
    """Choose how workers are started: what was asked for, or what fits the hosts."""
    from farandole.launch.starters.ssh import is_here

    away = [h for h in placement.host_names if not is_here(h)] if placement is not None else []
    if chosen is None:
        return "ssh" if away else "local"
    if chosen not in _LAUNCHERS:
        raise UsageError(f"--launcher {chosen}: choose from {', '.join(_LAUNCHERS)}.")
    if chosen == "local" and away:
        raise UsageError(
            f"--launcher local starts workers on this host only, but {', '.join(away)} is another. "
            "Leave --launcher out, or use --launcher ssh."
        )
    if chosen == "ssh" and placement is None:
        raise UsageError("--launcher ssh needs hosts: give -H n1:2,n2:2 or --hostfile FILE.")
    if chosen == "ray" and placement is not None:
        raise UsageError("--launcher ray lets Ray choose the hosts: leave -H and --hostfile out.")
    return chosen


def _launch(
    plan: Plan, launcher: str, placement: Placement | None, args: argparse.Namespace
) -> tuple[Outcome, tuple[str, ...]]:
    """Start the workers and wait for their end; return it with the host of each rank."""
    from farandole.launch.message import notes, start_line

    def say(*lines: str) -> None:
        print("\n".join(lines), file=sys.stderr, flush=True)

    if launcher == "local":
        from farandole.launch.launcher import launch
        from farandole.launch.variables import named_variables

        # Workers on this host have all variables anyway; --env may still set one.
        environ = {**os.environ, **named_variables(os.environ, args.env)}
        outcome = launch(
            plan,
            environ=environ,
            show=show,
            started=lambda: say(start_line(plan), *notes(os.environ)),
            own_process=True,
        )
        return outcome, ()
    shared: dict[str, Any] = {"environ": os.environ, "show": show, "extra_variables": args.env}
    if launcher == "ray":
        from farandole.launch.starters.ray import launch_on_ray

        landed = launch_on_ray(plan, started=lambda *final: say(start_line(*final)), **shared)
        return landed.outcome, landed.placement.rank_hosts
    from farandole.launch.hosts import launch_hosts
    from farandole.launch.starters.srun import SrunStarter
    from farandole.launch.starters.ssh import SshStarter

    assert placement is not None
    rsh = args.rsh or os.environ.get("FARANDOLE_RSH")
    outcome = launch_hosts(
        plan,
        placement,
        SrunStarter(environ=os.environ)
        if launcher == "slurm"
        else SshStarter(rsh, environ=os.environ),
        started=lambda plan: say(start_line(plan, placement)),
        **shared,
    )
    return outcome, placement.rank_hosts


@contextlib.contextmanager
def _recording(plan: Plan) -> Iterator[Plan]:
    """Prepare the folder of the record; write the timeline at the end, however that comes."""
    if plan.record_dir is not None:
        try:
            plan.record_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"--record {plan.record_dir}: it cannot be created ({error.strerror})."
            ) from error
    if plan.timeline is None:
        yield plan
        return
    import dataclasses
    import tempfile

    from farandole.recorder import timeline

    with tempfile.TemporaryDirectory(prefix="farandole-record-") as folder:
        record_dir = plan.record_dir or Path(folder)
        try:
            yield dataclasses.replace(plan, record_dir=record_dir)
        finally:
            ranks = timeline.write(record_dir, plan.timeline)
            text = (
                f"timeline of {plural(ranks, 'worker')} in {plan.timeline}: open it at "
                "ui.perfetto.dev"
            )
            if not ranks:
                text = f"no worker recorded anything: the timeline in {plan.timeline} is empty"
            _say(text)


def show(stream: Stream, line: str) -> None:
    """Write one line to our own output by one call, so that nothing comes between."""
    from farandole.launch.output import write_out

    write_out(stream, line.encode(errors="replace"))


def _say(line: str) -> None:
    print(f"farandole: {line}", file=sys.stderr, flush=True)


# Jobs of SLURM: submitted from here, or around us.


def _wants_job(args: argparse.Namespace, launcher: str | None) -> bool:
    """Tell whether the flags ask for a job to be submitted; refuse them without the launcher."""
    from farandole.launch.slurm.allocation import read_allocation

    outside = read_allocation(os.environ) is None
    submitting = (
        ("--sbatch", args.sbatch),
        ("--setup", args.setup),
        ("--script-only", args.script_only),
    )
    sizes = ("-N", args.nodes), ("--ntasks-per-node", args.ntasks_per_node)
    if launcher == "slurm":
        return outside or any(given for _, given in submitting)
    for flag, given in (*submitting, *(sizes if outside else ())):
        if given:
            raise UsageError(f"{flag} is for jobs of SLURM. Add --launcher slurm, or leave it out.")
    return False


def _submit(args: argparse.Namespace, command: Sequence[str]) -> int:
    """Write a job and submit it, follow it to its end, and return its exit code."""
    from farandole.launch.output import write_out
    from farandole.launch.slurm.client import Slurm
    from farandole.launch.slurm.follow import follow
    from farandole.launch.slurm.script import render

    job = _job(args, command)
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
        show_out = functools.partial(write_out, "stdout")
        return follow(cluster, job_id, output=output, show=show_out, say=_say).exit_code
    except KeyboardInterrupt:
        # Before somebody listened for signals, or where they are not ours to catch.
        cluster.cancel(job_id)
        raise


def _job(args: argparse.Namespace, command: Sequence[str]) -> JobScript:
    """Decide a job from the flags: in it, `farandole run` gets those that go on to its workers."""
    from farandole.launch.slurm.script import JobScript, job_name, parse_options

    if not command:
        raise UsageError(
            "No command was given. Say what to run: farandole run --launcher slurm -N 2 "
            "--ntasks-per-node 4 -- python train.py"
        )
    if args.hosts or args.hostfile:
        raise UsageError(
            "-H and --hostfile name hosts for ssh, but SLURM chooses the nodes of a job. Leave "
            "them out, or ask for nodes by --sbatch nodelist=n1,n2."
        )
    workers, nodes, per_node = _job_size(args)
    passed = ["-np", str(workers)]
    for name in _PLAN_FLAGS:
        if name != "np" and getattr(args, name) is not None:
            passed += [*_names(name), str(getattr(args, name))]
    passed += [word for text in args.env for word in ("--env", text)]
    passed += ["--no-tag"] if args.no_tag else []
    threads = None if args.threads is None else _whole(args.threads, "--threads")
    options = parse_options(args.sbatch)
    setup = ""
    if args.setup is not None:
        try:
            setup = Path(args.setup).read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise UsageError(
                f"--setup {args.setup}: the file cannot be read ({reason})."
            ) from error
    return JobScript(
        command=(sys.executable, "-m", "farandole.cli.main", "run", *passed, "--", *command),
        cwd=str(Path.cwd()),
        num_workers=workers,
        num_nodes=nodes,
        per_node=per_node,
        cpus_per_task=threads,
        name=job_name(command),
        options=options,
        setup=setup,
    )


def _job_shape(args: argparse.Namespace) -> Shape | None:
    """Return nodes and workers on each where the flags say both; else None."""
    from farandole.launch.placement import Shape, parse_shape

    if args.nodes is None and args.ntasks_per_node is None and not parse_shape(args.np or ""):
        return None
    workers, nodes, per_node = _job_size(args)
    if nodes is None or per_node is None:
        raise UsageError(
            f"{plural(workers, 'worker')} cannot be shared evenly by -N {nodes}. Give -np alone, "
            "and they are packed."
        )
    return Shape(hosts=nodes, workers=per_node)


def _job_size(args: argparse.Namespace) -> tuple[int, int | None, int | None]:
    """Return workers, nodes and workers per node of a job."""
    from farandole.launch.placement import parse_shape

    nodes = None if args.nodes is None else _whole(args.nodes, "-N")
    per_node = args.ntasks_per_node and _whole(args.ntasks_per_node, "--ntasks-per-node")
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
            f"{plural(nodes, 'node')} with {per_node} tasks each have {nodes * per_node} "
            f"(-N {nodes} --ntasks-per-node {per_node}). Leave -np out, or correct one of them."
        )
    if nodes is not None and per_node is None and workers % nodes == 0:
        per_node = workers // nodes
    return workers, nodes, per_node


def _whole(text: str, flag: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"{flag} {text}: give a whole number from 1 up.")
    return int(text)


def _join_step(args: argparse.Namespace, command: Sequence[str]) -> None:
    """Become the worker that srun has started this process as, if it has (`srun farandole run`).

    Raises:
        UsageError: -np or another flag contradicts the step.
    """
    from farandole.launch.plan import threads_from
    from farandole.launch.slurm.allocation import check_step, task_environ
    from farandole.world.slurm import network_name

    tasks = check_step(os.environ, args.np)
    if tasks is None:
        return
    for name in _HEAD_ONLY:
        if getattr(args, name) is not None:
            raise UsageError(
                f"{_names(name)[0]} is for whoever starts all workers, but srun has started "
                f"{plural(tasks, 'task')} already (SLURM_NTASKS={tasks}). Leave out srun, or the "
                "flag."
            )
    # Its threads are its own CPUs, where SLURM gives it some and nobody says otherwise.
    threads = args.threads
    if threads is None and threads_from(os.environ) is None:
        threads = os.environ.get("SLURM_CPUS_PER_TASK")
    # Each task is a worker and looks at it by itself; what others wrote is no earlier record.
    environ = {name: os.environ[name] for name in os.environ if name != "FARANDOLE_RECORD_DIR"}
    plan = _plan(args, command, np=tasks, threads=threads, environ=environ)
    os.execvpe(plan.argv[0], plan.argv, task_environ(os.environ, plan, network_name=network_name))
