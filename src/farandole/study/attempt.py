"""One launch of a study: from a cell to a record, whatever happens in between."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from farandole.launch.launcher import Outcome as LaunchOutcome
from farandole.launch.launcher import launch as start
from farandole.launch.message import failure_lines
from farandole.launch.plan import Plan, resolve_command
from farandole.launch.slurm_jobs import REFUSED
from farandole.launch.supervisor import Verdict
from farandole.recorder.recorder import PARAMS, RECORD_DIR, STOP
from farandole.study.command import fill, mask
from farandole.study.folder import OUTPUT_FILE, WORK, now, rank_file
from farandole.study.hosts import Function, Hosts
from farandole.study.options import patterns_of
from farandole.study.patterns import OutputReader
from farandole.study.plan import Planned
from farandole.study.progress import Listener
from farandole.study.read import read_ranks
from farandole.study.records import Launch, Mistake, Outcome, Rank
from farandole.study.spec import Spec
from farandole.study.tensorboard import read_metrics
from farandole.study.values import typed
from farandole.study.warm import WarmStarts
from farandole.study.watch import (
    SHARE,
    MemoryGuard,
    Tail,
    Watch,
    describes_lack_of_memory,
    end_leftovers,
    free_bytes,
    kernel_kills,
)
from farandole.world.machine import CpuReading, disturbance, read_cpu

# `ValueError: ...`, with or without a rank before it; not `raise ValueError(...)`.
_ERROR_LINE = re.compile(r"(?:^|[\s:])(?:\w+\.)*\w*(?:Error|Exception): ")
_LINE_LENGTH = 200
_LAST_LINES = 12
# A launcher's own traceback may come behind that of its worker.
_SEARCHED_LINES = 80
_PREPARE_LIMIT_S = 600.0
# An accuracy run is a whole training.
_ACCURACY_TIMES = 10
# Where libraries write unless a script says so: into the launch's own folder, or runs would mix.
_FOLDERS = {"TENSORBOARD_LOGDIR": "tensorboard", "WANDB_DIR": "", "MLFLOW_TRACKING_URI": "mlruns"}
_ONLY_FOR_WORKERS = ("FARANDOLE_STOP", "FARANDOLE_TIMELINE")


class Interrupted(KeyboardInterrupt):
    """The user, or the system, ended a study; its folder can be gone on with."""

    def __init__(self, signum: int) -> None:
        super().__init__()
        self.signum = signum


class TimeIsOver(Exception):  # noqa: N818 - no error: --time-limit has done what it is for
    """The study's time was over within a launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all launches of a study have in common."""

    spec: Spec
    environ: Mapping[str, str]
    listener: Listener
    warm: WarmStarts
    """What some launches are forked from."""
    function: Function | None = None
    """What the workers call, where a study is of a function."""
    hosts: Hosts | None = None
    """Where the workers run; None: on this host, as children of this process."""
    said: set[str] = field(default_factory=set)
    """What `say_once` has said."""

    def say_once(self, *lines: str) -> None:
        """Tell the user what is true of many launches, at the first of them."""
        for line in lines:
            if line not in self.said:
                self.said.add(line)
                self.listener.say(line)


def attempt(setting: Setting, one: Planned, place: Path, *, left_s: float | None) -> Launch:
    """Make a launch in its folder and return its record, ranks included; nothing is written.

    An end by the user raises Interrupted, the end of the study's time TimeIsOver.
    """
    spec = setting.spec
    values = values_of(one, cell_dir=place / WORK)
    argv = resolve_command(fill(spec.command, values), path=setting.environ.get("PATH"))
    environ = launch_environ(setting.environ, spec, one, folder=place, cell_dir=place / WORK)
    if spec.cwd == "cell":
        # In its launch's folder the command finds its files and modules all the same.
        here = Path.cwd()
        argv = tuple(str(here / x) if x and (here / x).is_file() else x for x in argv)
        paths = [str(here), environ.get("PYTHONPATH", "")]
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    launch = Launch(
        id=place.name,
        cell=one.cell,
        repeat=one.repeat,
        seed=one.seed,
        purpose=one.purpose,
        outcome="failed",
        argv=mask(argv),
        started=now(),
    )
    trouble = _prepare(spec, environ, fill(spec.prepare, values), place)
    if trouble is not None:
        return replace(launch, reason=trouble, last_output=_last_lines(place))
    return _run(setting, launch, argv, environ, place, left_s)


