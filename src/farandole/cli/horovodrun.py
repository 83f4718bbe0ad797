"""`farandole horovodrun`: Horovod's command line, with workers of Farandole."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Mapping
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
_SWITCHES = (
    "hierarchical-allreduce",
    "hierarchical-allgather",
    "torus-allreduce",
    "autotune",
    "mpi-threads-disable",
    "log-hide-timestamp",
)
_PLAIN = (
    *("--disable-cache", "--verbose"),
    *(f"--{no}{name}" for name in _SWITCHES for no in ("", "no-")),
    *("--tcp", "--log-with-timestamp", "--log-without-timestamp", "--gloo", "--mpi", "--jsrun"),
)
_ELASTIC = {"--min-np": "--min-num-proc", "--max-np": "--max-num-proc"}

# Horovod's flags that mean the same here: their value's name and help, and the flag of `run`.
_TRANSLATED = {
    ("-np", "--num-proc"): ("N", "how many workers", "-np"),
    ("-H", "--hosts"): ("HOSTS", "where: host1:2,host2:4", "-H"),
    ("-hostfile", "--hostfile"): ("FILE", "where: lines such as `host1 slots=2`", "--hostfile"),
    ("--start-timeout",): ("S", "seconds to wait for all workers (default 60)", "--start-timeout"),
    ("--output-filename",): ("DIR", "keep DIR/rank.<rank>/stdout and stderr too", "--output-dir"),
    ("--stall-check-warning-time-seconds",): ("S", "after so long (default 60)", "--stall-warning"),
    ("--stall-check-shutdown-time-seconds",): (
        *("S", "end after so long (default: no)", "--stall-shutdown"),
    ),
}
# Settings of a configuration file, and the flags that they stand for.
_CONFIG = {
    ("timeline", "filename"): "timeline_filename",
    ("timeline", "mark-cycles"): "timeline_mark_cycles",
    ("stall-check", "enabled"): "stall_check",
    ("stall-check", "warning-time-seconds"): "stall_check_warning_time_seconds",
    ("stall-check", "shutdown-time-seconds"): "stall_check_shutdown_time_seconds",
}


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
    add("-cb", "--check-build", action="store_true", help="show what there is, and exit")
    for names, (metavar, text, _) in _TRANSLATED.items():
        add(*names, metavar=metavar, help=text)
    add("--host-discovery-script", metavar="FILE", help=argparse.SUPPRESS)
    add("-p", "--ssh-port", metavar="PORT", help="the port of ssh on the hosts")
    add("-i", "--ssh-identity-file", metavar="FILE", help="the key file of ssh")
    add("--timeline-filename", metavar="FILE", help="write a timeline of all workers")
    for name, text in (
        ("timeline-mark-cycles", "mark in it when operations were agreed on"),
        ("stall-check", "report operations that ranks have not submitted"),
    ):
        both: dict[str, Any] = {"dest": _dest(name), "default": None}
        add(f"--{name}", action="store_true", help=text, **both)
        add(f"--no-{name}", action="store_false", help=argparse.SUPPRESS, **both)
    add("--config-file", metavar="FILE", help="settings in YAML; flags count more")
    for flag in _VALUED:
        add(flag, action="append", help=argparse.SUPPRESS)
    for flag in _PLAIN:
        # Not by its name alone, or --no-autotune and --autotune were one.
        add(flag, action="store_true", dest=flag, default=None, help=argparse.SUPPRESS)
    for names in _ELASTIC.items():
        add(*names, metavar="N", help=argparse.SUPPRESS)
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
    arguments, variables = translate(args)
    if ignored := ignored_flags(args):
        line = f"farandole: these mean nothing to Farandole: {', '.join(ignored)}"
        print(line, file=sys.stderr, flush=True)
    from farandole.cli import run

    parser = argparse.ArgumentParser(prog="farandole horovodrun")
    run.add_parser(parser.add_subparsers())
    command = args.command_line[1:] if args.command_line[:1] == ["--"] else args.command_line
    parsed = parser.parse_args(["run", *arguments, "--", *command])
    # What workers are told beyond the flags they inherit from here, on other hosts too.
    os.environ.update(variables)
    return run.main(parsed)


def translate(
    args: argparse.Namespace, environ: Mapping[str, str] = os.environ
) -> tuple[list[str], dict[str, str]]:
    """Return the flags of `farandole run` for those of horovodrun, and variables for the workers.

    Raises:
        UsageError: Something is asked for that cannot be had, and without which the run would be
            another one.
    """
    if args.host_discovery_script is not None:
        raise UsageError(
            f"--host-discovery-script {args.host_discovery_script}: Farandole has no elastic runs. "
            "Give the hosts by -H or --hostfile."
        )
    given = vars(args)
    values = {flag: given[_dest(names[-1])] for names, (*_, flag) in _TRANSLATED.items()}
    if values["--start-timeout"] is None:
        values["--start-timeout"] = environ.get("HOROVOD_START_TIMEOUT") or None
    if args.stall_check is False:
        values["--stall-warning"] = "0"
    ssh = _given({"-p": args.ssh_port, "-i": args.ssh_identity_file})
    values["--rsh"] = shlex.join(["ssh", *ssh]) if ssh else None
    variables = {}
    if args.timeline_filename is not None:
        variables["HOROVOD_TIMELINE"] = str(args.timeline_filename)
    if args.timeline_mark_cycles:
        variables["HOROVOD_TIMELINE_MARK_CYCLES"] = "1"
    return _given(values), variables


def _given(flags: Mapping[str, Any]) -> list[str]:
    """Return those flags that have a value, as words of a command."""
    return [str(word) for pair in flags.items() if pair[1] is not None for word in pair]


def ignored_flags(args: argparse.Namespace) -> list[str]:
    """Name the given flags that mean nothing here."""
    given = vars(args)
    others = ("--blacklist-cooldown-range", "--prefix-output-with-timestamp")
    return [
        *(flag for flag in _PLAIN if given[flag]),
        *(flag for flag in (*_VALUED, *_ELASTIC, *others) if given[_dest(flag)] is not None),
        *(f"{name} (--config-file)" for name in given.get("config_ignored", ())),
    ]


def _dest(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def apply_config(args: argparse.Namespace, config: Mapping[str, Any]) -> None:
    """Fill in from a configuration file what no flag has said; name what means nothing here."""
    args.config_ignored = []
    for section, settings in config.items():
        for name, value in settings.items() if isinstance(settings, Mapping) else ():
            flag = _CONFIG.get((str(section).replace("_", "-"), str(name).replace("_", "-")))
            if flag is None:
                args.config_ignored.append(f"{section}.{name}")
            elif getattr(args, flag) is None:
                setattr(args, flag, value)
        if not isinstance(settings, Mapping):
            args.config_ignored.append(str(section))


def check_build() -> str:
    """Draw what there is in the form that horovodrun has."""
    from importlib.util import find_spec

    from farandole.engine import basics
    from farandole.launch.horovod_alias import VERSION

    modules = {"TensorFlow": "tensorflow", "PyTorch": "torch", "Keras 3": "keras"}
    frameworks = {name: find_spec(module) is not None for name, module in modules.items()}
    controllers = {"MPI": basics.mpi_built(), "Gloo": basics.gloo_built()}
    libraries = {"NCCL": basics.nccl_built(), "DDL": basics.ddl_built(), "CCL": basics.ccl_built()}
    rows: dict[str, dict[str, Any]] = {
        "Available Frameworks": {**frameworks, "MXNet": False},
        "Available Controllers": controllers,
        "Available Tensor Operations": {**libraries, **controllers},
    }
    lines = [f"Horovod v{VERSION}, answered by Farandole:"]
    for title, found in rows.items():
        lines += ["", f"{title}:"]
        lines += [f"    [{'X' if yes else ' '}] {name}" for name, yes in found.items()]
    return "\n".join(lines)


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
