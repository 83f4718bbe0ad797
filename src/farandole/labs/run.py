"""Run a lab: its pilot, its plan, and each of its studies; a second run goes on."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from farandole.errors import FarandoleError, LabFailedError, UsageError
from farandole.labs import budget
from farandole.labs.lab import (
    Asked,
    DataFacts,
    Found,
    Lab,
    Plan,
    Planned,
    Rate,
    flag_time,
    published_path,
)
from farandole.labs.plan import choices, runs_choice
from farandole.labs.report import LabReport, lab_report
from farandole.model.analyse import analyse
from farandole.study import folder
from farandole.study.folder import is_study, locked, shown, write_json
from farandole.study.import_table import import_table
from farandole.study.progress import Listener, duration
from farandole.study.read import read_head, read_launch, read_study
from farandole.study.records import Study
from farandole.study.runner import finished, run_study

Listening = Callable[[], AbstractContextManager[Listener]]
"""Makes who is told of a study's progress, for as long as the study runs."""
Say = Callable[[str], None]

SCHEMA = 1
KIND = "farandole-lab"
FILE = "lab.json"
_MOST_NAMED = 10
"""Files that could not be read, on the terminal."""
PILOT, STUDIES, PUBLISHED = "pilot", "studies", "published"


def planned(lab: Lab, asked: Asked, data: DataFacts, out: Path) -> Plan:
    """Return what a run would do, without measuring: by kept rates, or by the lab's own guess.

    Raises:
        UsageError: The folder is another lab's, or the budget is too short.
    """
    state = begin(lab, asked, data, out)
    pilots = lab.pilot(asked) if asked.size == "budget" and not (state.plan or state.rates) else ()
    spent_s = state.spent_s + sum(pilot.estimate_s for pilot in pilots)
    plan = state.plan or _new_plan(lab, asked, data, state.rates, spent_s)
    plan = _with_run_counts(plan, {one.name: one.runs for one in plan.studies})
    return replace(plan, studies=(*pilots, *plan.studies))


def _new_plan(
    lab: Lab, asked: Asked, data: DataFacts, rates: Mapping[str, Rate], spent_s: float
) -> Plan:
    if asked.size != "budget":
        return lab.plan(asked, data, {}, 0)
    return budget.fit(lab, asked, data, rates, spent_s=spent_s)


def _with_run_counts(plan: Plan, runs: Mapping[str, int]) -> Plan:
    """Return a plan whose choices also say how often each setting is run, by study."""
    return replace(plan, choices=(*plan.choices, *choices(runs_choice(runs))))


def run_lab(
    lab: Lab,
    asked: Asked,
    out: Path,
    *,
    listening: Listening,
    say: Say,
    began_s: float | None = None,
) -> LabReport:
    """Run a lab in its folder, or what is missing of it, and return its report.

    Args:
        lab: What to run.
        asked: What the user asked for.
        out: The lab's folder; one that was begun is gone on with.
        listening: Who is told of the progress of studies.
        say: Takes a line for the user.
        began_s: On the monotonic clock, since when the budget counts; now when None.

    Raises:
        DataError: The data are not what the lab needs.
        UsageError: The folder is another lab's, or the budget too short; nothing was written.
        LabFailedError: Nothing came out of it.
        Interrupted: Somebody ended it; the same again goes on.
    """
    data = lab.data(asked.data)
    for line in data_lines(lab, data):
        say(line)
    run = LabRun(lab, asked, data, out, listening=listening, say=say, began_s=began_s)
    say(f"Writing to {shown(out, Path.cwd())}")
    return lab_report(lab, run.go(), created=run.created)


def data_lines(lab: Lab, data: DataFacts) -> list[str]:
    """Say what is run on what, and name what could not be read: a large data set has many."""
    lines = [
        f"{lab.title}. Data: {data.source}; {data.train:,} samples to train on and {data.test:,} "
        f"to test, {data.sample} each."
    ]
    lines += [f"left out: {line}" for line in data.skipped[:_MOST_NAMED]]
    if len(data.skipped) > 1:
        rest = "; the report names more of them" if len(data.skipped) > _MOST_NAMED else ""
        lines.append(f"left out: {len(data.skipped):,} in all{rest}")
    return lines


