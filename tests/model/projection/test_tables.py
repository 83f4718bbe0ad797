"""Tables of steps and of epochs."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole.errors import DataError, UsageError
from farandole.model.projection.epochs import EpochRow
from farandole.model.projection.steps import StepRow
from farandole.model.projection.tables import EpochTrace, StepTrace, parse_trace, read_trace

STEPS = """\
cluster,model,nodes,workers,local_batch,step_time_s,sync_time_s
a,bert,1,1,4,0.4,0.01
a,bert,1,2,4,0.5,
a,gpt,2,8,6,0.9,0.3
"""
EPOCHS = """\
workload,global_batch,run,epochs_to_target
resnet,1632,0,34
resnet,1632,1,35
ssd,256,0,48.5
"""


def steps(text: str) -> StepTrace:
    found = parse_trace(text.encode(), name="t.csv")
    assert isinstance(found, StepTrace)
    return found


def test_steps_are_grouped_by_cluster_and_model(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(STEPS)
    found = read_trace(tmp_path / "t.csv")
    assert found.groups == {
        ("a", "bert"): (
            StepRow(workers=1, hosts=1, batch=4, step_s=0.4, sync_s=0.01),
            StepRow(workers=2, hosts=1, batch=4, step_s=0.5, sync_s=None),
        ),
        ("a", "gpt"): (StepRow(workers=8, hosts=2, batch=6, step_s=0.9, sync_s=0.3),),
    }
    assert found.notes == ()


def test_epochs_are_grouped_by_workload() -> None:
    found = parse_trace(EPOCHS.encode(), name="t.csv")
    assert isinstance(found, EpochTrace)
    assert found.groups == {
        "resnet": (EpochRow(global_batch=1632, epochs=34), EpochRow(global_batch=1632, epochs=35)),
        "ssd": (EpochRow(global_batch=256, epochs=48.5),),
    }


def test_units_are_read_and_what_is_left_out_is_said() -> None:
    text = STEPS.replace("step_time_s", "step_time_ms").replace("sync_time_s", "sync_time_us")
    first = steps(text).groups[("a", "bert")][0]
    assert first.step_s == pytest.approx(0.4e-3)
    assert first.sync_s == pytest.approx(0.01e-6)
    found = steps(STEPS.replace("sync_time_s", "sync_tme") + "a,gpt,2,8,6,,\n")
    assert found.notes == (
        "Column 'sync_tme' is not known and was not used.",
        "Line 5 has no step time and was left out.",
    )
    # Names and the sync time may be missing.
    found = steps("nodes,workers,local_batch,step_time_s\n1,1,4,0.4\n1,2,4,0.5\n1,4,4,0.6\n")
    assert [row.sync_s for row in found.groups[("", "")]] == [None] * 3


@pytest.mark.parametrize("never", ["nan", "inf"])
def test_runs_that_never_reached_their_target_are_left_out(never: str) -> None:
    found = parse_trace((EPOCHS + f"ssd,512,0,{never}\n").encode(), name="t.csv")
    assert isinstance(found, EpochTrace)
    assert [row.global_batch for row in found.groups["ssd"]] == [256]
    assert found.notes == ("Line 5 never reached its target and was left out.",)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("1,1,4,0.4", "1,1,4,0", "line 2: column 'step_time_s' is '0', but must be above 0"),
        ("1,1,4,0.4", "1,1,4,nan", "must be above 0"),
        ("1,1,4,0.4", "1,1,4,fast", "'fast', which is no number"),
        ("1,1,4,0.4", "1,1,0,0.4", "'local_batch' is '0', but must be a whole number"),
        ("1,1,4,0.4", "1,1.5,4,0.4", "'workers' is '1.5', but must be a whole number"),
        ("1,1,4,0.4", "2,1,4,0.4", "line 2: 2 nodes for 1 worker: one would have none"),
        ("0.9,0.3", "0.9,300", "a sync time of 300 s in a step of 0.9 s.*Check the units"),
        ("0.9,0.3", "0.9,-0.3", "the sync time is -0.3 s, but must be 0 or more"),
        ("step_time_s", "step_time_h", "has the unit 'h'. Choose from s, ms, us"),
        ("sync_time_s", "step_time_ms", "'step_time_s' and 'step_time_ms' are the same figure"),
        ("step_time_s", "duration", "lacks step_time_s .* has nodes, workers, local_batch"),
        ("a,gpt,2,8,6,0.9,0.3\n", "", "has 2 rows. A backtest needs at least 3"),
    ],
)
def test_bad_steps_are_one_clear_line(old: str, new: str, complaint: str) -> None:
    assert old in STEPS
    with pytest.raises(DataError, match=complaint) as caught:
        parse_trace(STEPS.replace(old, new, 1).encode(), name="t.csv")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("t.csv")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("0,48.5", "0,0", "line 4: column 'epochs_to_target' is '0', but must be above 0"),
        ("1632,1,", "-1632,1,", "line 3: column 'global_batch' is '-1632'"),
        ("global_batch", "batch", "lacks global_batch"),
    ],
)
def test_bad_epochs_are_one_clear_line(old: str, new: str, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        parse_trace(EPOCHS.replace(old, new, 1).encode(), name="t.csv")


def test_a_file_that_is_not_there_or_without_rows(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.csv cannot be read"):
        read_trace(tmp_path / "gone.csv")
    with pytest.raises(UsageError, match="has a header and no rows"):
        parse_trace(STEPS.splitlines()[0].encode(), name="t.csv")
