from __future__ import annotations

import pytest

from farandole.errors import UsageError
from farandole.world.slurm import expand_nodes, in_step, slurm_hosts, tasks_per_node


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("n1", "n1"),
        ("n[1-3,7],gpu12", "n1 n2 n3 n7 gpu12"),
        ("n[5-9,12]", "n5 n6 n7 n8 n9 n12"),
        ("n[08-10]", "n08 n09 n10"),
        ("a,b,c", "a b c"),
        ("rack[1-2]n[1-2]", "rack1n1 rack1n2 rack2n1 rack2n2"),
        ("n[1-2].site", "n1.site n2.site"),
    ],
)
def test_node_lists(text: str, nodes: str) -> None:
    assert expand_nodes(text) == tuple(nodes.split())


@pytest.mark.parametrize(
    "text",
    [
        *("n[1-", "n1]", "n[[1]]", "n[a-b]", "n[3-1]", "n[]", "n 1", "n1;n2", "(null)"),
        *("n[1-99999999999]", "r[1-60000]n[1-60000]"),
    ],
)
def test_unreadable_node_lists_are_named(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        slurm_hosts({"SLURM_JOB_NODELIST": text})
    assert f"SLURM_JOB_NODELIST={text!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "tasks"), [("", ()), ("4", (4,)), ("2(x3),1", (2, 2, 2, 1)), ("1,3", (1, 3))]
)
def test_tasks_per_node(text: str, tasks: tuple[int, ...]) -> None:
    assert tasks_per_node({"SLURM_STEP_TASKS_PER_NODE": text}) == tasks


@pytest.mark.parametrize(
    ("step", "inside"),
    [("0", True), ("12", True), ("batch", False), ("4294967290", False), ("", False)],
)
def test_only_steps_of_srun_count(step: str, inside: bool) -> None:
    assert in_step({"SLURM_STEP_ID": step}) is inside
