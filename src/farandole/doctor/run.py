"""The launches of a diagnosis: the script on several workers, and again on one where needed.

A launch ends by itself, after the steps or epochs that were asked for, or once it has shown enough:
LEAST_STEPS steps and ENOUGH_S seconds of them. Workers that wait for each other for good are ended.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from farandole.doctor.check import Check, Diagnosis, Finding, diagnose
from farandole.doctor.facts import Ended, Job, read_job
from farandole.format import seconds
from farandole.launch.launcher import Outcome, launch
from farandole.launch.message import failure_lines
from farandole.launch.plan import Plan, resolve_command
from farandole.recorder.detail import RECORD, REPLAY
from farandole.recorder.recorder import RECORD_DIR, STOP

LEAST_STEPS = 50
ENOUGH_S = 30.0
"""Of training, unless --steps or --epochs say when a launch ends."""
HUNG_S = 12.0
"""Workers that have all waited so long wait for good."""
STUCK_S = 30.0
"""One worker that has waited so long does, even if others say nothing."""
_LOOK_EVERY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What to diagnose, and how."""

    command: tuple[str, ...]
    """For several workers; `alone` for one, where it is another command."""
    workers: int
    threads: int
    environ: Mapping[str, str]
    steps: int | None = None
    epochs: int | None = None
    timeout_s: float = 120.0
    """After which a launch is ended, whatever it does."""
    own_launcher: bool = False
    alone: tuple[str, ...] | None = None
    transport: str = "auto"
    horovod_alias: bool = True

    def stop_rule(self) -> str:
        """Return when the recorder ends a launch."""
        if self.epochs is not None:
            return json.dumps({"epochs": self.epochs})
        if self.steps is not None:
            return json.dumps({"steps": self.steps})
        return json.dumps({"steps": LEAST_STEPS, "least_s": ENOUGH_S})


Show = Callable[[str, str], None]


def examine(
    setting: Setting,
    checks: Sequence[Check],
    folder: Path,
    *,
    replays: bool = True,
    say: Callable[[str], None] = lambda _: None,
    show: Show = lambda *_: None,
) -> tuple[Job, Diagnosis]:
    """Launch the script, replay it on one worker where a check needs that, and apply the checks."""
    job = run(setting, folder / "workers", show=show)
    if replays and job.training and any(one.replay for one in checks):
        say("once more on one worker with the same global batch")
        one = replace(setting, workers=1, command=setting.alone or setting.command)
        environ = {**setting.environ, REPLAY: str(setting.workers)}
        alone = run(replace(one, environ=environ), folder / "alone", show=show)
        if alone.training:
            job = replace(job, alone=alone)
    return job, diagnose(job, checks)


def run(setting: Setting, folder: Path, *, show: Show) -> Job:
    """Make one launch, and read what it recorded into a folder."""
    folder.mkdir(parents=True)
    environ = {
        **setting.environ,
        RECORD_DIR: str(folder),
        RECORD: "doctor",
        STOP: setting.stop_rule(),
        "FARANDOLE_SEED": setting.environ.get("FARANDOLE_SEED", "1"),
    }
    plan = Plan(
        argv=resolve_command(setting.command, path=environ.get("PATH")),
        num_workers=1 if setting.own_launcher else setting.workers,
        threads=setting.threads,
        transport=setting.transport,
        tag=False,
        own_launcher=setting.own_launcher,
        horovod_alias=setting.horovod_alias,
        clean_stop=False,
    )
    watch = Watch(folder, workers=setting.workers, timeout_s=setting.timeout_s)
    outcome = launch(plan, environ=environ, show=show, watch=watch)
    if outcome.verdict.kind == "interrupted" and not watch.ended:
        raise Interrupted(outcome.verdict.exit_code - 128)
    ended, reason = _how(outcome, watch)
    job = read_job(folder, workers=setting.workers, ended=ended, reason=reason)
    if ended == "ok" and any(rank.end.get("stopped") for rank in job.ranks):
        job = replace(job, ended="stopped")
    return job


class Interrupted(KeyboardInterrupt):
    """The user, or the system, ended a diagnosis."""

    def __init__(self, signum: int) -> None:
        super().__init__()
        self.signum = signum


def _how(outcome: Outcome, watch: Watch) -> tuple[Ended, str]:
    if watch.ended:
        return watch.ended, watch.reason
    if outcome.verdict.kind == "done":
        return "ok", ""
    lines = failure_lines(outcome.verdict, step=outcome.step, last_lines=outcome.last_lines)
    text = "\n".join(line.removeprefix("farandole: ") for line in lines)
    return "failed", text or "the workers failed"


