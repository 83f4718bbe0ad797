"""The JSON object: every launch is in it, and it is JSON."""

from __future__ import annotations

import json

from farandole.bench.contestant import Contestant, Role, Starter
from farandole.bench.judge import judge
from farandole.bench.launch import LaunchRecord
from farandole.bench.result import PACKAGES, Result, to_json
from farandole.bench.rows import Claim, Group, Quantity, RowPlan
from farandole.world.foreign import Disturbance
from farandole.world.machine import describe_machine


def test_the_object_has_the_schema_and_every_launch() -> None:
    claim = Claim(text="1 s", quantity=Quantity.TIME_S, subject="us", to_reach=1.0)
    row = RowPlan(key="r", title="t", series="step", contestants=("us",), claims=(claim,))
    contestant = Contestant(
        name="us", role=Role.SUBJECT, starter=Starter.DIRECT, worker="x", num_ranks=2
    )
    group = Group(key="g", contestants=(contestant,), rows=(row,))
    records = [
        LaunchRecord(
            contestant="us",
            round=number,
            values={"step": 0.5},
            disturbance=Disturbance(foreign_share=share, steal_share=0.0),
            wall_s=2.0,
        )
        for number, share in ((1, 0.01), (1, 0.3))
    ]
    result = Result(
        machine=describe_machine(PACKAGES),
        transport=None,
        argv=("farandole", "bench"),
        started="2026-01-01T00:00:00+00:00",
        quick=False,
        num_launches=1,
        rows=tuple(judge(group, records)),
        launches=tuple(("g", record) for record in records),
    )
    found = json.loads(json.dumps(to_json(result), allow_nan=False))
    assert found["schema"] == 1
    assert found["machine"].keys() >= {"host", "cpu", "num_cores", "memory_bytes", "transport"}
    assert found["machine"]["versions"].keys() >= {"farandole", "python", "torch", "horovod"}
    assert [launch["counts"] for launch in found["launches"]] == [True, False]
    (entry,) = found["rows"][0]["entries"]
    assert entry["launches"] == [0.5]
    assert entry["void_launches"] == 1
    (target,) = found["rows"][0]["targets"]
    assert (target["to_reach"], target["verdict"]) == (1.0, "reached")
    assert target["measured"] == {"value": 0.5, "low": None, "high": None}
