"""Freeze what the analysis says of recorded folders, so that a rebuild can be compared with it.

    freeze.py check [NAME ...]                    compare with the snapshots
    freeze.py record [--only words] [NAME ...]    write the snapshots anew, and list what changed
    freeze.py lab DIR ...                         keep the folders of labs that were run: for each,
                                                  pack the fixture, record its snapshots and its
                                                  page in docs/labs
    freeze.py pack studies/digits DIR [OLD=NEW ...]   make a fixture of a recorded folder
    freeze.py pack --calm studies/digits DIR      as if no other program had been running

Fixtures are in labs/ and studies/, snapshots in snapshots/: NAME.numbers.json has figures, keys,
codes and names of files, NAME.words.json has the text. Everything goes through the command line as
a user has it; no fixture makes a launch.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

FROZEN = Path(__file__).resolve().parent
SNAPSHOTS = FROZEN / "snapshots"
PARTS = ("numbers", "words")
DOCS = FROZEN.parents[1] / "docs" / "labs"
TOLERANCE = 1e-9

CORES = 2
"""Of the machine on which the fixtures were recorded: labs say how many there are."""
NOWHERE = "/nowhere"
"""Stands for the recording machine's folders; a lab finds no command there to run again."""
DATA = f"{NOWHERE}/data"
"""Stands for the folder that a lab was given by --data."""
IN_WORDS = "(words)"
"""Stands in the numbers for text that is in the words."""

# Text by the name of its field; elsewhere text is whatever has a space in it.
_TEXT = {"action", "answer", "assumptions", "caption", "commands", "headline", "help", "label"}
_TEXT |= {"lines", "method", "next", "notes", "question", "right", "said", "sentence", "sentences"}
_TEXT |= {"shown_by", "text", "title", "titles", "why"}
# Text of a lab's report as a whole, whatever its shape; and tables that hold nothing but text.
_REPORT_TEXT = ("introduction", "original_data", "method", "conclusion", "references")
_TEXT_TABLES = ("choices", "data")

# What `farandole project` is asked of which study.
_QUESTIONS: dict[str, tuple[str, ...]] = {
    "few": ("-np", "3,4,8,16"),
    "hosts": ("-np", "8,64", "--link", "25Gbit", "--per-host", "4", "--price", "12/host-h"),
    "cheapest": ("-np", "2,4,8", "--price", "2.5", "--deadline", "2h", "--fp16"),
    "target": ("-np", "4,8", "--target", "val_accuracy=0.94", "--price", "2.5", "--budget", "50"),
    "device": ("-np", "16", "--only", "device=T4", "--accumulate", "2"),
    "fleet": ("--fleet", "32"),
    "offers": (
        *("--offer", "A: 4, nvlink, 12/host-h"),
        *("--offer", "B: 32, 8 per host, 100Gbit, 98/host-h, speed 1.4"),
    ),
}

# Fits of projections stop where more steps gain nothing, which depends on how a processor rounds:
# what every x86-64 since 2009 has gives the same figures everywhere.
_PLAINEST = {
    "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
    "OPENBLAS_CORETYPE": "Nehalem",
    "OPENBLAS_NUM_THREADS": "1",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4",
}
_LAUNCHERS = ("FARANDOLE_", "HOROVOD_", "OMPI_", "PMI", "SLURM_")

Snapshot = dict[str, Any]
"""Numbers and words; or the error that came instead."""


# What there is to freeze.


def names() -> list[str]:
    """Name all snapshots that can be made here."""
    return [*(_name(path) for path in _archives()), *_OTHERS]


def labs() -> list[str]:
    """Name the fixtures of labs; each is a page of the documentation."""
    return [path.name.removesuffix(".tar.xz") for path in _archives() if path.parent.name == "labs"]


def snapshots(wanted: Sequence[str], place: Path) -> dict[str, Snapshot]:
    """Make snapshots of what the code says now, in a process of their own and an empty folder."""
    environ = {name: os.environ[name] for name in os.environ if not name.startswith(_LAUNCHERS)}
    # Paths are shown short from where a command is given: not from a folder above the work.
    here = place / "here"
    here.mkdir()
    command = [sys.executable, Path(__file__).resolve(), "make", place, *wanted]
    subprocess.run(command, env=environ | _PLAINEST, cwd=here, check=True)
    return {name: json.loads((place / f"{name}.json").read_text("utf-8")) for name in wanted}


