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
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole.cli.command import JOB_FLAGS, Command, Flag, check_platform, flag, say, user_command
from farandole.errors import UsageError
from farandole.format import plural
from farandole.study.values import count

if TYPE_CHECKING:
    from farandole.launch.elastic_options import ElasticOptions
    from farandole.launch.launcher import Outcome
    from farandole.launch.output import Stream
    from farandole.launch.placement import Placement, Shape, Slots
    from farandole.launch.plan import Plan
    from farandole.launch.slurm_jobs import JobScript

_LAUNCHERS = ("local", "ssh", "slurm", "ray")
# What `make_plan` takes; a job's own `farandole run` gets these flags, too.
_PLAN_FLAGS = (
    flag(
        *("-np -n -w --workers --nproc-per-node --num-proc --np", "N"),
        "number of workers, or auto: one per GPU or physical core",
        dest="np",
    ),
    flag("--threads", "N", "threads per worker (default: an equal share of cores)"),
    flag("--transport", "NAME", "auto, shm, gloo or nccl (default auto)"),
    flag(
        *("--output-dir --output-filename", "DIR"),
        "write DIR/rank.<rank>/stdout and stderr too",
        dest="output_dir",
    ),
    flag(
        *("--show-ranks --local-ranks-filter", "RANKS"),
        "show output of these ranks only: 0, or 0,2, or 0-3 (default all)",
        dest="show_ranks",
    ),
    flag(
        *("--start-timeout", "S"),
        "seconds to wait for all ranks to call init (default 60, more if they share cores)",
    ),
    flag(
        *("--silence-timeout", "S"),
        "seconds after which a stopped, silent worker counts as failed (default 30)",
    ),
    flag(
        *("--exit-timeout", "S"),
        "seconds for exit handlers (atexit) once every script has ended (default 300)",
    ),
    flag("--horovod-alias", "on|off", "off: `import horovod` finds an installed Horovod"),
    flag("--record", "DIR", "write what each worker does to DIR/rank-<rank>.jsonl"),
    flag("--timeline", "FILE", "write a timeline of all workers, for ui.perfetto.dev"),
)
_HOST_FLAGS = (
    flag("-H --hosts", "HOSTS", "hosts, with the number of workers on each: n1:2,n2:2"),
    flag("--hostfile", "FILE", "the same from a file: lines such as `n1 slots=2` or `n1:2`"),
    flag("--rsh", "COMMAND", 'another remote shell, with flags: "ssh -p 2222"'),
    flag(
        *("--launcher", "NAME"),
        f"how to reach hosts: {', '.join(_LAUNCHERS)} (default: what fits the hosts)",
    ),
)
_STALL_FLAGS = (
    flag(
        *("--stall-warning", "S"),
        "seconds after which an operation that some ranks have not submitted is reported "
        "(default 60; 0: never)",
    ),
    flag(
        *("--stall-shutdown", "S"),
        "seconds after which such an operation ends the job (default: never)",
    ),
)
_UPDATE_FLAGS = (
    flag(
        "--sharded",
        "",
        "each worker updates a part of the weights, which a host has once (PyTorch)",
    ),
)
_ELASTIC_FLAGS = (
    flag(
        *("--max-restarts", "N"),
        "start again after a failure, at most N times (default 0)",
    ),
    flag(
        *("--min-np --min-num-proc", "N"),
        "elastic: go on after a failure with at least N workers",
        dest="min_np",
    ),
    flag(
        *("--max-np --max-num-proc", "N"),
        "elastic: take in new workers up to N, or auto: as many as the hosts have room for "
        "(default: -np)",
        dest="max_np",
    ),
    flag(
        *("--host-discovery-script", "FILE"),
        "elastic: prints the hosts there are now, `host` or `host:slots` in a line",
    ),
    flag(
        *("--slots-per-host", "N"),
        "workers on a host for which the script prints no number (default 1)",
    ),
    flag(
        *("--elastic-timeout", "S"),
        "seconds to wait for enough workers, at the start and after a failure (default 600)",
    ),
    flag(
        *("--reset-limit", "N"),
        "how often the set of workers may change before the job fails (default: no limit)",
    ),
    flag(
        *("--blacklist", "slot|host"),
        "what a failure excludes. slot: replace the worker in its place, and exclude its host "
        "when that fails at once, too (default). host: exclude the host",
    ),
    flag(
        *("--blacklist-cooldown-range", "MIN MAX"),
        "seconds for which a host is excluded, the first time and at most (default: for good)",
        nargs=2,
    ),
)
# Other variables than FARANDOLE_NAME.
_VARIABLES = {"record": "FARANDOLE_RECORD_DIR", "timeline": "FARANDOLE_TIMELINE_FILE"}
# What needs somebody who hears of all workers: no task of an srun step does.
_HEAD_ONLY = ("output_dir", "show_ranks", "record", "timeline")


