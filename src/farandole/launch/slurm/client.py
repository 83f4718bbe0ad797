"""SLURM's programs, called: sbatch, scontrol, sacct, scancel. All that talks to SLURM is here."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farandole.errors import StartError, UsageError

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
