"""`farandole bench`: measure Farandole against its peers and against the limit."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from farandole.errors import UsageError

if TYPE_CHECKING:
    from farandole.bench.judge import Row

WHAT = (
    "allreduce",
    "train",
    "overhead",
    "ranks",
    "names",
    "memory",
    "start",
    "recorder",
    "study",
    "report",
    "live",
    "hosts",
    "all",
)
_PEERS = ("gloo", "openmpi", "horovod", "ddp", "torchrun")
_MODELS = ("mlp", "cnn", "resnet18")
_FRAMEWORKS = ("torch", "keras")
_KERAS_WHAT = ("train", "overhead", "all")
_KERAS_MODELS = ("mlp", "cnn")
_BACKENDS = ("torch", "tensorflow", "jax")
_LAUNCHES = 5
_QUICK_LAUNCHES = 2

_EPILOG = """\
example:
  farandole bench allreduce --quick
  farandole bench train --models mlp --launches 10 --json > mlp.json
  farandole bench train --framework keras --backend jax
  sudo farandole bench live --wide
  sudo farandole bench hosts --quick

Every launch is new processes; contestants take turns. A launch during which others used more
than 5 % of the machine is void and repeated. docs/benchmarks.md explains each row.
"""


def add_parser(subparsers: Any) -> None:
    """Add `bench` to the command line's parsers."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "bench",
        help="measure Farandole against Gloo, DDP, Open MPI and the limit",
        description="Measure Farandole against its peers and against the limit on this machine.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=WHAT, help="which rows to measure")
    parser.add_argument("--json", action="store_true", help="print one JSON object, schema 1")
    parser.add_argument(
        "--launches",
        metavar="N",
        help=f"launches per contestant (default {_LAUNCHES}, {_QUICK_LAUNCHES} with --quick; fewer "
        "where one takes minutes)",
    )
    parser.add_argument("--quick", action="store_true", help="fewer launches, steps and cells")
    parser.add_argument(
        "--peers",
        metavar="NAMES",
        help=f"which of {','.join(_PEERS)} to measure too, or none (default all)",
    )
    parser.add_argument(
        "--models", metavar="NAMES", help=f"which of {','.join(_MODELS)} to train (default all)"
    )
    parser.add_argument(
        "--framework",
        choices=_FRAMEWORKS,
        default="torch",
        help="what `train` and `overhead` train with (default torch)",
    )
    parser.add_argument(
        "--backend",
        metavar="NAMES",
        help=f"which of {','.join(_BACKENDS)} Keras computes with (default all)",
    )
    parser.add_argument(
        "-np",
        "-n",
        "-w",
        "--workers",
        dest="workers",
        metavar="N",
        help="ranks, 2 unless said; a list for `ranks`, 1,2,4,8 unless said",
    )
    parser.add_argument(
        "--wide",
        action="store_true",
        help="of `live`: eight models and rates in place of two; some minutes",
    )
    parser.set_defaults(func=main)


def main(args: argparse.Namespace) -> int:
    """Run the benchmark that `args` describe; return 1 when a contestant failed."""
    from farandole.bench.judge import judge
    from farandole.bench.launch import KEPT
    from farandole.bench.plan import groups
    from farandole.bench.result import PACKAGES, Result, to_json
    from farandole.bench.rows import Settings
    from farandole.bench.run import QUICK_QUIET_LIMIT_S, QUIET_LIMIT_S, run_group, wait_for_quiet
    from farandole.world.machine import describe_machine

    if not sys.platform.startswith("linux"):
        raise UsageError("farandole bench reads /proc, which only Linux has. Run it on Linux.")
    _check_shaped(args)
    if args.what == "live":
        return _live(args)
    if args.what == "hosts":
        return _hosts(args)
    _check_framework(args)
    num_launches = _launches(args)
    num_ranks, rank_counts = _ranks(args)
    settings = Settings(
        num_ranks=num_ranks,
        rank_counts=rank_counts,
        models=_names(args.models, _models(args), flag="--models"),
        peers=_names(args.peers, _PEERS, flag="--peers"),
        framework=args.framework,
        backends=_names(args.backend, _BACKENDS, flag="--backend"),
        quick=args.quick,
    )
    wait = partial(wait_for_quiet, QUICK_QUIET_LIMIT_S if args.quick else QUIET_LIMIT_S)
    machine = describe_machine(PACKAGES)
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    rows: list[Row] = []
    records = []
    with _ended_by_sigterm():
        for group in groups(args.what, settings):
            count = num_launches if args.launches else group.launches or num_launches
            found = run_group(group, num_launches=count, say=_progress, wait=wait)
            records += [(group.key, record) for record in found]
            fresh = judge(group, found)
            rows += fresh
            if not args.json:
                for row in fresh:
                    _print_row(row)
    if args.json:
        result = Result(
            machine=machine,
            transport=os.environ.get(KEPT),
            argv=tuple(sys.argv),
            started=started,
            quick=args.quick,
            num_launches=num_launches,
            rows=tuple(rows),
            launches=tuple(records),
        )
        print(json.dumps(to_json(result), indent=2))
    return 1 if any(record.failure for _, record in records) else 0


def _live(args: argparse.Namespace) -> int:
    """Put projections to the proof on shaped links, which takes root."""
    from farandole.bench import live

    head, say = _begin_shaped(args)
    found = {}
    with _ended_by_sigterm():
        for scenario, points in live.proofs(live.WIDE if args.wide else live.QUICK):
            found[scenario.name] = points
            say("\n".join([scenario.name, *live.lines_of(points)]))
    for line in live.summary([one for points in found.values() for one in points]):
        say(line)
    if args.json:
        print(json.dumps({**head, "wide": args.wide, **live.as_json(found)}, indent=2))
    return 0