def _run(
    setting: Setting,
    launch: Launch,
    argv: tuple[str, ...],
    environ: Mapping[str, str],
    place: Path,
    left_s: float | None,
) -> Launch:
    spec, cell, function = setting.spec, launch.cell, setting.function
    own = spec.launcher is not None
    watch = Watch(
        timeout_s=spec.timeout_s * (_ACCURACY_TIMES if launch.purpose == "accuracy" else 1),
        left_s=left_s,
        guard=MemoryGuard(
            spec.memory_bytes or int(SHARE * free_bytes() / cell.workers),
            caps_requests=not spec.room.gpus,
            shared_by=cell.workers if own else 1,
        ),
        tail=Tail(rank_file(place, 0), workers=cell.workers),
        show=setting.listener.now,
        waits=spec.jobs,
    )
    plan = Plan(
        argv=argv,
        num_workers=1 if own else cell.workers,
        threads=cell.threads or 1,
        override_threads=True,
        transport=cell.transport,
        tag=not own,
        cwd=place / WORK if spec.cwd == "cell" else None,
        own_launcher=own,
        horovod_alias=spec.horovod_alias,
        # A launch that stops half-way is no result: the study ends instead, and can be resumed.
        clean_stop=False,
    )
    reader = OutputReader(patterns_of(spec))
    warm = setting.warm
    kills, before, unix_s = kernel_kills(), _read_cpu(warm), time.time()
    with (
        (place / OUTPUT_FILE).open("a", buffering=1, errors="replace") as output,
        function.descriptors(cell.workers) if function else contextlib.nullcontext() as fds,
    ):

        def show(stream: str, line: str) -> None:
            with contextlib.suppress(OSError):  # a full disk is told of by the records
                output.write(line)
            reader.feed(line.rstrip("\n"), rank=None, time_s=time.monotonic() - before.wall_s)

        # A function is handed down to children; a launcher of the command's places its workers.
        hosts = None if own or function is not None else setting.hosts
        if hosts is None:
            ended = start(
                plan,
                environ=environ,
                show=show,
                worker_fds=fds,
                watch=watch,
                warm=warm.server(launch),
            )
        else:
            ended = hosts.launch(plan, cell.hosts, environ=environ, show=show, watch=watch)
    after = _read_cpu(warm)
    if own:
        end_leftovers(place)
    if ended.verdict.kind == "interrupted" and watch.outcome is None:
        raise Interrupted(ended.verdict.exit_code - 128)
    if watch.outcome == "interrupted":
        raise TimeIsOver
    ranks = read_ranks(place)
    outcome, reason = _judge(ended, watch, ranks, killed=kernel_kills() > kills)
    if own and outcome == "failed":
        reason = launcher_failure(ended.verdict.code, _last_lines(place, most=_SEARCHED_LINES))
    if outcome == "ok":  # one that was ended early may not have come to print what is looked for
        setting.say_once(*reader.notes())
    # Workers that are not our children cannot be told from others here.
    here = setting.hosts is None and not spec.jobs
    taken = disturbance(before, after, num_cores=os.cpu_count() or 1) if here else None
    throughput = reader.throughput()
    good = outcome in ("ok", "stopped")
    return replace(
        launch,
        outcome=outcome,
        reason=reason,
        last_output=() if good else ended.last_lines or _last_lines(place),
        # Of another host's clock it says nothing.
        begin_s=before.wall_s if here else None,
        wall_s=after.wall_s - ((watch.begin_s if spec.jobs else None) or before.wall_s),
        foreign_share=taken.foreign_share if taken else None,
        steal_share=taken.steal_share if taken else None,
        busy=taken is not None and taken.voids,
        warm=ended.warm,
        figures={} if throughput is None else {"throughput": throughput},
        metrics=(*reader.metrics(), *read_metrics(place / WORK, begin_unix_s=unix_s)),
        mistakes=_mistakes(place, cell.workers, outcome) if good else (),
        ranks=ranks,
    )


def _mistakes(place: Path, workers: int, outcome: Outcome) -> tuple[Mistake, ...]:
    """Apply the doctor's cheap checks to what the workers recorded."""
    if workers < 2:
        return ()
    from farandole.doctor.check import checks, diagnose
    from farandole.doctor.facts import read_job

    job = read_job(place, workers=workers, ended="ok" if outcome == "ok" else "stopped")
    found = diagnose(job, [one for one in checks().values() if one.cheap])
    return tuple(Mistake(id=one.id, text=one.text) for one in found.errors)