def _dest(one: Flag) -> str:
    """Return the name of a flag's parameter."""
    longest = next(name for name in one.names if name.startswith("--"))
    return str(one.options.get("dest", longest[2:].replace("-", "_")))


_WITH_VARIABLES = [
    _dest(one)
    for one in (*_PLAN_FLAGS, *_UPDATE_FLAGS, *_HOST_FLAGS, *_ELASTIC_FLAGS, *_STALL_FLAGS)
]
_NAMED = ", ".join(_VARIABLES.get(name, f"FARANDOLE_{name.upper()}") for name in _WITH_VARIABLES)

COMMAND = Command(
    name="run",
    text="Start a command on several workers, here or on several hosts.",
    usage="-np N [options] [--] COMMAND ...",
    flags={
        "workers": (*_PLAN_FLAGS, *_UPDATE_FLAGS),
        "several hosts": _HOST_FLAGS,
        "surviving failures (docs/how-to/elastic.md)": _ELASTIC_FLAGS,
        "output and supervision": (
            *_STALL_FLAGS,
            flag("--doctor", "", "look for silent mistakes; tell of each once (see doctor)"),
            flag("--no-tag", "", "do not put [rank]<stdout>: before lines"),
            flag(
                *("--inject", "FAULT", "let a worker fail on purpose: 'kill rank=1 step=120'"),
                repeated=True,
            ),
            flag(
                *("--env", "NAME[=V]", "pass this variable to workers on other hosts too"),
                repeated=True,
            ),
            flag(
                *("-m", "MODULE", "run a module of this Python; the rest are its arguments"),
                dest="module",
                nargs=argparse.REMAINDER,
            ),
        ),
        "SLURM jobs (--launcher slurm, docs/how-to/slurm.md)": (
            flag("-N --nodes", "N", "number of nodes of the job"),
            flag("--ntasks-per-node", "N", "workers per node"),
            *JOB_FLAGS,
            flag("--script-only", "", "print the job script, and do not submit it"),
        ),
    },
    usual="-np --threads -H --launcher --max-restarts --min-np --output-dir --timeline -m",
    examples="""
farandole run -np 2 python train.py --lr 0.1
farandole run -H n1:2,n2:2 python train.py
farandole run --launcher slurm -N 2 --ntasks-per-node 4 -- python train.py
""",
    notes="Scripts for torchrun and Horovod run unchanged. Flags come before the command.",
    more=textwrap.fill(f"Each flag has a variable: {_NAMED}.", 80, break_on_hyphens=False),
    takes_command=True,
)


