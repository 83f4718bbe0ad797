"""`farandole run`: start a script on several workers of this host or of several."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole.cli import slurm
from farandole.cli.flags import add_flag, add_stall_flags, tell_workers
from farandole.errors import UsageError
from farandole.format import plural

if TYPE_CHECKING:
    from farandole.launch.output import Stream
    from farandole.launch.placement import Placement
    from farandole.launch.plan import Plan
    from farandole.launch.starters import Starter
    from farandole.launch.supervision import Outcome

_EPILOG = """\
examples:
  farandole run -np 2 python train.py --lr 0.1
  farandole run -np auto train.py
  farandole run -np 4 --threads 1 --output-dir logs -- python -m package.train
  farandole run -H n1:2,n2:2 python train.py
  farandole run --launcher slurm -N 2 --ntasks-per-node 4 --sbatch time=1:00:00 -- python train.py

Scripts for torchrun and for Horovod run as they are. Flags of farandole come before the command.
Each flag has a variable: FARANDOLE_NP, FARANDOLE_THREADS, FARANDOLE_TRANSPORT,
FARANDOLE_OUTPUT_DIR, FARANDOLE_SHOW_RANKS, FARANDOLE_START_TIMEOUT,
FARANDOLE_SILENCE_TIMEOUT, FARANDOLE_EXIT_TIMEOUT, FARANDOLE_HOROVOD_ALIAS,
FARANDOLE_RECORD_DIR, FARANDOLE_TIMELINE_FILE, FARANDOLE_HOSTS, FARANDOLE_HOSTFILE, FARANDOLE_RSH,
FARANDOLE_LAUNCHER, FARANDOLE_STALL_WARNING, FARANDOLE_STALL_SHUTDOWN.
"""

_LAUNCHERS = ("local", "ssh", "slurm", "ray")


def add_parser(subparsers: Any) -> None:
    """Add `run` to the command line's parsers."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "run",
        help="start a training script on several workers",
        description="Start a command on several workers, here or on several hosts, and end them "
        "together.",
        usage="farandole run -np N [options] [--] COMMAND ...",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # `--th` for `--threads` would break the day another flag begins so.
        allow_abbrev=False,
    )
    add_flag(
        parser,
        "-np",
        "-n",
        "-w",
        "--workers",
        aliases=("--nproc-per-node", "--num-proc", "--np"),
        dest="np",
        metavar="N",
        help="how many workers, or auto: one per GPU, or per physical core",
    )
    add_flag(
        parser,
        "--threads",
        metavar="N",
        help="threads per worker (default: OMP_NUM_THREADS, or the cores shared out)",
    )
    add_flag(
        parser,
        "--transport",
        metavar="NAME",
        help="auto, shm, gloo or nccl (default auto: shared memory where it can be had)",
    )
    add_flag(
        parser,
        "--output-dir",
        aliases=("--output-filename",),
        metavar="DIR",
        help="keep DIR/rank.<rank>/stdout and stderr too",
    )
    add_flag(
        parser,
        "--show-ranks",
        aliases=("--local-ranks-filter",),
        metavar="RANKS",
        help="show output of these ranks only: 0, or 0,2, or 0-3 (default all); files keep all",
    )
    add_flag(
        parser,
        "--start-timeout",
        metavar="S",
        help="seconds to wait for all ranks to call init (default 60, more if they share cores)",
    )
    add_flag(
        parser,
        "--silence-timeout",
        metavar="S",
        help="seconds after which a worker that is stopped and silent has failed (default 30)",
    )
    add_flag(
        parser,
        "--exit-timeout",
        metavar="S",
        help="seconds that exit handlers (atexit) may take, silently, once no worker runs its "
        "script any more (default 300)",
    )
    add_stall_flags(parser)
    add_flag(
        parser, "--no-tag", action="store_true", help="do not put [rank]<stdout>: before lines"
    )
    add_flag(
        parser,
        "--horovod-alias",
        metavar="on|off",
        help="off: `import horovod` finds an installed Horovod (default on: Farandole answers it)",
    )
    add_flag(
        parser,
        "--record",
        metavar="DIR",
        help="keep what each worker records (steps, communication, use) as DIR/rank-<rank>.jsonl",
    )
    add_flag(
        parser,
        "--timeline",
        metavar="FILE",
        help="write a timeline of all workers to FILE when the run ends, for ui.perfetto.dev",
    )
    add_flag(
        parser,
        "-H",
        "--hosts",
        metavar="HOSTS",
        help="run on these hosts: n1:2,n2:2 (workers on each)",
    )
    add_flag(
        parser,
        "--hostfile",
        metavar="FILE",
        help="the same from a file: lines such as `n1 slots=2` or `n1:2`",
    )
    add_flag(
        parser,
        "--launcher",
        metavar="NAME",
        help=f"how hosts are reached: {', '.join(_LAUNCHERS)} (default: what fits the hosts; in a "
        "SLURM job steps of it)",
    )
    add_flag(
        parser,
        "--rsh",
        metavar="COMMAND",
        help='another remote shell, with flags: "ssh -p 2222" (it gets a host and a command)',
    )
    add_flag(
        parser,
        "--env",
        metavar="NAME[=V]",
        action="append",
        default=[],
        help="pass this variable to workers on other hosts too; may be given several times",
    )
    slurm.add_run_flags(parser)
    parser.add_argument(
        "-m",
        dest="module",
        nargs=argparse.REMAINDER,
        metavar="MODULE",
        help="run a module of the current Python with the rest as its arguments",
    )
    parser.add_argument("command_line", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(func=main)


def main(args: argparse.Namespace) -> int:
    """Launch what the flags say; return 0, the failing rank's code, or 130 on Ctrl-C."""
    if sys.platform == "win32":
        raise UsageError("workers cannot be started on Windows itself. Use WSL2, and run it there.")
    from farandole.launch.message import failure_lines
    from farandole.launch.placement import named_hosts, pack, parse_shape, spread
    from farandole.launch.plan import count_gpus, make_plan
    from farandole.world.cores import read_cores

    tell_workers(args)
    if slurm.wants_job(args):
        return slurm.submit(args, _command(args))
    tasks = slurm.tasks_around(args, os.environ)
    slots = named_hosts(args.hosts, args.hostfile, os.environ)
    job = None if tasks is not None else slurm.allocation_for_run(args, os.environ)
    if job is not None:
        slots = job.room
    shape = parse_shape(args.np or "") if job is None else slurm.shape_asked(args)
    if shape is not None and slots is None:
        raise UsageError(f"-np {args.np}: name the hosts too, such as -H n1:2,n2:2.")
    environ = dict(os.environ)
    if tasks is not None:
        # Each task is a worker and looks at it by itself; what others wrote is no earlier record.
        environ.pop("FARANDOLE_RECORD_DIR", None)
    num_slots = None if slots is None else sum(host.count for host in slots)
    if job is not None:
        num_slots = job.num_slots
    plan = make_plan(
        command=_command(args),
        np=tasks or (args.np if shape is None else shape.size),
        threads=args.threads if tasks is None else slurm.task_threads(args, os.environ),
        transport=args.transport,
        output_dir=args.output_dir,
        start_timeout=args.start_timeout,
        silence_timeout=args.silence_timeout,
        exit_timeout=args.exit_timeout,
        tag=not args.no_tag,
        show_ranks=args.show_ranks,
        record=args.record,
        timeline=args.timeline,
        num_slots=num_slots,
        horovod_alias=args.horovod_alias,
        environ=environ,
        cores=read_cores(),
        num_gpus=count_gpus(os.environ),
    )
    if tasks is not None:
        slurm.join_step(plan, os.environ)
    placement = None
    if slots is not None:
        place = job.place if job is not None else functools.partial(pack, slots)
        placement = place(plan.num_workers) if shape is None else spread(slots, shape)
    launcher = "slurm" if job is not None else _launcher(args, placement)
    if plan.transport == "mpi":
        raise UsageError(_by_mpirun(plan, _command(args)))
    rank_hosts: tuple[str, ...] = ()
    with _recording(plan) as plan:
        if launcher == "local":
            outcome = _launch_here(plan, args)
        elif launcher == "ray":
            outcome, rank_hosts = _launch_on_ray(plan, args)
        else:
            assert placement is not None
            starter = slurm.starter(os.environ) if launcher == "slurm" else _ssh(args)
            outcome = _launch_there(plan, placement, starter, args)
            rank_hosts = placement.rank_hosts
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


def _launcher(args: argparse.Namespace, placement: Placement | None) -> str:
    """Choose how workers are started: what was asked for, or what fits the hosts."""
    from farandole.launch.starters.ssh import is_here

    away = [h for h in placement.host_names if not is_here(h)] if placement is not None else []
    chosen: str | None = args.launcher or os.environ.get("FARANDOLE_LAUNCHER")
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


def _by_mpirun(plan: Plan, command: list[str]) -> str:
    import shlex

    if command[0] == "-m" or command[0].endswith(".py"):
        command = ["python", *command]
    return (
        "--transport mpi needs workers that mpirun starts; `farandole run` starts its own. Use "
        f"FARANDOLE_TRANSPORT=mpi mpirun -np {plan.num_workers} {shlex.join(command)}"
    )


def _launch_here(plan: Plan, args: argparse.Namespace) -> Outcome:
    from farandole.launch.launcher import launch
    from farandole.launch.message import notes, start_line
    from farandole.launch.variables import named_variables

    def say() -> None:
        print("\n".join([start_line(plan), *notes(os.environ)]), file=sys.stderr, flush=True)

    # Workers on this host have all variables anyway; --env may still set one.
    environ = {**os.environ, **named_variables(os.environ, args.env)}
    return launch(plan, environ=environ, show=show, started=say, own_process=True)


def _ssh(args: argparse.Namespace) -> Starter:
    from farandole.launch.starters.ssh import SshStarter

    return SshStarter(args.rsh or os.environ.get("FARANDOLE_RSH"), environ=os.environ)


def _launch_there(
    plan: Plan, placement: Placement, starter: Starter, args: argparse.Namespace
) -> Outcome:
    from farandole.launch.hosts import launch_hosts
    from farandole.launch.message import start_line

    return launch_hosts(
        plan,
        placement,
        starter,
        environ=os.environ,
        show=show,
        extra_variables=args.env,
        started=lambda plan: print(start_line(plan, placement), file=sys.stderr, flush=True),
    )


def _launch_on_ray(plan: Plan, args: argparse.Namespace) -> tuple[Outcome, tuple[str, ...]]:
    from farandole.launch.message import start_line
    from farandole.launch.starters.ray import launch_on_ray

    landed = launch_on_ray(
        plan,
        environ=os.environ,
        show=show,
        extra_variables=args.env,
        started=lambda *final: print(start_line(*final), file=sys.stderr, flush=True),
    )
    return landed.outcome, landed.placement.rank_hosts


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
        plan = dataclasses.replace(plan, record_dir=plan.record_dir or Path(folder))
        try:
            yield plan
        finally:
            assert plan.record_dir is not None
            assert plan.timeline is not None
            ranks = timeline.write(plan.record_dir, plan.timeline)
            text = (
                f"timeline of {plural(ranks, 'worker')} in {plan.timeline}: open it at "
                "ui.perfetto.dev"
            )
            if not ranks:
                text = f"no worker recorded anything: the timeline in {plan.timeline} is empty"
            print(f"farandole: {text}", file=sys.stderr, flush=True)


def show(stream: Stream, line: str) -> None:
    """Write one line to our own output by one call, so that nothing comes between."""
    from farandole.launch.output import write_out

    write_out(stream, line.encode(errors="replace"))


def _command(args: argparse.Namespace) -> list[str]:
    if args.module is not None:
        return ["-m", *args.module]
    command: list[str] = args.command_line
    return command[1:] if command[:1] == ["--"] else command
