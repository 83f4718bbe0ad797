"""SLURM's programs, called: sbatch, scontrol, sacct, scancel. All that talks to SLURM is here."""

from __future__ import annotations

import contextlib
import re
import select
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from farandole.errors import StartError, UsageError
from farandole.launch.local_workers import caught_signals

_LIMIT_S = 60.0
# Which cluster, not which job.
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS")


class Slurm:
    """The cluster that this host belongs to."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Remember the environment that programs run in."""
        self._environ = dict(environ)

    def submit(self, script: str) -> str:
        """Submit a job script and return the job's number.

        Raises:
            UsageError: There is no sbatch, or it refused the script; the reason is SLURM's own.
        """
        # What a job around us was given must not be taken for what this one asks for.
        environ = {
            name: text
            for name, text in self._environ.items()
            if not name.startswith("SLURM_") or name in _KEPT
        }
        done = self._call("sbatch", ["--parsable"], stdin=script, environ=environ)
        if done.returncode:
            raise UsageError(f"{REFUSED}: {refusal(done.stderr, 'sbatch')}.")
        return done.stdout.strip().split("\n")[-1].partition(";")[0]

    def look(self, job_id: str) -> Status:
        """Say how a job is.

        Raises:
            StartError: SLURM does not know the job any more, or does not answer.
        """
        done = self._call("scontrol", ["show", "job", "--oneliner", job_id])
        status = parse_scontrol(done.stdout)
        if status is not None:
            return status
        why = refusal(done.stderr, "slurm_load_jobs") if done.stderr else "no answer"
        # The controller forgets a job minutes after its end; the accounts do not.
        flags = ["--noheader", "--allocations", "--parsable2", "--format=State,ExitCode,NodeList"]
        try:
            kept = parse_sacct(self._call("sacct", [*flags, "--jobs", job_id]).stdout)
        except UsageError:
            kept = None
        if kept is None:
            raise StartError(
                f"SLURM says nothing about job {job_id} ({why}). See squeue and sacct."
            )
        return kept

    def nodes(self, partition: str | None = None) -> tuple[int, int]:
        """Return the CPUs of the smallest node of a partition, and how many nodes it has.

        Raises:
            UsageError: There is no sinfo, or no such partition.
        """
        where = [] if partition is None else [f"--partition={partition}"]
        done = self._call("sinfo", ["--noheader", "--Node", "--format=%c %N", *where])
        found = {line.split()[1]: int(line.split()[0]) for line in done.stdout.splitlines()}
        if done.returncode or not found:
            what = "SLURM has no nodes" if partition is None else f"no partition {partition}"
            why = refusal(done.stderr, "sinfo") if done.stderr else what
            raise UsageError(f"SLURM's nodes cannot be listed: {why}.")
        return min(found.values()), len(found)

    def cancel(self, job_id: str) -> None:
        """End a job; one that has ended already is no error."""
        self._call("scancel", [job_id])

    def warn(self, job_id: str) -> None:
        """Warn a job as SLURM does before the time limit; one that does not run hears nothing."""
        self._call("scancel", ["--signal=USR1", "--batch", job_id])

    def _call(
        self,
        program: str,
        arguments: Sequence[str],
        *,
        stdin: str = "",
        environ: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                [program, *arguments],
                input=stdin,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_LIMIT_S,
                env=dict(self._environ if environ is None else environ),
                # Ctrl-C is for whoever follows the job, not for a look at it.
                start_new_session=True,
                check=False,
            )
        except FileNotFoundError as error:
            raise UsageError(
                f"A job of SLURM's was asked for, but there is no {program} on PATH: this host is "
                "not part of a cluster. Go to a login node; `farandole run --launcher slurm "
                "--script-only` writes a job script anywhere."
            ) from error
        except subprocess.TimeoutExpired as error:
            raise StartError(
                f"{program} did not answer within {_LIMIT_S:g} s: SLURM's controller is down or "
                "busy. Try `sinfo`."
            ) from error


