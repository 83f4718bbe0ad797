"""Running a lab: pilot, plan, its studies one after the other, and what they found."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from farandole.errors import LabFailedError
from farandole.labs import budget, rounds
from farandole.labs.effort import differing, of_runs
from farandole.labs.kept import Kept, continued, read_kept, write_kept
from farandole.labs.lab import Asked, DataFacts, Found, Lab, Plan, Planned, Rate
from farandole.labs.making import Command, Say, import_published, is_complete, make_study
from farandole.labs.pilot import rate_of
from farandole.model.analyse import analyse
from farandole.study.lock import locked
from farandole.study.progress import duration
from farandole.study.read import is_study, read_study
from farandole.study.records import Study

PILOT, STUDIES, PUBLISHED = "pilot", "studies", "published"


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
    kept = _kept(lab, asked, out)
    pilots: tuple[Planned, ...] = ()
    if kept.plan is not None:
        plan = kept.plan
    elif asked.size != "budget":
        plan = lab.plan(asked, data, {}, 0)
    else:
        pilots = lab.pilot(asked)
        budget.check_pilot(lab, asked, data, pilots)
        spent_s = kept.spent_s if kept.rates else sum(pilot.estimate_s for pilot in pilots)
        plan = budget.fit(lab, asked, data, kept.rates, spent_s=spent_s)
    plan = _saying(plan, {one.name: rounds.runs_planned(one) for one in plan.studies})
    return plan if kept.rates else replace(plan, studies=(*pilots, *plan.studies))


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
        clock: Callable[[], float] = time.monotonic,
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
            clock: Seconds, monotonic.
            began_s: On that clock, since when the budget counts; now when None.

        Raises:
            UsageError: The folder is another lab's, or the budget hopeless.
        """
        self._lab, self._asked, self._data, self._out = lab, asked, data, out
        self._run, self._say, self._clock = run, say, clock
        self._since_s = clock() if began_s is None else began_s
        self._kept = _kept(lab, asked, out)
        self._resumed = self._kept.plan is not None
        if asked.size == "budget" and not (self._kept.plan or self._kept.rates):
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
            self._keep()
            try:
                plan = self._plan()
                self._studies(plan)
                self._further(plan)
                for name in self._lab.published:
                    place = self._out / PUBLISHED / name
                    import_published(name, place, run=self._run, say=self._say)
            finally:
                self._keep()
            return self._read(plan)

    def _plan(self) -> Plan:
        if self._kept.plan is not None:
            return self._kept.plan
        asked, lab = self._asked, self._lab
        if asked.size != "budget":
            plan = lab.plan(asked, self._data, {}, 0)
        else:
            rates = self._rates()
            plan = budget.fit(lab, asked, self._data, rates, spent_s=self._spent_s())
        self._keep(plan=plan)
        count = len(plan.studies)
        self._say(
            f"{count} {'study' if count == 1 else 'studies'}, "
            f"about {duration(plan.estimate_s)} in all."
        )
        return plan

    def _rates(self) -> dict[str, Rate]:
        """Measure the rates that are missing."""
        pilots = self._lab.pilot(self._asked)
        rates = dict(self._kept.rates)
        for number, one in enumerate(pilots, 1):
            if one.name in rates:
                continue
            self._say(f"{self._lab.name}, pilot {number} of {len(pilots)}: {one.title}")
            path = self._out / PILOT / one.name
            why = self._made(one, path, limit_s=self._left_s() / 2)
            rate = None
            if not why and is_study(path):
                study = read_study(path)
                rate = rate_of(analyse(study), study)
            if rate is None:
                why = why or "no launch of one worker told its samples per second"
                raise LabFailedError(
                    f"The pilot study {path} failed, and without it the lab {self._lab.name} "
                    f"cannot be fitted into a budget: {why.rstrip('.')}. Mend this and run the "
                    "same again, or use --quick."
                )
            rates[one.name] = rate
            self._keep(rates=rates)
            self._say(
                f"One worker: {rate.samples_per_s:,.0f} samples/s, and {rate.startup_s:.1f} s to "
                "start and end."
            )
        return rates

    def _studies(self, plan: Plan) -> None:
        ended = dict(self._kept.ended)
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
            self._keep(ended=ended)
            rest.pop(0)

    def _further(self, plan: Plan) -> None:
        """Spend what is left of a budget on further runs, in rounds."""
        if self._asked.size != "budget":
            return
        places = {one.name: self._out / STUDIES / one.name for one in plan.studies}
        standings = {
            one.name: found
            for one in plan.studies
            if one.worth_repeating and not self._kept.ended[one.name]
            if (found := rounds.standing(one, places[one.name])) is not None
        }
        while chosen := rounds.next_round(standings.values(), left_s=self._left_s()):
            study, path, left_s = chosen.study, places[chosen.study.name], self._left_s()
            self._say(
                f"\n{self._lab.name}, run {chosen.runs + 1} of each setting, to narrow the "
                f"intervals: {study.title} (about {duration(chosen.next_s)}; {duration(left_s)} of "
                "the budget left)"
            )
            why = make_study(
                rounds.with_runs(study, chosen.runs + 1),
                path,
                run=self._run,
                say=self._say,
                limit_s=left_s - budget.REPORT_S,
                extend=chosen.complete,
            )
            self._keep()
            after = rounds.standing(study, path)
            # What came to no run of every setting would come to none again.
            if why or after is None or after.runs <= chosen.runs:
                del standings[study.name]
            else:
                standings[study.name] = after
        if self._left_s() > budget.REPORT_S:
            why = rounds.why_no_more(standings.values())
            self._say(f"\n{duration(self._left_s())} of the budget left: {why}.")

    def _made(self, one: Planned, path: Path, *, limit_s: float | None) -> str:
        """Make a study and return why it has no figures; nothing to do for a complete one."""
        if is_complete(path) and not self._kept.ended.get(one.name):
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
            why, path = self._kept.ended[one.name], self._out / STUDIES / one.name
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
            plan=_saying(plan, {name: rounds.runs_made(x.launches) for name, x in records.items()}),
            studies={name: analyse(study) for name, study in records.items()},
            records=records,
            published={name: analyse(study) for name, study in published.items()},
            published_records=published,
        )
        return Ran(found=found, created=self._kept.created, failed=failed)

    def _spent_s(self) -> float:
        return self._kept.spent_s + self._clock() - self._since_s

    def _left_s(self) -> float:
        return (self._asked.budget_s or 0.0) - self._spent_s()

    def _keep(
        self,
        *,
        rates: Mapping[str, Rate] | None = None,
        plan: Plan | None = None,
        ended: Mapping[str, str] | None = None,
    ) -> None:
        """Write down what is known, and the time that it has taken."""
        kept, spent_s = self._kept, self._spent_s()
        self._since_s = self._clock()
        self._kept = replace(
            kept,
            rates=dict(kept.rates if rates is None else rates),
            plan=kept.plan if plan is None else plan,
            ended=dict(kept.ended if ended is None else ended),
            spent_s=spent_s,
        )
        write_kept(self._out, self._kept)


def _saying(plan: Plan, runs: Mapping[str, int]) -> Plan:
    """Return a plan whose choices also say how often each setting is run, by study."""
    return replace(plan, choices=(*plan.choices, *differing([of_runs(runs)])))


def _kept(lab: Lab, asked: Asked, out: Path) -> Kept:
    """Return what a folder keeps of this lab, or the beginning of one."""
    kept = read_kept(out)
    if kept is None:
        created = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return Kept(lab=lab.name, asked=asked, created=created)
    return continued(kept, lab.name, asked, out)
