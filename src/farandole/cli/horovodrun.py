"""`farandole horovodrun`: Horovod's command line, with workers of Farandole."""

from __future__ import annotations

import argparse
import os
import shlex
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from farandole.cli.command import Command, Flag, flag, say, user_command
from farandole.errors import UsageError

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
_OTHERS = ("--prefix-output-with-timestamp",)
_ELASTIC = (
    flag("--min-np --min-num-proc", "N", "go on after a failure with at least N workers"),
    flag("--max-np --max-num-proc", "N", "take in new workers up to N (default: no limit)"),
    flag("--host-discovery-script", "FILE", "prints the hosts there are now: `host:slots`"),
    flag(
        *("--slots-per-host", "N"),
        "workers on a host for which the script prints no number (default 1)",
    ),
    flag("--elastic-timeout", "S", "seconds to wait for enough workers (default 600)"),
    flag("--reset-limit", "N", "how often the set of workers may change (default: no limit)"),
    flag(
        *("--blacklist-cooldown-range", "MIN MAX"),
        "seconds for which a host with a failed worker is excluded, the first time and at most "
        "(default: for good)",
        nargs=2,
    ),
    flag("--blacklist", "slot|host", "what a failed worker excludes (default host)"),
)

# Horovod's flags that mean the same here, and the flag of `run`.
_TRANSLATED = (
    ("-np", flag("-np --num-proc", "N", "number of workers")),
    ("-H", flag("-H --hosts", "HOSTS", "hosts, with the number of workers on each: h1:2,h2:4")),
    ("--hostfile", flag("-hostfile --hostfile", "FILE", "hosts from a file: `h1 slots=2`")),
    ("--start-timeout", flag("--start-timeout", "S", "wait for all workers (default 60)")),
    (
        "--output-dir",
        flag("--output-filename", "DIR", "write DIR/rank.<rank>/stdout and stderr too"),
    ),
    (
        "--stall-warning",
        flag("--stall-check-warning-time-seconds", "S", "report it after S seconds (default 60)"),
    ),
    (
        "--stall-shutdown",
        flag("--stall-check-shutdown-time-seconds", "S", "end the job after S (default: no)"),
    ),
)
# Settings of a configuration file, and the flags that they stand for.
_CONFIG = {
    ("timeline", "filename"): "timeline_filename",
    ("timeline", "mark-cycles"): "timeline_mark_cycles",
    ("stall-check", "enabled"): "stall_check",
    ("stall-check", "warning-time-seconds"): "stall_check_warning_time_seconds",
    ("stall-check", "shutdown-time-seconds"): "stall_check_shutdown_time_seconds",
}