def _make(name: str, place: Path) -> Snapshot:
    place.mkdir()
    try:
        with surroundings():
            if name in _OTHERS:
                found = _OTHERS[name](place)
            else:
                kind, _, fixture = name.partition("-")
                found = (_lab if kind == "lab" else _study)(fixture, place)
    except Exception:
        return {"error": traceback.format_exc()}
    words: dict[str, Any] = {}
    page = found.pop("page", None)
    return {"numbers": _split(found, "", "", words), "words": words, "page": page}


def stored(name: str, part: str) -> Any:
    """Read a snapshot or a page of the documentation from disk; None if there is none."""
    if part == "page":
        path = DOCS / f"{name.removeprefix('lab-')}.md"
        return path.read_text(encoding="utf-8") if path.exists() else None
    path = SNAPSHOTS / f"{name}.{part}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """List where two snapshots differ: numbers by more than the tolerance, all else at all."""
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for key in sorted(old.keys() | new.keys()):
            below = f"{path}/{key}"
            if key not in new:
                found.append(f"{below}: is gone (was {_short(old[key])})")
            elif key not in old:
                found.append(f"{below}: is new ({_short(new[key])})")
            else:
                found += differences(old[key], new[key], below)
        return found
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [line for index, (a, b) in pairs for line in differences(a, b, f"{path}/{index}")]
    if _is_number(old) and _is_number(new):
        same = math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=1e-12)
    else:
        same = type(old) is type(new) and old == new
    return [] if same else [f"{path}: {_short(old)} -> {_short(new)}"]


def _archives() -> list[Path]:
    return sorted(path for kind in ("labs", "studies") for path in (FROZEN / kind).glob("*.tar.xz"))


def _name(archive: Path) -> str:
    kind = {"labs": "lab", "studies": "study"}[archive.parent.name]
    return f"{kind}-{archive.name.removesuffix('.tar.xz')}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else f"{text[:300]}..."


# Rendering, by the command line.


@contextlib.contextmanager
def surroundings() -> Iterator[None]:
    """Be the machine of the fixtures, whatever this one has."""
    from farandole.world import cores

    with (
        mock.patch.object(cores, "allowed_processors", return_value=frozenset(range(CORES))),
        mock.patch.object(cores, "_quota", return_value=None),
        mock.patch.dict(os.environ, {"COLUMNS": "80", "NO_COLOR": "1"}),
    ):
        yield


def _farandole(*argv: str | Path, code: int = 0) -> str:
    """Run a command in this process and return what it printed."""
    ended, out, err = _run(*argv)
    if ended != code:
        raise RuntimeError(f"farandole {argv} ended with {ended}: {err}")
    return out


def _run(*argv: str | Path) -> tuple[int, str, str]:
    from farandole.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        return main([str(word) for word in argv]), out.getvalue(), err.getvalue()


def _lab(fixture: str, place: Path) -> dict[str, Any]:
    """Render a lab, and return what its files hold."""
    folder = place / "lab"
    printed = render_lab(fixture, folder)
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    report["version"] = ""
    for key in _REPORT_TEXT:
        report[key] = {"text": json.dumps(report[key], ensure_ascii=False)}
    lab = json.loads((folder / "lab.json").read_text(encoding="utf-8"))
    found = {"report": report, "printed": _printed(printed), "lab.json": _keys(lab)}
    page = (folder / "report.md").read_text(encoding="utf-8").replace("(figures/", f"({fixture}/")
    if "scikit-learn" in report["data"]["source"]:
        # The documentation shows no images of others, only generated ones.
        page = re.sub(r"!\[Some of the training samples\].*\n\n.*\n\n", "", page)
    found["page"] = re.sub(r"Made by Farandole .*", "Made by Farandole.", page)
    return _neutral(found | _files(folder), {folder: "DIR"})


def render_lab(fixture: str, folder: Path) -> str:
    """Run `farandole lab NAME --out DIR` with all studies made, and return what it printed.

    Data that a user brought are as they were described then, and no picture shows them.
    """
    from farandole.labs import data, lab
    from farandole.study.codec import decode

    facts = unpack_lab(fixture, folder)
    begun = json.loads((folder / "lab.json").read_text(encoding="utf-8"))
    asked, recorded = begun["asked"], lab.load_lab(begun["lab"])
    flags: list[str | Path] = ["--quick"] if asked["size"] == "quick" else []
    before = _launches(folder)
    with contextlib.ExitStack() as stack:
        if asked["data"] is not None:
            flags += ["--data", asked["data"]]
            described = decode(lab.DataFacts, facts)
            recorded = dataclasses.replace(recorded, data=lambda folder: described)
            stack.enter_context(mock.patch.object(lab, "load_lab", return_value=recorded))
            stack.enter_context(mock.patch.object(data, "draw_samples", return_value=b""))
        printed = _farandole("lab", begun["lab"], *flags, "--out", folder)
    if _launches(folder) != before:
        raise RuntimeError(f"{fixture}: rendering made a launch, or removed one")
    return printed


def unpack_lab(fixture: str, folder: Path) -> dict[str, Any]:
    """Put a recorded lab into a folder, and return what its data were."""
    _unpack(FROZEN / "labs" / f"{fixture}.tar.xz", folder)
    facts: dict[str, Any] = json.loads((folder / "data.json").read_text())
    (folder / "data.json").unlink()
    return facts


def _study(fixture: str, place: Path) -> dict[str, Any]:
    """Render a study's report in its forms, and ask for projections."""
    folder, out = place / "study", place / "out"
    _unpack(FROZEN / "studies" / f"{fixture}.tar.xz", folder)
    report = _json("report", folder, "--json")
    report["version"] = ""
    flags = ("--out", out, "--figures", "svg", "--tables", "csv,md,tex")
    printed = _farandole("report", folder, *flags)
    priced = _json("report", folder, "--price", "2.5", "--json")["studies"][0]
    anonymous = _json("report", folder, "--anonymous", "--json")["studies"][0]
    hidden = ("command", "created", "label", "machine", "spec")
    found = {
        "report": report,
        "printed": _printed(printed),
        "priced": {"costs": priced["costs"]},
        "anonymous": {key: anonymous[key] for key in hidden},
        "projections": {key: _projection(folder, flags) for key, flags in _QUESTIONS.items()},
    }
    return _neutral(found | _files(out), {out: "OUT", folder: "DIR"})


