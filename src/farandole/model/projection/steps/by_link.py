"""Step times of any setting: one fit per link, what-ifs on top."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from farandole.errors import UsageError
from farandole.model.projection.intervals import scaled
from farandole.model.projection.links import default_links
from farandole.model.projection.records import LinkSpeed, Projected, StepFit
from farandole.model.projection.settings import Setting

_LINK = "{link}"

Fit = Callable[[LinkSpeed | None], StepFit]


class Speeds:
    """Projects step times, fitting once per link.

    Args:
        fit: what makes a fit for a link between hosts.
        inside: the link to fit with where there is one host, on which it has no bearing.
    """

    def __init__(self, fit: Fit, inside: LinkSpeed | None = None) -> None:
        self._fit = fit
        self._inside = inside
        self._fits: dict[LinkSpeed | None, StepFit] = {}
        self._crossed: set[LinkSpeed | None] = set()
        self._known: dict[tuple[LinkSpeed | None, int, int, int], Projected] = {}

    def fit(self, link: LinkSpeed | None) -> StepFit:
        """Return the fit for a link between hosts."""
        if link not in self._fits:
            self._fits[link] = self._fit(link)
        return self._fits[link]

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What all fits so far took for granted; of links only where one was crossed."""
        crossed = [link for link in self._fits if link in self._crossed]
        if crossed:
            return self._said(crossed)
        said = self.fit(self._inside).assumptions
        try:
            # What holds with any link and without one has nothing to do with links.
            other = default_links()[0] if self._inside is None else None
            always = set(self.fit(other).assumptions)
        except UsageError:
            # One count alone cannot do without a link.
            return said
        return tuple(one for one in said if one in always)

    def _said(self, links: Sequence[LinkSpeed | None]) -> tuple[str, ...]:
        """Return what fits took for granted; what they say of each link alike, once for all."""
        names: dict[str, list[str]] = {}
        for link in links:
            name = link.name if link else ""
            for said in self.fit(link).assumptions:
                alike = said.replace(name, _LINK) if name else said
                names.setdefault(alike, []).append(name)
        return tuple(said.replace(_LINK, ", ".join(named)) for said, named in names.items())

    @property
    def forms(self) -> tuple[tuple[str, float], ...]:
        """The forms of the first fit, with their weights."""
        return next((fit.forms for fit in self._fits.values()), ())

    def alone_s(self, setting: Setting, batch: int) -> float:
        """Return what a worker computes in a step when nobody else is there."""
        return self._at(setting.link or self._inside, 1, 1, batch).value / setting.speed

    def step_s(self, setting: Setting, batch: int) -> Projected:
        """Return the seconds of an optimizer step.

        A faster worker shortens computing alone: what training waits for gradients stays.
        """
        link = setting.link or self._inside
        whole = self._at(link, setting.workers, setting.linked, batch)
        if setting.speed == 1.0:
            return whole
        alone = min(whole.value, self._at(link, 1, 1, batch).value)
        shorter = 1 - alone * (1 - 1 / setting.speed) / whole.value
        return scaled(whole, shorter)

    def _at(self, link: LinkSpeed | None, workers: int, hosts: int, batch: int) -> Projected:
        # A fit may draw hundreds of times for one figure.
        key = (link, workers, hosts, batch)
        if hosts > 1:
            self._crossed.add(link)
        if key not in self._known:
            self._known[key] = self.fit(link).at(workers, hosts, batch)
        return self._known[key]
