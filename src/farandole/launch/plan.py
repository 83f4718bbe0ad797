"""What to launch: the flags of `farandole run`, checked, with their environment variables."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from farandole.errors import UsageError
from farandole.format import plural
from farandole.world.cores import Cores, threads_per_worker
from farandole.world.environment import DEFAULT_START_TIMEOUT_S, TRANSPORTS, scaled_start_timeout_s

if TYPE_CHECKING:
    from farandole.launch.elastic_options import ElasticOptions

DEFAULT_SILENCE_TIMEOUT_S = 30.0
# Uploads of logs and the like at the end of a script take minutes at worst.
DEFAULT_EXIT_TIMEOUT_S = 300.0
# Setting any of these says how many threads a process should use.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    # TensorFlow reads none of these, nor does XLA, on which JAX computes.
    "TF_NUM_INTRAOP_THREADS",
    "PJRT_NPROC",
)
INTER_OP_VARIABLE = "TF_NUM_INTEROP_THREADS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One launch, fully decided: nothing in it is left to be looked up."""

    argv: tuple[str, ...]
    num_workers: int
    threads: int
    """Threads of each worker."""
    override_threads: bool = False
    """True when --threads was given, which counts more than OMP_NUM_THREADS and its like."""
    transport: str = "auto"
    output_dir: Path | None = None
    start_timeout_s: float = DEFAULT_START_TIMEOUT_S
    start_timeout_given: bool = False
    """True when the user gave it; otherwise it follows from the ranks per core."""
    silence_timeout_s: float = DEFAULT_SILENCE_TIMEOUT_S
    exit_timeout_s: float = DEFAULT_EXIT_TIMEOUT_S
    tag: bool = True
    """Whether lines are shown with their rank."""
    shown: frozenset[int] | None = None
    """The ranks whose lines are shown; None: all."""
    record_dir: Path | None = None
    """Where the workers record what happens."""
    timeline: Path | None = None
    """The file for a timeline of all ranks."""
    cwd: Path | None = None
    """Where the workers run; None: where the launcher does."""
    own_launcher: bool = False
    """Whether the command starts the workers itself (torchrun, mpirun): it gets no rank."""
    horovod_alias: bool = True
    """Whether `import horovod.torch` resolves to Farandole."""
    clean_stop: bool = True
    """Whether SIGUSR1 asks the workers to stop by themselves; else it ends them, as SIGTERM."""
    elastic: ElasticOptions | None = None
    """How the run goes on after failures and changes of hosts; None: a failure ends it."""
    restart: int = 0
    """How often all workers have been started again (--max-restarts)."""


def make_plan(
    *,
    command: Sequence[str],
    np: str | int | None,
    threads: str | int | None = None,
    transport: str | None = None,
    output_dir: str | Path | None = None,
    start_timeout: str | float | None = None,
    silence_timeout: str | float | None = None,
    exit_timeout: str | float | None = None,
    tag: bool = True,
    show_ranks: str | int | None = None,
    record: str | Path | None = None,
    timeline: str | Path | None = None,
    num_slots: int | None = None,
    horovod_alias: str | None = None,
    environ: Mapping[str, str],
    cores: Cores,
    num_gpus: int = 0,
) -> Plan:
    """Check what was asked for and decide the rest.

    A value that is None is taken from its environment variable (FARANDOLE_NP, FARANDOLE_THREADS,
    FARANDOLE_TRANSPORT, FARANDOLE_OUTPUT_DIR, FARANDOLE_START_TIMEOUT, FARANDOLE_SILENCE_TIMEOUT,
    FARANDOLE_EXIT_TIMEOUT, FARANDOLE_SHOW_RANKS, FARANDOLE_HOROVOD_ALIAS, FARANDOLE_RECORD_DIR,
    FARANDOLE_TIMELINE_FILE),
    and then from its default. `num_slots` is how many workers the named hosts may have, None when
    no hosts were named.

    Raises:
        UsageError: Something cannot be used as given.
    """

    def pick(value: object, variable: str, flag: str) -> tuple[str | None, str]:
        if value is not None:
            return str(value), flag
        text = environ.get(variable)
        return (text, f"{variable}=") if text else (None, flag)

    workers = _workers(*pick(np, "FARANDOLE_NP", "-np "), cores, num_gpus, num_slots)
    chosen, name = pick(transport, "FARANDOLE_TRANSPORT", "--transport ")
    chosen = (chosen or "auto").lower()
    if chosen not in TRANSPORTS:
        raise UsageError(f"{name}{chosen}: choose a transport from {', '.join(TRANSPORTS)}.")
    alias, alias_name = pick(horovod_alias, "FARANDOLE_HOROVOD_ALIAS", "--horovod-alias ")
    if alias not in (None, "on", "off"):
        raise UsageError(f"{alias_name}{alias}: choose on or off.")
    folder, _ = pick(output_dir, "FARANDOLE_OUTPUT_DIR", "--output-dir ")
    asked, name = pick(threads, "FARANDOLE_THREADS", "--threads ")
    if asked is not None:
        count = _count(asked, name, "threads")
    else:
        count = threads_from(environ) or threads_per_worker(cores.available, workers)
    start_text, start_name = pick(start_timeout, "FARANDOLE_START_TIMEOUT", "--start-timeout ")
    default_s = scaled_start_timeout_s(workers, cores.available)
    return Plan(
        argv=resolve_command(command, path=environ.get("PATH")),
        num_workers=workers,
        threads=count,
        override_threads=asked is not None,
        transport=chosen,
        output_dir=None if folder is None else Path(folder),
        start_timeout_s=_seconds(start_text, start_name, default_s),
        start_timeout_given=start_text is not None,
        silence_timeout_s=_seconds(
            *pick(silence_timeout, "FARANDOLE_SILENCE_TIMEOUT", "--silence-timeout "),
            DEFAULT_SILENCE_TIMEOUT_S,
        ),
        exit_timeout_s=_seconds(
            *pick(exit_timeout, "FARANDOLE_EXIT_TIMEOUT", "--exit-timeout "),
            DEFAULT_EXIT_TIMEOUT_S,
        ),
        tag=tag,
        shown=_ranks(*pick(show_ranks, "FARANDOLE_SHOW_RANKS", "--show-ranks "), workers),
        horovod_alias=alias != "off",
        record_dir=_record_dir(*pick(record, "FARANDOLE_RECORD_DIR", "--record ")),
        timeline=_timeline(*pick(timeline, "FARANDOLE_TIMELINE_FILE", "--timeline ")),
    )