def main(args: argparse.Namespace) -> int:
    """Launch what the flags say; return 0, the failing rank's code, or 130 on Ctrl-C."""
    check_platform()
    from farandole.launch.message import failure_lines
    from farandole.launch.placement import named_hosts, pack, parse_shape, spread
    from farandole.launch.slurm_allocation import nodes_to_reach

    _tell_workers(args)
    command = user_command(args) if args.module is None else ["-m", *args.module]
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
    plan = replace(plan, elastic=_elastic(args, plan, slots))
    _plant_faults(args.inject, plan.num_workers)
    placement = None
    if slots is not None:
        place = job.place if job is not None else functools.partial(pack, slots)
        placement = place(plan.num_workers) if shape is None else spread(slots, shape)
    launcher = "slurm" if job is not None else _launcher(chosen, placement, plan.elastic)
    _check_elastic(plan.elastic, launcher)
    if plan.transport == "mpi":
        python = ["python"] if command[0] == "-m" or command[0].endswith(".py") else []
        raise UsageError(
            "--transport mpi needs workers that mpirun starts; `farandole run` starts its own. Use "
            f"FARANDOLE_TRANSPORT=mpi mpirun -np {plan.num_workers} "
            f"{shlex.join([*python, *command])}"
        )
    with _recording(plan, watched=args.doctor) as plan, _watching(plan, watched=args.doctor):
        outcome, rank_hosts = _launch(plan, launcher, placement, args)
    lines = failure_lines(
        outcome.verdict,
        step=outcome.step,
        last_lines=outcome.last_lines,
        silence_timeout_s=plan.silence_timeout_s,
        rank_hosts=rank_hosts,
        failures=outcome.failures,
    )
    if outcome.asked_to_stop and outcome.verdict.kind == "done":
        lines = ["farandole: stopped cleanly on SIGUSR1, a scheduler's warning."]
    say(*lines)
    return outcome.verdict.exit_code


def _tell_workers(args: argparse.Namespace) -> None:
    """Put some flags into the variables that workers read, on other hosts too."""
    if args.sharded:
        if any(getattr(args, _dest(one)) is not None for one in _ELASTIC_FLAGS):
            raise UsageError(
                "--sharded: weights that workers share are lost with one of them, so that an "
                "elastic run cannot go on. Leave --sharded out, or the flags of elastic runs."
            )
        os.environ["FARANDOLE_SHARDED"] = "1"
    from farandole.world.environment import SHUTDOWN, WARNING, read_stall_times

    given = {WARNING: args.stall_warning, SHUTDOWN: args.stall_shutdown}
    given = {name: value for name, value in given.items() if value is not None}
    read_stall_times(os.environ, given)
    os.environ.update(given)


def _plant_faults(given: Sequence[str], size: int) -> None:
    """Put the faults of --inject into the variable that workers read."""
    if not given:
        return
    import random

    from farandole.testing.faults import faults_text, parse_fault

    chance = random.Random()
    faults = [parse_fault(text, size=size, chance=chance) for text in given]
    for fault in faults:
        _say(f"--inject: {fault.mode} on rank {fault.rank} at step {fault.step}.")
    os.environ["FARANDOLE_INJECT"] = faults_text(faults)


def _elastic(
    args: argparse.Namespace, plan: Plan, hosts: Sequence[Slots] | None
) -> ElasticOptions | None:
    """Decide from the flags how the run goes on after a failure."""
    from farandole.launch.elastic_options import FLAGS, read_options

    return read_options(
        {name: getattr(args, name) for name in FLAGS},
        num_workers=plan.num_workers,
        hosts=hosts,
        environ=os.environ,
    )


def _check_elastic(elastic: ElasticOptions | None, launcher: str) -> None:
    """Refuse flags that a launcher cannot do as they say."""
    if elastic is None or launcher != "ray":
        return
    said = f"--max-restarts {elastic.max_restarts}"
    if elastic.in_place:
        said = "--min-np, --max-np and --host-discovery-script"
    raise UsageError(
        f"--launcher ray reserves room for all workers together, once: leave out {said}, and let "
        "Ray start the job again."
    )


def _plan(args: argparse.Namespace, command: Sequence[str], **decided: Any) -> Plan:
    """Decide a launch from the flags, and what else is known."""
    from farandole.launch.plan import count_gpus, make_plan
    from farandole.world.cores import read_cores

    given: dict[str, Any] = {name: getattr(args, name) for name in map(_dest, _PLAN_FLAGS)}
    given |= {"environ": os.environ, **decided}
    return make_plan(
        command=command,
        tag=not args.no_tag,
        cores=read_cores(),
        num_gpus=count_gpus(os.environ),
        **given,
    )


