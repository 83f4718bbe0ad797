"""`farandole doctor`: run a script for a minute, and say what is silently wrong with it."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from farandole.cli.command import (
    JSON,
    Command,
    check_platform,
    flag,
    interrupted,
    print_json,
    say,
    user_command,
)
from farandole.errors import UsageError
from farandole.format import plural
from farandole.study.values import count, seconds

if TYPE_CHECKING:
    from farandole.doctor.check import Check, Diagnosis
    from farandole.doctor.facts import Job
    from farandole.doctor.run import Setting

FEW_STEPS = 10
"""With fewer, several checks have nothing to compare."""

COMMAND = Command(
    name="doctor",
    text="Run a training script for a minute on several workers, compare what they do, and say "
    "what is silently wrong: workers that train alone, data seen twice...",
    usage="[-np 2] [options] -- COMMAND ...\n--explain ID | --list",
    flags={
        "the run": (
            flag(
                *("-np -n -w --workers --nproc-per-node --num-proc --np", "N"),
                "number of workers (default 2)",
                dest="np",
                default="2",
            ),
            flag("--steps", "N", "end after N steps (default: 50 steps and 30 s)"),
            flag("--epochs", "N", "end after N epochs instead"),
            flag("--threads", "N", "threads per worker (default: an equal share of cores)"),
            flag("--timeout", "TIME", "end a launch after this time (default 2m)", default="2m"),
            flag("--no-replay", "", "no second run on one worker; some checks need it"),
            flag("--horovod-alias", "on|off", "off: `import horovod` finds an installed Horovod"),
            flag("--output", "", "show what the workers print"),
            flag("--out", "DIR", "keep what was recorded in a new folder"),
        ),
        "findings": (
            flag("--select", "IDS", "only these checks: FD107, or FD1,FD2", repeated=True),
            flag("--ignore", "IDS", "all checks but these", repeated=True),
            flag("--sarif", "FILE", "write the findings as SARIF too"),
            JSON,
            flag("--explain", "ID", "say what an id means and how to fix it"),
            flag("--list", "", "list all checks"),
        ),
    },
    usual="-np --steps --epochs --ignore --json --sarif --explain --list",
    examples="""
farandole doctor -- python train.py --lr 0.1
farandole doctor -np 4 --epochs 2 -- python train.py
farandole doctor --explain FD103
""",
    notes="""
Exit code 1 with errors, else 0. A comment in the script leaves a finding out:
# farandole: ignore[FD107] reason
""",
    more="""
Commands that bring their own launcher keep it:
  farandole doctor -np 2 -- torchrun --nproc-per-node '{workers}' train.py
