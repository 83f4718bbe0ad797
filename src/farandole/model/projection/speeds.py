"""Step times of any setting: one fit per link, what-ifs on top."""

from __future__ import annotations

from collections.abc import Callable

from farandole.model.projection.records import LinkSpeed, Projected, StepFit
from farandole.model.projection.settings import Setting
from farandole.model.projection.spread import scaled

Fit = Callable[[LinkSpeed | None], StepFit]


class Speeds:
    """Projects step times, fitting once per link."""

    def __init__(self, fit: Fit) -> None:
        self._fit = fit
        self._fits: dict[LinkSpeed | None, StepFit] = {}
        self._known: dict[tuple[LinkSpeed | None, int, int, int], Projected] = {}

    def fit(self, link: LinkSpeed | None) -> StepFit:
        """Return the fit for a link between hosts."""
        if link not in self._fits:
            self._fits[link] = self._fit(link)
        return self._fits[link]

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What all fits so far took for granted."""
        return tuple(dict.fromkeys(a for fit in self._fits.values() for a in fit.assumptions))

    @property
    def forms(self) -> tuple[tuple[str, float], ...]:
        """The forms of the first fit, with their weights."""
        return next((fit.forms for fit in self._fits.values()), ())

    def alone_s(self, setting: Setting, batch: int) -> float:
        """Return what a worker computes in a step when nobody else is there."""
        return self._at(setting.link, 1, 1, batch).value / setting.speed

    def step_s(self, setting: Setting, batch: int) -> Projected:
        """Return the seconds of an optimizer step.

        A faster worker shortens computing alone: what training waits for gradients stays.
        """
        whole = self._at(setting.link, setting.workers, setting.hosts, batch)
        if setting.speed == 1.0:
            return whole
        alone = min(whole.value, self._at(setting.link, 1, 1, batch).value)
        shorter = 1 - alone * (1 - 1 / setting.speed) / whole.value
        return scaled(whole, shorter)

    def _at(self, link: LinkSpeed | None, workers: int, hosts: int, batch: int) -> Projected:
        # A fit may draw hundreds of times for one figure.
        key = (link, workers, hosts, batch)
        if key not in self._known:
            self._known[key] = self.fit(link).at(workers, hosts, batch)
        return self._known[key]