def _hosts(args: argparse.Namespace) -> int:
    """Measure all-reduces between hosts on shaped links, which takes root."""
    from farandole.bench import hosts

    head, say = _begin_shaped(args)
    found = []
    with _ended_by_sigterm():
        for one in hosts.measured(hosts.QUICK if args.quick else hosts.WHOLE):
            found.append(one)
            say("\n".join(hosts.lines_of(one)))
    for line in hosts.summary(found):
        say(line)
    if args.json:
        print(json.dumps({**head, "quick": args.quick, **hosts.as_json(found)}, indent=2))
    return 0


def _begin_shaped(args: argparse.Namespace) -> tuple[dict[str, Any], Callable[[str], None]]:
    """Return the head of the JSON, and where to say what is found; refuse where it cannot run."""
    from farandole.bench.result import PACKAGES, SCHEMA, machine_json
    from farandole.testing.shaped import why_not
    from farandole.world.machine import describe_machine

    if reason := why_not():
        raise UsageError(f"`bench {args.what}` cannot run here: {reason}.")
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    machine = machine_json(describe_machine(PACKAGES), None)
    head = {"schema": SCHEMA, "started": started, "argv": sys.argv, "machine": machine}
    return head, _progress if args.json else _say


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _interrupt(_signum: int, _frame: FrameType | None) -> None:
    # The same way out as Ctrl-C, which ends the launch's processes.
    raise KeyboardInterrupt


def _check_shaped(args: argparse.Namespace) -> None:
    """Refuse flags that `live` alone has, and those that it and `hosts` have no use for."""
    if args.what != "live" and args.wide:
        raise UsageError(f"--wide does not fit `bench {args.what}`: it is a choice of `live`.")
    if args.what not in ("live", "hosts"):
        return
    fixed, more = (
        ("models and ranks", "--wide runs more of them")
        if args.what == "live"
        else ("rates and ranks", "--quick runs fewer of them")
    )
    for flag, given in (
        ("--launches", args.launches),
        ("--quick", args.quick and args.what == "live"),
        ("--peers", args.peers),
        ("--models", args.models),
        ("--framework", args.framework != "torch"),
        ("--backend", args.backend),
        ("-np", args.workers),
    ):
        if given:
            raise UsageError(
                f"{flag} does not fit `bench {args.what}`, whose {fixed} are fixed. Leave it "
                f"out; {more}."
            )


def _check_framework(args: argparse.Namespace) -> None:
    """Refuse flags that the framework has no use for."""
    if args.framework != "keras":
        if args.backend is not None:
            raise UsageError(
                f"--backend {args.backend} is a choice of Keras'. Add --framework keras."
            )
        return
    if args.what not in _KERAS_WHAT:
        raise UsageError(
            f"--framework keras does not fit `bench {args.what}`. "
            f"Choose from {', '.join(_KERAS_WHAT)}."
        )
    if args.peers not in (None, "none"):
        raise UsageError(
            f"--peers {args.peers} does not fit --framework keras: none of them trains Keras 3. "
            "Leave it out."
        )


def _models(args: argparse.Namespace) -> tuple[str, ...]:
    return _KERAS_MODELS if args.framework == "keras" else _MODELS


def _launches(args: argparse.Namespace) -> int:
    if args.launches is None:
        return _QUICK_LAUNCHES if args.quick else _LAUNCHES
    return _count(args.launches, flag="--launches")


def _ranks(args: argparse.Namespace) -> tuple[int, tuple[int, ...]]:
    """Return the ranks of most rows, and the list for `ranks`."""
    if args.workers is None:
        return 2, (1, 2, 4, 8)
    counts = tuple(_count(part, flag="-np") for part in args.workers.split(","))
    if args.what == "ranks":
        return 2, tuple(sorted(set(counts)))
    whole = {"overhead": "it measures one worker.", "report": "it starts no workers."}
    if args.what in whole or len(counts) > 1:
        why = whole.get(args.what, "give one number, as -np 2.")
        raise UsageError(f"-np {args.workers} does not fit `bench {args.what}`: {why}")
    return counts[0], (1, 2, 4, 8)


def _count(text: str, *, flag: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise UsageError(f"{flag} {text} is not a number of at least 1.")
    return value


def _names(text: str | None, choices: tuple[str, ...], *, flag: str) -> tuple[str, ...]:
    if text is None:
        return choices
    if text == "none" and flag == "--peers":
        return ()
    chosen = tuple(part.strip() for part in text.split(","))
    for name in chosen:
        if name not in choices:
            raise UsageError(f"{flag} {name} is unknown. Choose from {', '.join(choices)}.")
    return tuple(name for name in choices if name in chosen)


def _say(line: str) -> None:
    print(line, flush=True)


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print_row(row: Row) -> None:
    from farandole.bench import table

    if not sys.stdout.isatty():
        print("\n".join(table.plain_lines(row)), end="\n\n", flush=True)
        return
    from rich.console import Console
    from rich.table import Table

    grid = Table(title=table.title(row), title_justify="left", title_style="bold")
    for column in table.header(row):
        grid.add_column(column)
    for cells in table.cells(row):
        grid.add_row(*cells)
    console = Console(highlight=False)
    console.print(grid)
    for line in table.notes(row):
        console.print(line, markup=False)
