"""`farandole backtest`: check projections against figures that are known."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from farandole.cli.command import JSON, Command, flag, print_json
from farandole.errors import UsageError

if TYPE_CHECKING:
    from farandole.model.projection.backtest import Split

COMMAND = Command(
    name="backtest",
    text="Score projections: fit the rows with few workers of measured tables, and predict the "
    "others.",
    usage="[options] FILE.csv ...",
    flags={
        "options": (
            flag("files", "FILE.csv", "tables of steps or of epochs", nargs="+"),
            flag(
                *("--fit-workers", "N"),
                "fit rows of up to N workers, score the others (default 4)",
                default="4",
            ),
            flag("--fit-nodes", "N", "fit only rows of up to N nodes"),
            flag(
                *("--link", "LINK"),
                "what connects the nodes: 25Gbit, nvlink, RATE,LATENCY (with --fit-nodes 1)",
            ),
            flag(
                *("--gradients", "MODEL=SIZE,..."),
                "bytes of each model's gradients, as bert=440MB (with --link)",
                repeated=True,
            ),
            JSON,
            flag("--rows", "", "list every scored row in the JSON"),
            flag(
                *("--write-track-record", "FILE"),
                "write how accurate projections of steps were, and how wide intervals must be",
            ),
        )
    },
    usual="files --fit-workers --fit-nodes --link --json",
    examples="""
farandole backtest steps.csv epochs.csv
farandole backtest steps.csv --fit-workers 8 --json
farandole backtest steps.csv --fit-nodes 1 --link 25Gbit
""",
    notes="""
Columns of a table of steps: cluster, model, nodes, workers, local_batch,
step_time_s, sync_time_s; of one of epochs: workload, global_batch, run,
epochs_to_target. See docs/explanation/backtest.md.
""",
)


def main(args: argparse.Namespace) -> int:
    """Score each file; return 0."""
    split = _split(args)
    if args.rows and not args.json:
        raise UsageError("--rows adds rows to the JSON. Give --json, too.")
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
        print(f"{args.write_track_record}: the accuracy of projections of {len(groups)} models")
        return 0
    scores = []
    for name in args.files:
        scores.append((name, backtest(traces[name], split)))
        if not args.json:
            print("\n".join(lines(*scores[-1])), flush=True)
    if args.json:
        print_json(to_json(scores, rows=args.rows))
    return 0


def _split(args: argparse.Namespace) -> Split:
    from farandole.model.projection.backtest import Split
    from farandole.model.projection.question import parse_link
    from farandole.study.values import count

    hosts = None if args.fit_nodes is None else count(args.fit_nodes, flag="--fit-nodes")
    if args.link is not None and hosts != 1:
        raise UsageError(
            f"--link {args.link} is for fits without a network. Add --fit-nodes 1, or leave out "
            "--link: rows of several nodes show how fast theirs is."
        )
    if args.gradients and args.link is None:
        shown = ",".join(args.gradients)
        raise UsageError(f"--gradients {shown} needs --link, the network that they go over.")
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
            raise UsageError(f"--gradients gives the size for {model} twice. Give it once.")
        found[model] = size(value, flag=f"--gradients {model}")
    return found
