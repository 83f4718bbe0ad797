"""`farandole env`: what this machine and this installation have."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from farandole.version import __version__

_PACKAGES = ("torch", "numpy", "keras", "tensorflow", "mpi4py")
_EPILOG = """\
examples:
  farandole env
  farandole env --json
"""


def add_parser(subparsers: Any) -> None:
    """Add `env` to the command line's parsers."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "env",
        help="what this machine and this installation have",
        description="Show what decides how workers run here; put it into bug reports.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, schema 1")
    parser.set_defaults(func=main)


def main(args: argparse.Namespace) -> int:
    """Print the facts."""
    facts = collect()
    if args.json:
        print(json.dumps(facts, indent=2))
    else:
        print("\n".join(render(facts)))
    return 0


def collect() -> dict[str, Any]:
    """Gather the facts; versions come from the installation, nothing is imported for them."""
    from farandole.launch.gpus import count_gpus
    from farandole.world.cores import read_cores

    cores = read_cores()
    return {
        "schema": 1,
        "farandole": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "hostname": platform.node(),
        "cores": {
            "available": cores.available,
            "affinity": cores.affinity,
            "physical": cores.physical,
            "quota": cores.quota,
        },
        "gpus": count_gpus(os.environ),
        "packages": {name: _version(name) for name in _PACKAGES},
        "variables": {name: value for name, value in sorted(os.environ.items()) if _matters(name)},
    }


def render(facts: dict[str, Any]) -> list[str]:
    """Put the facts into lines."""
    cores = facts["cores"]
    quota = "none" if cores["quota"] is None else f"{cores['quota']:g} cores"
    rows = [
        ("farandole", facts["farandole"]),
        ("python", f"{facts['python']} ({facts['executable']})"),
        ("system", f"{facts['system']}, {facts['machine']}"),
        (
            "cores",
            f"{cores['available']} available ({cores['physical']} physical, "
            f"affinity {cores['affinity']}, quota {quota})",
        ),
        ("GPUs", str(facts["gpus"])),
        *((name, found or "not installed") for name, found in facts["packages"].items()),
        *facts["variables"].items(),
    ]
    width = max(len(name) for name, _ in rows)
    return [f"{name:<{width}}  {value}" for name, value in rows]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _matters(name: str) -> bool:
    return name.startswith("FARANDOLE_") or name in (
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "CUDA_VISIBLE_DEVICES",
        "MASTER_ADDR",
        "MASTER_PORT",
        "GLOO_SOCKET_IFNAME",
    )