def _projection(folder: Path, flags: Sequence[str]) -> Any:
    """Return a projection, or the line that says why there is none."""
    code, out, err = _run("project", folder, *flags, "--json")
    if code:
        return {"code": code, "text": err.strip()}
    found = json.loads(out)
    return found | ({"version": ""} if "version" in found else {})


def _json(*argv: str | Path) -> Any:
    return json.loads(_farandole(*argv))


def _files(folder: Path) -> dict[str, Any]:
    """Return the tables of a report, its headings, and the names of its files."""
    tables = {
        path.stem: {"text": path.read_text("utf-8")} if path.stem in _TEXT_TABLES else _table(path)
        for path in sorted((folder / "tables").glob("*.csv"))
    }
    heads = {
        path.stem: {"titles": path.read_text(encoding="utf-8").splitlines()[0]}
        for path in sorted((folder / "tables").glob("*.md"))
    }
    lines = (folder / "report.md").read_text(encoding="utf-8").splitlines()
    inside = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return {
        "tables": tables,
        "table_heads": heads,
        "headings": {"titles": [line for line in lines if line.startswith("#")]},
        "files": sorted(
            path.as_posix()
            for path in inside
            if path.parts[0] in ("figures", "tables") or len(path.parts) == 1
        ),
    }


def _table(path: Path) -> dict[str, Any]:
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    return {"columns": header, "rows": [[_cell(cell) for cell in row] for row in rows]}


def _cell(text: str) -> Any:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            value = kind(text)
            if math.isfinite(value):
                return value
    return text or None


