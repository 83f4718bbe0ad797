"""`farandole demo`: train with 1 and then 2 workers, and say what the second one brought."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from farandole.errors import MissingExtraError, UsageError
from farandole.version import __version__

if TYPE_CHECKING:
    from farandole.labs.demo import Comparison, Launch, Result

_REPEATS = 3
_EPOCHS = 8
_LAUNCH_LIMIT_S = 120.0
_GRACE_S = 10.0
_LAST_LINES = 15

_EPILOG = """\
example:
  farandole demo
  farandole demo --repeats 5 --json > demo.json

The data come with scikit-learn; nothing is downloaded. The script is farandole/labs/digits.py.
"""


def add_parser(subparsers: Any) -> None:
    """Add `demo` to the command line's parsers."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "demo",
        help="train a small CNN with 1 and 2 workers and compare (under a minute)",
        description="Train a small CNN on scikit-learn's digits with 1 and then 2 workers.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, schema 1")
    parser.add_argument(
        "--repeats",
        metavar="N",
        default=str(_REPEATS),
        help=f"launches per number of workers, taking turns (default {_REPEATS})",
    )
    parser.add_argument(
        "--epochs",
        metavar="N",
        default=str(_EPOCHS),
        help=f"per launch; the first is not timed (default {_EPOCHS})",
    )
    parser.set_defaults(func=main)


def main(args: argparse.Namespace) -> int:
    """Run the demo; return 0 when every launch gave a result."""
    from farandole.labs.demo import compare, plan, sentence, table_lines
    from farandole.world.cores import read_cores

    repeats = _count(args.repeats, flag="--repeats", at_least=1)
    epochs = _count(args.epochs, flag="--epochs", at_least=2)
    _check_packages()
    num_cores = read_cores().available
    launches = plan(repeats=repeats, num_cores=num_cores)
    results = []
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        for launch in launches:
            result = _run(launch, epochs=epochs)
            _say(_progress_line(launch, result, repeats=repeats))
            results.append(result)
    finally:
        signal.signal(signal.SIGTERM, previous)
    comparison = compare(
        results, threads_per_worker=launches[0].threads_per_worker, num_cores=num_cores
    )
    if args.json:
        print(json.dumps(_to_json(comparison, results), indent=2))
    else:
        print("\n".join(["", *table_lines(comparison), "", sentence(comparison)]))
    return 0


def _run(launch: Launch, *, epochs: int) -> Result:
    from farandole.world.foreign import disturbance, read_cpu
    from farandole.labs.demo import DemoError, command, parse_result

    with tempfile.TemporaryDirectory(prefix="farandole-demo-") as folder:
        written, output = Path(folder, "result.json"), Path(folder, "output.txt")
        argv = command(launch, epochs=epochs, result=written)
        before = read_cpu()
        with output.open("wb") as stream:
            exit_code = _wait(argv, stream.fileno())
        # The system counts the whole machine, whatever part of it this process may use.
        taken = disturbance(before, read_cpu(), num_cores=os.cpu_count() or 1)
        if exit_code == 0 and written.exists():
            foreign_share = taken.foreign_share + taken.steal_share
            return parse_result(written.read_text(), launch, foreign_share=foreign_share)
        last = output.read_text(errors="replace").splitlines()[-_LAST_LINES:]
    how = (
        f"did not end within {_LAUNCH_LIMIT_S:.0f} s"
        if exit_code is None
        else f"ended with exit code {exit_code}"
    )
    raise DemoError(
        f"The demo's launch with {launch.num_workers} worker(s) {how}. Its last lines:\n"
        + "\n".join(f"  {line}" for line in last)
    )


def _wait(argv: list[str], output_fd: int) -> int | None:
    """Run a command to its end; None if that did not come in time. Leave nothing running."""
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=output_fd, stderr=subprocess.STDOUT
    )
    try:
        return process.wait(_LAUNCH_LIMIT_S)
    except subprocess.TimeoutExpired:
        return None
    finally:
        # SIGTERM lets the launcher end its workers; should it not, the kernel does when it dies.
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _check_packages() -> None:
    missing = [name for name in ("torch", "sklearn") if importlib.util.find_spec(name) is None]
    if missing:
        named = " and ".join({"sklearn": "scikit-learn"}.get(name, name) for name in missing)
        raise MissingExtraError(
            f"farandole demo needs {named}, which this Python ({sys.executable}) does not have. "
            "Run: pip install 'farandole[torch,demo]' (a machine without a GPU can do with the "
            "smaller CPU build of torch; pytorch.org shows its pip line)."
        )


def _count(text: str, *, flag: str, at_least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = at_least - 1
    if value < at_least:
        raise UsageError(f"{flag} {text} is not a number of at least {at_least}.")
    return value


def _progress_line(launch: Launch, result: Result, *, repeats: int) -> str:
    workers = f"{launch.num_workers} worker{'s' * (launch.num_workers != 1)}"
    return (
        f"{workers:<9}  run {launch.repeat + 1} of {repeats}  {result.samples_per_s:,.0f} samples/s"
    )


def _to_json(comparison: Comparison, results: list[Result]) -> dict[str, Any]:
    from farandole.labs.demo import sentence

    return {
        "schema": 1,
        "argv": sys.argv,
        "host": platform.node(),
        "machine": platform.machine(),
        "versions": {"farandole": __version__, "python": platform.python_version()},
        **asdict(comparison),
        "launches": [asdict(result) for result in results],
        "sentence": sentence(comparison),
    }


def _interrupt(_signum: int, _frame: FrameType | None) -> None:
    # The same way out as Ctrl-C: the running launch is ended on it.
    raise KeyboardInterrupt


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
