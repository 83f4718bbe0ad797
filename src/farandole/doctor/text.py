"""A diagnosis for people and for programs: terminal, JSON, SARIF, and the page of each id."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from farandole.doctor.check import FRAMEWORKS, THEMES, Check, Diagnosis, Finding
from farandole.doctor.facts import Job
from farandole.doctor.run import Ignored
from farandole.format import fill, plural
from farandole.version import __version__

SCHEMA = 1
_WIDTH = 80
_MOST_RANKS = 8
_LEVELS = {"error": "error", "warning": "warning", "note": "note"}


def finding_lines(one: Finding) -> list[str]:
    """Return a finding for a terminal."""
    head = f"{one.id} {one.severity}: {one.title}"
    lines = [f"{head} ({one.where})" if one.where else head]
    lines += _wrapped(one.text, "  ")
    shown = list(one.values.items())[:_MOST_RANKS]
    lines += [f"    rank {rank}: {value}" for rank, value in shown]
    if len(one.values) > _MOST_RANKS:
        lines.append(f"    and {plural(len(one.values) - _MOST_RANKS, 'more rank')}")
    lines += _wrapped(one.meaning, "  ")
    lines += ["  Fix:", *textwrap.indent(one.fix, "    ").splitlines()]
    return lines


def terminal_lines(job: Job, diagnosis: Diagnosis, ignored: Sequence[Ignored]) -> list[str]:
    """Return a diagnosis for a terminal."""
    lines: list[str] = []
    for one in diagnosis.findings:
        lines += [*finding_lines(one), ""]
    for left_out in ignored:
        reason = f": {left_out.reason}" if left_out.reason else ""
        lines.append(f"ignored: {left_out.finding.id} at {left_out.where}{reason}")
    counts = [
        plural(sum(one.severity == severity for one in diagnosis.findings), severity)
        for severity in ("error", "warning", "note")
    ]
    steps = max((rank.steps for rank in job.ranks), default=0)
    lines.append(
        f"{', '.join(counts)} in {plural(steps, 'step')} of {plural(job.workers, 'worker')}; "
        f"{plural(len(diagnosis.passed), 'check')} passed, "
        f"{len(diagnosis.not_checked)} not checked."
    )
    lines += not_checked_lines(diagnosis.not_checked)
    if diagnosis.findings:
        lines.append(f"farandole doctor --explain {diagnosis.findings[0].id} says more.")
    return lines


def not_checked_lines(not_checked: Mapping[str, str]) -> list[str]:
    """Group what was not checked by the reason."""
    by_reason: dict[str, list[str]] = {}
    for number, reason in not_checked.items():
        by_reason.setdefault(reason, []).append(number)
    lines = []
    for reason, numbers in by_reason.items():
        lines += _wrapped(f"not checked: {', '.join(numbers)}: {reason}", "  ", hanging="    ")
    return lines


def to_json(
    job: Job, diagnosis: Diagnosis, ignored: Sequence[Ignored], *, command: Sequence[str]
) -> dict[str, Any]:
    """Return a diagnosis for programs."""
    return {
        "schema": SCHEMA,
        "kind": "diagnosis",
        "farandole": __version__,
        "command": list(command),
        "workers": job.workers,
        "steps": max((rank.steps for rank in job.ranks), default=0),
        "framework": job.framework,
        "ended": job.ended,
        "reason": job.reason,
        "findings": [_finding_json(one) for one in diagnosis.findings],
        "ignored": [
            {**_finding_json(one.finding), "comment": one.where, "reason": one.reason}
            for one in ignored
        ],
        "passed": list(diagnosis.passed),
        "not_checked": dict(diagnosis.not_checked),
    }


def _finding_json(one: Finding) -> dict[str, Any]:
    return {
        "id": one.id,
        "severity": one.severity,
        "title": one.title,
        "text": one.text,
        "values": {str(rank): value for rank, value in one.values.items()},
        "step": one.step,
        "where": one.where,
        "meaning": one.meaning,
        "fix": one.fix,
    }


def to_sarif(
    diagnosis: Diagnosis, checks: Sequence[Check], *, command: Sequence[str]
) -> dict[str, Any]:
    """Return a diagnosis in SARIF 2.1.0, as code hosts show it beside the lines of a script."""
    script = next((part for part in command if part.endswith(".py")), "")
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "farandole doctor",
                        "version": __version__,
                        "rules": [_rule(one) for one in checks],
                    }
                },
                "results": [_result(one, script) for one in diagnosis.findings],
            }
        ],
    }


def _rule(one: Check) -> dict[str, Any]:
    return {
        "id": one.id,
        "name": one.title,
        "shortDescription": {"text": one.title},
        "fullDescription": {"text": _plain_meaning(one)},
        "help": {"text": "\n\n".join(one.fix.values())},
        "defaultConfiguration": {"level": _LEVELS[one.severity]},
    }


def _result(one: Finding, script: str) -> dict[str, Any]:
    file, _, line = one.where.rpartition(":")
    place: dict[str, Any] = {"artifactLocation": {"uri": quote(file or script)}}
    if line.isdecimal():
        place["region"] = {"startLine": int(line)}
    values = "".join(f"\nrank {rank}: {value}" for rank, value in one.values.items())
    result: dict[str, Any] = {
        "ruleId": one.id,
        "level": _LEVELS[one.severity],
        "message": {"text": f"{one.text}{values}\n{one.meaning}\n\n{one.fix}"},
    }
    if file or script:
        result["locations"] = [{"physicalLocation": place}]
    return result


# What an id means, without a launch


def list_lines(checks: Sequence[Check]) -> list[str]:
    """List ids with severity and title, by theme."""
    lines: list[str] = []
    for number, (_, theme) in THEMES.items():
        mine = [one for one in checks if one.id[2] == number]
        if mine:
            lines += ["", f"{theme}:"] if lines else [f"{theme}:"]
            lines += [f"  {one.id} {_kind(one):<8}{one.title}" for one in mine]
    return lines


def page(one: Check) -> str:
    """Return the page of an id in Markdown; `--explain` prints the same."""
    parts = [f"# {one.id}: {one.title}", f"Theme: {one.theme}. Severity: {_kind(one)}."]
    parts.append(f"## What it means\n\n{_plain_meaning(one)}")
    fixes = [f"{FRAMEWORKS[name]}:\n\n```text\n{text}\n```" for name, text in one.fix.items()]
    parts.append("## How to fix it\n\n" + "\n\n".join(fixes))
    seen = f"It compares {one.needs}." if one.needs else ""
    also = "It needs the same script on one worker too (the replay)." if one.replay else ""
    cheap = (
        "It also runs in every study and with `farandole run --doctor`."
        if one.cheap
        else "It runs in `farandole doctor` only."
    )
    parts.append("## How it is found\n\n" + " ".join(part for part in (seen, also, cheap) if part))
    covered = ", ".join(FRAMEWORKS[name] for name in one.covers)
    parts.append(f"Seen in: {covered}.")
    if one.explains:
        parts.append(
            f"Where it is found, {', '.join(one.explains)} follows from it and is not shown."
        )
    parts.append(
        f"Leave it out with `--ignore {one.id}`, or with a comment in the script: "
        f"`# farandole: ignore[{one.id}] reason`."
    )
    return "\n\n".join(parts) + "\n"


def _kind(one: Check) -> str:
    return "advice" if one.advice else one.severity


def _plain_meaning(one: Check) -> str:
    return fill(one.meaning, workers=2, title=one.title)


def _wrapped(text: str, indent: str, *, hanging: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent if hanging is None else hanging,
        break_on_hyphens=False,
        break_long_words=False,
    )
