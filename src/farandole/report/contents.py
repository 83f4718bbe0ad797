"""What a report contains, in its order, before anything is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from farandole.model.info.comparison import Comparison
from farandole.model.info.scaling import ScalingInfo
from farandole.report import tables
from farandole.report.charts import accuracy, bars, link, scaling, sweep, use
from farandole.report.figure import Figure, Missing
from farandole.report.projection import Shown, shown
from farandole.report.series import studies
from farandole.report.table import Table
from farandole.report.text import listed

_OF_SPEED = ("Speed", "Where the time goes", "Communication", "Batches and splits")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Figures that answer one question."""

    title: str
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Everything that the page, the Markdown and the files show."""

    infos: tuple[ScalingInfo, ...]
    comparison: Comparison | None
    paste: Figure | None
    """figures/scaling, the one to paste into a report."""
    projection: Shown | None
    """What more workers would give, where somebody asked; of one study alone."""
    sections: tuple[Section, ...]
    missing: tuple[Missing, ...]
    cells: Table
    left_out: Table | None
    side_by_side: tuple[Table, ...]
    """Of several studies."""
    costs: Table | None
    apart: Table | None
    """What workers of a host cost each other."""
    files: tuple[Table, ...]
    """Long ones that only stand in files."""

    def figures(self) -> Iterator[Figure]:
        """Return all figures of the page."""
        if self.projection is not None:
            yield from self.projection.figures
        for section in self.sections:
            yield from section.figures

    def hints(self) -> list[tuple[str, str]]:
        """Return what is missing: titles that one thing would give together, and that thing."""
        titles: dict[str, list[str]] = {}
        for one in self.missing:
            titles.setdefault(one.hint, []).append(one.title)
        return [(listed(names), hint) for hint, names in titles.items()]

    def tables(self) -> Iterator[Table]:
        """Return all tables, each name once."""
        seen: set[str] = set()
        everything = [
            *([self.paste.table] if self.paste else []),
            *(self.projection.tables() if self.projection else ()),
            *(figure.table for figure in self.figures()),
            self.cells,
            *([self.left_out] if self.left_out else []),
            *self.side_by_side,
            *([self.costs] if self.costs else []),
            *([self.apart] if self.apart else []),
            *self.files,
        ]
        for table in everything:
            if table.name not in seen:
                seen.add(table.name)
                yield table


def contents(found: ScalingInfo | Comparison) -> Contents:
    """Return what a report on one study, or on several side by side, contains."""
    comparison = found if isinstance(found, Comparison) else None
    infos = studies(found)
    planned: list[tuple[str, list[Figure | Missing]]] = [
        ("Speed", [scaling.throughput(infos), scaling.speedup(infos), scaling.efficiency(infos)]),
        ("Where the time goes", [bars.step_split(infos), bars.job_times(infos)]),
        ("Communication", [link.bandwidth(infos), bars.bytes_by_kind(infos)]),
        ("Use of the machine", [use.utilisation(infos), link.calibration(infos)]),
        ("Batches and splits", [sweep.batch_sweep(infos), sweep.split_heatmap(infos)]),
        (
            "Accuracy",
            [
                accuracy.by_epoch(infos),
                accuracy.by_time(infos),
                accuracy.final(infos),
                accuracy.stability(infos),
                *accuracy.others_by_epoch(infos),
            ],
        ),
    ]
    launches = [launch for info in infos for launch in info.launches]
    if launches and not any(launch.kept for launch in launches):
        # What each figure would need otherwise is not what is missing here.
        planned = [
            (title, [_uncounted(part) if title in _OF_SPEED else part for part in parts])
            for title, parts in planned
        ]
    sections = [
        Section(title=title, figures=tuple(one for one in parts if isinstance(one, Figure)))
        for title, parts in planned
    ]
    paste = scaling.scaling(infos)
    sides: list[Table | None] = []
    if comparison is not None:
        sides = [tables.comparison_rows(comparison), tables.comparison_ratios(comparison)]
    return Contents(
        infos=infos,
        comparison=comparison,
        paste=paste if isinstance(paste, Figure) else None,
        projection=shown(infos[0]) if comparison is None else None,
        sections=tuple(section for section in sections if section.figures),
        missing=tuple(one for _, parts in planned for one in parts if isinstance(one, Missing)),
        cells=tables.cells(infos),
        left_out=tables.left_out(infos),
        side_by_side=tuple(table for table in sides if table is not None),
        costs=tables.costs(infos),
        apart=tables.apart(infos),
        files=(
            tables.launches(infos),
            accuracy.metric_table(infos),
            use.over_time(infos),
            tables.noise(infos),
        ),
    )


def _uncounted(part: Figure | Missing) -> Figure | Missing:
    if isinstance(part, Figure):
        return part
    return Missing(title=part.title, hint="No launch counts for speed; the first lines say why.")