class LabRun:
    """A lab under way in its folder."""

    def __init__(
        self,
        lab: Lab,
        asked: Asked,
        data: DataFacts,
        out: Path,
        *,
        listening: Listening,
        say: Say,
        began_s: float | None = None,
    ) -> None:
        """Look at the folder and write nothing yet: see `run_lab`."""
        self._lab, self._asked, self._data, self._out = lab, asked, data, out
        self._listening, self._say = listening, say
        self._since_s = time.monotonic() if began_s is None else began_s
        self._state = begin(lab, asked, data, out)
        self._resumed = self._state.plan is not None

    @property
    def created(self) -> str:
        """When the lab was first begun: ISO 8601, UTC."""
        return self._state.created

    def go(self) -> Found:
        """Make what is missing, and return what all of it found.

        Raises:
            LabFailedError: Nothing came out of it.
            Interrupted: Somebody ended it; the same again goes on.
            StoreError: The folder cannot be written to.
        """
        with locked(self._out):
            self._save()
            try:
                plan = self._state.plan or self._plan()
                self._studies(plan)
                if self._asked.size == "budget":
                    self._further(plan)
                for name in self._lab.published:
                    import_published(name, self._out / PUBLISHED / name)
            finally:
                self._save()
            return self._read(plan)

    def _plan(self) -> Plan:
        rates = self._rates() if self._asked.size == "budget" else {}
        plan = _new_plan(self._lab, self._asked, self._data, rates, self._spent_s())
        self._save(plan=plan)
        count = len(plan.studies)
        self._say(
            f"{count} {'study' if count == 1 else 'studies'}, "
            f"about {duration(plan.estimate_s)} in all."
        )
        return plan

    def _rates(self) -> dict[str, Rate]:
        """Measure the rates that are missing."""
        pilots = self._lab.pilot(self._asked)
        rates = dict(self._state.rates)
        for number, one in enumerate(pilots, 1):
            if one.name in rates:
                continue
            self._say(f"{self._lab.name}, pilot {number} of {len(pilots)}: {one.title}")
            path = self._out / PILOT / one.name
            why = self._make(one, path, limit_s=self._left_s() / 2)
            rate = None
            if not why:
                study = read_study(path)
                rate = budget.measured_rate(analyse(study), study)
            if rate is None:
                why = why or "no launch of one worker told its samples per second"
                raise LabFailedError(
                    f"The pilot study {path} failed, and without it the lab {self._lab.name} "
                    f"cannot be fitted into a budget: {why.rstrip('.')}. Mend this and run the "
                    "same again, or use --quick."
                )
            rates[one.name] = rate
            self._save(rates=dict(rates))
            self._say(
                f"One worker: {rate.samples_per_s:,.0f} samples/s, and {rate.startup_s:.1f} s to "
                "start and end."
            )
        return rates

    def _studies(self, plan: Plan) -> None:
        ended = dict(self._state.ended)
        rest = [one for one in plan.studies if ended.get(one.name) != ""]
        count = len(plan.studies)
        if len(rest) < count:
            made = f"{count - len(rest)} of {count}" if rest else "All"
            self._say(f"{made} studies have been made already.")
        while rest:
            one, limit_s, left = rest[0], None, ""
            if self._asked.size == "budget":
                limit_s = budget.limit_s(one, rest, left_s=self._left_s())
                if self._left_s() > 0:
                    left = f"; {duration(self._left_s())} of the budget left"
                if self._resumed:
                    # Whoever asks again wants the rest, also when the budget is used up.
                    limit_s = max(limit_s, one.estimate_s)
            self._say(
                f"\n{self._lab.name}, study {plan.studies.index(one) + 1} of {count}: {one.title} "
                f"(about {duration(one.estimate_s)}{left})"
            )
            ended[one.name] = self._make(one, self._out / STUDIES / one.name, limit_s=limit_s)
            self._save(ended=dict(ended))
            rest.pop(0)

    def _further(self, plan: Plan) -> None:
        """Spend what is left of a budget on further runs."""
        places = {one.name: self._out / STUDIES / one.name for one in plan.studies}
        progress = {
            one.name: found
            for one in plan.studies
            if one.worth_repeating and not self._state.ended[one.name]
            if (found := budget.study_progress(one, places[one.name])) is not None
        }
        while chosen := budget.next_round(progress.values(), left_s=self._left_s()):
            study, path, left_s = chosen.study, places[chosen.study.name], self._left_s()
            self._say(
                f"\n{self._lab.name}, run {chosen.runs + 1} of each setting, to narrow the "
                f"intervals: {study.title} (about {duration(chosen.next_s)}; {duration(left_s)} of "
                "the budget left)"
            )
            why = make_study(
                study.with_runs(chosen.runs + 1),
                path,
                listening=self._listening,
                say=self._say,
                limit_s=left_s - budget.REPORT_S,
                extend=chosen.complete,
            )
            self._save()
            after = budget.study_progress(study, path)
            # What came to no run of every setting would come to none again.
            if why or after is None or after.runs <= chosen.runs:
                del progress[study.name]
            else:
                progress[study.name] = after
        if self._left_s() > budget.REPORT_S:
            why = budget.why_no_more(progress.values())
            self._say(f"\n{duration(self._left_s())} of the budget left: {why}.")

    def _make(self, one: Planned, path: Path, *, limit_s: float | None) -> str:
        """Make a study and return why it has no figures; nothing to do for a complete one."""
        if is_complete(path) and not self._state.ended.get(one.name):
            return ""
        return make_study(one, path, listening=self._listening, say=self._say, limit_s=limit_s)

    def _read(self, plan: Plan) -> Found:
        """Read all studies and compute what they say."""
        failed = {one.name: why for one in plan.studies if (why := self._state.ended[one.name])}
        records: dict[str, Study] = {
            one.name: read_study(self._out / STUDIES / one.name)
            for one in plan.studies
            if one.name not in failed
        }
        if plan.studies and not records:
            name, why = next(iter(failed.items()))
            raise LabFailedError(
                f"No study of the lab {self._lab.name} has figures. The first of them, {name}: "
                f"{why.rstrip('.')}."
            )
        published = {name: read_study(self._out / PUBLISHED / name) for name in self._lab.published}
        runs = {name: budget.runs_made(study.launches) for name, study in records.items()}
        return Found(
            asked=self._asked,
            data=self._data,
            plan=_with_run_counts(plan, runs),
            studies={name: analyse(study) for name, study in records.items()},
            records=records,
            published={name: analyse(study) for name, study in published.items()},
            published_records=published,
            failed=failed,
        )

    def _spent_s(self) -> float:
        return self._state.spent_s + time.monotonic() - self._since_s

    def _left_s(self) -> float:
        return (self._asked.budget_s or 0.0) - self._spent_s()

    def _save(self, **changes: Any) -> None:
        """Write down what is known, and the time that it has taken."""
        spent_s = self._spent_s()
        self._since_s = time.monotonic()
        self._state = replace(self._state, **changes, spent_s=spent_s)
        write_state(self._out, self._state)


