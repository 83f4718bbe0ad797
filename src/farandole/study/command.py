"""The command of a study: its placeholders, its own launcher, its script, and secrets in it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path, PurePath

from farandole.errors import UsageError

PLACEHOLDERS = ("batch", "global_batch", "workers", "hosts", "threads", "seed", "cell_dir")
"""The names that every study knows; `-L` adds more."""

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def fill(argv: Sequence[str], values: Mapping[str, object]) -> tuple[str, ...]:
    """Put the values into the placeholders; braces around anything else pass untouched."""

    def value(match: re.Match[str]) -> str:
        return str(values.get(match[1], match[0]))

    # One pass over each argument: a value that looks like a placeholder stays as it is.
    return tuple(_PLACEHOLDER.sub(value, part) for part in argv)


def names_in(argv: Iterable[str]) -> frozenset[str]:
    """Name what stands in braces in a command, known or not."""
    return frozenset(name for part in argv for name in _PLACEHOLDER.findall(part))


# Launchers.


@dataclass(frozen=True, slots=True)
class Launcher:
    """One launcher that a command may begin with."""

    name: str
    flags: tuple[str, ...]
    """Spellings of its number of workers; the first is the one to add."""
    joined: bool = False
    """Whether `--flag=value` is its way to write a value; else `--flag value`."""


_MPIRUNS = ("mpirun", "mpiexec", "orterun", "prterun", "mpiexec.hydra")
_MPI = ("-np", "-n", "--np", "--n", "-c")
_FARANDOLE = ("-np", "-n", "-w", "--workers", "--np", "--num-proc", "--nproc-per-node")
_TORCHRUN = Launcher("torchrun", ("--nproc-per-node", "--nproc_per_node"), joined=True)
_ACCELERATE = Launcher("accelerate launch", ("--num_processes", "--num-processes"), joined=True)
_RUN = Launcher("farandole run", _FARANDOLE)
# By the program, or by the module behind `python -m`.
_LAUNCHERS = {
    "torchrun": _TORCHRUN,
    "torch.distributed.run": _TORCHRUN,
    "torch.distributed.launch": _TORCHRUN,
    "accelerate launch": _ACCELERATE,
    "accelerate-launch": _ACCELERATE,
    "accelerate.commands.launch": _ACCELERATE,
    "farandole run": _RUN,
    "farandole.cli.main run": _RUN,
    "horovodrun": Launcher("horovodrun", ("-np", "--num-proc")),
    "deepspeed": Launcher("deepspeed", ("--num_gpus",)),
    "srun": Launcher("srun", ("-n", "--ntasks")),
    **{name: Launcher(name, _MPI) for name in _MPIRUNS},
}
# In a shell script: where a command begins, or behind `python -m`.
_IN_SCRIPT = re.compile(
    r"(?:^|[\s;&|(/])(torchrun|horovodrun|deepspeed|srun|mpirun|mpiexec|accelerate +launch"
    r"|farandole +run|torch\.distributed\.(?:run|launch))(?=\s)",
    re.MULTILINE,
)
SPREADING = ("srun", *_MPIRUNS)
"""Launchers that spread workers over the nodes of an allocation by themselves."""
_JOB_FLAGS = (
    *("--launcher", "slurm", "-np", "{workers}", "-N", "{hosts}"),
    *("--threads", "{threads}"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A launcher in a command, and the command with a place for the number of workers."""

    launcher: Launcher
    command: tuple[str, ...]
    note: str
    """One line that says what is done with it."""


def find_launcher(command: Sequence[str]) -> Found | None:
    """Recognise a command that brings its own launcher; None for a plain one."""
    launcher, end = _recognise(command)
    if launcher is None:
        return None
    filled, how = tuple(command), "{workers} sets its number of workers"
    if "workers" not in names_in(command):
        filled, flag = _with_flag(command, end, launcher)
        how = f"{flag} is set to each cell's number of workers"
    note = f"This command has its own launcher, {launcher.name}: {how}."
    return Found(launcher=launcher, command=filled, note=note)


