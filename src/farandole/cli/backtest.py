"""`farandole backtest`: check projections against figures that are known."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole.cli.flags import add_flags
from farandole.errors import UsageError

if TYPE_CHECKING:
    from farandole.model.projection.backtest import Split

_EPILOG = """\
examples:
  farandole backtest steps.csv epochs.csv
  farandole backtest steps.csv --fit-workers 8 --json
  farandole backtest steps.csv --fit-nodes 1 --link 25Gbit --gradients bert=440MB

A table of steps has the columns cluster, model, nodes, workers, local_batch, step_time_s and
sync_time_s; one of epochs has workload, global_batch, run and epochs_to_target. Small rows are
fitted, large ones scored; no fit sees a row that it is scored on.
docs/explanation/backtest.md has figures.
"""


def add_parser(subparsers: Any) -> None:
    """Add `backtest` to the command line's parsers."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "backtest",
        help="check projections against figures that are known",
        description="Fit the small rows of measured tables and score the large ones.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("files", metavar="FILE.csv", nargs="+", help="tables of steps or of epochs")
    gradients = "bytes of each model's gradients, as bert=440MB (with --link)"
    add_flags(
        parser,
        (
            *("--fit-workers", "N", "fit rows of up to N workers, score the others (default 4)"),
            {"default": "4"},
        ),
        (
            *("--fit-nodes", "N"),
            "fit only rows of up to N nodes, as somebody with so many would have them",
        ),
        (
            *("--link", "LINK"),
            "what connects the nodes: 25Gbit, nvlink, RATE,LATENCY (with --fit-nodes 1)",
        ),
        ("--gradients", "MODEL=SIZE,...", gradients, {"action": "append", "default": []}),
        ("--json", None, "print one JSON object"),
        ("--rows", None, "list every scored row in the JSON"),
        (
            *("--write-track-record", "FILE"),
            "write how right projections of steps were, and how wide intervals must be",
        ),
    )
    parser.set_defaults(func=main)


def main(args: argparse.Namespace) -> int:
    """Score each file; return 0."""
    split = _split(args)
    if args.rows and not args.json:
        raise UsageError("--rows adds to what --json prints. Give both.")
    from farandole.model.projection.backtest import backtest, make_record
    from farandole.model.projection.tables import StepTrace, read_trace
    from farandole.report.backtest import lines, to_json

    traces = {name: read_trace(Path(name)) for name in args.files}
    if args.write_track_record is not None:
        from farandole.study.folder import write_text

        steps = [trace for trace in traces.values() if isinstance(trace, StepTrace)]
        if not steps:
            raise UsageError("--write-track-record needs a table of steps. Add one.")
        groups = {key: rows for trace in steps for key, rows in trace.groups.items()}
        record = make_record(groups)
        reaches = ",\n  ".join(map(json.dumps, record.pop("reaches")))
        about = json.dumps(record).removesuffix("}")
        write_text(Path(args.write_track_record), f'{about},\n "reaches": [\n  {reaches}\n ]}}\n')
        print(f"{args.write_track_record}: how right projections of {len(groups)} models were")
        return 0
    scores = []
    for name in args.files:
        scores.append((name, backtest(traces[name], split)))
        if not args.json:
            print("\n".join(lines(*scores[-1])), flush=True)
    if args.json:
        print(json.dumps(to_json(scores, rows=args.rows), indent=1, allow_nan=False))
    return 0


def _split(args: argparse.Namespace) -> Split:
    from farandole.model.projection.backtest import Split
    from farandole.model.projection.question import parse_link
    from farandole.study.values import count

    hosts = None if args.fit_nodes is None else count(args.fit_nodes, flag="--fit-nodes")
    if args.link is not None and hosts != 1:
        raise UsageError(
            f"--link {args.link} is for fits that see no network. Add --fit-nodes 1, or leave it "
            "out: rows of several nodes say how fast theirs is."
        )
    if args.gradients and args.link is None:
        shown = ",".join(args.gradients)
        raise UsageError(f"--gradients {shown} needs the --link that they go over.")
    return Split(
        fit_workers=count(args.fit_workers, flag="--fit-workers"),
        fit_hosts=hosts,
        link=None if args.link is None else parse_link(args.link),
        gradient_bytes=_sizes(args.gradients),
    )


def _sizes(texts: Sequence[str]) -> dict[str, int]:
    """Read `bert=440MB,resnet=100MB`, from as many flags as there are."""
    from farandole.study.values import size

    found: dict[str, int] = {}
    for part in filter(None, ",".join(texts).split(",")):
        name, equals, value = part.rpartition("=")
        model = name.strip()
        if not equals or not model:
            raise UsageError(f"--gradients {part}: write MODEL=SIZE, as bert=440MB.")
        if model in found:
            raise UsageError(f"--gradients says twice how large those of {model} are. Say it once.")
        found[model] = size(value, flag=f"--gradients {model}")
    return found
