"""`farandole horovodrun`: Horovod's command line, with workers of Farandole."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farandole.errors import UsageError

_EPILOG = """\
examples:
  farandole horovodrun -np 4 python train.py
  farandole horovodrun -np 4 -H host1:2,host2:2 python train.py
  farandole horovodrun -np 2 --timeline-filename timeline.json python train.py

Flags of horovodrun 0.28 are taken; one line says which of them mean nothing here.
`farandole run` has flags of its own: threads per worker, transports, recording.
"""

# What belongs to Horovod's own machinery: with a value, and without.
_VALUED = (
    "--network-interfaces",
    "--network-interface",
    "--fusion-threshold-mb",
    "--cycle-time-ms",
    "--cache-capacity",
    "--autotune-log-file",
    "--autotune-warmup-samples",
    "--autotune-steps-per-sample",
    "--autotune-bayes-opt-max-samples",
    "--autotune-gaussian-process-noise",
    "--slots-per-host",
    "--elastic-timeout",
    "--reset-limit",
    "--mpi-args",
    "--binding-args",
    "--num-nccl-streams",
    "--thread-affinity",
    "--gloo-timeout-seconds",
    "--log-level",
)
_PLAIN = (
    "--disable-cache",
    "--verbose",
    "--hierarchical-allreduce",
    "--no-hierarchical-allreduce",
    "--hierarchical-allgather",
    "--no-hierarchical-allgather",
    "--torus-allreduce",
    "--no-torus-allreduce",
    "--autotune",
    "--no-autotune",
    "--mpi-threads-disable",
    "--no-mpi-threads-disable",
    "--tcp",
    "--log-with-timestamp",
    "--log-without-timestamp",
    "--log-hide-timestamp",
    "--no-log-hide-timestamp",
    "--gloo",
    "--mpi",
    "--jsrun",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """A command of horovodrun as one of `farandole run`."""

    arguments: tuple[str, ...]
    """Of `farandole run`, without the command."""
    variables: Mapping[str, str]
    """To set for the workers."""
    ignored: tuple[str, ...]
    """The flags that mean nothing here."""


def add_parser(subparsers: Any) -> None:
    """Add `horovodrun` to the command line's parsers."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "horovodrun",
        help="Horovod's command line",
        description="Start a command on several workers, by Horovod's flags.",
        usage="farandole horovodrun -np N [options] COMMAND ...",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("-v", "--version", action="store_true", help="show Horovod's version that is followed")
    add("-np", "--num-proc", metavar="N", help="how many workers")
    add("-cb", "--check-build", action="store_true", help="show what there is, and exit")
    add("-H", "--hosts", metavar="HOSTS", help="where: host1:2,host2:4")
    add("-hostfile", "--hostfile", metavar="FILE", help="where: lines such as `host1 slots=2`")
    add("--host-discovery-script", metavar="FILE", help=argparse.SUPPRESS)
    add("-p", "--ssh-port", metavar="PORT", help="the port of ssh on the hosts")
    add("-i", "--ssh-identity-file", metavar="FILE", help="the key file of ssh")
    add("--start-timeout", metavar="S", help="seconds to wait for all workers (default 60)")
    add("--output-filename", metavar="DIR", help="keep DIR/rank.<rank>/stdout and stderr too")
    add("--timeline-filename", metavar="FILE", help="write a timeline of all workers")
    _add_switch(parser, "timeline-mark-cycles", help="mark in it when operations were agreed on")
    _add_switch(parser, "stall-check", help="report operations that ranks have not submitted")
    add("--stall-check-warning-time-seconds", metavar="S", help="after so long (default 60)")
    add("--stall-check-shutdown-time-seconds", metavar="S", help="end after so long (default: no)")
    add("--config-file", metavar="FILE", help="settings in YAML; flags count more")
    for flag in _VALUED:
        add(flag, action="append", help=argparse.SUPPRESS)
    for flag in _PLAIN:
        # Not by its name alone, or --no-autotune and --autotune were one.
        add(flag, action="store_true", dest=flag, default=None, help=argparse.SUPPRESS)
    add("--min-np", "--min-num-proc", metavar="N", help=argparse.SUPPRESS)
    add("--max-np", "--max-num-proc", metavar="N", help=argparse.SUPPRESS)
    add("--blacklist-cooldown-range", nargs=2, help=argparse.SUPPRESS)
    add(
        "-prefix-timestamp",
        "--prefix-output-with-timestamp",
        action="store_true",
        default=None,
        help=argparse.SUPPRESS,
    )
    add("command_line", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(func=main)


def main(args: argparse.Namespace) -> int:
    """Do what horovodrun would; return an exit code as `farandole run` does."""
    if args.version:
        from farandole.launch.horovod_alias import VERSION
        from farandole.version import __version__

        print(f"{VERSION} (answered by farandole {__version__})")
        return 0
    if args.check_build:
        print(check_build())
        return 0
    if args.config_file is not None:
        apply_config(args, read_config(Path(args.config_file)))
    translation = translate(args)
    if translation.ignored:
        print(
            f"farandole: these mean nothing to Farandole: {', '.join(translation.ignored)}",
            file=sys.stderr,
            flush=True,
        )
    from farandole.cli import run

    parser = argparse.ArgumentParser(prog="farandole horovodrun")
    run.add_parser(parser.add_subparsers())
    command = args.command_line[1:] if args.command_line[:1] == ["--"] else args.command_line
    parsed = parser.parse_args(["run", *translation.arguments, "--", *command])
    # What workers are told beyond the flags they inherit from here, on other hosts too.
    os.environ.update(translation.variables)
    return run.main(parsed)


def translate(args: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Translation:
    """Put flags of horovodrun into flags of `farandole run`.

    Args:
        args: The flags.
        environ: The environment, which may hold Horovod's start time-out.

    Raises:
        UsageError: Something is asked for that cannot be had, and without which the run would be
            another one.
    """
    if args.host_discovery_script is not None:
        raise UsageError(
            f"--host-discovery-script {args.host_discovery_script}: Farandole has no elastic runs. "
            "Give the hosts by -H or --hostfile."
        )
    arguments: list[str] = []
    for flag, value in (
        ("-np", args.num_proc),
        ("-H", args.hosts),
        ("--hostfile", args.hostfile),
        ("--start-timeout", args.start_timeout or environ.get("HOROVOD_START_TIMEOUT") or None),
        ("--output-dir", args.output_filename),
        ("--rsh", _rsh(args)),
        ("--stall-shutdown", args.stall_check_shutdown_time_seconds),
    ):
        if value is not None:
            arguments += [flag, str(value)]
    warning = args.stall_check_warning_time_seconds
    if args.stall_check is False:
        warning = "0"
    if warning is not None:
        arguments += ["--stall-warning", str(warning)]
    variables = {}
    if args.timeline_filename is not None:
        variables["HOROVOD_TIMELINE"] = str(args.timeline_filename)
    if args.timeline_mark_cycles:
        variables["HOROVOD_TIMELINE_MARK_CYCLES"] = "1"
    return Translation(
        arguments=tuple(arguments), variables=variables, ignored=tuple(_ignored(args))
    )


def apply_config(args: argparse.Namespace, config: Mapping[str, Any]) -> None:
    """Fill in from a configuration file what no flag has said; name what means nothing here."""
    places = {
        ("timeline", "filename"): "timeline_filename",
        ("timeline", "mark-cycles"): "timeline_mark_cycles",
        ("stall-check", "enabled"): "stall_check",
        ("stall-check", "warning-time-seconds"): "stall_check_warning_time_seconds",
        ("stall-check", "shutdown-time-seconds"): "stall_check_shutdown_time_seconds",
    }
    args.config_ignored = []
    for section, settings in config.items():
        for name, value in settings.items() if isinstance(settings, Mapping) else ():
            place = places.get((str(section).replace("_", "-"), str(name).replace("_", "-")))
            if place is None:
                args.config_ignored.append(f"{section}.{name}")
            elif getattr(args, place) is None:
                setattr(args, place, value)
        if not isinstance(settings, Mapping):
            args.config_ignored.append(str(section))


def check_build() -> str:
    """Draw what there is in the form that horovodrun has."""
    from importlib.util import find_spec

    from farandole.engine.basics import (
        ccl_built,
        ddl_built,
        gloo_built,
        mpi_built,
        nccl_built,
    )
    from farandole.launch.horovod_alias import VERSION

    def there(*names: str) -> bool:
        return all(find_spec(name) is not None for name in names)

    rows: tuple[tuple[str, Mapping[str, bool]], ...] = (
        (
            "Available Frameworks",
            {
                "TensorFlow": there("tensorflow"),
                "PyTorch": there("torch"),
                "Keras 3": there("keras"),
                "MXNet": False,
            },
        ),
        ("Available Controllers", {"MPI": mpi_built(), "Gloo": gloo_built()}),
        (
            "Available Tensor Operations",
            {
                "NCCL": bool(nccl_built()),
                "DDL": ddl_built(),
                "CCL": ccl_built(),
                "MPI": mpi_built(),
                "Gloo": gloo_built(),
            },
        ),
    )
    lines = [f"Horovod v{VERSION}, answered by Farandole:"]
    for title, found in rows:
        lines += ["", f"{title}:"]
        lines += [f"    [{'X' if yes else ' '}] {name}" for name, yes in found.items()]
    return "\n".join(lines)


def _add_switch(parser: argparse.ArgumentParser, name: str, *, help: str) -> None:
    """Add a flag and its `--no-`; None when neither is given."""
    dest = name.replace("-", "_")
    parser.add_argument(f"--{name}", action="store_true", dest=dest, default=None, help=help)
    parser.add_argument(
        f"--no-{name}", action="store_false", dest=dest, default=None, help=argparse.SUPPRESS
    )


def _ignored(args: argparse.Namespace) -> Sequence[str]:
    """Name the given flags that mean nothing here."""
    given = vars(args)
    names = [flag for flag in _PLAIN if given[flag]]
    others = (
        *_VALUED,
        "--min-np",
        "--max-np",
        "--blacklist-cooldown-range",
        "--prefix-output-with-timestamp",
    )
    names += [flag for flag in others if given[flag[2:].replace("-", "_")] is not None]
    return [*names, *(f"{name} (--config-file)" for name in given.get("config_ignored", ()))]


def _rsh(args: argparse.Namespace) -> str | None:
    """Return the command that reaches the hosts, if the usual one does not do."""
    import shlex

    port, identity = args.ssh_port, args.ssh_identity_file
    if port is None and identity is None:
        return None
    words = ["ssh"]
    words += ["-p", str(port)] if port is not None else []
    words += ["-i", str(identity)] if identity is not None else []
    return shlex.join(words)


def read_config(path: Path) -> Mapping[str, Any]:
    """Read a configuration file.

    Raises:
        UsageError: It cannot be read, or is not one.
    """
    from importlib import import_module

    try:
        yaml: Any = import_module("yaml")
    except ImportError as error:
        raise UsageError(
            f"--config-file {path}: reading it needs PyYAML. Install it (pip install pyyaml), or "
            "give its settings as flags."
        ) from error
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise UsageError(f"--config-file {path}: it cannot be read ({error}).") from error
    if not isinstance(config, Mapping):
        raise UsageError(f"--config-file {path}: it has no settings of the form `name: value`.")
    return config