def _launcher(
    chosen: str | None, placement: Placement | None, elastic: ElasticOptions | None
) -> str:
    """Choose how workers are started: what was asked for, or what fits the hosts."""
    from farandole.launch.starters import is_here

    names = placement.host_names if placement is not None else ()
    discovers = elastic is not None and elastic.discovery_command is not None
    if elastic is not None and elastic.in_place and chosen in (None, "local"):
        from farandole.launch.elastic import known_hosts

        names = known_hosts(elastic)
    away = [host for host in names if not is_here(host)]
    if chosen is None:
        return "ssh" if away else "local"
    if chosen not in _LAUNCHERS:
        raise UsageError(f"--launcher {chosen}: choose from {', '.join(_LAUNCHERS)}.")
    if chosen == "local" and away:
        raise UsageError(
            f"--launcher local starts workers on this host only, but {', '.join(away)} is another. "
            "Leave --launcher out, or use --launcher ssh."
        )
    if chosen == "ssh" and placement is None and not discovers:
        raise UsageError("--launcher ssh needs hosts: give -H n1:2,n2:2 or --hostfile FILE.")
    if chosen == "ray" and placement is not None:
        raise UsageError("--launcher ray lets Ray choose the hosts: leave -H and --hostfile out.")
    return chosen


def _launch(
    plan: Plan, launcher: str, placement: Placement | None, args: argparse.Namespace
) -> tuple[Outcome, tuple[str, ...]]:
    """Start the workers and wait for their end; return it with the host of each rank."""
    from farandole.launch.message import notes, start_line

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
        from farandole.launch.ray_agents import launch_on_ray

        landed = launch_on_ray(plan, started=lambda *final: say(start_line(*final)), **shared)
        return landed.outcome, landed.placement.rank_hosts
    from farandole.launch.hosts import launch_hosts
    from farandole.launch.starters import SrunStarter, SshStarter

    rsh = args.rsh or os.environ.get("FARANDOLE_RSH")
    if plan.elastic is not None and plan.elastic.in_place:
        from farandole.launch.elastic_hosts import launch_elastic_hosts

        outcome = launch_elastic_hosts(
            plan,
            SrunStarter(environ=os.environ)
            if launcher == "slurm"
            else SshStarter(rsh, environ=os.environ),
            started=lambda plan: say(start_line(plan)),
            **shared,
        )
        return outcome, ()
    assert placement is not None
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
def _watching(plan: Plan, *, watched: bool) -> Iterator[None]:
    """Let the doctor look at the run, if that is asked for."""
    if not watched:
        yield
        return
    from farandole.doctor.text import finding_lines
    from farandole.doctor.watch import Watcher
    from farandole.recorder.detail import RECORD

    assert plan.record_dir is not None
    os.environ[RECORD] = "watch"
    with Watcher(
        plan.record_dir,
        workers=plan.num_workers,
        tell=lambda finding: say("farandole: the doctor found:", *finding_lines(finding)),
    ):
        yield


@contextlib.contextmanager
def _recording(plan: Plan, *, watched: bool) -> Iterator[Plan]:
    """Prepare the folder of the record; write the timeline at the end, however that comes."""
    if plan.record_dir is not None:
        try:
            plan.record_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"--record {plan.record_dir}: it cannot be created ({error.strerror})."
            ) from error
    if plan.timeline is None and (plan.record_dir is not None or not watched):
        yield plan
        return
    import dataclasses
    import tempfile

    with tempfile.TemporaryDirectory(prefix="farandole-record-") as folder:
        record_dir = plan.record_dir or Path(folder)
        try:
            yield dataclasses.replace(plan, record_dir=record_dir)
        finally:
            if plan.timeline is not None:
                _write_timeline(record_dir, plan.timeline)


def _write_timeline(record_dir: Path, file: Path) -> None:
    from farandole.recorder import timeline

    ranks = timeline.write(record_dir, file)
    text = f"timeline of {plural(ranks, 'worker')} in {file}: open it at ui.perfetto.dev"
    if not ranks:
        text = f"no worker recorded anything: the timeline in {file} is empty"
    _say(text)


def show(stream: Stream, line: str) -> None:
    """Write one line to our own output by one call, so that nothing comes between."""
    from farandole.launch.output import write_out

    write_out(stream, line.encode(errors="replace"))


def _say(line: str) -> None:
    say(f"farandole: {line}")


# Jobs of SLURM: submitted from here, or around us.


