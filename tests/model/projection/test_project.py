"""Whole projections of studies whose figures are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farandole.errors import UsageError
from farandole.model.analyse import analyse
from farandole.model.projection.asked import Asked, parse_price
from farandole.model.projection.links import parse_link
from farandole.model.projection.offers import parse_offer
from farandole.model.projection.outlook import Outlook, Projection
from farandole.model.projection.project import project
from farandole.study.records import Apart, Cell, Link, Study
from tests.model.build import (
    make_launch,
    make_study,
    table_launch,
    timed_launch,
    trained_launch,
)
from tests.model.projection.known import Ring
from tests.model.projection.replay.recorded import LINK, trained

SAMPLES = 4000
GRADIENT_BYTES = 32 << 20


def table(*, hosts: int = 1, device: str = "gpu", **figures: float) -> Study:
    return make_study(
        [
            table_launch(
                Cell(workers=n, batch=10, device=device, hosts=min(n, hosts)),
                step_s=Ring().at(n, 1, 10).value,
                dataset_size=SAMPLES,
                **figures,
            )
            for n in (1, 2, 4)
        ],
        command=(),
    )


def ask(study: Study, *workers: int, **asked: object) -> Projection:
    return project(study, analyse(study), Asked(workers=workers, **asked))  # type: ignore[arg-type]


def one(found: Projection, workers: int, link: str | None = None) -> Outlook:
    return next(
        row
        for row in found.rows
        if row.workers == workers and row.link == link and not row.measured
    )


def test_within_the_host_no_link_is_needed() -> None:
    found = ask(table(), 8, per_host=8)
    assert [row.link for row in found.rows] == [None] * 4
    row = one(found, 8)
    truth = Ring().at(8, 1, 10).value
    assert row.step_s is not None
    assert row.step_s.low < truth < row.step_s.high
    assert row.step_s.ratio == 2.0
    assert not any("Gbit" in said for said in found.assumptions)


def test_beyond_it_three_links_are_shown() -> None:
    found = ask(table(), 2, 8, 16)
    assert [(r.workers, r.link) for r in found.rows if not r.measured] == [
        (n, link) for n in (8, 16) for link in ("10Gbit", "25Gbit", "100Gbit")
    ]
    assert any("three usual links" in said for said in found.sentences)
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
    assert any("network is taken, not 100Gbit, nvlink." in said for said in found.assumptions)


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


def test_hosts_that_nobody_asked_for_leave_measured_counts_alone() -> None:
    found = ask(table(hosts=2), 2, 8)
    assert [(row.workers, row.hosts, row.measured) for row in found.rows] == [
        (1, 1, True),
        (2, 2, True),
        (4, 2, True),
        (8, 4, False),
    ]


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
    launches = [timed_launch(cell, Ring().at(cell.workers, 1, 10).value) for cell in cells]
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
    launches = [
        timed_launch(cell, Ring().at(cell.workers, 1, cell.batch or 1).value) for cell in cells
    ]
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
        "is not projectable from this run: the learning rate decays (decay=cosine)" in said
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
    with pytest.raises(UsageError, match=r"--fleet 8 needs the time.*not projectable from this"):
        ask(decaying("cosine"), fleet=8)


def test_a_rate_that_nobody_recorded_is_taken_not_to_decay() -> None:
    said = "No learning rate was recorded"
    unknown = ask(decaying(None), 8, target=("val_accuracy", 0.9))
    assert one(unknown, 8).time_s is not None
    assert any(one.startswith(said) for one in unknown.assumptions)
    constant = ask(decaying("constant"), 8, target=("val_accuracy", 0.9))
    assert one(constant, 8).time_s is not None
    assert not any(one.startswith(said) for one in constant.assumptions)


def test_a_recipe_that_nobody_named() -> None:
    assert ask(table(), 8, per_host=8).recipe == "as your script sets it"


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
    assert found.headline.startswith("B is the soonest for an epoch")
    assert found.curve == ()


def test_a_fleet_asked_for_alone() -> None:
    found = ask(table(), fleet=16, per_host=16)
    assert [row.workers for row in found.fleet] == [1, 2, 4, 8, 16]
    assert found.headline == found.fleet_sentence


def test_a_fleet_beyond_the_host_names_its_link() -> None:
    found = ask(table(), fleet=16)
    assert [row.link for row in found.fleet] == [None, None, None, "25Gbit", "25Gbit"]
    assert "one job of 16 workers on 25Gbit" in found.headline
    assert "Nothing says what connects the hosts: 25Gbit is taken" in found.headline
    slow, fast = parse_link("1Gbit"), parse_link("100Gbit")
    assert "on 1Gbit" in ask(table(), fleet=16, links=(slow,)).headline
    assert (
        "Of the links that you named, 100Gbit"
        in ask(table(), fleet=16, links=(slow, fast)).headline
    )


def test_a_deadline_and_a_budget() -> None:
    found = ask(table(), 8, 16, per_host=16, deadline_s=15.0, budget=1.0, price=parse_price("2.5"))
    assert [choice.rule for choice in found.recommendations] == ["knee", "deadline", "budget"]


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


def test_every_answer_ends_with_what_to_measure_and_how_right_it_was() -> None:
    for found in (ask(table(), 8), ask(table(), fleet=8), ask(table(), 128, per_host=128)):
        assert found.next.sentence
        assert found.next.command or found.next.spec
        assert found.track_record


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
    assert [form for form, _ in found.forms] == ["replay"]
    assert any("Nobody measured steps of several workers" in said for said in found.assumptions)
    assert found.next.spec == {"workers": [1, 2]}


def test_one_count_without_gradient_times_says_nothing() -> None:
    bare = make_study([timed_launch(Cell(workers=1, batch=16), 0.1) for _ in range(5)])
    with pytest.raises(UsageError, match=r"too few to project from.*study -np 1,2"):
        ask(bare, 8)


def test_without_a_calibration_no_link_stands_for_the_inside_of_a_host() -> None:
    bare = replace(recorded(1, 2), link=Link())
    found = ask(bare, 4, per_host=4)
    assert "replay" not in dict(found.forms)
    assert not any("10Gbit" in said or "no link" in said for said in found.assumptions)
    # Across hosts the link is named, and that it stands for both.
    beyond = ask(bare, 8, per_host=2, links=(parse_link("10Gbit"),))
    assert any("they are taken as connected by 10Gbit, too" in said for said in beyond.assumptions)
    # A change of buckets takes a replay, and the link with it.
    half = ask(bare, 4, per_host=4, fp16=True)
    assert any("they are taken as connected by 10Gbit, too" in said for said in half.assumptions)


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


def test_replay_and_forms_both_count_where_both_are_known() -> None:
    weights = dict(ask(recorded(1, 2), 8, per_host=2, links=(parse_link("10Gbit"),)).forms)
    assert 0.2 <= weights["replay"] <= 0.8
    assert sum(weights.values()) == pytest.approx(1.0)


def test_one_count_alone_within_its_host_needs_a_link_too() -> None:
    alone = replace(recorded(1), link=Link())
    found = ask(alone, 2, per_host=2)
    assert one(found, 2).step_s is not None
    assert any("taken as connected by 10Gbit" in said for said in found.assumptions)


def test_what_a_job_takes_beside_training_stays() -> None:
    found = ask(table(epoch_s=10.0, epochs=20, job_s=260.0), 8, per_host=8)
    assert "stays as on 4 workers: 60.0 s." in " ".join(found.assumptions)
