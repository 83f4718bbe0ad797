"""`farandole bench`: measure Farandole against its peers and against the limit."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timezone
from types import FrameType
from typing import Any

from farandole.errors import UsageError

WHAT = (
    *("allreduce", "train", "overhead", "ranks", "names", "memory", "start", "recorder", "study"),
    *("report", "live", "hosts", "all"),
)
_PEERS = ("gloo", "openmpi", "horovod", "ddp", "torchrun")
_MODELS = ("mlp", "cnn", "resnet18")
_FRAMEWORKS = ("torch", "keras")
_KERAS_WHAT = ("train", "overhead", "all")
_KERAS_MODELS = ("mlp", "cnn")
_BACKENDS = ("torch", "tensorflow", "jax")
_LAUNCHES = 5
_QUICK_LAUNCHES = 2
_QUIET_LIMIT_S = 30.0
_QUICK_QUIET_LIMIT_S = 3.0
_SCHEMA = 1
# What a benchmark's figures depend on.
_PACKAGES = ("torch", "numpy", "mpi4py", "openmpi", "horovod", "keras", "tensorflow", "jax")

_EPILOG = """\
example:
  farandole bench allreduce --quick
  farandole bench train --models mlp --launches 10 --json > mlp.json
  farandole bench train --framework keras --backend jax
  sudo farandole bench live --wide
  sudo farandole bench hosts --quick

Every launch is new processes; implementations take turns. A launch during which others used more
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
        help=f"launches per implementation (default {_LAUNCHES}, {_QUICK_LAUNCHES} with --quick; "
        "fewer where one takes minutes)",
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
        help="number of ranks (default 2); `ranks` takes a list (default 1,2,4,8)",
    )
    parser.add_argument(
        "--wide",
        action="store_true",
        help="of `live`: eight models and rates in place of two; some minutes",
    )
    parser.set_defaults(func=main)


def main(args: argparse.Namespace) -> int:
    """Run the benchmark that `args` describe; return 1 when an implementation failed."""
    if not sys.platform.startswith("linux"):
        raise UsageError("farandole bench reads /proc, which only Linux has. Run it on Linux.")
    _check_shaped(args)
    with _ended_by_sigterm():
        if args.what in ("live", "hosts"):
            return _on_shaped_links(args)
        _check_framework(args)
        return _compare(args)


def _compare(args: argparse.Namespace) -> int:
    """Launch implementations in turns, and compare them row by row."""
    from farandole.bench.compare import compare, launch_to_json, to_json, to_text
    from farandole.bench.plan import Settings, groups
    from farandole.bench.run import INHERITED, run_group
    from farandole.model.statistics import CONFIDENCE

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
    head = _head(os.environ.get(INHERITED))
    rows, launches = [], []
    for group in groups(args.what, settings):
        records = run_group(
            group,
            num_launches=num_launches if args.launches else group.launches or num_launches,
            say=_progress,
            quiet_limit_s=_QUICK_QUIET_LIMIT_S if args.quick else _QUIET_LIMIT_S,
        )
        launches += [launch_to_json(group.key, record) for record in records]
        for result in compare(group, records):
            rows.append(to_json(result))
            if not args.json:
                _say("\n".join([*to_text(result), ""]))
    if args.json:
        what = {"quick": args.quick, "launches_per_contestant": num_launches}
        found = {"confidence": CONFIDENCE, "rows": rows, "launches": launches}
        _say(json.dumps({**head, **what, **found}, indent=2))
    return 1 if any(launch["failure"] for launch in launches) else 0


def _on_shaped_links(args: argparse.Namespace) -> int:
    """Measure what needs slow links, and root to make them."""
    from farandole.testing.shaped import why_not

    if reason := why_not():
        raise UsageError(f"`bench {args.what}` cannot run here: {reason}.")
    head, say = _head(None), _progress if args.json else _say
    if args.what == "live":
        from farandole.bench import live

        points: dict[str, list[live.Point]] = {}
        for scenario, found in live.compare_all(live.WIDE if args.wide else live.QUICK):
            points[scenario.name] = found
            say("\n".join([scenario.name, *live.lines_of(found)]))
        lines = live.summary([one for found in points.values() for one in found])
        figures = {"wide": args.wide, **live.as_json(points)}
    else:
        from farandole.bench import hosts

        results = []
        for result in hosts.measure_all(hosts.QUICK if args.quick else hosts.WHOLE):
            results.append(result)
            say("\n".join(hosts.lines_of(result)))
        lines, figures = hosts.summary(results), {"quick": args.quick, **hosts.as_json(results)}
    say("\n".join(lines))
    if args.json:
        _say(json.dumps({**head, **figures}, indent=2))
    return 0


def _head(transport: str | None) -> dict[str, Any]:
    """Return the head of the JSON: when and where figures were measured, and with what."""
    from farandole.world.machine import describe_machine

    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    machine = asdict(describe_machine(_PACKAGES))
    machine["num_cores"] = machine.pop("cores")
    machine["transport"] = transport
    return {"schema": _SCHEMA, "started": started, "argv": sys.argv, "machine": machine}


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