""",
    takes_command=True,
)


def main(args: argparse.Namespace) -> int:
    """Diagnose a script, or explain ids; return 1 when there is an error."""
    from farandole.doctor.check import chosen

    checks = chosen(_ids(args.select), _ids(args.ignore))
    if args.explain is not None or args.list:
        return _explain(args, checks)
    check_platform()
    setting = _setting(args)
    with _folder(args.out) as folder:
        try:
            return _diagnose(args, setting, checks, folder)
        except KeyboardInterrupt as stop:
            say("farandole: the diagnosis was interrupted.")
            return interrupted(stop)


def _diagnose(
    args: argparse.Namespace, setting: Setting, checks: Sequence[Check], folder: Path
) -> int:
    from farandole.cli.run import show
    from farandole.doctor.run import examine, read_comments
    from farandole.doctor.text import terminal_lines, to_json, to_sarif

    say(f"farandole: watching {plural(setting.workers, 'worker')}; this takes a minute or two")
    job, diagnosis = examine(
        setting,
        checks,
        folder,
        replays=not args.no_replay,
        say=lambda text: say(f"farandole: {text}"),
        show=show if args.output else lambda *_: None,  # type: ignore[arg-type]
    )
    comments = read_comments(setting.command, diagnosis.findings)
    kept, ignored = comments.split(diagnosis.findings)
    diagnosis = replace(diagnosis, findings=tuple(kept))
    if args.sarif is not None:
        _write(Path(args.sarif), json.dumps(to_sarif(diagnosis, checks, command=setting.command)))
    if args.json:
        print_json(to_json(job, diagnosis, ignored, command=setting.command))
    else:
        print("\n".join(terminal_lines(job, diagnosis, ignored)), flush=True)
    code = _tell_end(job, diagnosis)
    return 1 if diagnosis.errors else code


def _tell_end(job: Job, diagnosis: Diagnosis) -> int:
    """Say how the launch ended if not well, and what was expected of it."""
    if job.ended not in ("ok", "stopped"):
        say(f"farandole: the script did not end well: {job.reason}")
        return 1
    if not job.training:
        say(
            "farandole: no optimizer step was seen. A script is expected to train with PyTorch, "
            "Keras 3 or TensorFlow in the processes that the command starts; --output shows what "
            "it printed."
        )
        return 1
    if len(job.training) < job.workers:
        say(
            f"farandole: {len(job.training)} of {plural(job.workers, 'worker')} trained. "
            "Every process that the command starts is expected to."
        )
    steps = max(rank.steps for rank in job.training)
    if steps < FEW_STEPS:
        too_little = ", ".join(diagnosis.not_checked)
        say(
            f"farandole: the script ended after {plural(steps, 'step')}: too little for "
            f"{too_little}. Give it more data or epochs; {FEW_STEPS} steps are enough for most."
        )
    return 0


def _setting(args: argparse.Namespace) -> Setting:
    from farandole.doctor.run import Setting
    from farandole.launch.plan import threads_from
    from farandole.study.command import fill, find_launcher
    from farandole.world.cores import read_cores, threads_per_worker

    command = user_command(args)
    if not command:
        raise UsageError(
            "No command was given. Say what to run: farandole doctor -- python train.py"
        )
    workers = count(args.np, flag="-np")
    if workers < 2:
        raise UsageError(
            f"-np {workers}: mistakes of distributed training show with 2 workers or more. "
            "Use -np 2."
        )
    if args.steps is not None and args.epochs is not None:
        raise UsageError("--steps and --epochs each say when to end. Leave one out.")
    cores = read_cores()
    threads = threads_from(os.environ) or threads_per_worker(cores.available, workers)
    found = find_launcher(command)
    template = command if found is None else found.command
    return Setting(
        command=fill(template, {"workers": workers}),
        alone=fill(template, {"workers": 1}),
        workers=workers,
        threads=threads if args.threads is None else count(args.threads, flag="--threads"),
        environ=dict(os.environ),
        steps=None if args.steps is None else count(args.steps, flag="--steps"),
        epochs=None if args.epochs is None else count(args.epochs, flag="--epochs"),
        timeout_s=seconds(args.timeout, flag="--timeout"),
        own_launcher=found is not None,
        horovod_alias=args.horovod_alias != "off",
    )


def _explain(args: argparse.Namespace, checks: Sequence[Check]) -> int:
    from farandole.doctor.check import find_check
    from farandole.doctor.text import list_lines, page

    if args.list:
        print("\n".join(list_lines(checks)))
        return 0
    print(page(find_check(str(args.explain))), end="")
    return 0


def _ids(texts: Sequence[str]) -> list[str]:
    return [part.strip() for text in texts for part in text.split(",")]


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text + "\n")
    except OSError as error:
        raise UsageError(f"--sarif {file}: it cannot be written ({error.strerror}).") from error


@contextlib.contextmanager
def _folder(out: str | None) -> Iterator[Path]:
    """Give the folder of the record: a new one that stays, or one that goes at the end."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="farandole-doctor-") as folder:
            yield Path(folder)
        return
    path = Path(out).absolute()
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        raise UsageError(f"--out {out}: it exists already. Name a new folder.") from None
    except OSError as error:
        raise UsageError(f"--out {out}: it cannot be created ({error.strerror}).") from error
    yield path