def _wants_job(args: argparse.Namespace, launcher: str | None) -> bool:
    """Tell whether the flags ask for a job to be submitted; refuse them without the launcher."""
    from farandole.launch.slurm_allocation import read_allocation

    outside = read_allocation(os.environ) is None
    submitting = (
        ("--sbatch", args.sbatch),
        ("--setup", args.setup),
        ("--script-only", args.script_only),
    )
    sizes = ("-N", args.nodes), ("--ntasks-per-node", args.ntasks_per_node)
    if launcher == "slurm":
        return outside or any(given for _, given in submitting)
    for name, given in (*submitting, *(sizes if outside else ())):
        if given:
            raise UsageError(f"{name} is for SLURM jobs. Add --launcher slurm, or leave it out.")
    return False


def _submit(args: argparse.Namespace, command: Sequence[str]) -> int:
    """Write a job and submit it, follow it to its end, and return its exit code."""
    from farandole.launch.output import write_out
    from farandole.launch.slurm_jobs import Slurm, follow, render

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
    from farandole.launch.slurm_jobs import JobScript, job_name, parse_options

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
    for one in _PLAN_FLAGS[1:]:
        if (value := getattr(args, _dest(one))) is not None:
            passed += [one.names[0], str(value)]
    for one in _ELASTIC_FLAGS:
        if (value := getattr(args, _dest(one))) is not None:
            passed += [one.names[0], *(value if isinstance(value, list) else [str(value)])]
    passed += [word for text in args.env for word in ("--env", text)]
    passed += ["--no-tag"] if args.no_tag else []
    threads = None if args.threads is None else count(args.threads, flag="--threads")
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

    nodes = None if args.nodes is None else count(args.nodes, flag="-N")
    per_node = args.ntasks_per_node and count(args.ntasks_per_node, flag="--ntasks-per-node")
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
    workers = count(given, flag="-np")
    if nodes is not None and per_node is not None and nodes * per_node != workers:
        raise UsageError(
            f"You asked for {plural(workers, 'worker')} (-np {workers}), but "
            f"{plural(nodes, 'node')} with {per_node} tasks each have {nodes * per_node} "
            f"(-N {nodes} --ntasks-per-node {per_node}). Leave -np out, or correct one of them."
        )
    if nodes is not None and per_node is None and workers % nodes == 0:
        per_node = workers // nodes
    return workers, nodes, per_node


def _join_step(args: argparse.Namespace, command: Sequence[str]) -> None:
    """Become the worker that srun has started this process as, if it has (`srun farandole run`).

    Raises:
        UsageError: -np or another flag contradicts the step.
    """
    from farandole.launch.elastic_options import FLAGS, asked_for
    from farandole.launch.plan import threads_from
    from farandole.launch.slurm_allocation import check_step, task_environ
    from farandole.world.slurm import network_name

    tasks = check_step(os.environ, args.np)
    if tasks is None:
        return
    for name in _HEAD_ONLY:
        if getattr(args, name) is not None:
            raise UsageError(
                f"--{name.replace('_', '-')} is for the process that starts all workers, but srun "
                f"has started {plural(tasks, 'task')} already (SLURM_NTASKS={tasks}). Leave out "
                "srun, or the flag."
            )
    if said := asked_for({name: getattr(args, name) for name in FLAGS}, os.environ):
        raise UsageError(
            f"{said} is for the process that starts all workers, but srun has started "
            f"{plural(tasks, 'task')} already (SLURM_NTASKS={tasks}), and starts no others. Leave "
            "out srun, or leave out the flag and submit the job with --requeue."
        )
    # Its threads are its own CPUs, where SLURM gives it some and nobody says otherwise.
    threads = args.threads
    if threads is None and threads_from(os.environ) is None:
        threads = os.environ.get("SLURM_CPUS_PER_TASK")
    # Each task is a worker and looks at it by itself; what others wrote is no earlier record.
    environ = {name: os.environ[name] for name in os.environ if name != "FARANDOLE_RECORD_DIR"}
    plan = _plan(args, command, np=tasks, threads=threads, environ=environ)
    os.execvpe(plan.argv[0], plan.argv, task_environ(os.environ, plan, network_name=network_name))