def find_in_script(command: Sequence[str], text: str) -> Found | None:
    """Recognise a shell script that starts its workers by a launcher itself."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    match = _IN_SCRIPT.search("\n".join(lines))
    if match is None:
        return None
    launcher = _LAUNCHERS[" ".join(match[1].split())]
    if "workers" not in names_in(command):
        raise UsageError(
            f"The script starts its workers itself, with {launcher.name}, but nothing tells it how "
            "many. Put {workers} where it takes their number: farandole study -- bash train.sh "
            "'{workers}'"
        )
    note = (
        f"This script starts its workers itself, with {launcher.name}: it is run once per launch, "
        "and {workers} sets their number."
    )
    return Found(launcher=launcher, command=tuple(command), note=note)


def job_command(
    command: Sequence[str], flags: Sequence[str], *, horovod_alias: str
) -> tuple[str, ...]:
    """Return a command that runs another as a job of SLURM's, with a cell's hosts and workers."""
    return (
        *(sys.executable, "-m", "farandole.cli.main", "run"),
        *(*_JOB_FLAGS, "--horovod-alias", horovod_alias, *flags, "--", *command),
    )


def job_parts(command: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the flags and the command that `job_command` was given."""
    begin, end = 4 + len(_JOB_FLAGS) + 2, list(command).index("--")
    return tuple(command[begin:end]), tuple(command[end + 1 :])


def _recognise(command: Sequence[str]) -> tuple[Launcher | None, int]:
    """Return the launcher, and where its own arguments begin."""
    words = [PurePath(part).name for part in command[:1]] + list(command[1:])
    place = 0
    if words[:1] == ["env"]:
        place = 1
        while place < len(words) and re.match(r"[^-].*=", words[place]):
            place += 1
        words[place : place + 1] = [PurePath(part).name for part in words[place : place + 1]]
    if place < len(words) and words[place].startswith("python"):
        place += 1
        # Python's own flags in front of -m or a script: `-u`, `-X faulthandler`.
        while place < len(words) and re.fullmatch(r"-[^-mc].*", words[place]):
            place += 2 if words[place] in ("-W", "-X") else 1
        if words[place : place + 1] != ["-m"]:
            return None, 0
        place += 1
    for end in (place + 1, place + 2):
        launcher = _LAUNCHERS.get(" ".join(words[place:end]))
        if launcher is not None:
            return launcher, end
    return None, 0


def _with_flag(command: Sequence[str], own: int, launcher: Launcher) -> tuple[tuple[str, ...], str]:
    """Put {workers} where the launcher takes its number; add its flag where there is none."""
    argv = list(command)
    for place in range(own, len(argv)):
        part = argv[place]
        if part == "--" or part.endswith(".py"):
            break  # from here on it is the script's
        name, equals, _ = part.partition("=")
        if name not in launcher.flags:
            continue
        if equals:
            argv[place] = f"{name}={{workers}}"
        elif place + 1 < len(argv):
            argv[place + 1] = "{workers}"
        return tuple(argv), name
    flag = launcher.flags[0]
    added = [f"{flag}={{workers}}"] if launcher.joined else [flag, "{workers}"]
    return (*argv[:own], *added, *argv[own:]), flag


# The script.

# Scripts are small; what is larger is data.
_MOST_SCRIPT_BYTES = 2_000_000
_SHELL = re.compile(r"#!\s*\S*/(?:env\s+)?(?:ba|da|k|z)?sh(?:\s|$)")


def name_of_command(command: Sequence[str]) -> str:
    """Return a short name of what a command runs: its script's, its module's, its program's."""
    for before, part in pairwise(("", *command)):
        if part.endswith(".py"):
            return Path(part).stem
        launchers = ("farandole", "farandole.cli.main")
        plain = part not in launchers and not part.startswith(("torch.distributed", "accelerate"))
        if before == "-m" and plain:
            return part.rpartition(".")[2]
    return Path(command[0]).name if command else "study"


def script_of(command: Sequence[str]) -> str | None:
    """Return the script of `python [flags] script.py ...`; None where it is another command."""
    words = list(command[1:]) if Path(command[0]).name.startswith("python") else []
    while words and re.fullmatch(r"-[^-mc].*", words[0]):
        words = words[2 if words[0] in ("-W", "-X") else 1 :]
    return words[0] if words and words[0].endswith(".py") and "{" not in words[0] else None


def script_reader(command: Sequence[str]) -> Callable[[str], bool]:
    """Return a test whether the script of a command reads a name by `farandole.param`."""
    texts = [_source(Path(part)) for part in command if part.endswith(".py")]
    texts += [_module_source(module) for flag, module in pairwise(command) if flag == "-m"]

    def reads(name: str) -> bool:
        pattern = re.compile(rf"""\bparam\(\s*['"]{re.escape(name)}['"]""")
        return any(pattern.search(text) for text in texts)

    return reads


def shell_script(command: Sequence[str]) -> str:
    """Return the text of the shell script that a command runs; empty where it runs none."""
    named = Path(command[0]).name if command else ""
    rest = command[1:] if named in ("sh", "bash", "dash", "ksh", "zsh") else command
    script = next((part for part in rest if not part.startswith("-")), "")
    text = _source(Path(script))
    return text if script.endswith(".sh") or _SHELL.match(text) else ""