# lab.json: what a lab was asked for and has planned, so that a second run goes on.


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
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


def begin(lab: Lab, asked: Asked, data: DataFacts, out: Path) -> State:
    """Return what a folder keeps of this lab, or the beginning of one; nothing is written.

    Before there is a plan, another budget is welcome: the first may have been too short for one.

    Raises:
        UsageError: The folder is another lab's, one of other data or another size, or something
            else; or the budget is too short for one study.
    """
    state = read_state(out)
    if state is None:
        created = datetime.now(timezone.utc).isoformat(timespec="seconds")
        state = State(lab=lab.name, asked=asked, created=created)
    before = replace(state.asked, cores=asked.cores)
    same_but_budget = replace(before, budget_s=asked.budget_s) == asked
    if state.lab != lab.name or (before != asked and not (same_but_budget and state.plan is None)):
        raise UsageError(
            f"{out} holds `{shlex.join(state.asked.command(state.lab))}`, but you asked for "
            f"`{shlex.join(asked.command(lab.name))}`. Ask for the same to go on with it, or give "
            "another --out."
        )
    if before != asked:
        state = replace(state, asked=asked, spent_s=0.0)
    if asked.size == "budget" and not (state.plan or state.rates):
        budget.check_budget(lab, asked, data)
    return state


