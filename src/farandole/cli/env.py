"""`farandole env`: what this machine and this installation have."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from dataclasses import asdict
from typing import Any

from farandole.cli.command import JSON, Command, flag, print_json
from farandole.format import plural
from farandole.version import __version__
from farandole.world.machine import package_version

_PACKAGES = ("torch", "numpy", "keras", "tensorflow", "jax", "mpi4py")
# Those of others that decide how workers run.
_VARIABLES = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES"),
    *("MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME"),
)
COMMAND = Command(
    name="env",
    text="Show what decides how workers run on this machine. Please put it into bug reports.",
    usage="[options]",
    flags={
        "options": (
            JSON,
            flag(
                *("--check", ""),
                "train on 2 workers, or one per GPU, and verify values, gradients and speed",
            ),
        )
    },
    examples="""
farandole env
farandole env --json
farandole env --check
""",
)


def main(args: argparse.Namespace) -> int:
    """Print the facts, and what a check found."""
    facts = collect()
    if args.check:
        facts["check"] = check(facts["gpus"])
    if args.json:
        print_json(facts)
    else:
        print("\n".join(render(facts)))
    return 0 if not args.check or facts["check"]["right"] else 1


def check(gpus: int) -> dict[str, Any]:
    """Verify values, gradients and the ratio to DDP on this machine."""
    from farandole.launch.function import run
    from farandole.testing.selfcheck import check_worker

    findings = run(check_worker, np=max(gpus, 2))
    wrong = {
        f"{what}, rank {rank}": found[what]
        for rank, found in enumerate(findings)
        for what in ("values", "gradients")
        if found[what]
    }
    # The slowest rank is the one that all wait for.
    step_ms, ddp_ms = (max(found[key] for found in findings) for key in ("step_ms", "ddp_step_ms"))
    return {
        "right": not wrong,
        "wrong": wrong,
        "devices": [found["device"] for found in findings],
        "step_ms": step_ms,
        "ddp_step_ms": ddp_ms,
        "ratio_to_ddp": ddp_ms / step_ms,
    }


def collect() -> dict[str, Any]:
    """Gather the facts; versions come from the installation, nothing is imported for them."""
    from farandole.launch.plan import count_gpus
    from farandole.transport.hosts import shared_memory_works
    from farandole.world.cores import read_cores
    from farandole.world.machine import read_technologies

    cores = read_cores()
    technologies = read_technologies(
        shared_memory=shared_memory_works(sys.platform, platform.machine())
    )
    return {
        "schema": 1,
        "farandole": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "hostname": platform.node(),
        "cores": {
            name: getattr(cores, name) for name in ("available", "affinity", "physical", "quota")
        },
        "gpus": count_gpus(os.environ),
        "packages": {name: package_version(name) for name in _PACKAGES},
        "technologies": [asdict(one) for one in technologies],
        "variables": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith("FARANDOLE_") or name in _VARIABLES
        },
    }


def render(facts: dict[str, Any]) -> list[str]:
    """Put the facts into lines."""
    cores = facts["cores"]
    quota = "none" if cores["quota"] is None else f"{cores['quota']:g} cores"
    counted = f"({cores['physical']} physical, affinity {cores['affinity']}, quota {quota})"
    rows = {
        "farandole": facts["farandole"],
        "python": f"{facts['python']} ({facts['executable']})",
        "system": f"{facts['system']}, {facts['machine']}",
        "cores": f"{cores['available']} available {counted}",
        "GPUs": str(facts["gpus"]),
        **{name: found or "not installed" for name, found in facts["packages"].items()},
        **{
            one["name"]: f"{one['found'] or 'no'}: {one['remark']}" for one in facts["technologies"]
        },
        **facts["variables"],
    }
    if found := facts.get("check"):
        workers = f"{plural(len(found['devices']), 'worker')} ({', '.join(found['devices'])})"
        verdict = "all right" if found["right"] else "WRONG"
        step = f"{found['step_ms']:.1f} ms; DDP {found['ddp_step_ms']:.1f} ms"
        rows |= {
            "check": f"{verdict}: values and gradients on {workers}",
            **found["wrong"],
            "step": f"{step}: {found['ratio_to_ddp']:.2f} times its speed",
        }
    width = max(map(len, rows))
    return [f"{name:<{width}}  {value}" for name, value in rows.items()]