def _printed(text: str) -> dict[str, Any]:
    return {"lines": text.splitlines()}


def _launches(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.glob("studies/*/launches/*"))


def _keys(value: Any) -> Any:
    """Return the names of all fields, with the first element of each list."""
    if isinstance(value, dict):
        return {key: _keys(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_keys(part) for part in value[:1]]
    return None


def _neutral(value: Any, paths: Mapping[Path, str]) -> Any:
    """Write the folders of this run as the same words everywhere."""
    if isinstance(value, str):
        for path, word in paths.items():
            value = value.replace(str(path), word)
        return value
    if isinstance(value, dict):
        return {key: _neutral(part, paths) for key, part in value.items()}
    if isinstance(value, list):
        return [_neutral(part, paths) for part in value]
    return value


def _split(value: Any, key: str, path: str, words: dict[str, Any]) -> Any:
    """Return a document with its text taken out and put into the words, by place."""
    if isinstance(value, dict):
        return {name: _split(part, name, f"{path}/{name}", words) for name, part in value.items()}
    if isinstance(value, list):
        if key in _TEXT and value and all(isinstance(part, str) for part in value):
            words[path] = value
            return IN_WORDS
        return [_split(part, "", f"{path}/{index}", words) for index, part in enumerate(value)]
    if isinstance(value, str) and (key in _TEXT or re.search(r"\s", value)):
        words[path] = value
        return IN_WORDS
    return value


# What needs no fixture.


def _commands(place: Path) -> dict[str, Any]:
    """Return all commands with their flags, not as drawn: that depends on Python."""
    from farandole.cli.command import Command
    from farandole.cli.main import commands

    parsers: list[argparse.ArgumentParser] = []
    shown = Command.help

    def keep(command: Command, *, everything: bool = False) -> str:
        parsers.append(command.parser())
        return shown(command, everything=everything)

    found: dict[str, Any] = {}
    helps: dict[str, Any] = {}
    with mock.patch.object(Command, "help", keep):
        for command in commands():
            with contextlib.suppress(SystemExit):
                helps[command] = _printed(_farandole(command, "--help-all"))
    for parser in parsers:
        found |= _parser(parser)
    overview = _farandole("--help")
    listed = _farandole("lab")
    return {
        "commands": found,
        "helps": helps,
        "overview": _printed(overview),
        "labs": {"list": _printed(listed), "json": _json("lab", "--json")},
    }


def _parser(parser: argparse.ArgumentParser) -> dict[str, Any]:
    flags: dict[str, Any] = {}
    found: dict[str, Any] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                found |= _parser(below)
        hidden = action.help == argparse.SUPPRESS
        flags[" ".join(action.option_strings) or action.dest] = {
            "dest": action.dest,
            "default": None if action.default == argparse.SUPPRESS else action.default,
            "nargs": action.nargs,
            "choices": None if action.choices is None else [str(one) for one in action.choices],
            "required": action.required,
            "metavar": action.metavar,
            "hidden": hidden,
            "help": None if hidden else action.help,
        }
    words = {
        "usage": {"text": parser.usage},
        "description": {"text": parser.description},
        "epilog": {"lines": (parser.epilog or "").splitlines()},
    }
    return {parser.prog: {"flags": flags, **words}, **found}


def _plans(place: Path) -> dict[str, Any]:
    """Return what each lab would do at each size, on the machine of the fixtures."""
    from farandole.labs.lab import lab_names as labs

    sizes = {"quick": ("--quick",), "budget": (), "hour": ("--budget", "1h"), "full": ("--full",)}
    return {
        lab: {
            size: _neutral(
                _json("lab", lab, *flags, "--dry-run", "--json", "--out", place / "new"),
                {place: "DIR"},
            )
            for size, flags in sizes.items()
        }
        for lab in labs()
    }


def _backtest(place: Path) -> dict[str, Any]:
    """Score projections on tables that follow from formulas, with a ripple in place of noise."""
    steps, epochs = place / "steps.csv", place / "epochs.csv"
    rows = ["cluster,model,nodes,workers,local_batch,step_time_s,sync_time_s"]
    for model, compute_s, transfer_s in (("small", 0.002, 0.004), ("large", 0.006, 0.05)):
        for workers in (1, 2, 4, 8, 16, 32):
            for batch in (16, 32):
                ripple = 1 + 0.02 * math.sin(7 * workers + batch)
                nodes = max(1, workers // 4)
                sync_s = transfer_s * (workers - 1) / workers * (1 if nodes == 1 else 3) * ripple
                step_s = compute_s * batch * ripple + sync_s + 0.001
                rows.append(f"made,{model},{nodes},{workers},{batch},{step_s:.9g},{sync_s:.9g}")
    steps.write_text("\n".join(rows) + "\n")
    rows = ["workload,global_batch,run,epochs_to_target"]
    rows += [
        f"net,{batch},{run},{10 * (1 + batch / 2000) + run / 10:.6g}"
        for batch in (256, 512, 1024, 2048, 4096)
        for run in range(3)
    ]
    epochs.write_text("\n".join(rows) + "\n")
    network = ("--fit-nodes", "1", "--link", "25Gbit", "--gradients", "small=10MB,large=400MB")
    found = {
        "both": _json("backtest", steps, epochs, "--json", "--rows"),
        "eight": _json("backtest", steps, "--fit-workers", "8", "--json"),
        "network": _json("backtest", steps, *network, "--json"),
        "printed": _printed(_farandole("backtest", steps, epochs)),
    }
    _farandole("backtest", steps, "--write-track-record", place / "record.json")
    found["record"] = json.loads((place / "record.json").read_text())
    return _neutral(found, {place: "DIR"})


def _folders(place: Path) -> dict[str, Any]:
    """Return the fields of the files that a study writes, by one launch that fails at once."""
    table, script = place / "table.csv", place / "fails.py"
    table.write_text(
        "workers,hosts,batch,epochs,epoch_s,accuracy\n1,1,32,2,9.5,0.8\n2,1,32,2,5,oom\n"
    )
    script.write_text("raise SystemExit(3)\n")
    _farandole("study", "--no-report", "import", table, "--out", place / "imported")
    flags = ("-np", "1", "--repeats", "1", "--no-calibration", "--no-today", "--no-epoch")
    with contextlib.chdir(place):
        _farandole("study", *flags, "--no-report", "--out", place / "made", "--", script, code=1)
    found: dict[str, Any] = {}
    for name in ("imported", "made"):
        launch = min((place / name / "launches").glob("*/launch.json"))
        found[name] = {
            "study.json": _keys(json.loads((place / name / "study.json").read_text())),
            "launch.json": _keys(json.loads(launch.read_text())),
            "launch": launch.parent.name,
            "files": sorted(path.name for path in (place / name).iterdir()),
        }
    return found


def _comparison(place: Path) -> dict[str, Any]:
    """Return two studies side by side."""
    folders = [place / name for name in ("digits", "sweep")]
    for folder in folders:
        _unpack(FROZEN / "studies" / f"{folder.name}.tar.xz", folder)
    found = {"comparison": _json("report", *folders, "--json")["comparison"]}
    printed = _farandole("report", *folders, "--out", place / "out", "--figures", "svg")
    found |= {"printed": _printed(printed), **_files(place / "out")}
    return _neutral(found, {place: "DIR"})


_OTHERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "commands": _commands,
    "plans": _plans,
    "backtest": _backtest,
    "folders": _folders,
    "comparison": _comparison,
}


# Fixtures.


_FILES = ("lab.json", "study.json", "link.json", "apart.json", "trials.json", "launch.json")
_TAGGED = re.compile(
    r"^\[\d+\]<stdout>:epoch \d+: loss [\d.]+(?:, val_loss [\d.]+)?$", re.MULTILINE
)
_ABSOLUTE = re.compile(r"(?<![\w.<>/])/(?!nowhere\b)[A-Za-z][\w.-]*/")


def pack(source: Path, target: Path, replacing: Mapping[str, str], *, calm: bool = False) -> None:
    """Make a fixture of the folder of a lab or a study: what is read of it, and no names.

    Args:
        source: A lab's folder, or a study's.
        target: The archive.
        replacing: Texts, paths above all, and what to write in their place.
        calm: Whether to say of each launch that nobody disturbed it.
    """
    cleaner = _Cleaner(replacing, calm=calm)
    content: dict[str, str] = {}
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source).as_posix()
        if name.startswith(("pilot/", "published/")):
            continue  # measured rates are in lab.json, and published tables are in the package
        if path.name in _FILES:
            content[name] = cleaner.document(path.read_text(encoding="utf-8"))
        elif path.name == "projection.json":
            asked = json.loads(path.read_text(encoding="utf-8"))["asked"]
            content[name] = json.dumps({"asked": asked}, indent=1) + "\n"
        elif re.fullmatch(r"rank-\d+\.jsonl", path.name):
            content[name] = cleaner.lines(path.read_text(encoding="utf-8"))
        elif path.name == "output.txt":
            # The driving lab shows what each rank printed.
            kept = _TAGGED.findall(path.read_text(encoding="utf-8"))
            content |= {name: "".join(f"{line}\n" for line in kept)} if kept else {}
    if "lab.json" in content:
        facts = json.loads((source / "report.json").read_text(encoding="utf-8"))["data"]
        content["data.json"] = json.dumps(facts, indent=1) + "\n"
    for name, text in content.items():
        found = _ABSOLUTE.search(text)
        if found:
            around = text[max(0, found.start() - 40) : found.end() + 60]
            raise SystemExit(f"{name} has a path of this machine: {around!r}. Add OLD=NEW.")
        for word in (os.uname().nodename, Path.home().name):
            if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text):
                raise SystemExit(f"{name} has the name {word!r}. Add OLD=NEW.")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:xz", format=tarfile.USTAR_FORMAT, preset=9) as archive:
        for name, text in sorted(content.items()):
            data = text.encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def lab_fixture(folder: Path) -> tuple[str, dict[str, str]]:
    """Return the name of the fixture of a lab's folder, and its paths with what stands for them."""
    begun = json.loads((folder / "lab.json").read_text(encoding="utf-8"))
    data = begun["asked"]["data"]
    replacing = {str(folder): f"{NOWHERE}/lab"} | ({} if data is None else {data: DATA})
    for path in folder.glob("studies/*/launches/*/launch.json"):
        python = json.loads(path.read_text(encoding="utf-8"))["argv"][0]
        replacing[python] = "python"
    for path in folder.glob("studies/*/study.json"):
        study = json.loads(path.read_text(encoding="utf-8"))
        # A lab's script is named from where the lab was run, or else by its whole path.
        replacing[study["command"][0]] = f"examples/{Path(study['command'][0]).name}"
        replacing[study["spec"]["folder"]] = f"{NOWHERE}/farandole"
    return begun["lab"] + ("" if data is None else "-data"), replacing