def read_state(out: Path) -> State | None:
    """Return what a folder keeps; None when it is empty or not there.

    Raises:
        UsageError: It is something else than the folder of a lab, or of a later version.
    """
    try:
        text = (out / FILE).read_text()
    except NotADirectoryError as error:
        raise UsageError(f"--out {out} is a file, or below one. Name a folder.") from error
    except FileNotFoundError:
        # A lab that was ended before its first file has left a lock, and nothing to lose.
        found = sorted(out.iterdir()) if out.is_dir() else []
        if other := [path.name for path in found if path.name != folder.LOCK_FILE]:
            raise UsageError(
                f"--out {out} is not empty and holds no lab (it has {other[0]}). Name a new folder."
            ) from None
        return None
    except OSError as error:
        raise UsageError(f"--out {out} cannot be read ({error.strerror}).") from error
    try:
        content = json.loads(text)
        if content.pop("kind") == KIND and (schema := content.pop("schema")) > SCHEMA:
            raise UsageError(
                f"{out / FILE} is of a later version of Farandole (schema {schema}; this one "
                f"knows {SCHEMA}). Use that version, or give another --out."
            )
        asked = content["asked"]
        asked["data"] = None if asked["data"] is None else Path(asked["data"])
        asked |= {name: tuple(asked[name]) for name in ("workers", "recipes")}
        content["asked"] = Asked(**asked)
        content["rates"] = {name: Rate(**rate) for name, rate in content["rates"].items()}
        if content["plan"] is not None:
            content["plan"] = Plan.from_json(content["plan"])
        return State(**content)
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise UsageError(
            f"{out / FILE} is not what `farandole lab` wrote. Give another --out, or remove it."
        ) from error


def write_state(out: Path, state: State) -> None:
    """Write lab.json as a whole.

    Raises:
        StoreError: The folder cannot be written to.
    """
    content = asdict(replace(state, plan=None))
    content["asked"]["data"] = None if state.asked.data is None else str(state.asked.data)
    content["plan"] = None if state.plan is None else state.plan.to_json()
    write_json(out / FILE, {"schema": SCHEMA, "kind": KIND, **content})


# One study.


def make_study(
    one: Planned,
    path: Path,
    *,
    listening: Listening,
    say: Say,
    limit_s: float | None = None,
    extend: bool = False,
) -> str:
    """Make a study, or the rest of it; return why it has no figures, "" when it has some.

    Args:
        one: The study.
        path: Its folder; one that has been begun is gone on with.
        listening: Who is told of its progress.
        say: Takes a line for the user.
        limit_s: How long it may take; None: as long as it does.
        extend: Whether more is asked for than the folder's study was begun with.

    Raises:
        Interrupted: Somebody ended it; what is finished of it is kept.
    """
    resume = is_study(path) and not extend
    # A study is extended from where it was begun: elsewhere its command would be another.
    here = Path(read_head(path).spec["folder"]) if extend else Path.cwd()
    limit = {} if limit_s is None else {"time_limit": flag_time(limit_s)}
    where: dict[str, Any] = {"resume": shown(path, here)}
    if not resume:
        where = {"out": shown(path, here), "label": one.title}
    say(f"$ {one.shell_line(here, **limit, **where, no_report=True)}")
    try:
        with listening() as listener:
            run_study(
                None if resume else one.command(here),
                limit if resume else {**one.options, **limit},
                path,
                listener=listener,
                label=one.title,
                folder=here,
                environ={**os.environ, **one.environ},
            )
    except FarandoleError as error:
        say(f"farandole: {error}")
        return str(error)
    done = finished(path)
    if any(launch.outcome in ("ok", "stopped") for launch in done):
        return ""
    for place in folder.finished_folders(path):
        if reason := read_launch(place, ranks=False).reason:
            # From the lab's folder: its report lies there.
            output = (place / folder.OUTPUT_FILE).relative_to(path.parent.parent)
            return f"{reason.rstrip('.')}. See {output}"
    return "No launch was made in the time that there was"


def is_complete(path: Path) -> bool:
    """Tell whether all launches of a study have been made."""
    return is_study(path) and read_head(path).complete


def import_published(name: str, path: Path) -> None:
    """Make a study of a published table, unless it is there.

    Raises:
        FarandoleError: The table cannot be used.
    """
    table = published_path(name)
    if is_complete(path):
        imported: Mapping[str, Any] = read_head(path).spec.get("imported", {})
        if imported.get("sha256") == hashlib.sha256(table.read_bytes()).hexdigest():
            return
    # Half of one, or that of an earlier version's table.
    shutil.rmtree(path, ignore_errors=True)
    import_table(table, path)