def _read_cpu(warm: WarmStarts) -> CpuReading:
    """Read the clocks; what was forked from a warm process is our own, too."""
    read = read_cpu()
    return replace(read, own_s=read.own_s + warm.cpu_s())


def _judge(
    ended: LaunchOutcome, watch: Watch, ranks: Sequence[Rank], *, killed: bool
) -> tuple[Outcome, str]:
    """Say how a launch ended, and why if not well."""
    if watch.outcome is not None:
        return watch.outcome, watch.reason
    verdict = ended.verdict
    if verdict.kind == "done":
        return ("stopped" if any(rank.stopped for rank in ranks) else "ok"), ""
    reason = worker_failure(verdict, ended.last_lines, step=ended.step)
    text = "\n".join([verdict.failure.text if verdict.failure else "", *ended.last_lines])
    if describes_lack_of_memory(text) or (killed and verdict.code == -9):
        return "out_of_memory", reason
    return "failed", reason


def worker_failure(verdict: Verdict, last_lines: Sequence[str], *, step: int = 0) -> str:
    """Say which worker failed first and how: by its exception, or by the last line it wrote."""
    lines = failure_lines(verdict, step=step)
    reason = lines[0].removeprefix("farandole: ").rstrip(":") if lines else "it failed"
    reason = reason.removesuffix(" All workers were ended.").removesuffix(".")
    last = next((line.strip() for line in reversed(last_lines) if line.strip()), "")
    return f"{reason}: {last[:_LINE_LENGTH]}" if last and verdict.failure is None else reason


def launcher_failure(code: int | None, last_lines: Sequence[str]) -> str:
    """Say how a command with a launcher of its own failed, by the first error in its last lines.

    The launcher's own, that a child of it has failed, comes behind what the child said. A job that
    SLURM did not take has no more than SLURM's reason.
    """
    for line in last_lines:
        if REFUSED in line:
            return line[line.index(REFUSED) :].strip().removesuffix(".")
    errors = [f": {line.strip()}" for line in last_lines if _ERROR_LINE.search(line)]
    ended = f"the command ended with exit code {code}" if code is not None else "it failed"
    return ended + (errors[0] if errors else "")


def _prepare(
    spec: Spec, environ: Mapping[str, str], argv: Sequence[str], place: Path
) -> str | None:
    """Run the user's command before a launch; return what went wrong."""
    if not argv:
        return None
    with (place / OUTPUT_FILE).open("ab") as output:
        try:
            code = subprocess.run(
                argv,
                env=dict(environ),
                cwd=place / WORK if spec.cwd == "cell" else None,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=_PREPARE_LIMIT_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            return f"--prepare {argv[0]} did not end within {_PREPARE_LIMIT_S:g} s"
        except OSError as error:
            return f"--prepare {argv[0]} cannot be started ({error.strerror})"
    return f"--prepare {argv[0]} ended with exit code {code}" if code else None


def _last_lines(place: Path, *, most: int = _LAST_LINES) -> tuple[str, ...]:
    with contextlib.suppress(OSError):
        return tuple((place / OUTPUT_FILE).read_text(errors="replace").splitlines()[-most:])
    return ()


def values_of(one: Planned, *, cell_dir: Path) -> dict[str, int | float | str]:
    """Return the values of a launch, by the names of placeholders and of `farandole.param`."""
    cell = one.cell
    found: dict[str, int | float | str | None] = {
        "workers": cell.workers,
        "hosts": cell.hosts,
        "seed": one.seed,
        "cell_dir": str(cell_dir),
        "threads": cell.threads,
        "batch": cell.batch,
        "global_batch": cell.global_batch,
        "transport": None if cell.transport == "auto" else cell.transport,
    }
    known = {name: value for name, value in found.items() if value is not None}
    return known | {name: typed(value) for name, value in cell.params}


def launch_environ(
    base: Mapping[str, str], spec: Spec, one: Planned, *, folder: Path, cell_dir: Path
) -> dict[str, str]:
    """Return the environment to build the workers' from."""
    environ = {name: str(cell_dir / below) for name, below in _FOLDERS.items()}
    environ |= {name: value for name, value in base.items() if name not in _ONLY_FOR_WORKERS}
    environ |= dict(spec.environ)
    environ |= {
        RECORD_DIR: str(folder),
        PARAMS: json.dumps(values_of(one, cell_dir=cell_dir)),
        "FARANDOLE_SEED": str(one.seed),
        "FARANDOLE_CELL_DIR": str(cell_dir),
    }
    stop = spec.stop(one.purpose)
    return environ | ({} if stop is None else {STOP: json.dumps(stop)})
