"""Run a lab: its pilot, its plan, and each study by `farandole study`; a second run goes on."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from farandole.errors import FarandoleError, LabFailedError, UsageError
from farandole.labs import budget
from farandole.labs.lab import (
    Asked,
    Choice,
    DataFacts,
    Found,
    Lab,
    Plan,
    Planned,
    Rate,
    examples_path,
    published_path,
)
from farandole.labs.plan import choices, runs_choice
from farandole.model.analyse import analyse
from farandole.study import folder
from farandole.study.attempt import Interrupted
from farandole.study.folder import is_study, locked, shown, write_json
from farandole.study.progress import duration
from farandole.study.read import read_head, read_launch, read_study
from farandole.study.records import Study

Command = Callable[[Sequence[str]], int]
"""`farandole.cli.main.main`: runs a command line, and returns its exit code."""
Say = Callable[[str], None]

SCHEMA = 1
KIND = "farandole-lab"
FILE = "lab.json"
PILOT, STUDIES, PUBLISHED = "pilot", "studies", "published"

# Exit codes above this one mean a signal: Ctrl-C, or whatever ended the study.
_SIGNALLED = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A lab that has been run."""

    found: Found
    created: str
    """When the lab was first begun: ISO 8601, UTC."""
    failed: Mapping[str, str]
    """By name of the study: why it has no figures."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be made, in sentences."""
        titles = {study.name: study.title for study in self.found.plan.studies}
        return tuple(
            f"The study {name} ({titles[name]}) has no figures: {why.rstrip('.')}."
            for name, why in self.failed.items()
        )


def planned(lab: Lab, asked: Asked, data: DataFacts, out: Path) -> Plan:
    """Return what a run would do, without measuring: by kept rates, or by the lab's own guess.

    Raises:
        UsageError: The folder is another lab's, or the budget is too short.
    """
    state = _state(lab, asked, out)
    pilots: tuple[Planned, ...] = ()
    if state.plan is not None:
        plan = state.plan
    elif asked.size != "budget":
        plan = lab.plan(asked, data, {}, 0)
    else:
        pilots = lab.pilot(asked)
        budget.check_pilot(lab, asked, data, pilots)
        spent_s = state.spent_s if state.rates else sum(pilot.estimate_s for pilot in pilots)
        plan = budget.fit(lab, asked, data, state.rates, spent_s=spent_s)
    plan = _with_run_counts(plan, {one.name: budget.runs_planned(one) for one in plan.studies})
    return plan if state.rates else replace(plan, studies=(*pilots, *plan.studies))