class _Cleaner:
    """Takes names of machines, paths and commits out of recorded files."""

    def __init__(self, replacing: Mapping[str, str], *, calm: bool) -> None:
        # The longest first: one path may begin with another.
        self._replacing = sorted(replacing.items(), key=lambda item: -len(item[0]))
        self._fixed: dict[str, Any] = {
            "commit": "0" * 40,
            "cpu": "CPU",
            "system": "Linux",
            "pid": 1,
        }
        self._fixed |= {"busy": False, "foreign_share": 0.01, "steal_share": 0.0} if calm else {}
        self._hosts: dict[str, str] = {}
        self._samples: dict[str, str] = {}

    def document(self, text: str) -> str:
        return json.dumps(self._clean(json.loads(text)), indent=1, ensure_ascii=False) + "\n"

    def lines(self, text: str) -> str:
        documents = [self._clean(json.loads(line)) for line in text.splitlines() if line.strip()]
        return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in documents)

    def _clean(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self._clean(part, name) for name, part in value.items()}
        if key == "sample_hashes":
            # Only which are the same matters, and hashes do not shrink.
            known = self._samples
            return [known.setdefault(one, f"{len(known):x}") for one in value]
        if isinstance(value, list):
            return [self._clean(part) for part in value]
        if key in self._fixed and value is not None:
            return self._fixed[key]
        if not isinstance(value, str):
            return value
        if key == "host":
            return self._hosts.setdefault(value, f"host{len(self._hosts) + 1}")
        for old, new in self._replacing:
            value = value.replace(old, new)
        return value


