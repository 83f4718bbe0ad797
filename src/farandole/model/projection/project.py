"""What more workers would give: steps and epochs joined, with money, from a study."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from farandole.errors import UsageError
from farandole.model.info.scaling import ScalingInfo
from farandole.model.measured import count, measure
from farandole.model.projection import told, words
from farandole.model.projection.asked import Asked, check, flags_of
from farandole.model.projection.contention import input_rate
from farandole.model.projection.fleet import fleet_sentence, share_out
from farandole.model.projection.goals import choose_goal, epoch_rows, stable_words
from farandole.model.projection.joined import Joint
from farandole.model.projection.next_step import choose_next
from farandole.model.projection.offers import Offer, check_names
from farandole.model.projection.outlook import OfferOutlook, Outlook, Projection
from farandole.model.projection.recommend import recommend
from farandole.model.projection.records import LEAST_ROWS, LinkSpeed
from farandole.model.projection.rows import Basis, collect
from farandole.model.projection.settings import Setting
from farandole.model.projection.sources import Sources, gather
from farandole.model.projection.steps.by_link import Speeds
from farandole.model.projection.track_record import track_record
from farandole.study.records import Study


def project(study: Study, info: ScalingInfo, asked: Asked) -> Projection:
    """Say what other numbers of workers would give.

    Args:
        study: measured, or imported from a table.
        info: what `analyse` found in it.
        asked: the question.

    Raises:
        UsageError: when flags do not go together, or the study cannot answer.
        DataError: when its figures cannot be.
    """
    check(asked)
    check_names(asked.offers)
    cells, _ = measure(study)
    basis = collect(study, info, cells, asked.only, asked.batch)
    goal = choose_goal(basis.cells, info, asked.target)
    runs = epoch_rows(basis.cells, goal) if goal else []
    sources = gather(study, info, basis, asked, goal, runs)
    joint = Joint(
        basis=basis,
        speeds=Speeds(sources.fit_steps, _inside(study, basis, asked)),
        goal=goal,
        epochs=sources.epochs,
        epoch_rows=runs,
        metric_at=sources.metric_at,
        told_batches=sources.told_batches,
        batch=asked.batch,
        accumulate=asked.accumulate,
        input=input_rate(basis.apart, basis.rows),
    )
    _check_answerable(asked, joint)
    question = _Question(joint=joint, asked=asked, per_host=asked.per_host or basis.host_size)
    return _Answer(study, info, question, sources).projection()


def _check_answerable(asked: Asked, joint: Joint) -> None:
    for flag, given in (
        ("--deadline", asked.deadline_s),
        ("--budget", asked.budget),
        ("--fleet", asked.fleet),
    ):
        if given is not None and (joint.goal is None or joint.basis.samples is None):
            raise UsageError(
                f"{flag} needs times, and this study knows neither the time of an epoch nor how "
                "many samples one has. Import a table with a column dataset_size or epoch_s, or "
                f"leave {flag} out."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """Settings to project to."""

    joint: Joint
    asked: Asked
    per_host: int

    @property
    def basis(self) -> Basis:
        return self.joint.basis

    def needs_link(self, workers: int, per_host: int) -> bool:
        """Tell whether these workers are on more hosts than were measured."""
        return workers > per_host and not self.basis.crosses_hosts

    def links(self) -> tuple[LinkSpeed | None, ...]:
        """Return the links to show beyond the measured host."""
        from farandole.model.projection.links import default_links

        if self.basis.crosses_hosts:
            return (None,)
        if self.asked.links:
            return self.asked.links
        beyond = any(self.needs_link(n, self.per_host) for n in self.asked.workers)
        return default_links() if beyond else (None,)

    def setting(self, workers: int, link: LinkSpeed | None) -> Setting:
        """Return a count of workers as the user's flags have it."""
        return Setting(
            workers=workers,
            per_host=self.per_host,
            link=link if workers > self.per_host else None,
            price=self.asked.price,
            whole_hosts=self.asked.per_host is not None,
        )

    def as_measured(self, workers: int, hosts: int) -> Setting:
        """Return a count where it was measured, at the user's price."""
        return Setting(
            workers=workers,
            # A host that held so many is no smaller than that.
            per_host=max(self.per_host, math.ceil(workers / hosts)),
            price=self.asked.price,
            whole_hosts=self.asked.per_host is not None,
            measured_hosts=hosts,
        )

    def of_offer(self, offer: Offer) -> Setting:
        """Return an offer as a setting.

        Raises:
            UsageError: when nothing says what connects its hosts.
        """
        per_host = offer.per_host or offer.workers
        link = offer.link
        if link is None and offer.workers > per_host and self.asked.links:
            link = self.asked.links[0]
        if link is None and self.needs_link(offer.workers, per_host):
            hosts = count(math.ceil(offer.workers / per_host), "host")
            raise UsageError(
                f"The offer {offer.name} has {hosts} and does not say what connects them. Add a "
                f"link to it: '{offer.name}: {offer.text}, 25Gbit'."
            )
        return Setting(
            workers=offer.workers,
            per_host=per_host,
            link=None if self.basis.crosses_hosts else link,
            price=offer.price or self.asked.price,
            whole_hosts=True,
            speed=offer.speed,
        )