def threads_from(environ: Mapping[str, str]) -> int | None:
    """Read how many threads the user has set for every process; None when nowhere."""
    for name in THREAD_VARIABLES:
        # OpenMP allows one number per nesting level; the first is the one that counts here.
        text = environ.get(name, "").partition(",")[0].strip()
        if text.isdecimal() and int(text) > 0:
            return int(text)
    return None


def resolve_command(command: Sequence[str], *, path: str | None) -> tuple[str, ...]:
    """Find the program of a command: a bare script or `-m module` uses this interpreter."""
    if not command:
        raise UsageError(
            "No command was given. Say what to run: farandole run -np 2 python train.py"
        )
    program, *rest = command
    if program == "-m":
        if not rest:
            raise UsageError("-m needs a module: farandole run -np 2 -m package.module")
        return (sys.executable, "-m", *rest)
    if program.endswith(".py") and not _executable(program, path):
        if not Path(program).is_file():
            raise UsageError(f"{program}: there is no such script in {Path.cwd()}.")
        return (sys.executable, program, *rest)
    if program in ("python", "python3") and shutil.which(program, path=path) is None:
        # A virtual environment that was not activated: its interpreter is the one meant.
        return (sys.executable, *rest)
    if not _executable(program, path):
        if Path(program).is_file():
            raise UsageError(
                f"{program} cannot be executed. Make it executable (chmod +x), or name the "
                f"program that runs it: farandole run -np 2 sh {program}"
            )
        raise UsageError(f"{program}: there is no such command. Check the name and PATH.")
    return (program, *rest)


def _executable(program: str, path: str | None) -> bool:
    if os.sep in program:
        return Path(program).is_file() and os.access(program, os.X_OK)
    return shutil.which(program, path=path) is not None


def _workers(
    text: str | None, name: str, cores: Cores, num_gpus: int, num_slots: int | None
) -> int:
    if num_slots is not None and (text is None or text.strip().lower() == "auto"):
        return num_slots
    if text is None:
        raise UsageError(
            "How many workers? Give -np 2, or -np auto "
            f"(this machine has room for {_auto(cores, num_gpus)})."
        )
    if text.strip().lower() == "auto":
        return _auto(cores, num_gpus)
    return _count(text, name, "workers", or_else=", or auto")


def _auto(cores: Cores, num_gpus: int) -> int:
    return num_gpus or min(cores.available, cores.physical)


def _count(text: str, name: str, noun: str, *, or_else: str = "") -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise UsageError(f"{name}{text}: give a number of {noun} from 1 up{or_else}.")
    return value


def _ranks(text: str | None, name: str, workers: int) -> frozenset[int] | None:
    """Read `0`, `0,2`, `0-3` or `all`."""
    if text is None or text.strip().lower() == "all":
        return None
    ranks: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(f"{name}{text}: give ranks such as 0, 0,2 or 0-3, or all.")
        ranks.update(range(int(first), int(last or first) + 1))
    if not ranks or max(ranks) >= workers:
        raise UsageError(
            f"{name}{text}: the job has {plural(workers, 'worker')}, ranks 0 to {workers - 1}. "
            "Choose of these."
        )
    return frozenset(ranks)


def _seconds(text: str | None, name: str, default: float) -> float:
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise UsageError(f"{name}{text}: give a number of seconds above 0, for example 120.")
    return value


def _record_dir(text: str | None, name: str) -> Path | None:
    if text is None:
        return None
    folder = Path(text).absolute()
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{name}{text}: there is a file of that name. Name a folder.")
    if any(folder.glob("rank-*.jsonl")):
        raise UsageError(
            f"{name}{text}: the record of an earlier run is there. Name another folder, or remove "
            "that one."
        )
    return folder


def _timeline(text: str | None, name: str) -> Path | None:
    if text is None:
        return None
    file = Path(text).absolute()
    if file.is_dir():
        raise UsageError(f"{name}{text}: that is a folder. Name a file in it: {file / 'run.json'}")
    if not file.parent.is_dir():
        raise UsageError(f"{name}{text}: there is no folder {file.parent}. Create it first.")
    return file


def count_gpus(environ: Mapping[str, str], root: Path = Path("/")) -> int:
    """Count NVIDIA's GPUs that CUDA_VISIBLE_DEVICES leaves visible."""
    folder = root / "proc/driver/nvidia/gpus"
    present = sum(1 for _ in folder.iterdir()) if folder.is_dir() else 0
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if not present or visible is None:
        return present
    named = [part for part in visible.split(",") if part.strip() and part.strip() != "-1"]
    return min(present, len(named))