def _module_source(name: str) -> str:
    """Return a module's text; the user's are found where they stand, as `python -m` does."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = find_spec(name)
    except (ImportError, ValueError):
        return ""
    finally:
        sys.path.pop(0)
    return _source(Path(module.origin)) if module is not None and module.origin else ""


def _source(path: Path) -> str:
    try:
        small = path.is_file() and path.stat().st_size <= _MOST_SCRIPT_BYTES
        return path.read_text(errors="replace") if small else ""
    except OSError:
        return ""


# Secrets are masked before a command is written, so that a study can be shown.

MASK = "***"

# Words of a flag's or variable's name. `key` alone is none: --key may name a column. Plurals of
# token are counts (--max-tokens 512).
_SECRET = {"token", "secret", "secrets", "password", "passwd", "passphrase", "pwd", "credential"}
_SECRET |= {"credentials", "apikey", "authorization", "auth"}
_BEFORE_KEY = {"api", "access", "secret", "private", "account", "auth", "signing", "license"}
_BEFORE_KEY |= {"encryption", "ssh", "wandb", "comet", "openai", "master", "service", "storage"}
# Tokens of text and ways of authenticating: --token-length, --pad-token, --auth-method.
_PLAIN_WITH = {"length", "len", "count", "num", "max", "min", "id", "ids", "size", "type", "dim"}
_PLAIN_WITH |= {"pad", "eos", "bos", "mask", "unk", "sep", "cls", "per", "file", "path", "method"}
_PLAIN_WITH |= {"dropout", "embedding", "embeddings", "mode", "rate", "pooling", "mixing"}

_ASSIGNMENT = re.compile(r"(--?[\w.-]+|[A-Za-z_][\w.-]*)=(.*)", re.DOTALL)
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")
# scheme://user:password@host and scheme://token@host; ssh://git@host names an account.
_URL = re.compile(r"(?!(?:git\+)?ssh://[^/\s@:]+@)\b([A-Za-z][\w+.-]*://)([^/\s@:]+:)?[^/\s@]+@")
_QUERY = re.compile(r"([?&]([\w.-]+)=)([^&\s#]+)")
_HEADER = re.compile(r"(?i)\b(authorization\s*:\s*(?:\w+\s+)?|bearer\s+)([^\s'\"]+)")
# Well-known shapes of tokens, wherever they stand.
_SHAPES = re.compile(
    r"\b(?:sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|hf_[A-Za-z0-9]{20,}"
    r"|AKIA[0-9A-Z]{16}|xox[abprs]-[A-Za-z0-9-]{10,}|glpat-[\w-]{16,})"
)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def mask(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command with the values of secrets as `***`.

    Masked are values of flags and variables whose names say so (`--api-key K`, `WANDB_API_KEY=K`),
    credentials in URLs, headers, and tokens of well-known shapes. Numbers after a `token` flag
    are counts and stay.
    """
    masked: list[str] = []
    flag: str | None = None  # of a secret, where the word before is one
    for word in argv:
        is_flag = _FLAG.fullmatch(word) or (word.startswith("--") and "=" in word)
        if flag is not None and not is_flag and not _is_count(flag, word):
            masked.append(MASK)
            flag = None
        else:
            masked.append(_mask_word(word))
            flag = word if _FLAG.fullmatch(word) and is_secret(word) else None
    return tuple(masked)


def is_secret(name: str) -> bool:
    """Tell whether a flag or variable of this name holds a secret."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    words = [word for word in re.split(r"[^a-z0-9]+", apart) if word]
    if _PLAIN_WITH.intersection(words):
        return False
    key = any(word == "key" and before in _BEFORE_KEY for before, word in pairwise(words))
    return key or bool(_SECRET & set(words)) or (name.isupper() and words[-1:] == ["key"])


def _mask_word(word: str) -> str:
    assignment = _ASSIGNMENT.fullmatch(word)
    if assignment and is_secret(assignment[1]) and not _is_count(assignment[1], assignment[2]):
        return f"{assignment[1]}={MASK}"
    word = _URL.sub(lambda m: f"{m[1]}{m[2] or ''}{MASK}@", word)
    word = _QUERY.sub(lambda m: m[1] + (MASK if is_secret(m[2]) else m[3]), word)
    word = _HEADER.sub(lambda m: m[1] + MASK, word)
    return _SHAPES.sub(MASK, word)


def _is_count(name: str, value: str) -> bool:
    """Tell whether this is a number of text tokens; a password of digits is still one."""
    return "token" in name.lower() and _NUMBER.fullmatch(value) is not None
