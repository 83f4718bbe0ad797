"""The registry of checks: one function over recorded facts each, with its record.

    @check(
        "FD103",
        severity="error",
        title="Weights differ before the first step",
        meaning="Each of your {workers:worker} starts from weights of its own...",
        fix={"torch": "hvd.broadcast_parameters(model.state_dict(), root_rank=0)", "keras": "..."},
        needs="weights of at least 2 ranks before the first update",
    )
    def weights_differ_at_start(job: Job) -> Iterator[Seen]:
        ...

A check yields what it saw, nothing where all is well, and raises NotChecked where it cannot see
what it needs. Ids are for good: a check that goes leaves its number unused. FD1xx one job
(`one_job`), FD2xx `data`, FD3xx `optimisation`, FD4xx `measurement`, FD5xx `machine`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from typing import Literal

from farandole.doctor.facts import Job
from farandole.errors import UsageError
from farandole.format import fill

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
THEMES: Mapping[str, tuple[str, str]] = {
    "1": ("one_job", "One job"),
    "2": ("data", "Data"),
    "3": ("optimisation", "Optimisation"),
    "4": ("measurement", "Measurement and evaluation"),
    "5": ("machine", "Machine and launch"),
}
FRAMEWORKS: Mapping[str, str] = {
    "torch": "PyTorch with Farandole or Horovod",
    "ddp": "PyTorch DDP",
    "accelerate": "Accelerate",
    "lightning": "Lightning",
    "keras": "Keras 3",
    "tensorflow": "TensorFlow",
}
_TORCH = ("torch", "ddp", "accelerate", "lightning")


class NotChecked(Exception):  # noqa: N818 - an answer, not a failure
    """A check could not see what it needs; the text says what was missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a check saw that should not be."""

    text: str
    """A sentence with the figures: "After step 3, 4 of 4 parameters differ between the ranks."""
    values: Mapping[int, object] = field(default_factory=dict)
    """By rank."""
    step: int | None = None
    where: str = ""
    """file:line of the script."""
    severity: Severity | None = None
    """Where it is another one than the check's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One mistake: how it is found, what it means, what fixes it."""

    id: str
    severity: Severity
    title: str
    meaning: str
    """A template of format.fill with {workers} and {title}; what follows of it."""
    fix: Mapping[str, str]
    """A few lines by framework (FRAMEWORKS); the first one where a framework has none."""
    needs: str
    """What must have been recorded for it."""
    covers: tuple[str, ...]
    """Frameworks in which it can be seen."""
    explains: tuple[str, ...]
    """Ids that follow from this one and are not shown beside it."""
    replay: bool
    """Whether it needs the same script on one worker too."""
    cheap: bool
    """Whether it works on what every study records, or `run --doctor` does."""
    advice: bool
    """Whether it is advice: not counted as a mistake."""
    look: Callable[[Job], Iterable[Seen] | None]

    @property
    def theme(self) -> str:
        """The title of its group."""
        return THEMES[self.id[2]][1]

    def fix_for(self, framework: str) -> str:
        """Return the change for a framework."""
        if framework in self.fix:
            return self.fix[framework]
        alike = _TORCH if framework in _TORCH else ("keras", "tensorflow")
        known = [self.fix[name] for name in alike if name in self.fix]
        return (known or list(self.fix.values()))[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A mistake that was found."""

    id: str
    severity: Severity
    title: str
    text: str
    values: Mapping[int, object]
    step: int | None
    where: str
    meaning: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What all checks said of a launch."""

    findings: tuple[Finding, ...]
    passed: tuple[str, ...]
    not_checked: Mapping[str, str]
    """By id: why."""

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that make a result worth nothing."""
        return tuple(one for one in self.findings if one.severity == "error")


_CHECKS: dict[str, Check] = {}
_Look = Callable[[Job], Iterable[Seen] | None]


def check(
    number: str,
    *,
    severity: Severity,
    title: str,
    meaning: str,
    fix: Mapping[str, str],
    needs: str,
    covers: Sequence[str] = tuple(FRAMEWORKS),
    explains: Sequence[str] = (),
    replay: bool = False,
    cheap: bool = False,
    advice: bool = False,
) -> Callable[[_Look], _Look]:
    """Register a function as the check of an id."""
    assert re.fullmatch(r"FD[1-5]\d\d", number), number
    assert number not in _CHECKS, f"{number} is taken"
    assert {*fix, *covers} <= set(FRAMEWORKS), number

    def register(look: _Look) -> _Look:
        _CHECKS[number] = Check(
            id=number,
            severity=severity,
            title=title,
            meaning=meaning,
            fix=fix,
            needs=needs,
            covers=tuple(covers),
            explains=tuple(explains),
            replay=replay,
            cheap=cheap,
            advice=advice,
            look=look,
        )
        return look

    return register


@cache
def checks() -> Mapping[str, Check]:
    """Return all checks by id, in order."""
    for module, _ in THEMES.values():
        import_module(f"farandole.doctor.{module}")
    return dict(sorted(_CHECKS.items()))


def chosen(select: Sequence[str] = (), ignore: Sequence[str] = ()) -> tuple[Check, ...]:
    """Return the checks of ids or beginnings of ids: FD107, FD1; all where none is selected.

    Raises:
        UsageError: one of them is no id.
    """
    known = checks()
    for name in (*select, *ignore):
        if not name or not any(one.startswith(name.upper()) for one in known):
            raise UsageError(
                f"There is no check {name or repr(name)}.{_meant(name)} `farandole doctor --list` "
                "shows all of them; FD1 stands for FD101 to FD199."
            )
    wanted = tuple(name.upper() for name in select) or ("FD",)
    unwanted = tuple(name.upper() for name in ignore)
    return tuple(
        one
        for one in known.values()
        if one.id.startswith(wanted) and not (unwanted and one.id.startswith(unwanted))
    )


def find_check(name: str) -> Check:
    """Return the check of an id.

    Raises:
        UsageError: there is none.
    """
    known = checks()
    if name.upper() not in known:
        raise UsageError(
            f"There is no check {name or repr(name)}.{_meant(name)} `farandole doctor --list` "
            "shows all of them."
        )
    return known[name.upper()]


def _meant(name: str) -> str:
    """Ask for the id that somebody may have meant, by its letters or by words of its title."""
    known = checks()
    close = get_close_matches(name.upper(), known, n=1, cutoff=0.6)
    words = [one.id for one in known.values() if name and name.lower() in one.title.lower()]
    found = words[:1] or close
    return f" Did you mean {found[0]} ({known[found[0]].title})?" if found else ""


def diagnose(job: Job, selected: Iterable[Check] | None = None) -> Diagnosis:
    """Apply checks to a launch; causes first, and what follows from them left out."""
    findings: list[Finding] = []
    passed: list[str] = []
    not_checked: dict[str, str] = {}
    explained: set[str] = set()
    for one in checks().values() if selected is None else selected:
        try:
            seen = list(_look(one, job))
        except NotChecked as reason:
            not_checked[one.id] = str(reason)
            continue
        except Exception as error:  # facts of a worker that was killed may be incomplete
            not_checked[one.id] = f"the check itself failed: {type(error).__name__}: {error}"
            continue
        if seen:
            explained.update(one.explains)
            findings += [_finding(one, each, job) for each in seen]
        else:
            passed.append(one.id)
    kept = [one for one in findings if one.id not in explained]
    kept.sort(key=lambda one: (SEVERITIES.index(one.severity), one.id))
    return Diagnosis(findings=tuple(kept), passed=tuple(passed), not_checked=not_checked)


def _look(one: Check, job: Job) -> Iterator[Seen]:
    if one.replay and job.alone is None:
        raise NotChecked("the script was not replayed on one worker")
    yield from one.look(job) or ()


def _finding(one: Check, seen: Seen, job: Job) -> Finding:
    return Finding(
        id=one.id,
        severity=seen.severity or one.severity,
        title=one.title,
        text=seen.text,
        values=dict(seen.values),
        step=seen.step,
        where=seen.where,
        meaning=fill(one.meaning, workers=job.workers, title=one.title),
        fix=one.fix_for(job.framework),
    )


def several(job: Job, *, steps: int = 1) -> None:
    """Refuse to compare ranks where fewer than two of them trained.

    Raises:
        NotChecked: there is nothing to compare.
    """
    if job.workers < 2:
        raise NotChecked("there is one worker")
    trained = [rank for rank in job.ranks if rank.steps >= steps]
    if len(trained) < 2:
        raise NotChecked(
            "no optimizer step was seen"
            if not any(rank.steps for rank in job.ranks)
            else f"fewer than 2 workers made {steps} steps"
        )