REFUSED = "SLURM refused the job"
"""How the sentence begins that says why a job was not taken."""
_WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"}
_RUNNING = {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
# Reasons that no other job's end takes away.
_NEVER = {"PartitionConfig", "PartitionNodeLimit", "PartitionTimeLimit", "BadConstraints"}
# What timeout(1) exits with.
_TIMEOUT_CODE = 124
_MEANINGS = {
    "TIMEOUT": "its time limit was over: give it more (--sbatch time=HH:MM:SS)",
    "OUT_OF_MEMORY": "it used more memory than it had asked for (--sbatch mem=... or mem-per-cpu)",
    "NODE_FAIL": "one of its nodes failed",
    "PREEMPTED": "another job took its nodes",
    "BOOT_FAIL": "its nodes did not start",
    "DEADLINE": "it could not end before its deadline",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A job at one moment."""

    state: str
    """SLURM's word: PENDING, RUNNING, COMPLETED, FAILED, ..."""
    reason: str = ""
    """Why it waits, in SLURM's word; '' when it says none."""
    nodes: str = ""
    code: int = 0
    signal: int = 0

    @property
    def waiting(self) -> bool:
        """Say whether it has not begun."""
        return self.state in _WAITING

    @property
    def ended(self) -> bool:
        """Say whether it is over."""
        return self.state not in _WAITING | _RUNNING

    @property
    def exit_code(self) -> int:
        """What a program that followed the job exits with."""
        if self.state == "COMPLETED":
            return 0
        if self.state == "TIMEOUT":
            return _TIMEOUT_CODE
        return self.code or (128 + self.signal if self.signal else 1)


def parse_scontrol(text: str) -> Status | None:
    """Read a line of `scontrol show job --oneliner`; None when it is none."""
    state = _field(text, "JobState")
    if not state:
        return None
    code, _, signum = _field(text, "ExitCode").partition(":")
    return Status(
        state=state,
        reason=_field(text, "Reason"),
        nodes=_field(text, "NodeList"),
        code=_whole(code),
        signal=_whole(signum),
    )


def parse_sacct(text: str) -> Status | None:
    """Read a line of `sacct --parsable2 --format State,ExitCode,NodeList`; None without one."""
    line = text.strip().split("\n")[0]
    parts = line.split("|")
    if len(parts) < 3 or not parts[0]:
        return None
    code, _, signum = parts[1].partition(":")
    # `CANCELLED by 1000`
    state = parts[0].split()[0]
    return Status(state=state, nodes=parts[2], code=_whole(code), signal=_whole(signum))


def waiting_words(status: Status) -> str:
    """Say what a job waits for."""
    if status.reason in _NEVER:
        return (
            f"it cannot begin as it was asked for ({status.reason}): see `sinfo` for what the "
            "partition has, and Ctrl-C to cancel it"
        )
    return f"it waits ({status.reason})" if status.reason else "it waits"


def end_words(status: Status) -> str:
    """Say how a job ended that did not end well."""
    meaning = _MEANINGS.get(status.state)
    if meaning:
        return f"{status.state}, {meaning}"
    how = f"signal {status.signal}" if status.signal else f"exit code {status.code}"
    return f"{status.state}, {how}"


def refusal(text: str, program: str) -> str:
    """Put what a program of SLURM's wrote to its error output into one sentence."""
    prefixes = re.compile(rf"^(?:{program}: )?(?:error: |fatal: )?")
    lines = [prefixes.sub("", line.strip()) for line in text.splitlines()]
    # The last line is the verdict, those before it say why.
    lines = [line.rstrip(".") for line in dict.fromkeys(lines) if line and "--help" not in line]
    if not lines:
        return f"{program} failed and did not say why"
    *why, verdict = lines
    return f"{verdict} ({'; '.join(why)})" if why else verdict


def _field(text: str, name: str) -> str:
    found = re.search(rf"(?:^|\s){name}=(\S*)", text)
    value = found[1] if found else ""
    return "" if value in ("None", "(null)", "N/A") else value


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() else 0


# The job script: what sbatch gets, written from flags; pure.

# SLURM looks at its clock every 30 s or so, and 60 s let a script end a step and save.
WARNING_S = 60
_SAFE_NAME = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobScript:
    """A job, fully decided."""

    command: tuple[str, ...]
    """What the job runs on its first node: `farandole run`, which starts the steps."""
    cwd: str
    """Where it runs; a folder that all nodes see."""
    num_workers: int
    num_nodes: int | None = None
    """None: as SLURM likes."""
    per_node: int | None = None
    cpus_per_task: int | None = None
    name: str = "farandole"
    output: str = "farandole-%j.out"
    options: Options = ()
    """Further options of sbatch."""
    setup: str = ""
    """Lines of the user's, run before the command: modules, an environment."""


def render(job: JobScript) -> str:
    """Write the script."""
    lines = ["#!/bin/bash"]
    lines += [f"#SBATCH {option}" for option in _options(job)]
    lines += ["", "# Written by `farandole run --launcher slurm`; sbatch takes it as it is.", ""]
    lines.append(f"cd {shlex.quote(job.cwd)} || exit")
    if job.setup:
        lines += ["", *job.setup.rstrip("\n").split("\n")]
    lines += [
        "",
        "# exec: SLURM's warning before the time limit (USR1) is meant for what runs here.",
        f"exec {_command(job.command)}",
    ]
    return "\n".join(lines) + "\n"


def job_name(command: Sequence[str]) -> str:
    """Name a job after its script: `train` for `python train.py --lr 0.1`."""
    scripts = [part for part in command if part.endswith(".py")]
    place = next((at + 1 for at, part in enumerate(command) if part == "-m"), None)
    if scripts:
        word = scripts[0].rpartition("/")[2].removesuffix(".py")
    elif place is not None and place < len(command):
        word = command[place]
    else:
        word = command[0].rpartition("/")[2] if command else ""
    return _SAFE_NAME.sub("-", word).strip("-.") or "farandole"


def _options(job: JobScript) -> list[str]:
    given = dict(job.options)
    own: dict[str, str | None] = {"job-name": job.name}
    if job.num_nodes is not None:
        own["nodes"] = str(job.num_nodes)
    if job.per_node is not None:
        own["ntasks-per-node"] = str(job.per_node)
    else:
        own["ntasks"] = str(job.num_workers)
    if job.cpus_per_task is not None:
        own["cpus-per-task"] = str(job.cpus_per_task)
    own["output"] = job.output
    # To the batch script alone (B:), which passes it on as a clean stop.
    own["signal"] = f"B:USR1@{WARNING_S}"
    merged = {**{name: value for name, value in own.items() if name not in given}, **given}
    return [
        f"--{name}" if value is None else f"--{name}={_quoted(value)}"
        for name, value in merged.items()
    ]


def _quoted(value: str) -> str:
    return f'"{value}"' if " " in value else value


def _command(argv: Sequence[str]) -> str:
    return " ".join(shlex.quote(part) for part in argv)


_NAME = re.compile(r"[a-z][a-z0-9-]*")
# A line of the script that begins with #SBATCH is read by SLURM, not by a shell.
_VALUE = re.compile(r"[^\s\"'\\#][^\n\r\"'\\#]*")
# Options without a value; after a comma, other words without `=` belong to the value before them.
_BARE = {
    *("contiguous", "exclusive", "hold", "ignore-pbs", "kill-on-invalid-dep", "no-kill"),
    *("no-requeue", "overcommit", "oversubscribe", "reboot", "requeue", "spread-job"),
    *("test-only", "use-min-nodes", "verbose"),
}
# What the flags of farandole say, and what the job cannot do without.
_OURS = {
    "nodes": "use -N for this",
    "ntasks": "use -np for this",
    "ntasks-per-node": "use --ntasks-per-node, without --sbatch, for this",
    "array": "leave it away, a job has one launch",
    "chdir": "leave it away, the job runs in the folder in which it is submitted",
    "error": "leave it away, errors go to the job's one output file",
    "input": "leave it away, workers read no input",
    "open-mode": "leave it away, each job has its own output file",
    "output": "leave it away, the output is followed, and kept in farandole-JOB.out",
    "parsable": "leave it away, it is set",
    "test-only": "use --script-only to see what would be submitted",
    "wait": "leave it away, the job is followed to its end",
    "wrap": "write the command behind --",
}

Options = tuple[tuple[str, str | None], ...]
"""Names with their values, in the order in which they were given; None: an option without one."""


def parse_options(texts: Iterable[str]) -> Options:
    """Read `--sbatch` flags; an option that comes twice has the value of the last.

    Raises:
        UsageError: A part cannot be read, or is for a flag of Farandole to say.
    """
    found: dict[str, str | None] = {}
    for text in texts:
        for name, value in _parts(text):
            if name in _OURS:
                raise UsageError(f"--sbatch {name}: {_OURS[name]}.")
            found.pop(name, None)
            found[name] = value
    return tuple(found.items())


def _parts(text: str) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []
    for part in _split(text):
        name, equals, value = part.partition("=")
        name = name.strip().removeprefix("--").replace("_", "-")
        if not equals and name not in _BARE and found and found[-1][1] is not None:
            # nodelist=n1,n2 and mail-type=END,FAIL
            found[-1] = (found[-1][0], f"{found[-1][1]},{part.strip()}")
            continue
        if not _NAME.fullmatch(name) or (not equals and name not in _BARE):
            raise UsageError(
                f"--sbatch {text}: {part!r} is not an option with a value. Write long names of "
                "sbatch's options, as --sbatch account=abc,partition=gpu,time=1:00:00."
            )
        found.append((name, value.strip() if equals else None))
    for name, given in found:
        if given is not None and not _VALUE.fullmatch(given):
            raise UsageError(
                f"--sbatch {name}={given}: a value must not be empty, nor have quotes, #, "
                "backslashes or line breaks."
            )
    return found


def _split(text: str) -> list[str]:
    """Split at commas outside of brackets: nodelist=n[1,3],time=5 has two parts."""
    parts, depth, part = [], 0, ""
    for letter in text:
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if letter == "," and depth <= 0:
            parts.append(part)
            part = ""
        else:
            part += letter
    return [part for part in (*parts, part) if part.strip()]


# Following a job: its output as it comes, its end as an exit code, Ctrl-C as its cancellation.

# A controller serves thousands of jobs: it is asked often at first, when much happens.
_OFTEN_S, _SELDOM_S, _OFTEN_FOR_S = 1.0, 5.0, 60.0
_TAIL_S = 0.2
# SLURM gives processes 30 s to end (KillWait) before it kills them.
_CANCEL_S = 60.0
# A shared file system may show the last lines later than SLURM the end.
_LAST_LINES_S = 2.0
# A controller that is restarted comes back within this time.
_AWAY_S = 300.0
_CHUNK = 1 << 20


class Cluster(Protocol):
    """What is needed of SLURM (launch.slurm_jobs)."""

    def look(self, job_id: str) -> Status:
        """Say how a job is."""

    def cancel(self, job_id: str) -> None:
        """End a job."""

    def warn(self, job_id: str) -> None:
        """Ask what runs in a job to stop by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """How following a job ended."""

    status: Status
    signum: int | None = None
    """The signal on which the job was cancelled; None: it ended by itself."""

    @property
    def exit_code(self) -> int:
        """The job's exit code; 128 plus the signal where one ended it here."""
        return self.status.exit_code if self.signum is None else 128 + self.signum


def follow(
    cluster: Cluster,
    job_id: str,
    *,
    output: Path,
    show: Callable[[bytes], None],
    say: Callable[[str], None],
) -> Followed:
    """Stay until a job has ended.

    Args:
        cluster: Where the job is.
        job_id: Its number.
        output: Its output file, which need not be there yet.
        show: Takes what the job writes.
        say: Takes sentences on the job's way through the queue.

    Raises:
        StartError: SLURM has lost the job.
    """
    with caught_signals() as signals:
        return _Following(cluster, job_id, _Tail(output, show), say).until_ended(signals)


class _Following:
    def __init__(
        self,
        cluster: Cluster,
        job_id: str,
        tail: _Tail,
        say: Callable[[str], None],
    ) -> None:
        self._cluster, self._job_id = cluster, job_id
        self._tail, self._say = tail, say
        self._signum: int | None = None
        self._heard_at = time.monotonic()
        self._cancelled_at: float | None = None
        self._said = ""

    def until_ended(self, signals: socket.socket | None) -> Followed:
        begin = next_look = time.monotonic()
        status = Status(state="PENDING")
        while True:
            self._read()
            now = time.monotonic()
            if now >= next_look:
                status = self._look(now) or status
                self._tell(status)
                if status.ended:
                    break
                early = now - begin < _OFTEN_FOR_S or self._signum is not None
                next_look = now + (_OFTEN_S if early else _SELDOM_S)
            if self._cancelled_at is not None and now - self._cancelled_at > _CANCEL_S:
                self._say(f"job {self._job_id} does not end; see `squeue --job {self._job_id}`.")
                break
            if self._signals(signals):
                break
        with contextlib.suppress(BrokenPipeError):
            self._tail.drain(time.monotonic() + _LAST_LINES_S)
        return Followed(status=status, signum=self._signum)

    def _look(self, now: float) -> Status | None:
        """Ask SLURM; None while its controller is away, which a restart of it takes."""
        try:
            found = self._cluster.look(self._job_id)
        except StartError:
            if now - self._heard_at > _AWAY_S:
                raise
            return None
        self._heard_at = now
        return found

    def _read(self) -> None:
        try:
            self._tail.read()
        except BrokenPipeError:
            # Whoever read our output has gone (`| head`): end as a single program would.
            self._tail.mute()
            if self._signum is None:
                self._end(signal.SIGPIPE)

    def _signals(self, signals: socket.socket | None) -> bool:
        """Wait a moment for signals; say whether somebody has lost patience."""
        if signals is None:
            time.sleep(_TAIL_S)
            return False
        ready, _, _ = select.select([signals], [], [], _TAIL_S)
        for signum in signals.recv(64) if ready else b"":
            if signum == signal.SIGUSR1:
                self._say(f"passing SIGUSR1 on to job {self._job_id}.")
                self._cluster.warn(self._job_id)
                continue
            if self._signum is not None:
                return True
            self._end(signum)
        return False

    def _end(self, signum: int) -> None:
        self._signum = signum
        self._cancelled_at = time.monotonic()
        self._say(f"cancelling job {self._job_id}.")
        self._cluster.cancel(self._job_id)

    def _tell(self, status: Status) -> None:
        if status.waiting:
            words = f"job {self._job_id}: {waiting_words(status)}."
        elif not status.ended:
            words = f"job {self._job_id} runs on {status.nodes}."
        elif status.exit_code and self._signum is None:
            words = f"job {self._job_id} ended: {end_words(status)}."
        else:
            return
        if words != self._said:
            self._said = words
            self._say(words)


class _Tail:
    """Reads what is added to a file."""

    def __init__(self, path: Path, show: Callable[[bytes], None]) -> None:
        self._path, self._show = path, show
        self._place = 0

    def read(self) -> bool:
        """Show what is new; say whether there was anything."""
        found = False
        while data := self._chunk():
            self._place += len(data)
            self._show(data)
            found = True
        return found

    def mute(self) -> None:
        """Show nothing any more."""
        self._show = lambda data: None

    def _chunk(self) -> bytes:
        # A shared file system may show the file late, or let go of it for a moment.
        with contextlib.suppress(OSError), self._path.open("rb") as file:
            file.seek(self._place)
            return file.read(_CHUNK)
        return b""

    def drain(self, deadline: float) -> None:
        """Read to the end, which may come late."""
        quiet_since = time.monotonic()
        while time.monotonic() < deadline:
            if self.read():
                quiet_since = time.monotonic()
            elif self._place and time.monotonic() - quiet_since > 2 * _TAIL_S:
                return
            time.sleep(_TAIL_S / 4)