def _unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")


# The command line.


def main(argv: Sequence[str] | None = None) -> int:
    """Check, record or pack; return 0 when nothing differs."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("check", "record"):
        command = commands.add_parser(name)
        command.add_argument("names", nargs="*", metavar="NAME", help="snapshots (default: all)")
        command.add_argument("--only", choices=(*PARTS, "page"), help="this part of the snapshots")
    making = commands.add_parser("make")
    making.add_argument("place", type=Path)
    making.add_argument("names", nargs="*")
    keeping = commands.add_parser("lab")
    keeping.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    packing = commands.add_parser("pack")
    packing.add_argument("--calm", action="store_true", help="say that nobody disturbed launches")
    packing.add_argument("fixture", help="labs/NAME or studies/NAME")
    packing.add_argument("folder", type=Path)
    packing.add_argument("replacing", nargs="*", metavar="OLD=NEW")
    args = parser.parse_args(argv)
    if args.command == "pack":
        target = FROZEN / f"{args.fixture}.tar.xz"
        pack(args.folder, target, dict(one.split("=", 1) for one in args.replacing), calm=args.calm)
        print(f"{target}: {target.stat().st_size:,} bytes")
        return 0
    if args.command == "lab":
        packed = []
        for folder in args.folders:
            name, replacing = lab_fixture(folder.resolve())
            pack(folder, FROZEN / "labs" / f"{name}.tar.xz", replacing)
            packed.append(f"lab-{name}")
        return _compare(packed, (*PARTS, "page"), record=True)
    if args.command == "make":
        for name in args.names:
            content = json.dumps(_make(name, args.place / name))
            (args.place / f"{name}.json").write_text(content, "utf-8")
        return 0
    parts = (*PARTS, "page") if args.only is None else (args.only,)
    return _compare(args.names or names(), parts, record=args.command == "record")


def _compare(wanted: Sequence[str], parts: Sequence[str], *, record: bool) -> int:
    """Print how snapshots differ from those on disk, and write them; return 1 for differences."""
    changed = 0
    with tempfile.TemporaryDirectory() as place:
        found = snapshots(wanted, Path(place))
        for name in wanted:
            if "error" in found[name]:
                raise SystemExit(f"{name}: {found[name]['error']}")
            for part in parts:
                lines = differences(stored(name, part), found[name][part])
                changed += len(lines)
                print(f"{name}.{part}: {len(lines)} differences", *lines, sep="\n  ")
                if record and part in PARTS:
                    path = SNAPSHOTS / f"{name}.{part}.json"
                    path.write_text(written(found[name][part], part), encoding="utf-8")
                elif record and lines:
                    _write_page(name.removeprefix("lab-"), found[name][part], Path(place) / name)
    return 0 if record else int(changed > 0)


def _write_page(lab: str, text: str, place: Path) -> None:
    """Write a lab's page of the documentation, with its pictures in few colours."""
    from PIL import Image

    (DOCS / f"{lab}.md").write_text(text, encoding="utf-8")
    shutil.rmtree(DOCS / lab, ignore_errors=True)
    (DOCS / lab).mkdir()
    for name in pictures(text):
        picture = Image.open(place / "lab" / "figures" / Path(name).name).convert("RGB")
        picture.quantize(64).save(DOCS / name, optimize=True)


def pictures(page: str) -> set[str]:
    """Return the pictures that a page shows, as it names them."""
    return set(re.findall(r"\]\(([\w-]+/[\w.-]+\.png)\)", page))


def written(content: Any, part: str) -> str:
    """Write a snapshot: sorted, and in the numbers a list of plain values on one line."""
    text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    if part == "numbers":
        text = re.sub(r"\[\n\s*([^\[\]{}]*?)\n\s*\]", _on_one_line, text)
    return text + "\n"


def _on_one_line(found: re.Match[str]) -> str:
    return "[" + re.sub(r"\n *", " ", found[1]) + "]"


if __name__ == "__main__":
    raise SystemExit(main())
