"""How a job is: what `scontrol show job` and `sacct` say, read; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
