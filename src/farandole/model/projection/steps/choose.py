"""Which fit of step times a question needs: without buckets, by replay, or both together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from farandole.errors import UsageError
from farandole.model.communication import payload_bytes
from farandole.model.projection import intervals
from farandole.model.projection.asked import Asked
from farandole.model.projection.records import LEAST_ROWS, LinkSpeed, Projected, StepFit
from farandole.model.projection.rows import Basis, few_rows
from farandole.model.projection.steps.by_link import Fit
from farandole.model.projection.steps.weights import weigh
from farandole.model.statistics import NORMAL_90
from farandole.study.records import Study

# A few counts say little of forms and of the replay: neither goes below this.
_LEAST_WEIGHT = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulated:
    """A StepFit of several backward passes per step: all but the last have nothing to send."""

    one: StepFit
    passes: int

    @property
    def forms(self) -> tuple[tuple[str, float], ...]:
        """Those of one pass."""
        return self.one.forms

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Those of one pass."""
        return self.one.assumptions

    def at(self, workers: int, hosts: int, batch: int) -> Projected:
        """Return the seconds of a step."""
        whole = self.one.at(workers, hosts, batch)
        alone = self.one.at(1, 1, batch).value
        return intervals.scaled(whole, 1 + (self.passes - 1) * alone / whole.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """A StepFit of several, weighted: what they differ by widens the interval.

    Where one of them gives bounds only, the widest of all are those of the whole.
    """

    fits: Sequence[tuple[StepFit, float]]

    @property
    def forms(self) -> tuple[tuple[str, float], ...]:
        """All forms, each with its share of its fit's weight."""
        found = [(name, weight * own) for fit, weight in self.fits for name, own in fit.forms]
        return tuple(sorted(found, key=lambda pair: -pair[1]))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Those of all fits."""
        return tuple(dict.fromkeys(said for fit, _ in self.fits for said in fit.assumptions))

    def at(self, workers: int, hosts: int, batch: int) -> Projected:
        """Return the seconds of a step."""
        found = [(fit.at(workers, hosts, batch), weight) for fit, weight in self.fits]
        centre = math.fsum(weight * math.log(one.value) for one, weight in found)
        ratio = max(one.ratio for one, _ in found)
        if any(one.indicative for one, _ in found):
            return Projected(
                value=math.exp(centre),
                low=min(one.low for one, _ in found),
                high=max(one.high for one, _ in found),
                ratio=ratio,
                indicative=True,
            )
        between = math.fsum(w * (math.log(one.value) - centre) ** 2 for one, w in found)
        down, up = (
            math.sqrt(
                math.fsum(w * math.log(larger / smaller) ** 2 for larger, smaller, w in sides)
                + NORMAL_90**2 * between
            )
            for sides in (
                [(one.value, one.low, w) for one, w in found],
                [(one.high, one.value, w) for one, w in found],
            )
        )
        return Projected(
            value=math.exp(centre),
            low=math.exp(centre - down),
            high=math.exp(centre + up),
            ratio=ratio,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A StepFit of steps that are done otherwise: as much longer as a replay says."""

    fit: StepFit
    """Of steps as they were measured."""
    before: StepFit
    after: StepFit
    """The replay, as it was and as it would be."""

    @property
    def forms(self) -> tuple[tuple[str, float], ...]:
        """Those of the measured steps."""
        return self.fit.forms

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Those of the measured steps, and of the change."""
        return (
            *self.fit.assumptions,
            "What a change brings is taken from the replay of steps, bucket by bucket.",
        )

    def at(self, workers: int, hosts: int, batch: int) -> Projected:
        """Return the seconds of a step."""
        before, after = (one.at(workers, hosts, batch).value for one in (self.before, self.after))
        return intervals.scaled(self.fit.at(workers, hosts, batch), after / before)


def make_fit(study: Study, basis: Basis, asked: Asked) -> Fit:
    """Return what fits step times for a link between hosts.

    Rows alone are fitted by forms, and so are rows across hosts, whose network no calibration
    knows. Where a study of one host recorded when gradients were ready, a replay counts beside all
    forms together, the more the less it erred on counts that were left out; it is alone where there
    is only one number of workers, or fewer than LEAST_ROWS. Two rows are enough without it only
    where the user asks for these among others of the study.

    Raises:
        UsageError: by the fit, when there are too few rows, or a what-if needs what was not
            recorded.
    """
    from farandole.model.projection.replay.fit import ReplayFit, fit_replay
    from farandole.model.projection.replay.inputs import replay_inputs
    from farandole.model.projection.replay.whatif import Change
    from farandole.model.projection.steps.ensemble import fit_steps

    change = Change(
        bucket_bytes=asked.bucket_bytes, half_precision=asked.fp16, accumulation=asked.accumulate
    )
    sizes = (payload_bytes(found, study.spec) for found in basis.cells)
    gradient_bytes = next((size for size in sizes if size), None)

    def by_replay(link: LinkSpeed | None) -> ReplayFit | None:
        if basis.crosses_hosts:
            return None  # what was calibrated is the memory of one host
        inputs = replay_inputs(basis.cells, study.link, link=link, apart=basis.apart)
        return None if inputs is None else fit_replay(inputs, basis.rows)

    def fit(link: LinkSpeed | None) -> StepFit:
        replayed = by_replay(link)
        if replayed is None and asked.changes_buckets:
            raise _not_recorded(asked)
        few = len(basis.rows) < LEAST_ROWS
        if replayed is not None and (few or len(basis.workers) == 1):
            return replayed.with_change(change)
        if len(basis.workers) == 1 or (few and not _asked_for(study, asked)):
            raise few_rows(basis, study)
        forms = fit_steps(basis.rows, link=link, gradient_bytes=gradient_bytes)
        if few:
            forms = replace(forms, assumptions=(_few(basis), *forms.assumptions))
        found: StepFit = forms
        if replayed is not None:
            erred = math.fsum(member.weight * member.error for member in forms.members)
            share = share_of_replay(erred, replayed.error)
            found = Pooled(fits=((forms, 1 - share), (replayed, share)))
            if change != Change():
                return Changed(fit=found, before=replayed, after=replayed.with_change(change))
        elif asked.accumulate > 1:
            return Accumulated(one=found, passes=asked.accumulate)
        return found

    return fit


def share_of_replay(forms_error: float, replay_error: float | None) -> float:
    """Return the weight of a replay beside forms, by the errors on counts that were left out."""
    if replay_error is None:
        return 0.5
    _, share = weigh([forms_error, replay_error])
    return min(max(share, _LEAST_WEIGHT), 1 - _LEAST_WEIGHT)


def _asked_for(study: Study, asked: Asked) -> bool:
    """Tell whether the user chose among the rows of a study that has enough of them."""
    timed = [one for one in study.launches if one.figures or one.ranks]
    return bool(asked.only) and len(timed) >= LEAST_ROWS


def _few(basis: Basis) -> str:
    return (
        f"Only {len(basis.rows)} rows were measured: intervals are at least as wide as what plain "
        "forms missed by on a public cluster at this distance."
    )


def _not_recorded(asked: Asked) -> UsageError:
    flag = "--fp16" if asked.bucket_bytes is None else "--bucket-size"
    return UsageError(
        f"{flag} needs to know when gradients are ready, and this study did not record that, or "
        "nothing tells of a network: study the script with this version of Farandole and with 2 "
        "workers or more, or leave the flag out."
    )