class LabRun:
    """A lab under way in its folder."""

    def __init__(
        self,
        lab: Lab,
        asked: Asked,
        data: DataFacts,
        out: Path,
        *,
        run: Command,
        say: Say,
        began_s: float | None = None,
    ) -> None:
        """Look at the folder and write nothing yet.

        Args:
            lab: What to run.
            asked: What the user asked for.
            data: What the lab said of its data.
            out: The lab's folder; one that was begun is gone on with.
            run: Runs a command line of Farandole.
            say: Takes a line for the user.
            began_s: On the monotonic clock, since when the budget counts; now when None.

        Raises:
            UsageError: The folder is another lab's, or the budget hopeless.
        """
        self._lab, self._asked, self._data, self._out = lab, asked, data, out
        self._run, self._say = run, say
        self._since_s = time.monotonic() if began_s is None else began_s
        self._state = _state(lab, asked, out)
        self._resumed = self._state.plan is not None
        if asked.size == "budget" and not (self._state.plan or self._state.rates):
            budget.check_pilot(lab, asked, data, lab.pilot(asked))

    def go(self) -> Ran:
        """Make what is missing, and return what all of it found.

        Raises:
            UsageError: The budget is too short for the smallest plan.
            LabFailedError: Nothing came out of it.
            Interrupted: Somebody ended it; the same again goes on.
            StoreError: The folder cannot be written to.
        """
        with locked(self._out):
            self._save()
            try:
                plan = self._plan()
                self._studies(plan)
                self._further(plan)
                for name in self._lab.published:
                    place = self._out / PUBLISHED / name
                    import_published(name, place, run=self._run, say=self._say)
            finally:
                self._save()
            return self._read(plan)

    def _plan(self) -> Plan:
        if self._state.plan is not None:
            return self._state.plan
        asked, lab = self._asked, self._lab
        if asked.size != "budget":
            plan = lab.plan(asked, self._data, {}, 0)
        else:
            rates = self._rates()
            plan = budget.fit(lab, asked, self._data, rates, spent_s=self._spent_s())
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
            why = self._made(one, path, limit_s=self._left_s() / 2)
            rate = None
            if not why and is_study(path):
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
            one, path = rest[0], self._out / STUDIES / rest[0].name
            number = plan.studies.index(one) + 1
            self._say(
                f"\n{self._lab.name}, study {number} of {count}: {one.title}{self._time(one)}"
            )
            limit_s = None
            if self._asked.size == "budget":
                limit_s = budget.limit_s(one, rest, left_s=self._left_s())
                if self._resumed:
                    # Whoever asks again wants the rest, also when the budget is used up.
                    limit_s = max(limit_s, one.estimate_s)
            ended[one.name] = self._made(one, path, limit_s=limit_s)
            self._save(ended=dict(ended))
            rest.pop(0)

    def _further(self, plan: Plan) -> None:
        """Spend what is left of a budget on further runs."""
        if self._asked.size != "budget":
            return
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
                budget.with_runs(study, chosen.runs + 1),
                path,
                run=self._run,
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

    def _made(self, one: Planned, path: Path, *, limit_s: float | None) -> str:
        """Make a study and return why it has no figures; nothing to do for a complete one."""
        if is_complete(path) and not self._state.ended.get(one.name):
            return ""
        return make_study(one, path, run=self._run, say=self._say, limit_s=limit_s)

    def _time(self, one: Planned) -> str:
        """Say how long a study takes, and what is left of the budget."""
        text = f" (about {duration(one.estimate_s)}"
        if self._asked.size == "budget" and self._left_s() > 0:
            text += f"; {duration(self._left_s())} of the budget left"
        return text + ")"

    def _read(self, plan: Plan) -> Ran:
        """Read all studies and compute what they say."""
        records: dict[str, Study] = {}
        failed: dict[str, str] = {}
        for one in plan.studies:
            why, path = self._state.ended[one.name], self._out / STUDIES / one.name
            if why:
                failed[one.name] = why
            else:
                records[one.name] = read_study(path)
        if plan.studies and not records:
            name, why = next(iter(failed.items()))
            raise LabFailedError(
                f"No study of the lab {self._lab.name} has figures. The first of them, {name}: "
                f"{why.rstrip('.')}."
            )
        published = {name: read_study(self._out / PUBLISHED / name) for name in self._lab.published}
        found = Found(
            asked=self._asked,
            data=self._data,
            plan=_with_run_counts(
                plan, {name: budget.runs_made(x.launches) for name, x in records.items()}
            ),
            studies={name: analyse(study) for name, study in records.items()},
            records=records,
            published={name: analyse(study) for name, study in published.items()},
            published_records=published,
        )
        return Ran(found=found, created=self._state.created, failed=failed)

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


def _with_run_counts(plan: Plan, runs: Mapping[str, int]) -> Plan:
    """Return a plan whose choices also say how often each setting is run, by study."""
    return replace(plan, choices=(*plan.choices, *choices(runs_choice(runs))))


def _state(lab: Lab, asked: Asked, out: Path) -> State:
    """Return what a folder keeps of this lab, or the beginning of one."""
    state = read_state(out)
    if state is None:
        created = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return State(lab=lab.name, asked=asked, created=created)
    return continued(state, lab.name, asked, out)


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


def write_state(out: Path, state: State) -> None:
    """Write lab.json as a whole.

    Raises:
        StoreError: The folder cannot be written to.
    """
    content = asdict(state)
    content["asked"]["data"] = None if state.asked.data is None else str(state.asked.data)
    write_json(out / FILE, {"schema": SCHEMA, "kind": KIND, **content})


def continued(state: State, lab: str, asked: Asked, out: Path) -> State:
    """Return what a second run goes on with.

    Before there is a plan, another budget is welcome: the first may have been too short for one.

    Raises:
        UsageError: The folder is another lab's, or one of other data or another size.
    """
    before = replace(state.asked, cores=asked.cores)
    if state.lab == lab and before == asked:
        return state
    other_budget = replace(before, budget_s=asked.budget_s) == asked
    if state.lab == lab and state.plan is None and other_budget:
        return replace(state, asked=asked, spent_s=0.0)
    raise UsageError(
        f"{out} holds `{shlex.join(command(state.lab, state.asked))}`, but you asked for "
        f"`{shlex.join(command(lab, asked))}`. Ask for the same to go on with it, or give another "
        "--out."
    )