class _Answer:
    """Puts the parts of a projection together."""

    def __init__(
        self, study: Study, info: ScalingInfo, question: _Question, sources: Sources
    ) -> None:
        self._study, self._info = study, info
        self._question, self._sources = question, sources
        self._asked, self._joint = question.asked, question.joint
        self._basis = question.basis
        self._made: dict[Setting, Outlook] = {}

    def projection(self) -> Projection:
        asked, basis, joint = self._asked, self._basis, self._joint
        links = self._question.links()
        measured = self._measured()
        rows = [*measured, *self._beside(measured, self._projected(asked.workers, links))]
        curve = self._projected(self._ladder(), links) if asked.workers else []
        choices = [self._of_link(measured, curve, link) for link in links]
        recommendations = tuple(
            one
            for counts in choices
            for one in recommend(
                counts,
                joint.goal,
                deadline_s=asked.deadline_s,
                budget=asked.budget,
            )
        )
        offers = self._offers()
        fleet = share_out(asked.fleet, self._fleet_job(links)) if asked.fleet else ()
        if asked.fleet and (not fleet or fleet[-1].workers < asked.fleet):
            raise UsageError(
                f"--fleet {asked.fleet} needs the time of a job on all of it. "
                f"{self._sources.not_told} Leave --fleet out here."
            )
        fleet_words = ""
        if fleet and joint.goal is not None:
            fleet_words = fleet_sentence(
                fleet, joint.goal, basis.workers[-1], links_named=len(asked.links)
            )
        unsaid = len(links) > 1 and not asked.links
        imported = all(found.imported for found in basis.cells)
        story = told.Story(
            basis=basis,
            goal=joint.goal,
            rows=tuple(rows),
            choices=tuple(one for counts in choices for one in counts),
            asked=asked.workers,
            recommendations=recommendations,
            recipe=self._sources.recipe,
            unsaid_link=unsaid,
            not_told=self._sources.not_told,
        )
        return Projection(
            headline=told.headline(story)
            if asked.workers
            else fleet_words or told.offers_sentence(offers, joint.goal),
            sentences=told.sentences(story),
            goal=joint.goal,
            scaling=basis.scaling if asked.batch is None else "weak",
            group=basis.group,
            device=basis.device,
            recipe=self._sources.recipe,
            metric=self._sources.metric,
            unit=basis.unit,
            measured_workers=basis.workers,
            per_host=self._question.per_host,
            price=asked.price.text if asked.price else "",
            rows=tuple(rows),
            curve=tuple(curve),
            recommendations=recommendations,
            offers=offers,
            offers_sentence=told.offers_sentence(offers, joint.goal),
            fleet=fleet,
            fleet_sentence=fleet_words,
            forms=joint.speeds.forms,
            critical_batch=joint.epochs.critical_batch
            if joint.epochs and joint.told_batches is None
            else None,
            assumptions=self._assumptions(),
            next=choose_next(
                basis,
                joint.goal,
                joint.epoch_rows,
                rows,
                self._study.spec,
                imported=imported,
                link_unknown=unsaid,
                decays=joint.told_batches is not None,
                flags=flags_of(asked),
            ),
            track_record=track_record().sentence(self._farthest(rows, offers)),
        )

    def _measured(self) -> list[Outlook]:
        found = []
        for point in self._basis.curve.points:
            if point.valid:
                setting = self._question.as_measured(point.workers, point.cell.hosts)
                one = self._joint.measured(point, setting)
                found += [one] if one is not None else []
        return found

    def _projected(self, counts: Sequence[int], links: Sequence[LinkSpeed | None]) -> list[Outlook]:
        """Project each count, on each link where it is on several hosts."""
        settings = dict.fromkeys(
            self._question.setting(workers, link) for workers in counts for link in links
        )
        return [self._at(setting) for setting in settings]

    def _at(self, setting: Setting) -> Outlook:
        if setting not in self._made:
            self._made[setting] = self._joint.at(setting)
        return self._made[setting]

    def _ladder(self) -> list[int]:
        """Return counts to draw and to choose from: doublings up to the largest asked for."""
        counts = {*self._basis.workers, *self._asked.workers}
        low, high = self._basis.workers[0], max(counts)
        doublings = [low << k for k in range((high // low).bit_length())]
        limit = self._basis.batch // self._asked.accumulate if self._strong else high
        return sorted(n for n in counts | set(doublings) if n <= limit)

    @property
    def _strong(self) -> bool:
        return self._basis.scaling == "strong" and self._asked.batch is None

    def _of_link(
        self, measured: Sequence[Outlook], curve: Sequence[Outlook], link: LinkSpeed | None
    ) -> list[Outlook]:
        """Return one outlook per count, measured ones in place of projected ones."""
        mine = [one for one in curve if one.link in (None, link.name if link else None)]
        if not mine:
            return []
        others = self._beside(measured, mine)
        known = [] if self._changed else measured
        return list({one.workers: one for one in (*known, *others)}.values())

    def _beside(self, measured: Sequence[Outlook], projected: Sequence[Outlook]) -> list[Outlook]:
        """Leave out what was measured, unless something is done otherwise."""
        if self._changed:
            return list(projected)
        known = {self._place(one) for one in measured}
        return [one for one in projected if self._place(one) not in known]

    def _place(self, one: Outlook) -> tuple[int, int | None]:
        """Return what tells counts apart: their hosts, too, where the user says how many."""
        return one.workers, None if self._asked.per_host is None else one.hosts

    @property
    def _changed(self) -> bool:
        asked, basis = self._asked, self._basis
        other_batch = asked.batch is not None and (
            basis.scaling == "strong" or asked.batch != basis.batch
        )
        return other_batch or asked.accumulate > 1 or asked.changes_buckets

    def _offers(self) -> tuple[OfferOutlook, ...]:
        return tuple(
            OfferOutlook(
                name=offer.name,
                text=offer.text,
                speed=offer.speed,
                outlook=self._at(self._question.of_offer(offer)),
            )
            for offer in self._asked.offers
        )

    def _fleet_job(self, links: Sequence[LinkSpeed | None]) -> Callable[[int], Outlook]:
        from farandole.model.projection.links import default_links

        fleet = self._asked.fleet or 0
        link = links[len(links) // 2]
        if link is None and self._question.needs_link(fleet, self._question.per_host):
            link = default_links()[1]

        def job(workers: int) -> Outlook:
            return self._at(self._question.setting(workers, link))

        return job

    def _farthest(self, rows: Sequence[Outlook], offers: Sequence[OfferOutlook]) -> float:
        everything = [*rows, *(offer.outlook for offer in offers)]
        return max(one.throughput.ratio for one in everything)

    def _assumptions(self) -> tuple[str, ...]:
        said = [*self._basis.assumptions, *self._joint.speeds.assumptions]
        named = [*self._asked.links, *(offer.link for offer in self._asked.offers if offer.link)]
        if self._basis.crosses_hosts and named:
            names = ", ".join(dict.fromkeys(link.name for link in named))
            said.append(
                f"The study itself ran on several hosts: its network is taken, not {names}."
            )
        said.append(stable_words(self._basis.cells, self._joint.goal))
        if self._joint.epochs is not None:
            said += [*self._joint.epochs.assumptions, *self._sources.assumptions]
        said += [self._sources.why_not(), self._beside_words(), self._input_words()]
        return tuple(dict.fromkeys(filter(None, said)))

    def _input_words(self) -> str:
        """Say what loading is taken for, where it holds a projected step up."""
        rate = self._joint.input
        if rate is None or not any("input" in one.parts for one in self._made.values()):
            return ""
        return (
            f"One worker's loader gives at most {words.number(rate.alone_per_s)} samples/s, as it "
            "did with nothing else to do, and more workers of a host slow loaders down as the "
            "measured ones did; data lie as near to other hosts as to this one."
        )

    def _beside_words(self) -> str:
        """Say what a job is taken to cost beside training."""
        beside, goal = self._basis.beside, self._joint.goal
        if not beside or goal is None or goal.kind == "epoch":
            return ""
        most = max(beside)
        once, per_epoch = beside[most].once_s, beside[most].per_epoch_s
        each = f" and {words.time(per_epoch)} per epoch" if per_epoch else ""
        return (
            f"What a job takes beside training stays as on {count(most, 'worker')}: "
            f"{words.time(once)}{each}."
        )


def _inside(study: Study, basis: Basis, asked: Asked) -> LinkSpeed | None:
    """Return the first link that is shown, so that one host needs no fit of its own.

    Without a calibration a replay would take that link for what connects the workers of a host:
    forms alone are fitted then, unless the question needs a replay.
    """
    from farandole.model.projection.links import default_links
    from farandole.model.projection.replay.allreduce import usable
    from farandole.model.projection.replay.inputs import times_gradients

    guessed = times_gradients(basis.cells) and not usable(study.link.allreduce)
    needed = asked.changes_buckets or len(basis.workers) == 1 or len(basis.rows) < LEAST_ROWS
    if basis.crosses_hosts or (guessed and not needed):
        return None
    return (*asked.links, *default_links())[0]
