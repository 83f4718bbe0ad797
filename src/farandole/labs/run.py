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
from dataclasses import dataclass, field, replace
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
from farandole.study.codec import decode, encode
from farandole.study.folder import is_study, locked, shown, write_json
from farandole.study.import_table import import_table
from farandole.study.progress import Listener, duration
from farandole.study.read import read_head, read_launch, read_study
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
    """Return what a run would do, without measuring: by kept rates, or by the lab's own guess."""
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
    run = _Run(lab, asked, out, listening, say, time.monotonic() if began_s is None else began_s)
    return lab_report(lab, run.go(), created=run.state.created)


class _Run:
    """A lab under way in its folder."""

    def __init__(
        self, lab: Lab, asked: Asked, out: Path, listening: Listening, say: Say, since_s: float
    ) -> None:
        """Look at the data and the folder, and write nothing yet."""
        self.lab, self.asked, self.out, self.since_s = lab, asked, out, since_s
        self.listening, self.say = listening, say
        self.data = lab.data(asked.data)
        for line in data_lines(lab, self.data):
            say(line)
        self.state = begin(lab, asked, self.data, out)
        self.resumed = self.state.plan is not None
        say(f"Writing to {shown(out, Path.cwd())}")

    def go(self) -> Found:
        """Make what is missing, and return what all of it found."""
        with locked(self.out):
            self.save()
            try:
                plan = self.state.plan or self.make_plan()
                self.make_studies(plan)
                if self.asked.size == "budget":
                    self.repeat_studies(plan)
                for name in self.lab.published:
                    import_published(name, self.out / PUBLISHED / name)
            finally:
                self.save()
            return self.read(plan)

    def make_plan(self) -> Plan:
        rates = self.measure_rates() if self.asked.size == "budget" else {}
        plan = _new_plan(self.lab, self.asked, self.data, rates, self.spent_s())
        self.save(plan=plan)
        studies = "study" if len(plan.studies) == 1 else "studies"
        self.say(f"{len(plan.studies)} {studies}, about {duration(plan.estimate_s)} in all.")
        return plan

    def measure_rates(self) -> dict[str, Rate]:
        """Measure the rates that are missing."""
        rates, pilots = dict(self.state.rates), self.lab.pilot(self.asked)
        for number, one in enumerate(pilots, 1):
            if one.name in rates:
                continue
            self.say(f"{self.lab.name}, pilot {number} of {len(pilots)}: {one.title}")
            path, rate = self.out / PILOT / one.name, None
            why = self.make(one, path, limit_s=self.left_s() / 2)
            if not why:
                study = read_study(path)
                rate = budget.measured_rate(analyse(study), study)
            if rate is None:
                why = why or "no launch of one worker told its samples per second"
                raise LabFailedError(
                    f"The pilot study {path} failed, and without it the lab {self.lab.name} "
                    f"cannot be fitted into a budget: {why.rstrip('.')}. Mend this and run the "
                    "same again, or use --quick."
                )
            rates[one.name] = rate
            self.save(rates=dict(rates))
            self.say(
                f"One worker: {rate.samples_per_s:,.0f} samples/s, and {rate.startup_s:.1f} s to "
                "start and end."
            )
        return rates

    def make_studies(self, plan: Plan) -> None:
        ended, count = dict(self.state.ended), len(plan.studies)
        rest = [one for one in plan.studies if ended.get(one.name) != ""]
        if len(rest) < count:
            made = f"{count - len(rest)} of {count}" if rest else "All"
            self.say(f"{made} studies have been made already.")
        while rest:
            one, limit_s, left = rest[0], None, ""
            if self.asked.size == "budget":
                limit_s = budget.limit_s(one, rest, left_s=self.left_s())
                if self.left_s() > 0:
                    left = f"; {duration(self.left_s())} of the budget left"
                if self.resumed:
                    # Whoever asks again wants the rest, also when the budget is used up.
                    limit_s = max(limit_s, one.estimate_s)
            self.say(
                f"\n{self.lab.name}, study {plan.studies.index(one) + 1} of {count}: {one.title} "
                f"(about {duration(one.estimate_s)}{left})"
            )
            ended[one.name] = self.make(one, self.out / STUDIES / one.name, limit_s=limit_s)
            self.save(ended=dict(ended))
            rest.pop(0)

    def repeat_studies(self, plan: Plan) -> None:
        """Spend what is left of a budget on further runs."""
        paths = {one.name: self.out / STUDIES / one.name for one in plan.studies}
        progress = {
            one.name: found
            for one in plan.studies
            if one.worth_repeating and not self.state.ended[one.name]
            if (found := budget.study_progress(one, paths[one.name])) is not None
        }
        while chosen := budget.next_round(progress.values(), left_s=self.left_s()):
            study, path, left_s = chosen.study, paths[chosen.study.name], self.left_s()
            self.say(
                f"\n{self.lab.name}, run {chosen.runs + 1} of each setting, to narrow the "
                f"intervals: {study.title} (about {duration(chosen.next_s)}; {duration(left_s)} of "
                "the budget left)"
            )
            more, limit_s = study.with_runs(chosen.runs + 1), left_s - budget.REPORT_S
            why = self.make(more, path, limit_s=limit_s, extend=chosen.complete)
            self.save()
            after = budget.study_progress(study, path)
            # What came to no run of every setting would come to none again.
            if why or after is None or after.runs <= chosen.runs:
                del progress[study.name]
            else:
                progress[study.name] = after
        if self.left_s() > budget.REPORT_S:
            why = budget.why_no_more(progress.values())
            self.say(f"\n{duration(self.left_s())} of the budget left: {why}.")

    def make(self, one: Planned, path: Path, *, limit_s: float | None, extend: bool = False) -> str:
        """Make a study, or the rest of it; return why it has no figures, "" when it has some.

        With `extend`, more is asked for than the folder's study was begun with.
        """
        if not extend and is_complete(path) and not self.state.ended.get(one.name):
            return ""
        resume = is_study(path) and not extend
        # A study is extended from where it was begun: elsewhere its command would be another.
        here = Path(read_head(path).spec["folder"]) if extend else Path.cwd()
        limit = {} if limit_s is None else {"time_limit": flag_time(limit_s)}
        where = {"out": shown(path, here), "label": one.title}
        where = {"resume": shown(path, here)} if resume else where
        self.say(f"$ {one.shell_line(here, **limit, **where, no_report=True)}")
        try:
            with self.listening() as listener:
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
            self.say(f"farandole: {error}")
            return str(error)
        if any(launch.outcome in ("ok", "stopped") for launch in finished(path)):
            return ""
        for place in folder.finished_folders(path):
            if reason := read_launch(place, ranks=False).reason:
                # From the lab's folder: its report lies there.
                output = (place / folder.OUTPUT_FILE).relative_to(self.out)
                return f"{reason.rstrip('.')}. See {output}"
        return "No launch was made in the time that there was"

    def read(self, plan: Plan) -> Found:
        """Read all studies and compute what they say."""
        failed = {one.name: why for one in plan.studies if (why := self.state.ended[one.name])}
        records = {
            one.name: read_study(self.out / STUDIES / one.name)
            for one in plan.studies
            if one.name not in failed
        }
        if plan.studies and not records:
            name, why = next(iter(failed.items()))
            raise LabFailedError(
                f"No study of the lab {self.lab.name} has figures. The first of them, {name}: "
                f"{why.rstrip('.')}."
            )
        published = {name: read_study(self.out / PUBLISHED / name) for name in self.lab.published}
        runs = {name: budget.runs_made(study.launches) for name, study in records.items()}
        return Found(
            asked=self.asked,
            data=self.data,
            plan=_with_run_counts(plan, runs),
            studies={name: analyse(study) for name, study in records.items()},
            records=records,
            published={name: analyse(study) for name, study in published.items()},
            published_records=published,
            failed=failed,
        )

    def spent_s(self) -> float:
        return self.state.spent_s + time.monotonic() - self.since_s

    def left_s(self) -> float:
        return (self.asked.budget_s or 0.0) - self.spent_s()

    def save(self, **changes: Any) -> None:
        """Write down what is known, and the time that it has taken."""
        spent_s, self.since_s = self.spent_s(), time.monotonic()
        self.state = replace(self.state, **changes, spent_s=spent_s)
        write_state(self.out, self.state)