@dataclass
class _Tail:
    """Where a worker's file was read to, and what it said last."""

    place: int = 0
    waiting_s: float = 0.0
    where: str = ""
    ended: bool = False


class Watch:
    """Asked ten times a second whether a launch is to be ended; keeps why it was."""

    def __init__(
        self,
        folder: Path,
        *,
        workers: int,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._workers, self._timeout_s = folder, workers, timeout_s
        self._clock, self._begin_s = clock, clock()
        self._next_s = self._begin_s
        self._tails: dict[str, _Tail] = {}
        self.ended: Ended = ""
        self.reason = ""

    def __call__(self, pids: Sequence[int]) -> bool:
        """Look at the workers; return whether to end them."""
        now_s = self._clock()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + _LOOK_EVERY_S
        for file in self._folder.glob("rank-*.jsonl"):
            if ".events." not in file.name:
                _follow(self._tails.setdefault(file.name, _Tail()), file)
        running = [one for one in self._tails.values() if not one.ended]
        waits = [one for one in running if one.waiting_s]
        longest = max((one.waiting_s for one in waits), default=0.0)
        all_wait = bool(waits) and len(waits) == len(running) == min(len(pids), self._workers)
        if (all_wait and min(one.waiting_s for one in waits) >= HUNG_S) or longest >= STUCK_S:
            self.ended = "hung"
            places = sorted({one.where for one in waits if one.where})
            at = f" at {', '.join(places)}" if places else ""
            self.reason = f"the workers waited for each other{at} and were ended"
        elif now_s - self._begin_s > self._timeout_s:
            self.ended = "killed"
            self.reason = f"it was ended after {seconds(self._timeout_s)} (--timeout)"
        return bool(self.ended)


def _follow(tail: _Tail, file: Path) -> None:
    """Read what a worker has added: any line but one that says it waits is progress."""
    with file.open("rb") as lines:
        lines.seek(tail.place)
        data = lines.read()
    whole = data[: data.rfind(b"\n") + 1]
    tail.place += len(whole)
    for line in whole.splitlines():
        if line.startswith(b'{"kind": "waiting"'):
            found = json.loads(line)
            tail.waiting_s, tail.where = float(found["seconds"]), str(found.get("where", ""))
        elif line.startswith(b'{"kind": "end"'):
            tail.ended = True
        elif not line.startswith((b'{"kind": "use"', b'{"kind": "note"')):
            tail.waiting_s = 0.0


# Findings that somebody does not want


_COMMENT = re.compile(r"#\s*farandole:\s*ignore\[\s*([A-Za-z0-9,\s]+)\]\s*(.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """A finding that a comment in the script asks to leave out."""

    finding: Finding
    where: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comments:
    """Comments `# farandole: ignore[FD107] reason` of a script."""

    by_id: Mapping[str, tuple[tuple[str, int, str], ...]] = field(default_factory=dict)
    """File, line and reason."""

    def split(self, findings: Iterable[Finding]) -> tuple[list[Finding], list[Ignored]]:
        """Return the findings that stay, and those that a comment leaves out.

        A comment on the finding's own line or the one above it is about that place; one anywhere
        else in the script is about the id.
        """
        kept, ignored = [], []
        for finding in findings:
            known = self.by_id.get(finding.id, ())
            if known:
                file, line, reason = known[0]
                ignored.append(Ignored(finding=finding, where=f"{file}:{line}", reason=reason))
            else:
                kept.append(finding)
        return kept, ignored


def read_comments(command: Sequence[str], findings: Iterable[Finding]) -> Comments:
    """Read the comments of the script in a command, and of the files that findings name."""
    files = {part for part in command if part.endswith(".py")}
    files |= {one.where.rpartition(":")[0] for one in findings if one.where}
    found: dict[str, list[tuple[str, int, str]]] = {}
    for name in sorted(files):
        try:
            lines = Path(name).read_text(errors="replace").splitlines()
        except OSError:
            continue
        for number, text in enumerate(lines, 1):
            match = _COMMENT.search(text)
            for one in match[1].split(",") if match else ():
                assert match is not None
                found.setdefault(one.strip().upper(), []).append((name, number, match[2].strip()))
    return Comments(by_id={one: tuple(places) for one, places in found.items()})
