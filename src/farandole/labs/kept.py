"""lab.json: what a lab was asked for and has planned, so that a second run goes on."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from farandole.errors import UsageError
from farandole.labs.budget import written
from farandole.labs.lab import Asked, Choice, Plan, Planned, Rate
from farandole.study.atomic import write_json
from farandole.study.folder import LOCK_FILE

SCHEMA = 1
KIND = "farandole-lab"
FILE = "lab.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A lab on disk."""

    lab: str
    asked: Asked
    created: str
    """ISO 8601, UTC."""
    rates: Mapping[str, Rate] = field(default_factory=dict)
    """By name of the pilot study."""
    plan: Plan | None = None
    ended: Mapping[str, str] = field(default_factory=dict)
    """By name of the study: empty when it was made, or why it could not be."""
    spent_s: float = 0.0
    """Of the budget, over all runs."""


def read_kept(out: Path) -> Kept | None:
    """Return what a folder keeps; None when it is empty or not there.

    Raises:
        UsageError: It is something else than the folder of a lab, or of a later version.
    """
    try:
        text = (out / FILE).read_text()
    except NotADirectoryError as error:
        raise UsageError(f"--out {out} is a file, or below one. Name a folder.") from error
    except FileNotFoundError:
        _check_empty(out)
        return None
    except OSError as error:
        raise UsageError(f"--out {out} cannot be read ({error.strerror}).") from error
    try:
        content = json.loads(text)
        if content["kind"] == KIND and content["schema"] > SCHEMA:
            raise UsageError(
                f"{out / FILE} is of a later version of Farandole (schema {content['schema']}; "
                f"this one knows {SCHEMA}). Use that version, or give another --out."
            )
        return _decoded(content)
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise UsageError(
            f"{out / FILE} is not what `farandole lab` wrote. Give another --out, or remove it."
        ) from error


def write_kept(out: Path, kept: Kept) -> None:
    """Write lab.json as a whole.

    Raises:
        StoreError: The folder cannot be written to.
    """
    write_json(out / FILE, {"schema": SCHEMA, "kind": KIND, **_encoded(kept)})


def continued(kept: Kept, lab: str, asked: Asked, out: Path) -> Kept:
    """Return what a second run goes on with.

    Before there is a plan, another budget is welcome: the first may have been too short for one.

    Raises:
        UsageError: The folder is another lab's, or one of other data or another size.
    """
    before = replace(kept.asked, cores=asked.cores)
    if kept.lab == lab and before == asked:
        return kept
    if kept.lab == lab and kept.plan is None and replace(before, budget_s=asked.budget_s) == asked:
        return replace(kept, asked=asked, spent_s=0.0)
    raise UsageError(
        f"{out} holds `{shlex.join(command(kept.lab, kept.asked))}`, but you asked for "
        f"`{shlex.join(command(lab, asked))}`. Ask for the same to go on with it, or give another "
        "--out."
    )


def command(lab: str, asked: Asked, out: str | None = None) -> tuple[str, ...]:
    """Return the command line that asks for this."""
    size = ("--budget", written(asked.budget_s)) if asked.budget_s else (f"--{asked.size}",)
    return (
        *("farandole", "lab", lab, *size),
        *(("--data", str(asked.data)) if asked.data is not None else ()),
        *(("-np", ",".join(map(str, asked.workers))) if asked.workers else ()),
        *(("--recipe", ",".join(asked.recipes)) if asked.recipes else ()),
        *(("--weights", asked.weights) if asked.weights is not None else ()),
        *(("--out", out) if out is not None else ()),
    )


def _check_empty(out: Path) -> None:
    # A lab that was ended before its first file has left a lock, and nothing to lose.
    try:
        found = sorted(path.name for path in out.iterdir() if path.name != LOCK_FILE)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"--out {out} cannot be read ({error.strerror}).") from error
    if found:
        raise UsageError(
            f"--out {out} is not empty and holds no lab (it has {found[0]}). Name a new folder."
        )


def _encoded(kept: Kept) -> dict[str, Any]:
    content = asdict(kept)
    content["asked"]["data"] = None if kept.asked.data is None else str(kept.asked.data)
    return content


def _decoded(content: Mapping[str, Any]) -> Kept:
    asked, plan = content["asked"], content["plan"]
    return Kept(
        lab=content["lab"],
        asked=Asked(
            size=asked["size"],
            budget_s=asked["budget_s"],
            data=None if asked["data"] is None else Path(asked["data"]),
            workers=tuple(asked["workers"]),
            recipes=tuple(asked["recipes"]),
            cores=asked["cores"],
            weights=asked.get("weights"),  # labs were begun before this could be asked for
        ),
        created=content["created"],
        rates={name: Rate(**rate) for name, rate in content["rates"].items()},
        plan=None
        if plan is None
        else Plan(
            studies=tuple(_planned(study) for study in plan["studies"]),
            choices=tuple(Choice(**choice) for choice in plan["choices"]),
        ),
        ended=dict(content["ended"]),
        spent_s=float(content["spent_s"]),
    )


def _planned(study: Mapping[str, Any]) -> Planned:
    return Planned(
        **{
            **study,
            "flags": tuple(study["flags"]),
            "arguments": tuple(study["arguments"]),
            "environ": tuple((name, value) for name, value in study["environ"]),
        }
    )