def _dest(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def _pair(name: str, text: str) -> tuple[Flag, Flag]:
    """Return a switch and the one that turns it off."""
    both: dict[str, Any] = {"dest": _dest(name), "default": None}
    return (
        flag(f"--{name}", "", text, action="store_true", **both),
        flag(f"--no-{name}", "", "turn that off", action="store_false", **both),
    )


COMMAND = Command(
    name="horovodrun",
    text="Start a command on several workers with the flags of horovodrun 0.28.",
    usage="-np N [options] COMMAND ...",
    flags={
        "options": (
            *(one for _, one in _TRANSLATED),
            flag("-p --ssh-port", "PORT", "the port of ssh on the hosts"),
            flag("-i --ssh-identity-file", "FILE", "the key file of ssh"),
            flag("--timeline-filename", "FILE", "write a timeline of all workers"),
            *_pair("timeline-mark-cycles", "mark in it when operations were agreed on"),
            *_pair("stall-check", "report operations that ranks have not submitted"),
            flag("--config-file", "FILE", "settings in YAML; flags take precedence"),
            flag("-v --version", "", "show the version of Horovod that is followed"),
            flag("-cb --check-build", "", "show what is available, and exit"),
        ),
        "elastic runs, with --min-np or --host-discovery-script": _ELASTIC,
    },
    usual="-np -H -hostfile --output-filename --timeline-filename --config-file --check-build",
    examples="""
farandole horovodrun -np 4 python train.py
farandole horovodrun -np 4 -H host1:2,host2:2 python train.py
""",
    notes="""
`farandole run` has flags of its own: threads per worker, transports, recording.
""",
    more="Taken, and without effect here (one line says so):\n"
    + textwrap.fill(", ".join((*_VALUED, *_PLAIN, *_OTHERS)), 80, break_on_hyphens=False),
    hidden=(
        *(flag(name, "VALUE", "", repeated=True, default=None) for name in _VALUED),
        # Not by its name alone, or --no-autotune and --autotune were one.
        *(flag(name, "", "", dest=name, default=None) for name in _PLAIN),
        flag("-prefix-timestamp --prefix-output-with-timestamp", "", "", default=None),
    ),
    takes_command=True,
    abbreviations=True,
)


def main(args: argparse.Namespace) -> int:
    """Do what horovodrun would; return an exit code as `farandole run` does."""
    if args.version:
        from farandole.launch.horovod_alias import VERSION
        from farandole.version import __version__

        print(f"{VERSION} (farandole {__version__})")
        return 0
    if args.check_build:
        print(check_build())
        return 0
    if args.config_file is not None:
        apply_config(args, read_config(Path(args.config_file)))
    arguments, variables = translate(args)
    if ignored := ignored_flags(args):
        say(f"farandole: these flags have no effect with Farandole: {', '.join(ignored)}")
    from farandole.cli import run

    parsed = run.COMMAND.parse([*arguments, "--", *user_command(args)])
    # What workers are told beyond the flags they inherit from here, on other hosts too.
    os.environ.update(variables)
    return run.main(parsed)


def translate(
    args: argparse.Namespace, environ: Mapping[str, str] = os.environ
) -> tuple[list[str], dict[str, str]]:
    """Return the flags of `farandole run` for these, and variables for the workers."""
    given = vars(args)
    values = {run: given[_dest(one.names[-1])] for run, one in _TRANSLATED}
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
    return _given(values) + _elastic(args), variables


def _elastic(args: argparse.Namespace) -> list[str]:
    """Return the flags of an elastic run: no limit, and failures exclude hosts, as in Horovod."""
    if not _is_elastic(args):
        return []
    given = {one.names[0]: getattr(args, _dest(one.names[0])) for one in _ELASTIC}
    given["--max-np"] = given["--max-np"] or "auto"
    given["--blacklist"] = given["--blacklist"] or "host"
    cooldown = given.pop("--blacklist-cooldown-range")
    return _given(given) + (["--blacklist-cooldown-range", *cooldown] if cooldown else [])


def _is_elastic(args: argparse.Namespace) -> bool:
    return args.host_discovery_script is not None or args.min_np is not None


def _given(flags: Mapping[str, Any]) -> list[str]:
    """Return those flags that have a value, as words of a command."""
    return [str(word) for pair in flags.items() if pair[1] is not None for word in pair]


def ignored_flags(args: argparse.Namespace) -> list[str]:
    """Name the given flags that mean nothing here."""
    given = vars(args)
    unused = [] if _is_elastic(args) else [one.names[0] for one in _ELASTIC]
    return [
        *(flag for flag in _PLAIN if given[flag]),
        *(flag for flag in (*_VALUED, *unused, *_OTHERS) if given[_dest(flag)] is not None),
        *(f"{name} (--config-file)" for name in given.get("config_ignored", ())),
    ]


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

    from farandole.engine import names
    from farandole.launch.horovod_alias import VERSION

    modules = {"TensorFlow": "tensorflow", "PyTorch": "torch", "Keras 3": "keras"}
    frameworks = {name: find_spec(module) is not None for name, module in modules.items()}
    controllers = {"MPI": names.mpi_built(), "Gloo": names.gloo_built()}
    libraries = {"NCCL": names.nccl_built(), "DDL": names.ddl_built(), "CCL": names.ccl_built()}
    rows: dict[str, dict[str, Any]] = {
        "Available Frameworks": {**frameworks, "MXNet": False},
        "Available Controllers": controllers,
        "Available Tensor Operations": {**libraries, **controllers},
    }
    lines = [f"Horovod v{VERSION}, provided by Farandole:"]
    for title, found in rows.items():
        lines += ["", f"{title}:"]
        lines += [f"    [{'X' if yes else ' '}] {name}" for name, yes in found.items()]
    return "\n".join(lines)


def read_config(path: Path) -> Mapping[str, Any]:
    """Read a configuration file.

    Raises:
        UsageError: It cannot be read, or is no configuration.
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