def is_complete(path: Path) -> bool:
    """Tell whether all launches of a study have been made."""
    return is_study(path) and read_head(path).complete


def import_published(name: str, path: Path) -> None:
    """Make a study of a published table, unless it is there."""
    table = published_path(name)
    if is_complete(path):
        imported: Mapping[str, Any] = read_head(path).spec.get("imported", {})
        if imported.get("sha256") == hashlib.sha256(table.read_bytes()).hexdigest():
            return
    # Half of one, or that of an earlier version's table.
    shutil.rmtree(path, ignore_errors=True)
    import_table(table, path)


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
        kind, schema, plan = content["kind"], int(content["schema"]), content.get("plan")
        if kind != KIND or schema <= SCHEMA:
            return decode(State, content, plan=plan and Plan.from_json(plan))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{out / FILE} is not what `farandole lab` wrote. Give another --out, or remove it."
        ) from error
    raise UsageError(
        f"{out / FILE} is of a later version of Farandole (schema {schema}; this one knows "
        f"{SCHEMA}). Use that version, or give another --out."
    )


def write_state(out: Path, state: State) -> None:
    """Write lab.json as a whole."""
    content = encode(state, leave=("plan",)) | {"plan": state.plan and state.plan.to_json()}
    write_json(out / FILE, {"schema": SCHEMA, "kind": KIND, **content})
