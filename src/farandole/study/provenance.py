"""Where a study was made: what a reader must know to compare its figures with others."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from farandole.launch.gpus import count_gpus
from farandole.world.machine import describe_machine

PACKAGES = ("torch", "keras", "tensorflow", "jax", "numpy", "scipy", "mpi4py", "horovod")

# A repository on a slow network drive shall not hold a study up.
_GIT_LIMIT_S = 5.0


def machine(
    folder: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    root: Path = Path("/"),
) -> dict[str, Any]:
    """Return this machine, its versions and the state of the code, as study.json has them.

    Args:
        folder: Where the user's script lies; the working directory when None.
        environ: Variables; this process's when None.
        root: The root of /proc and /sys; another folder in tests.
    """
    described = asdict(describe_machine(PACKAGES, root=root))
    return {
        **described,
        "gpus": gpu_names(os.environ if environ is None else environ, root),
        "git": git_state(folder or Path.cwd()),
    }


def gpu_names(environ: Mapping[str, str], root: Path = Path("/")) -> list[str]:
    """Return the names of the GPUs that workers could have, without importing torch."""
    names = []
    places = sorted((root / "proc/driver/nvidia/gpus").glob("*"))
    for place in places:
        try:
            lines = (place / "information").read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        models = [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
        names.append(models[0] if models else "GPU")
    visible = environ.get("CUDA_VISIBLE_DEVICES", "")
    chosen = [int(part) for part in visible.split(",") if part.strip().isdigit()]
    if chosen and all(index < len(names) for index in chosen):
        return [names[index] for index in chosen]
    return names[: count_gpus(environ, root)]


def git_state(folder: Path) -> dict[str, Any] | None:
    """Return commit and whether tracked files differ from it; None outside of a repository."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    # A new file does not change what was committed; a script that is not tracked is rare enough.
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit.strip(), "dirty": None if changes is None else bool(changes.strip())}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            # A reader takes no lock in somebody's repository.
            ["git", "--no-optional-locks", "-C", str(folder), *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=_GIT_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
