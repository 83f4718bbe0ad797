"""What the launcher says: the start line, and how a failed launch ended."""

from __future__ import annotations

import platform
import signal
import sys
from collections.abc import Mapping, Sequence

from farandole.launch.horovod_alias import wants_horovod
from farandole.launch.placement import Placement
from farandole.launch.plan import Plan
from farandole.launch.supervisor import Exited, Verdict
from farandole.world.environment import is_loopback

_MEANINGS = {
    "SIGKILL": "often the system's answer to running out of memory; see dmesg or the job's limits",
    "SIGSEGV": "a crash in native code; PYTHONFAULTHANDLER=1 shows where",
    "SIGBUS": "memory that could not be had, often a full /dev/shm",
    "SIGABRT": "native code gave up, after an error that it printed or a failed check",
    "SIGFPE": "native code divided by zero",
    "SIGILL": "a library built for another processor",
    "SIGTERM": "something asked it to end, for example a scheduler at its time limit",
    "SIGINT": "an interrupt",
    "SIGXCPU": "the limit of processor time",
}


def start_line(plan: Plan, placement: Placement | None = None) -> str:
    """Say what is being started: `2 workers on 1 host, shared memory, 1 thread each`."""
    workers = _count(plan.num_workers, "worker")
    threads = f"{_count(plan.threads, 'thread')} each"
    if plan.horovod_alias and wants_horovod(plan.argv):
        threads += "; `import horovod` resolves to Farandole"
    if plan.elastic is not None and plan.elastic.in_place:
        from farandole.launch.elastic_options import describe

        return f"{workers} to begin with, {describe(plan.elastic)}, {threads}"
    if placement is None:
        return f"{workers} on 1 host, {_transport(plan.transport)}, {threads}"
    shares = ", ".join(f"{share.name}:{len(share.ranks)}" for share in placement.hosts)
    # Which transport `auto` takes there is known to the workers only, who say so.
    transport = "" if plan.transport == "auto" else f"{_transport(plan.transport)}, "
    return f"{workers} on {_count(len(placement.hosts), 'host')} ({shares}), {transport}{threads}"


def notes(environ: Mapping[str, str]) -> list[str]:
    """Say which settings of the user are not followed."""
    address = environ.get("MASTER_ADDR")
    if address is None or is_loopback(address):
        return []
    return [f"farandole: MASTER_ADDR={address} is not used: workers on one host meet on 127.0.0.1."]


def failure_lines(
    verdict: Verdict,
    *,
    step: int = 0,
    last_lines: Sequence[str] = (),
    silence_timeout_s: float = 0.0,
    rank_hosts: Sequence[str] = (),
    failures: Sequence[str] = (),
) -> list[str]:
    """Explain a launch that did not end well: who, where, when, how, and what it said last.

    Args:
        verdict: How it ended.
        step: Steps that the failed rank had made.
        last_lines: The end of its output.
        silence_timeout_s: What a stopped worker was given.
        rank_hosts: The host of each rank, where there are several.
        failures: How each round before failed, where all workers were started again.
    """
    if failures:
        last = failure_lines(
            verdict,
            step=step,
            last_lines=last_lines,
            silence_timeout_s=silence_timeout_s,
            rank_hosts=rank_hosts,
        )
        return [*last, *_restart_lines(failures)]
    if verdict.kind == "done":
        return survived_lines(verdict)
    if verdict.kind == "interrupted":
        if verdict.exit_code == 128 + signal.SIGPIPE:
            return []  # the reader of our output went away (`| head`): Unix tools say nothing then
        name = _signal_name(verdict.exit_code - 128)
        return [f"farandole: ended by {name}; all workers have ended."]
    if verdict.kind == "lost":
        return [f"farandole: {verdict.lost} All workers were ended."]
    if verdict.kind == "given up":
        return [f"farandole: {verdict.reason}", *survived_lines(verdict)]
    assert verdict.rank is not None
    where = f" on host {rank_hosts[verdict.rank]}" if rank_hosts else ""
    when = f", step {step}," if step else ""
    who = f"farandole: rank {verdict.rank}{where}{when}"
    if verdict.kind == "stopped":
        lines = [
            f"{who} was stopped (SIGSTOP or a debugger) and silent for {silence_timeout_s:g} s. "
            "All workers were ended. Give --silence-timeout SECONDS to wait longer."
        ]
    elif verdict.kind == "hung":
        since = "the last of the others" if verdict.last else "its script ended"
        lines = [
            f"{who} has not exited {verdict.waited_s:g} s after {since}: an exit handler (atexit) "
            "hangs. All workers were ended. Give --exit-timeout SECONDS to wait longer."
        ]
    elif verdict.witness is not None:
        how = "exited with code 0" if verdict.kind == "left" else "did not take part"
        text = verdict.failure.text if verdict.failure is not None else ""
        lines = [
            f"{who} failed first: it {how} while rank {verdict.witness} waited for it "
            f"({text.rstrip('.')}). All workers were ended."
        ]
    else:
        first = "failed first" if verdict.failure is None else "failed first:"
        what = f" {verdict.failure.text}" if verdict.failure is not None else ""
        lines = [f"{who} {first}{what} ({_how(verdict.code or 0)}). All workers were ended."]
    if verdict.reason:
        lines.append(f"farandole: {verdict.reason}")
    lines += survived_lines(verdict)
    shown = [line for line in last_lines if line.strip()]
    if shown:
        lines.append(f"farandole: the last lines of rank {verdict.rank}:")
        lines += [f"    {line}" for line in shown]
    if any("No module named 'farandole'" in line for line in shown):
        lines.append(
            "farandole: the Python that this command found has no farandole; the one that has is "
            f"{sys.executable}. Activate its environment, or give the script without `python`."
        )
    return lines


def survived_lines(verdict: Verdict) -> list[str]:
    """Say after which failures an elastic run went on."""
    if not verdict.survived:
        return []
    number = _count(len(verdict.survived), "failure")
    first = verdict.survived[0]
    before = "the first: " if len(verdict.survived) > 1 else ""
    return [f"farandole: training went on after {number}; {before}{loss(first)}."]


def _restart_lines(failures: Sequence[str]) -> list[str]:
    """Say why all workers were started again."""
    lines = [f"farandole: all workers were started again {_count(len(failures), 'time')}:"]
    for number, failure in enumerate(failures, 1):
        lines.append(f"    {number}. {failure.partition(chr(10))[0].removeprefix('farandole: ')}")
    return lines


def loss(end: Exited) -> str:
    """Say how one worker was lost: `rank 1 failed: ValueError: bad loss (exit code 1)`."""
    if end.lost:
        return end.lost.rstrip(".")
    what = f"failed: {end.failure.text}" if end.failure is not None else "failed"
    return f"rank {end.rank} {what} ({_how(end.code)})"


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    name = _signal_name(-code)
    meaning = _MEANINGS.get(name)
    return f"{name}: {meaning}" if meaning else name


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _transport(requested: str) -> str:
    if requested == "auto":
        # What `auto` takes on one host; a worker that finds otherwise says so itself.
        ordered = sys.platform == "linux" and platform.machine() in ("x86_64", "AMD64")
        return "shared memory" if ordered else "gloo"
    return {"shm": "shared memory"}.get(requested, requested)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