def command(lab: str, asked: Asked, out: str | None = None) -> tuple[str, ...]:
    """Return the command line that asks for this."""
    size = (
        ("--budget", budget.flag_time(asked.budget_s)) if asked.budget_s else (f"--{asked.size}",)
    )
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
        found = sorted(path.name for path in out.iterdir() if path.name != folder.LOCK_FILE)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"--out {out} cannot be read ({error.strerror}).") from error
    if found:
        raise UsageError(
            f"--out {out} is not empty and holds no lab (it has {found[0]}). Name a new folder."
        )


def _decoded(content: Mapping[str, Any]) -> State:
    asked, plan = content["asked"], content["plan"]
    given = {
        "data": None if asked["data"] is None else Path(asked["data"]),
        "workers": tuple(asked["workers"]),
        "recipes": tuple(asked["recipes"]),
    }
    return State(
        lab=content["lab"],
        asked=Asked(**{**asked, **given}),
        created=content["created"],
        rates={name: Rate(**rate) for name, rate in content["rates"].items()},
        plan=None
        if plan is None
        else Plan(
            studies=tuple(_decoded_study(study) for study in plan["studies"]),
            choices=tuple(Choice(**choice) for choice in plan["choices"]),
        ),
        ended=dict(content["ended"]),
        spent_s=float(content["spent_s"]),
    )


def _decoded_study(study: Mapping[str, Any]) -> Planned:
    lists = {name: tuple(study[name]) for name in ("flags", "arguments")}
    environ = tuple((name, value) for name, value in study["environ"])
    return Planned(**{**study, **lists, "environ": environ})


# One study, by the command that a user would type.


def study_argv(
    one: Planned, path: Path, *, limit_s: float | None, here: Path, extend: bool = False
) -> list[str]:
    """Return the command line of a study; one that has been begun is gone on with.

    Args:
        one: The study.
        path: Its folder.
        limit_s: How long it may take; None: as long as it does.
        here: Where the command is given; paths below it are written short.
        extend: Whether more is asked for than the folder's study was begun with.
    """
    limit = () if limit_s is None else ("--time-limit", budget.flag_time(limit_s))
    if is_study(path) and not extend:
        return ["study", "--resume", shown(path, here), *limit, "--no-report"]
    return [
        *("study", *one.flags, *limit, "--label", one.title, "--out", shown(path, here)),
        *("--no-report", "--"),
        # Without "python": the first one on PATH need not be the one that has Farandole.
        *(shown(examples_path(one.script), here), *one.arguments),
    ]


def make_study(
    one: Planned,
    path: Path,
    *,
    run: Command,
    say: Say,
    limit_s: float | None = None,
    extend: bool = False,
) -> str:
    """Make a study, or the rest of it; return why it has no figures, "" when it has some.

    Raises:
        Interrupted: Somebody ended it; what is finished of it is kept.
    """
    # A study is extended from where it was begun: elsewhere its command would be another.
    here = Path(read_head(path).spec["folder"]) if extend else Path.cwd()
    argv = study_argv(one, path, limit_s=limit_s, here=here, extend=extend)
    say(f"$ {command_line(argv, dict(one.environ))}")
    try:
        with _environ(dict(one.environ)), _in_folder(here):
            # Its errors are raised, not printed: the report of the lab tells of them, too.
            code = run(["--debug", *argv])
    except FarandoleError as error:
        say(f"farandole: {error}")
        return str(error)
    if code > _SIGNALLED:
        raise Interrupted(code - _SIGNALLED)
    return "" if code == 0 else _why(path)


def is_complete(path: Path) -> bool:
    """Tell whether all launches of a study have been made."""
    return is_study(path) and read_head(path).complete


def import_published(name: str, path: Path, *, run: Command, say: Say) -> None:
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
    here = Path.cwd()
    argv = ["study", "import", shown(table, here), "--out", shown(path, here)]
    say(f"$ {command_line(argv, {})}")
    # How columns are taken is told to whoever imports a table of their own; ours are known.
    with contextlib.redirect_stderr(io.StringIO()):
        run(["--debug", "study", "--no-report", *argv[1:]])


def command_line(argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """Write a command as one would type it."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in environ.items()]
    return " ".join([*variables, "farandole", shlex.join(argv)])


def _why(path: Path) -> str:
    """Return why no launch of a study ended well."""
    for place in folder.finished_folders(path):
        launch = read_launch(place, ranks=False)
        if launch.reason:
            # From the lab's folder: its report lies there.
            output = (place / folder.OUTPUT_FILE).relative_to(path.parent.parent)
            return f"{launch.reason.rstrip('.')}. See {output}"
    return "No launch was made in the time that there was"


@contextlib.contextmanager
def _environ(changes: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def _in_folder(folder: Path) -> Iterator[None]:
    """Go there, and come back: `study --resume` goes on to where the study was begun."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
