"""What studies are projected from, and whole projections."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from farandole.errors import UsageError
from farandole.model.analyse import analyse
from farandole.model.measured import measure
from farandole.model.projection.advice import Projection, project, recommend
from farandole.model.projection.join import ProjectionRow, StudyData, collect
from farandole.model.projection.question import Question, parse_link, parse_offer, parse_price
from farandole.study.records import Apart, Cell, Launch, Link, Study
from tests.model.build import (
    make_launch,
    make_rank,
    make_steps,
    make_study,
    table_launch,
    timed_launch,
    trained_launch,
)
from tests.model.projection.known import projection_row, ring_s
from tests.model.projection.recorded import LINK, trained


def basis_of(study: Study, *only: tuple[str, str]) -> StudyData:
    return collect(study, analyse(study), measure(study)[0], Question(workers=(8,), only=only))


def gpu(workers: int, batch: int | None = 32, **changes: object) -> Cell:
    return Cell(workers=workers, batch=batch, device="V100", **changes)  # type: ignore[arg-type]


def test_steps_of_launches() -> None:
    study = make_study(
        timed_launch(Cell(workers=n, batch=16, threads=2), s) for n, s in ((1, 0.1), (2, 0.12))
    )
    found = basis_of(study)
    assert [(row.workers, row.batch, round(row.step_s, 6)) for row in found.rows] == [
        (1, 16, 0.1),
        (2, 16, 0.12),
    ]
    assert found.steps_known
    # 8 cores, 2 threads each.
    assert found.host_size == 4
    assert not found.crosses_hosts
    assert found.unit == "samples/s"


def test_a_study_on_a_busy_machine_is_projected_and_says_so() -> None:
    busy = {"busy": True, "foreign_share": 0.6}
    study = make_study(
        timed_launch(Cell(workers=n, batch=16, threads=2), s, **busy)
        for n, s in ((1, 0.1), (2, 0.12))
    )
    found = basis_of(study)
    assert [row.workers for row in found.rows] == [1, 2]
    assert [said for said in found.assumptions if "not quotable" in str(said)]


@pytest.mark.parametrize(
    ("figures", "step_s", "samples", "unit"),
    [
        # 100 steps of one worker, 50 of two, 25 of four.
        ({"epoch_s": (100, 60, 40), "dataset_size": 3200}, (1.0, 1.2, 1.6), 3200, "samples/s"),
        (
            {"job_s": (1000, 600, 400), "epochs": 10, "dataset_size": 3200},
            *((1.0, 1.2, 1.6), 3200, "samples/s"),
        ),
        ({"throughput": (320, 600, 1000)}, (0.1, 64 / 600, 0.128), None, "samples/s"),
        # 3,200, 3,180 and 3,200 samples.
        (
            {"throughput": (320, 600, 1000), "epoch_s": (10, 5.3, 3.2)},
            *((0.1, 64 / 600, 0.128), 3200, "samples/s"),
        ),
    ],
    ids=["epochs", "jobs", "throughput", "throughput and epochs"],
)
def test_figures_of_a_table_become_steps(
    figures: dict[str, Any], step_s: tuple[float, ...], samples: float | None, unit: str
) -> None:
    def of(place: int) -> dict[str, float]:
        return {k: v[place] if isinstance(v, tuple) else v for k, v in figures.items()}

    study = make_study(table_launch(gpu(n), **of(place)) for place, n in enumerate((1, 2, 4)))
    found = basis_of(study)
    assert [row.step_s for row in found.rows] == pytest.approx(step_s)
    assert (found.samples, found.unit, found.steps_known) == (samples, unit, True)
    assert found.host_size == 4
    said = " ".join(found.assumptions)
    assert ("whole jobs" in said) == ("job_s" in figures)
    assert ("3,200 samples" in said) == (figures.keys() == {"throughput", "epoch_s"})


def test_epochs_of_a_table_without_a_size_are_free_of_scale() -> None:
    study = make_study(
        table_launch(gpu(n), epoch_s=seconds) for n, seconds in ((2, 60.0), (4, 40.0), (8, 30.0))
    )
    found = basis_of(study)
    assert not found.steps_known
    assert any("Only epochs are known" in said for said in found.assumptions)
    assert found.samples is not None
    # Whatever the scale, an epoch is as long as it was.
    assert found.rows[-1].step_s * found.samples / (8 * 32) == pytest.approx(30.0)
    assert found.unit == "epochs/s"
    assert found.throughput(found.rows[-1].step_s, 8 * 32) == pytest.approx(1 / 30)


def test_times_and_throughput_in_contradictory_units_are_refused() -> None:
    study = make_study(
        table_launch(gpu(n), throughput=rate, step_s=seconds)
        for n, rate, seconds in ((1, 160.0, 2e-4), (2, 300.0, 0.213), (4, 540.0, 0.237))
    )
    complaint = r"1 worker of batch 32 .* train 160,000 samples a second, but the table says 160\. "
    with pytest.raises(UsageError, match=complaint + "Correct the units"):
        basis_of(study)


def test_other_batches_of_the_same_group_count_too() -> None:
    study = make_study(
        table_launch(gpu(n, batch), step_s=0.01 * batch + 0.1 * (n - 1))
        for n in (1, 2)
        for batch in (16, 32)
    )
    found = basis_of(study)
    assert {row.batch for row in found.rows} == {16, 32}
    assert len(found.rows) == 4


def test_strong_scaling_shares_the_batch() -> None:
    study = make_study(
        [table_launch(gpu(n, 64 // n), step_s=0.1 / n) for n in (1, 2, 4)],
        spec={"scaling": "strong"},
    )
    found = basis_of(study)
    assert found.curve.scaling == "strong"
    assert [found.batch_of(n) for n in (1, 2, 16)] == [64, 32, 4]
    assert any("global batch stays 64" in said for said in found.assumptions)


def test_hosts_that_were_measured() -> None:
    study = make_study(
        table_launch(gpu(n, hosts=hosts), step_s=0.1 * hosts)
        for n, hosts in ((1, 1), (4, 1), (8, 2))
    )
    found = basis_of(study)
    assert found.crosses_hosts
    assert found.host_size == 4
    # Hosts may grow along a curve: those of one are taken from it.
    within = basis_of(study, ("hosts", "1"))
    assert within.workers == (1, 4)
    assert [point.workers for point in within.curve.points] == [1, 4]
    assert basis_of(study, ("hosts", "2")).workers == (8,)


def devices() -> list[Launch]:
    return [
        table_launch(Cell(workers=n, batch=32, device=device), step_s=0.1 * n)
        for device in ("T4", "V100")
        for n in (1, 2, 4)
    ]


def test_only_some_cells() -> None:
    study = make_study(devices())
    assert basis_of(study).device == "T4"
    found = basis_of(study, ("device", "v100"))
    assert found.device == "V100"
    assert len(found.rows) == 3


def test_cells_that_are_not_there_or_make_no_curve() -> None:
    with pytest.raises(UsageError, match=r"No curve.*device=A100\. There, device is T4 or V100"):
        basis_of(make_study(devices()), ("device", "A100"))
    with pytest.raises(UsageError, match="It has no factor model; choose from batch, device"):
        basis_of(make_study(devices()), ("model", "vgg"))
    lone = [
        table_launch(Cell(workers=n, batch=batch, device="P100"), step_s=0.1)
        for n, batch in ((1, 32), (4, 16))
    ]
    with pytest.raises(UsageError, match="device=P100 was measured with 1 and 4 workers, and"):
        basis_of(make_study([*devices(), *lone]), ("device", "P100"))


def test_workers_that_did_not_train_together_are_nothing_to_stand_on() -> None:
    apart = [make_rank(n, make_steps(0.1), weights=f"of {n}") for n in range(2)]
    study = make_study(
        [
            timed_launch(Cell(workers=1, batch=16), 0.1),
            make_launch(Cell(workers=2, batch=16), apart),
        ]
    )
    with pytest.raises(UsageError, match=r"nothing to project from.*different weights"):
        basis_of(study)


def test_no_time_at_all() -> None:
    study = make_study(table_launch(gpu(n), {"accuracy": 0.9}) for n in (1, 2))
    with pytest.raises(UsageError, match="There is nothing to project from"):
        basis_of(study)


def test_the_time_beside_epochs() -> None:
    study = make_study(
        table_launch(gpu(n), job_s=10 * seconds + fixed, epochs=10, epoch_s=seconds)
        for n, seconds, fixed in ((1, 100.0, 30.0), (2, 60.0, 50.0), (4, 40.0, -20.0))
    )
    found = basis_of(study)
    assert [found.fixed_costs[n].once_s for n in (1, 2)] == pytest.approx([30.0, 50.0])
    # A job that is shorter than its epochs is a slip of the table.
    assert 4 not in found.fixed_costs


def test_what_lies_between_epochs_is_counted_per_epoch() -> None:
    # Starts at 98 s; epochs of 10 s begin at 103 and 117; ends 40 s after the start.
    epochs = ((103.0, 113.0), (117.0, 127.0))
    launches = [
        make_launch(
            Cell(workers=n, batch=16, threads=1),
            [make_rank(r, make_steps(0.1, samples=16), epochs=epochs) for r in range(n)],
            outcome="ok",
            wall_s=40.0,
        )
        for n in (1, 2)
    ]
    found = basis_of(make_study(launches))
    assert found.fixed_costs[2].once_s == pytest.approx(5.0)
    assert found.fixed_costs[2].per_epoch_s == pytest.approx((40 - 5 - 20) / 2)


SAMPLES = 4000
GRADIENT_BYTES = 32 << 20


def table(*, hosts: int = 1, device: str = "gpu", **figures: float) -> Study:
    return make_study(
        [
            table_launch(
                Cell(workers=n, batch=10, device=device, hosts=min(n, hosts)),
                step_s=ring_s(n, 10),
                dataset_size=SAMPLES,
                **figures,
            )
            for n in (1, 2, 4)
        ],
        command=(),
    )


def ask(study: Study, *workers: int, **asked: object) -> Projection:
    return project(study, analyse(study), Question(workers=workers, **asked))  # type: ignore[arg-type]


def one(found: Projection, workers: int, link: str | None = None) -> ProjectionRow:
    return next(
        row
        for row in found.rows
        if row.workers == workers and row.link == link and not row.measured
    )


def test_within_the_host_no_link_is_needed() -> None:
    found = ask(table(), 8, per_host=8)
    assert [row.link for row in found.rows] == [None] * 4
    row = one(found, 8)
    truth = ring_s(8, 10)
    assert row.step_s is not None
    assert row.step_s.low < truth < row.step_s.high
    assert row.step_s.ratio == 2.0
    assert not any("Gbit" in said for said in found.assumptions)


def test_beyond_it_three_links_are_shown() -> None:
    found = ask(table(), 2, 8, 16)
    assert [(r.workers, r.link) for r in found.rows if not r.measured] == [
        (n, link) for n in (8, 16) for link in ("10Gbit", "25Gbit", "100Gbit")
    ]
    assert any("three common links" in said for said in found.sentences)
    assert "--link 25Gbit" in found.next.command
    asked = ask(table(), 8, per_host=2, price=parse_price("12/host-h"), only=(("device", "gpu"),))
    assert asked.next.command == (
        "farandole project DIR -np 8 --per-host 2 --only device=gpu --price 12/host-h --link 25Gbit"
    )
    slow, fast = one(found, 16, "10Gbit"), one(found, 16, "100Gbit")
    assert slow.throughput.value < fast.throughput.value


def test_a_network_that_was_measured_is_used() -> None:
    offers = (parse_offer("A: 4, nvlink"), parse_offer("B: 8, 4 per host"))
    found = ask(table(hosts=2), 8, links=(parse_link("100Gbit"),), offers=offers)
    assert one(found, 8).hosts == 4
    assert [offer.outlook.link for offer in found.offers] == [None, None]
    assert any("used instead of 100Gbit, nvlink." in said for said in found.assumptions)


def test_measured_counts_on_other_hosts_are_projected() -> None:
    found = ask(table(), 2, 4, per_host=1, links=(parse_link("10Gbit"),), price=parse_price("3"))
    assert [(row.workers, row.hosts, row.measured) for row in found.rows] == [
        (1, 1, True),
        (2, 1, True),
        (4, 1, True),
        (2, 2, False),
        (4, 4, False),
    ]
    crossing = one(found, 2, "10Gbit")
    inside = next(row for row in found.rows if row.workers == 2 and row.measured)
    assert crossing.throughput.value != inside.throughput.value
    # The knee stands on the hosts that were asked for, and the headline speaks of them.
    assert "4 workers on 10Gbit" in found.headline


def test_measured_counts_cost_what_their_own_hosts_cost() -> None:
    found = ask(
        table(), 8, per_host=1, links=(parse_link("10Gbit"),), price=parse_price("3/host-h")
    )
    four = next(row for row in found.rows if row.workers == 4 and row.measured)
    assert four.cost is not None
    assert four.time_s is not None
    assert four.cost.value == pytest.approx(four.time_s.value * 3 / 3600)


def test_far_away_there_are_bounds_only() -> None:
    found = ask(table(), 128, per_host=128)
    row = one(found, 128)
    assert row.throughput.indicative
    assert "indicative" in found.headline
    assert "bounds only" in found.headline
    assert all(choice.workers != 128 for choice in found.recommendations)


def test_cpu_runs_say_nothing_of_gpus() -> None:
    assert any("CPU runs" in said for said in ask(table(device="cpu"), 8, per_host=8).sentences)
    assert not any("CPU runs" in said for said in ask(table(), 8, per_host=8).sentences)


def test_the_recipe_is_named() -> None:
    cells = [Cell(workers=n, batch=10, params=(("recipe", "linear"),)) for n in (1, 2, 4)]
    launches = [timed_launch(cell, ring_s(cell.workers, 10)) for cell in cells]
    launches += [
        trained_launch(cell, seed, [1 - 0.6**e for e in range(1, 13)])
        for cell in cells
        for seed in (0, 1)
    ]
    figures = {"dataset_size": SAMPLES}
    found = ask(make_study(launches, spec=figures), 8, target=("val_accuracy", 0.9))
    assert found.recipe == "recipe linear"
    assert any("recipe linear" in said for said in found.sentences)
    assert found.goal is not None
    assert found.goal.words == "to val_accuracy 0.9"
    row = found.rows[-1]
    assert row.epochs is not None
    assert row.epochs.low < row.epochs.value < row.epochs.high
    assert row.metric is not None
    assert row.metric.low < row.metric.high <= 1.0


def decaying(decay: str | None, *, scaling: str = "weak") -> Study:
    """Runs of 1, 2 and 4 workers whose accuracy is 1 - 0.6^epoch."""
    params = () if decay is None else (("decay", decay),)
    cells = [
        Cell(workers=n, batch=10 if scaling == "weak" else 40 // n, params=params)
        for n in (1, 2, 4)
    ]
    launches = [timed_launch(cell, ring_s(cell.workers, cell.batch or 1)) for cell in cells]
    launches += [
        trained_launch(cell, seed, [1 - 0.6**e for e in range(1, 13)])
        for cell in cells
        for seed in (0, 1)
    ]
    return make_study(launches, spec={"dataset_size": SAMPLES, "scaling": scaling})


@pytest.mark.parametrize("target", [("val_accuracy", 0.9), None])
def test_inside_of_a_decaying_schedule_epochs_are_not_projectable(
    target: tuple[str, float] | None,
) -> None:
    found = ask(decaying("cosine"), 4, 8, target=target, price=parse_price("2"), deadline_s=1e6)
    row = one(found, 8)
    assert (row.epochs, row.time_s, row.cost, row.metric) == (None, None, None, None)
    assert row.step_s is not None
    assert all(row.time_s is not None for row in found.rows if row.measured)
    assert any(
        "cannot be projected from this study: the learning rate decays (decay=cosine)" in said
        for said in found.sentences
    )
    assert found.critical_batch is None
    assert found.headline.startswith("8 workers: ")
    assert "samples/s" in found.headline
    assert found.next.spec == {"measure": "both", "batches": [10, 20]}
    # What has no time is neither recommended nor compared.
    assert all(choice.workers in (1, 2, 4) for choice in found.recommendations)


def test_a_global_batch_that_stays_has_its_epochs_in_any_schedule() -> None:
    row = one(ask(decaying("cosine", scaling="strong"), 8, target=("val_accuracy", 0.9)), 8)
    assert row.epochs is not None
    assert row.time_s is not None


def test_a_fleet_needs_the_time_of_all_of_it() -> None:
    with pytest.raises(UsageError, match=r"--fleet 8 needs.*cannot be projected from this"):
        ask(decaying("cosine"), fleet=8)


def test_a_rate_that_nobody_recorded_is_taken_not_to_decay() -> None:
    said = "No learning rate was recorded"
    unknown = ask(decaying(None), 8, target=("val_accuracy", 0.9))
    assert one(unknown, 8).time_s is not None
    assert any(one.startswith(said) for one in unknown.assumptions)
    constant = ask(decaying("constant"), 8, target=("val_accuracy", 0.9))
    assert one(constant, 8).time_s is not None
    assert not any(one.startswith(said) for one in constant.assumptions)


def test_offers_side_by_side() -> None:
    offers = tuple(
        parse_offer(line)
        for line in (
            "A: 4, nvlink, 12/host-h",
            "B: 32, 8 per host, 100Gbit, 98/host-h, speed 1.4",
        )
    )
    found = ask(table(), offers=offers)
    small, large = (offer.outlook for offer in found.offers)
    assert (small.hosts, small.link, large.hosts, large.link) == (1, "nvlink", 4, "100Gbit")
    assert small.time_s is not None
    assert large.time_s is not None
    assert large.cost is not None
    assert large.cost.value == pytest.approx(large.time_s.value * 4 * 98 / 3600)
    assert large.time_s.value < small.time_s.value
    assert found.headline == found.offers_sentence
    assert found.headline.startswith("B is the fastest for an epoch")
    assert found.curve == ()


def test_jobs_of_a_fleet_share_its_hosts_and_measured_times_stay() -> None:
    found = ask(table(), fleet=8, per_host=4, price=parse_price("12/host-h"))
    assert [row.workers for row in found.fleet] == [1, 2, 4, 8]
    assert found.headline == found.fleet_sentence
    times = {row.workers: row.time_s.value for row in found.rows if row.measured and row.time_s}
    for row in found.fleet:
        if row.workers in times:
            assert row.time_s.value == times[row.workers]
        assert row.cost is not None
        # Two hosts, shared by all jobs on them.
        expected = row.time_s.value * 2 * 12 / 3600 / row.jobs
        assert row.cost.value == pytest.approx(expected)


def test_a_target_without_a_batch_is_answered_where_runs_reached_it() -> None:
    launches = [
        replace(launch, figures={"epoch_s": 10.0 / launch.cell.workers})
        for n in (1, 2, 4)
        for launch in [
            trained_launch(Cell(workers=n, device="gpu"), 0, [0.5, 0.8, 0.95, 0.96, 0.96, 0.96])
        ]
    ]
    found = ask(make_study(launches), 8, per_host=8, target=("val_accuracy", 0.9))
    assert all(row.time_s is not None for row in found.rows if row.measured)
    assert one(found, 8).time_s is None
    assert any("the batch is unknown" in said for said in found.sentences)


def test_a_fleet_beyond_the_host_names_its_link() -> None:
    found = ask(table(), fleet=16)
    assert [row.link for row in found.fleet] == [None, None, None, "25Gbit", "25Gbit"]
    assert "one job of 16 workers on 25Gbit" in found.headline
    assert "between hosts is unknown: larger jobs are assumed to use 25Gbit" in found.headline
    slow, fast = parse_link("1Gbit"), parse_link("100Gbit")
    assert "on 1Gbit" in ask(table(), fleet=16, links=(slow,)).headline
    assert "Of your links, this uses 100Gbit" in ask(table(), fleet=16, links=(slow, fast)).headline


def test_times_that_nobody_knows() -> None:
    rates = make_study(
        table_launch(Cell(workers=n, batch=10, device="gpu"), throughput=100.0 * n)
        for n in (1, 2, 4)
    )
    found = ask(rates, 8, per_host=8)
    assert found.goal is None
    assert "samples/s" in found.headline
    with pytest.raises(UsageError, match=r"--deadline needs times.*dataset_size or epoch_s"):
        ask(rates, 8, deadline_s=10.0)


def test_another_batch_is_a_what_if() -> None:
    found = ask(table(), 2, 8, per_host=8, batch=20)
    assert [(r.workers, r.global_batch) for r in found.rows if not r.measured] == [
        (2, 40),
        (8, 160),
    ]


def recorded(*counts: int) -> Study:
    """DDP on CPUs whose gradients were timed: 0.15 s a step alone, 0.17 s with others."""
    return make_study(
        [
            make_launch(
                Cell(workers=n, threads=1, batch=32, transport="gloo"),
                [
                    replace(trained(number, n, "ddp"), gradient_bytes_per_step=GRADIENT_BYTES)
                    for number in range(n)
                ],
                repeat=repeat,
            )
            for n in counts
            for repeat in range(3)
        ],
        link=LINK,
        spec={"dataset_size": SAMPLES},
    )


def test_one_count_alone_stands_on_gradient_times_and_a_link() -> None:
    found = ask(recorded(1), 8, per_host=1, links=(parse_link("10Gbit"),))
    row = one(found, 8, "10Gbit")
    assert row.step_s is not None
    # 32 MiB around a ring of 8 at 10 Gbit take 47 ms, of which some hides behind backward.
    assert 0.15 < row.step_s.value < 0.15 + 0.047 + 0.03
    assert row.step_s.high / row.step_s.low > 1.3
    assert all(form.startswith("replay") for form, _ in found.forms)
    assert any("No steps of several workers were measured" in said for said in found.assumptions)
    assert found.next.spec == {"workers": [1, 2]}


def test_one_count_without_gradient_times_gives_bounds() -> None:
    bare = make_study([timed_launch(Cell(workers=1, batch=16), 0.1) for _ in range(5)])
    found = ask(bare, 8, per_host=8)
    row = one(found, 8)
    assert row.indicative
    # Between no gain and linear.
    assert row.speedup.low == pytest.approx(1.0)
    assert row.speedup.high == pytest.approx(8.0)
    assert "between no gain and linear" in found.headline
    assert found.next.spec == {"workers": [1, 2]}


def test_without_a_calibration_no_link_stands_for_the_inside_of_a_host() -> None:
    bare = replace(recorded(1, 2), link=Link())
    found = ask(bare, 4, per_host=4)
    assert "replay" not in dict(found.forms)
    assert not any("10Gbit" in said or "no link" in said for said in found.assumptions)
    # Across hosts the link is named, and that it stands for both.
    beyond = ask(bare, 8, per_host=2, links=(parse_link("10Gbit"),))
    assert any("assumed to be connected by 10Gbit, too" in said for said in beyond.assumptions)
    # A change of buckets takes a replay, and the link with it.
    half = ask(bare, 4, per_host=4, fp16=True)
    assert any("assumed to be connected by 10Gbit, too" in said for said in half.assumptions)


def test_loaders_that_share_a_host_are_a_ceiling() -> None:
    study = recorded(1, 2)
    cell = next(launch.cell for launch in study.launches if launch.cell.workers == 2)
    # 32 samples take 0.13 s with two loaders, which is less than a step, and twice that with four.
    apart = Apart(cell=cell, loaded_alone_per_s=480.0, loaded_together_per_s=240.0)
    fed = replace(study, apart=(apart,))
    free, bound = one(ask(study, 4, per_host=4), 4), one(ask(fed, 4, per_host=4), 4)
    assert free.limited_by != "input"
    assert bound.limited_by == "input"
    assert bound.step_s is not None
    assert bound.step_s.value == pytest.approx(32 / 120)
    words = "One worker's loader gives at most 480 samples/s"
    assert any(said.startswith(words) for said in ask(fed, 4, per_host=4).assumptions)
    # Two on each host are as fast as measured.
    spread = ask(fed, 4, per_host=2, links=(parse_link("100Gbit"),))
    assert "input" not in one(spread, 4, "100Gbit").parts
    assert not any(said.startswith(words) for said in spread.assumptions)
    # Figures that others disturbed do not count.
    busy = replace(study, apart=(replace(apart, foreign_share=0.5),))
    assert one(ask(busy, 4, per_host=4), 4) == free


def test_half_precision_moves_half_of_the_bytes() -> None:
    link = (parse_link("1Gbit"),)
    plain = one(ask(recorded(1, 2), 8, per_host=2, links=link), 8, "1Gbit")
    half = one(ask(recorded(1, 2), 8, per_host=2, links=link, fp16=True), 8, "1Gbit")
    assert plain.parts["communication"] > 0.5
    assert half.throughput.value > 1.3 * plain.throughput.value


def test_replays_compete_with_closed_forms_where_both_are_known() -> None:
    weights = dict(ask(recorded(1, 2), 8, per_host=2, links=(parse_link("10Gbit"),)).forms)
    assert 0.2 <= sum(weight for form, weight in weights.items() if form.startswith("replay")) < 1
    assert sum(weights.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_promised_that_is_better_than_ideal(seed: int) -> None:
    random = np.random.default_rng(seed)
    gains = 1 + random.uniform(-0.02, 0.3, 3)
    figures = {"dataset_size": SAMPLES, "epochs": 5, "job_s": 90.0}
    tables = [
        make_study(
            table_launch(gpu(n, batch), step_s=gain * batch / 32, **figures)
            for n, batch, gain in zip((4, 8, 16), batches, gains, strict=True)
        )
        for batches in ((32, 32, 32), (64, 32, 16))
    ]
    tables[1] = replace(tables[1], spec={"scaling": "strong"})
    for study in tables:
        found = ask(study, 32, 64, per_host=64, offers=(parse_offer("A: 32, speed 2"),))
        last = found.rows[2]
        for row in (*found.rows, *found.curve, *(offer.outlook for offer in found.offers)):
            if row.workers > 16:
                linear = row.workers / 16 * (2 if row is found.offers[0].outlook else 1)
                assert row.throughput.high <= 1.0001 * linear * last.throughput.value
                assert row.epoch_s is not None and last.epoch_s is not None  # noqa: PT018
                assert last.epoch_s.value / linear <= 1.0001 * row.epoch_s.low


def test_figures_are_the_product_of_steps_and_epochs() -> None:
    study = table(epochs=20, epoch_s=10.0, job_s=260.0)
    found = ask(study, 8, 32, per_host=8, links=(parse_link("25Gbit"),), price=parse_price("2"))
    assert "stay as with 4 workers: 60.0 s." in " ".join(found.assumptions)
    for row in found.rows:
        assert row.step_s is not None
        assert row.epoch_s is not None
        assert row.time_s is not None
        assert row.cost is not None
        global_batch = 10 * row.workers
        assert row.throughput.value == pytest.approx(global_batch / row.step_s.value)
        assert row.epoch_s.value == pytest.approx(row.step_s.value * SAMPLES / global_batch)
        # 20 epochs, and 60 s around them.
        assert row.time_s.value == pytest.approx(20 * row.epoch_s.value + 60)
        assert row.cost.value == pytest.approx(row.time_s.value * 8 * row.hosts * 2 / 3600)
        assert sum(row.parts.values()) == pytest.approx(1.0)
        base = found.rows[0].throughput.value
        assert row.speedup.value == pytest.approx(row.throughput.value / base)


def test_the_recommended_count_follows_the_rule_of_a_studys_headline() -> None:
    counts = [
        projection_row(n, time_s) for n, time_s in ((1, 100.0), (2, 50.0), (4, 25.0), (8, 24.0))
    ]
    question = Question(workers=(8,), deadline_s=30.0)
    knee, deadline = recommend(counts, None, question)
    assert (knee.workers, deadline.workers) == (4, 4)
    assert knee.sentence == (
        "4 workers: the cheapest within 10 % of the fastest; 8 workers would be 4 % faster."
    )
    (late,) = recommend(counts, None, Question(workers=(8,), deadline_s=1.0))[1:]
    assert late.workers is None
    priced = [projection_row(n, 100.0 / n, cost=float(n)) for n in (1, 2, 4)]
    budget = recommend(priced, None, Question(workers=(8,), budget=2.5))[-1]
    assert budget.workers == 2
