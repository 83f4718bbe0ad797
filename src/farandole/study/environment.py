"""What a worker of a study sees: its values, where to write, when to end; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from farandole.recorder.settings import PARAMS, RECORD_DIR, STOP
from farandole.study.plan import Planned
from farandole.study.spec import Spec
from farandole.study.values import typed

# Where libraries write unless a script says so: into the launch's own folder, or runs would mix.
_FOLDERS = {"TENSORBOARD_LOGDIR": "tensorboard", "WANDB_DIR": "", "MLFLOW_TRACKING_URI": "mlruns"}
_ONLY_FOR_WORKERS = ("FARANDOLE_STOP", "FARANDOLE_TIMELINE")


def values_of(one: Planned, *, cell_dir: Path) -> dict[str, int | float | str]:
    """Return the values of a launch, by the names of placeholders and of `farandole.param`."""
    cell = one.cell
    found: dict[str, int | float | str] = {
        "workers": cell.workers,
        "hosts": cell.hosts,
        "seed": one.seed,
        "cell_dir": str(cell_dir),
    }
    if cell.threads is not None:
        found["threads"] = cell.threads
    if cell.batch is not None:
        found["batch"] = cell.batch
        found["global_batch"] = cell.batch * cell.workers
    if cell.transport != "auto":
        found["transport"] = cell.transport
    return found | {name: typed(value) for name, value in cell.params}


def launch_environ(
    base: Mapping[str, str], spec: Spec, one: Planned, *, folder: Path, cell_dir: Path
) -> dict[str, str]:
    """Return the environment to build the workers' from.

    Args:
        base: The study's own.
        spec: What is studied.
        one: The launch.
        folder: Where the workers record.
        cell_dir: The launch's own folder for whatever the script writes.
    """
    environ = {name: value for name, value in base.items() if name not in _ONLY_FOR_WORKERS}
    environ |= dict(spec.environ)
    for name, below in _FOLDERS.items():
        environ.setdefault(name, str(cell_dir / below))
    environ |= {
        RECORD_DIR: str(folder),
        PARAMS: json.dumps(values_of(one, cell_dir=cell_dir)),
        "FARANDOLE_SEED": str(one.seed),
        "FARANDOLE_CELL_DIR": str(cell_dir),
    }
    stop = spec.stop(one.purpose)
    if stop is not None:
        environ[STOP] = json.dumps(stop)
    return environ
