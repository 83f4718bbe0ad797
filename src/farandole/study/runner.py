"""The runner: makes a study's launches one after the other, each on disk before the next."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from farandole.errors import UsageError
from farandole.format import plural
from farandole.launch.horovod_alias import wants_horovod
from farandole.launch.plan import count_gpus, resolve_command
from farandole.study import folder, plan
from farandole.study.attempt import Setting, TimeIsOver, attempt
from farandole.study.command import script_of, script_reader, shell_script
from farandole.study.folder import check_new, is_study, mark_complete, write_json
from farandole.study.hosts import Function, Hosts, find_hosts, read_room, saved_function
from farandole.study.options import check_resume, make_spec, resumed
from farandole.study.plan import Planned, estimate, make_cells, make_plan, pending, preview
from farandole.study.progress import Listener, cell_words, duration, launches_line
from farandole.study.read import read_apart, read_head, read_launch, read_rank
from farandole.study.records import Cell, Launch, Study
from farandole.study.refuse import Files, StudyRefusedError, batch_seen, mismatch, refuse
from farandole.study.spec import (
    DEFAULT_BATCH,
    Room,
    Spec,
    check_resumable,
    merge,
    per_host,
    spec_from_json,
)
from farandole.study.warm import WarmStarts
from farandole.study.watch import end_leftovers

_TRIALS = "trials"
_TRIALS_FILE = "trials.json"
_TRIAL_STEPS = 3
_TRIAL_LIMIT_S = 120.0
# What a calibration takes for each number of workers, about.
_CALIBRATION_S = 8.0


def run_study(
    command: Sequence[str] | None, options: Mapping[str, Any], out: Path, **given: Any
) -> bool:
    """Prepare and run a study; return whether it is complete."""
    run = prepare(command, options, out, **given)
    run.check()
    for line in [*run.notes, *run.plan_lines()]:
        run.setting.listener.say(line)
    return run.go()


def prepare(
    command: Sequence[str] | None,
    options: Mapping[str, Any],
    out: Path,
    *,
    listener: Listener,
    label: str = "",
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
    function: Function | None = None,
    hosts: Hosts | None = None,
    room: Room | None = None,
    job_flags: Sequence[str] | None = None,
) -> StudyRun:
    """Decide a study: a new one, more values for the folder's, or the rest of the folder's.

    Args:
        command: What to study, with placeholders; None: resume the study in `out`.
        options: By the names of `study.options`, as `{"workers": [1, 2], "measure": "both"}`.
        out: The study's folder; with the command of an earlier study it is extended.
        listener: Who is told of decisions and of progress.
        label: The study's name.
        folder: Where the command runs; the working directory when None.
        environ: Variables of the workers; this process's when None.
        function: What the workers call, where the command calls a function.
        hosts: Where the workers run; None: on this host, or on the nodes of the job around it.
        room: What decides a plan, where it is neither this machine's nor the hosts'.
        job_flags: Of `farandole run --launcher slurm`, where each launch is a job.

    Raises:
        UsageError: Something cannot be used as given; nothing has been written.
    """
    environ = os.environ if environ is None else environ
    # A function is handed down to children, which workers on other hosts are not.
    if hosts is None and function is None and job_flags is None:
        hosts = find_hosts(command or (), environ)
    if command is None:
        spec, notes = _rest_of(out, options, hosts)
    else:
        if room is None:
            room = read_room(os.environ) if hosts is None else hosts.room
        place = folder or Path.cwd()
        with inside(place):
            spec, notes = make_spec(
                command,
                options,
                room=room,
                folder=str(place),
                reads=(lambda name: True) if function else script_reader(command),
                script=shell_script(command),
                job_flags=job_flags,
            )
            notes += _alias_note(spec)
        if is_study(out):
            spec = merge(spec_from_json(read_head(out).spec), spec)
        else:
            check_new(out)
    setting = Setting(
        spec=spec,
        environ=environ,
        listener=listener,
        warm=WarmStarts(spec, here=hosts is None),
        function=function or saved_function(out),
        hosts=hosts,
    )
    return StudyRun(path=out, setting=setting, label=label, notes=notes)


def _rest_of(out: Path, options: Mapping[str, Any], hosts: Hosts | None) -> tuple[Spec, list[str]]:
    """Return the Spec of an earlier study, with what a resumed one may change."""
    check_resume(options, str(out))
    head = read_head(out)
    spec = spec_from_json(head.spec)
    check_resumable(spec)
    have = 1 if hosts is None else hosts.room.hosts
    if not spec.jobs and have < spec.room.hosts:
        raise UsageError(
            f"The study was started on {plural(spec.room.hosts, 'host')}, but has {have} here. "
            f"Resume it in an allocation of {plural(spec.room.hosts, 'node')}, or name hosts with "
            "-H."
        )
    try:
        with inside(Path(spec.folder)):
            notes = _alias_note(spec)
    except OSError as error:
        raise UsageError(
            f"The study's command runs in {spec.folder}, which cannot be entered "
            f"({error.strerror}). Restore that folder, or start a new study with --out."
        ) from error
    # Where all launches have been made, what is left to ask for is those that others disturbed.
    spec = replace(spec, retry_busy=spec.retry_busy or head.complete)
    return resumed(spec, options), notes


def _alias_note(spec: Spec) -> list[str]:
    horovod = spec.launcher is None and spec.horovod_alias and wants_horovod(spec.command)
    return ["`import horovod` resolves to Farandole"] if horovod else []


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in a folder, and come back."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@dataclass(slots=True, kw_only=True)
class StudyRun:
    """A study under way in its folder, which this process holds."""

    path: Path
    setting: Setting
    label: str = ""
    notes: Sequence[str] = ()
    """What was decided where the options left it open."""
    _begin_s: float = field(default_factory=time.monotonic)

    @property
    def _spec(self) -> Spec:
        return self.setting.spec

    def check(self) -> None:
        """Refuse what cannot be begun, before anything is written or said of it."""
        self._preview()
        if "{" not in self._spec.command[0]:
            with inside(Path(self._spec.folder or ".")):
                resolve_command(self._spec.command, path=self.setting.environ.get("PATH"))
                script = script_of(self._spec.command)
                if script and self._spec.cwd == "here" and not Path(script).is_file():
                    raise UsageError(f"{script}: there is no such script in {Path.cwd()}.")

    def _preview(self) -> tuple[tuple[Cell, ...], list[Planned]]:
        """Return cells and launches as far as they are known; refuse a study without any."""
        spec, cells = self._spec, preview(self._spec)
        planned = make_plan(spec, cells)
        if not planned and any(plan.is_void_for_speed(spec, cell) for cell in cells):
            raise UsageError(
                f"-np {','.join(map(str, spec.workers))}: this machine has room for "
                f"{plural(spec.room.workers, 'worker')}; more say nothing about speed. Use "
                "fewer, or --measure accuracy."
            )
        if not planned:
            raise UsageError("There is nothing to launch: give at least one number of workers.")
        return cells, planned

    def plan_lines(self, *, dry: bool = False) -> list[str]:
        """Say what will be done: all of it in a dry run, in two lines before a real one."""
        spec, (cells, planned) = self._spec, self._preview()
        done = finished(self.path)
        lines = plan.left_out(spec, cells)
        if spec.find_max:
            lines.append(
                "The search for the largest batch comes first; these figures do not include it."
            )
        open_ones = pending(spec, planned, done, earlier=len(done))
        whole, rest = estimate(spec, planned, done), estimate(spec, open_ones, done)
        if not dry:
            return [*lines, launches_line(whole, rest)]
        launched = [cell for cell in cells if any(one.cell == cell for one in planned)]
        lines += [f"{plural(len(launched), 'cell')}:", *(f"  {cell_words(c)}" for c in launched)]
        lines.append(launches_line(whole, rest, guess=True))
        if spec.time_limit_s is not None and rest.launches:
            room = plan.fitting(spec, open_ones, done, left_s=spec.time_limit_s)
            lines.append(
                f"--time-limit {duration(spec.time_limit_s)} has room for about {room} of "
                f"{plural(rest.launches, 'launch')}."
            )
        return lines

    def go(self) -> bool:
        """Make all launches that are missing; return whether none is missing any more.

        A study that would measure something else is refused; an interrupted one can be resumed.
        """
        self.check()
        with inside(Path(self._spec.folder or ".")), folder.locked(self.path):
            study = self._open()
            if self._spec.launcher is not None:
                end_leftovers(self.path / folder.LAUNCHES)
            folder.remove_interrupted(self.path)
            try:
                largest_batch = self._find_max()
            except TimeIsOver:
                self.setting.listener.say("The time limit passed before the first launch.")
                return False
            cells = make_cells(self._spec, max_batch=largest_batch)
            files = Files(self.path, Path(self._spec.folder))
            with self.setting.warm:
                complete = self._launches(make_plan(self._spec, cells), files)
            with contextlib.suppress(TimeIsOver):
                self._calibrate()
            mark_complete(study, complete)
            return complete

    def _open(self) -> Study:
        """Begin a study, or go on with the one that is there."""
        spec = self._spec.to_json()
        if is_study(self.path):
            head = read_head(self.path)
            study = replace(
                head,
                # Jobs may be submitted in another way than before.
                command=tuple(spec["command"]),
                spec={**head.spec, **spec},
                label=self.label or head.label,
                complete=False,
            )
            folder.write_head(study)
        else:
            study = folder.create_study(
                self.path,
                label=self.label,
                command=spec["command"],
                spec=spec,
                machine={**machine(Path(self._spec.folder)), **_elsewhere(self._spec)},
            )
        if self.setting.function is not None:  # it may have been fixed since
            self.setting.function.save(self.path)
        return study

    def _launches(self, planned: Sequence[Planned], files: Files) -> bool:
        listener, spec = self.setting.listener, self._spec
        done = finished(self.path)
        number, earlier = 0, len(done)
        while open_ones := pending(spec, planned, done, earlier=earlier):
            left_s = self._left_s()
            if left_s is not None and not plan.fits(spec, open_ones, done, left_s=left_s):
                self.setting.listener.say(
                    f"The time limit is near: {plural(len(open_ones), 'planned launch')} left out. "
                    "--resume continues."
                )
                return False
            one = open_ones[0]
            number, total = number + 1, number + len(open_ones)
            seconds, _ = plan.seconds_of(spec, one, done)
            left = estimate(spec, open_ones, done)
            listener.began(one, number=number, total=total, seconds=seconds, left_s=left.seconds)
            try:
                launch = self._make(one, done, files, left_s)
            except TimeIsOver:
                self.setting.listener.say("The time limit ended a launch; --resume repeats it.")
                return False
            done.append(replace(launch, ranks=()))
            rest = estimate(spec, pending(spec, planned, done, earlier=earlier), done)
            listener.ended(launch, number=number, total=total, left_s=rest.seconds)
        return True

    def _make(
        self, one: Planned, done: Sequence[Launch], files: Files, left_s: float | None
    ) -> Launch:
        """Make one launch, put it on disk and return it."""
        spec = self._spec
        place = folder.new_launch_folder(self.path, one.cell, one.repeat)
        began_unix_s = time.time()
        launch = attempt(self.setting, one, place, left_s=left_s)
        if launch.warm and launch.outcome == "failed":
            self.setting.warm.give_up()
            self.setting.listener.say(
                f"Launch {place.name} failed when forked from a warm process. It and all later "
                "launches start cold (as with --cold)."
            )
            shutil.rmtree(place)
            place = folder.new_launch_folder(self.path, one.cell, one.repeat)
            launch = attempt(self.setting, one, place, left_s=left_s)
        self.setting.warm.learn(launch)
        files.check(launch, began_unix_s=began_unix_s)
        refuse(spec, launch, done, place)
        other = mismatch(spec, launch)
        if other is not None and launch.succeeded:
            launch = replace(launch, outcome="failed", reason=other)
        if not spec.sets_batch:
            launch = replace(launch, cell=replace(launch.cell, batch=batch_seen(launch)))
        self.setting.say_once(*(note for rank in launch.ranks for note in rank.notes))
        folder.write_launch(place, launch)
        with contextlib.suppress(OSError):
            (place / folder.WORK).rmdir()  # only when the script wrote nothing
        return launch

    def _calibrate(self) -> None:
        """Measure what connects the workers and what they cost each other, if some trained."""
        from farandole.study.calibrate import calibrate, measure_apart, to_measure

        spec, left_s = self._spec, self._left_s()
        # Within a host: what connects hosts is not one figure with it.
        counts = [n for n in spec.workers if 1 < n <= spec.room.per_host]
        framework = trained_with(self.path) if spec.calibrates and counts else None
        if framework is None:
            return
        if not (self.path / folder.LINK_FILE).exists():
            if left_s is not None and left_s < _CALIBRATION_S * len(counts):
                return
            self.setting.listener.say("Measuring the link between the workers, for a few seconds.")
            transport = spec.transports[0]
            if transport == "auto" and not framework.startswith("farandole"):
                transport = "gloo"  # what the script's own process group uses on a CPU
            hosts, threads = self.setting.hosts, min(spec.threads)
            link = calibrate(counts, transport, threads, folder=self.path, hosts=hosts)
            folder.write_link(self.path, link)
        known = read_apart(self.path)
        for like in to_measure(spec, finished(self.path), known):
            left_s = self._left_s()
            if left_s is not None and left_s < (like.wall_s or 0.0) + _CALIBRATION_S:
                return
            found = measure_apart(self.setting, like, self.path, left_s=left_s)
            others = [one for one in known if one.cell.workers != found.cell.workers]
            known = (*others, found)
            folder.write_apart(self.path, known)

    def _find_max(self) -> int | None:
        """Find the largest batch that fits, by short launches that are kept beside the study."""
        spec = self._spec
        if not spec.find_max:
            return None
        file = self.path / _TRIALS_FILE
        tried: dict[int, bool] = {}
        with contextlib.suppress(OSError, ValueError):
            tried = {int(batch): fits for batch, fits in json.loads(file.read_text()).items()}
        start = max(spec.batches, default=DEFAULT_BATCH)
        room = [one for one in spec.placed if per_host(*one) <= spec.room.per_host]
        workers, hosts = max(room, default=(1, 1))
        like = make_cells(replace(spec, batches=(1,), find_max=False))[0]
        like = replace(like, workers=workers, hosts=hosts, threads=min(spec.threads), today=False)
        while (batch := plan.next_trial(start, tried)) is not None:
            one = Planned(cell=replace(like, batch=batch), purpose="speed", repeat=0)
            tried[batch] = self._trial(one, batch, first=batch == start)
            write_json(file, {str(size): fits for size, fits in tried.items()})
        found, noun = plan.largest(tried), plural(workers, "worker")
        if found is None:
            raise StudyRefusedError(
                f"No batch down to 1 fits into the memory of a worker, with {noun}. "
                "Raise --memory, or use fewer workers."
            )
        self.setting.listener.say(f"The largest batch that fits is {found}, with {noun}.")
        return found

    def _trial(self, one: Planned, batch: int, *, first: bool) -> bool:
        """Say whether a batch fits."""
        place = self.path / _TRIALS / f"b{batch}"
        shutil.rmtree(place, ignore_errors=True)
        (place / folder.WORK).mkdir(parents=True)
        spec = replace(self._spec, steps=_TRIAL_STEPS, epochs=None, launch_timeout_s=_TRIAL_LIMIT_S)
        launch = attempt(replace(self.setting, spec=spec), one, place, left_s=self._left_s())
        seen = batch_seen(launch)
        fits = launch.succeeded and seen in (None, batch)
        why = launch.reason or ("it fits" if fits else f"the script trained with {seen}")
        self.setting.listener.say(f"batch {batch}: {why}")
        if launch.outcome == "failed" and first:
            last = "\n".join(f"  {line}" for line in launch.last_output)
            raise StudyRefusedError(
                f"A trial with batch {batch} failed, but not for lack of memory: {launch.reason}."
                f"\n{last}"
            )
        return fits

    def _left_s(self) -> float | None:
        if self._spec.time_limit_s is None:
            return None
        return self._spec.time_limit_s - (time.monotonic() - self._begin_s)


def finished(path: Path) -> list[Launch]:
    """Return the launches in a folder that were recorded to their end, without ranks."""
    return [read_launch(place, ranks=False) for place in folder.finished_folders(path)]


def trained_with(path: Path) -> str | None:
    """Return what was hooked in a launch in which several workers trained; None without one."""
    for place in folder.finished_folders(path):
        files = folder.rank_files(place)
        rank = read_rank(files[0]) if len(files) > 1 else None
        if rank is not None and len(rank.steps):
            return rank.framework
    return None


# Where the figures come from.

_PACKAGES = ("torch", "keras", "tensorflow", "jax", "numpy", "scipy", "mpi4py", "horovod")
# A repository on a slow network drive shall not hold a study up.
_GIT_LIMIT_S = 5.0


def machine(folder: Path) -> dict[str, Any]:
    """Return this machine, its versions and the state of the code, as study.json has them."""
    from farandole.world.machine import describe_machine

    described = asdict(describe_machine(_PACKAGES))
    return {**described, "gpus": gpu_names(os.environ), "git": git_state(folder)}


def _elsewhere(spec: Spec) -> dict[str, Any]:
    """Return what is true of the hosts that the workers are on, where this is not one of them."""
    room = spec.room
    if room.hosts == 1 and not spec.jobs:
        return {}
    cores = {"cores": room.cores, "physical_cores": room.physical}
    return {**cores, "quota": None, "hosts": room.hosts}


def gpu_names(environ: Mapping[str, str], root: Path = Path("/")) -> list[str]:
    """Return the names of the GPUs that workers could have, without importing torch."""
    names = []
    for place in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        found = re.search(r"^Model:\s*(.*\S)", place.read_text(errors="replace"), re.MULTILINE)
        names.append(found[1] if found else "GPU")
    visible = environ.get("CUDA_VISIBLE_DEVICES", "")
    chosen = [int(part) for part in visible.split(",") if part.strip().isdigit()]
    if chosen and all(index < len(names) for index in chosen):
        return [names[index] for index in chosen]
    return names[: count_gpus(environ, root)]


def git_state(folder: Path) -> dict[str, Any] | None:
    """Return commit and whether tracked files differ from it; None outside of a repository."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    # A new file does not change what was committed; a script that is not tracked is rare enough.
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit.strip(), "dirty": None if changes is None else bool(changes.strip())}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            # A reader takes no lock in somebody's repository.
            ["git", "--no-optional-locks", "-C", str(folder), *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=_GIT_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
