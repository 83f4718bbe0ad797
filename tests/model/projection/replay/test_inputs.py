from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from farandole.model.measured import Measured, measure
from farandole.model.projection.links import parse_link
from farandole.model.projection.records import StepRow
from farandole.model.projection.replay.fit import fit_replay
from farandole.model.projection.replay.inputs import ReplayInputs, replay_inputs
from farandole.model.projection.replay.whatif import DDP_LAYOUT, FARANDOLE_LAYOUT, Layout
from farandole.study.records import Apart, Cell, Link
from tests.model.build import make_launch, make_study
from tests.model.projection.replay.recorded import LINK, MB, TRUE, trained


def cells(
    *counts: int, framework: str = "ddp", transport: str = "gloo", recorded: bool = True
) -> Sequence[Measured]:
    launches = []
    for workers in counts:
        ranks = [trained(number, workers, framework) for number in range(workers)]
        if not recorded:
            ranks = [replace(rank, buckets=()) for rank in ranks]
        cell = Cell(workers=workers, threads=1, batch=32, transport=transport)
        launches.append(make_launch(cell, ranks))
    found, _ = measure(make_study(launches))
    return found


def inputs(*counts: int, link: Link = LINK, **changes: object) -> ReplayInputs:
    found = replay_inputs(cells(*counts, **changes), link)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_a_study_of_ddp_on_a_cpu() -> None:
    found = inputs(1, 2, 4)
    assert found.layout == DDP_LAYOUT
    assert found.channels == 2
    assert found.network.shape == "flat"
    assert found.network.inside.law == "gloo"
    assert found.network.cost(8, 1, 16 * MB).seconds == pytest.approx(
        TRUE.cost(8, 16 * MB).seconds, rel=0.05
    )
    assert found.memory_bytes_per_s == 8e9
    computing = found.computing.at(32, 1)
    assert [bucket.bytes for bucket in computing.buckets] == [16 * MB, 16 * MB]
    assert computing.end_s == pytest.approx(0.1, abs=2e-3)
    assert computing.data_s == pytest.approx(0.01)
    # Ranks scatter by a millisecond each.
    assert found.jitter.slowest_s(4) == pytest.approx(1.03e-3, rel=0.2)
    assert found.assumptions == ()


def test_ddps_buckets_are_as_large_as_the_script_has_them() -> None:
    given = [
        replace(
            found,
            paces=tuple(
                replace(
                    pace,
                    launch=replace(
                        pace.launch,
                        ranks=tuple(replace(r, bucket_bytes=16 * MB) for r in pace.launch.ranks),
                    ),
                )
                for pace in found.paces
            ),
        )
        for found in cells(1, 2)
    ]
    found = replay_inputs(given, LINK)
    assert found is not None
    assert found.layout == Layout(bucket_bytes=16 * MB)


def test_a_study_of_farandoles_shared_memory() -> None:
    found = inputs(1, 2, framework="farandole.torch", transport="auto")
    assert (found.layout, found.channels) == (FARANDOLE_LAYOUT, 1)
    assert found.network.shape == "hierarchical"
    over_gloo = inputs(1, 2, framework="farandole.torch", transport="gloo")
    assert over_gloo.network.shape == "pairwise"
    one = Link(allreduce=tuple(point for point in LINK.allreduce if point[0] == 2))
    # One count alone: the slowest law is taken, and that is said.
    alone = inputs(1, 2, framework="farandole.torch", transport="auto", link=one)
    assert alone.network.inside.law == "bus"
    assert any("with 2 workers only" in sentence for sentence in alone.assumptions)


def test_a_link_between_hosts_is_said_to_be_taken_at_its_word() -> None:
    link = parse_link("10Gbit")
    found = replay_inputs(cells(1, 2), LINK, link=link)
    assert found is not None
    assert found.network.link == link
    assert found.network.cost(8, 4, 1e9).transfer_s == pytest.approx(2 * 7 / 8 * 1e9 / 1.25e9)
    assert any("10Gbit" in sentence for sentence in found.assumptions)


def test_one_worker_and_a_link_are_enough() -> None:
    found = replay_inputs(cells(1), Link(), link=parse_link("10Gbit"))
    assert found is not None
    fit = fit_replay(found, [StepRow(workers=1, hosts=1, batch=32, step_s=0.15)])
    assert fit.at(1, 1, 32).value == pytest.approx(0.15, rel=0.02)
    # 32 MiB over 10 Gbit/s take 47 ms at 8 hosts; half of it hides behind the second bucket.
    eight = fit.at(8, 8, 32)
    assert 0.16 < eight.value < 0.21
    assert eight.low < 0.8 * eight.value
    assert len(fit.assumptions) >= 3


def test_nothing_to_replay() -> None:
    assert replay_inputs(cells(1, 2, recorded=False), LINK) is None
    assert replay_inputs(cells(1), Link()) is None
    assert replay_inputs([], LINK) is None


def test_what_workers_cost_each_other_is_taken_from_copies_of_the_script() -> None:
    slow = Apart(cell=Cell(workers=2), computing_alone_s=0.1, computing_together_s=0.15)
    given = cells(1, 2)
    plain, found = (replay_inputs(given, LINK, apart=apart) for apart in ((), (slow,)))
    assert plain is not None
    assert found is not None
    assert plain.computing.slowed_down(2) == pytest.approx(1.0, abs=0.02)
    assert found.computing.slowed_down(2) == pytest.approx(1.5)
