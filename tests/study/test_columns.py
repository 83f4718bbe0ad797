"""Names of columns: figures, units, and what is neither."""

from __future__ import annotations

import pytest

from farandole.errors import UsageError
from farandole.study.columns import understand, unknown_note


@pytest.mark.parametrize(
    ("given", "name", "role", "scale"),
    [
        ("workers", "workers", "count", 1.0),
        ("GPUs", "workers", "count", 1.0),
        ("Nodes", "hosts", "count", 1.0),
        ("batch size", "batch", "count", 1.0),
        ("global_batch", "global_batch", "count", 1.0),
        ("epochs", "epochs", "count", 1.0),
        ("device", "device", "text", 1.0),
        ("Model", "model", "text", 1.0),
        ("run", "run", "repeat", 1.0),
        ("epoch_s", "epoch_s", "time", 1.0),
        ("epoch (s)", "epoch_s", "time", 1.0),
        ("Epoch [min]", "epoch_s", "time", 60.0),
        ("job_min", "job_s", "time", 60.0),
        ("job time", "job_s", "time", None),
        ("Job-Time (hours)", "job_s", "time", 3600.0),
        ("step_ms", "step_s", "time", 1e-3),
        ("step_time_us", "step_s", "time", 1e-6),
        ("throughput", "throughput", "rate", 1.0),
        ("Throughput (images/s)", "throughput", "rate", 1.0),
        ("throughput_per_min", "throughput", "rate", 1 / 60),
        ("images_per_sec", "throughput", "rate", 1.0),
        ("img/s", "throughput", "rate", 1.0),
        ("val. acc.", "val._acc.", "other", 1.0),
        ("epoch", "epoch", "other", 1.0),
        ("epoch_accuracy", "epoch_accuracy", "other", 1.0),
        ("loss", "loss", "other", 1.0),
        ("job_id", "job_id", "other", 1.0),
        ("step_count", "step_count", "other", 1.0),
    ],
)
def test_names(given: str, name: str, role: str, scale: float | None) -> None:
    column = understand(3, given)
    assert (column.index, column.given) == (3, given)
    assert (column.name, column.role) == (name, role)
    assert column.scale == (None if scale is None else pytest.approx(scale))


@pytest.mark.parametrize(
    ("given", "unit"),
    [
        ("epoch_ns", "ns"),
        ("epoch_parsecs", "parsecs"),
        ("job_days", "days"),
        ("step_time_fortnights", "fortnights"),
        ("throughput_mb_s", "mb_s"),
        ("throughput (GB/s)", "gb/s"),
    ],
)
def test_a_unit_that_is_not_known_is_refused_by_the_columns_name(given: str, unit: str) -> None:
    with pytest.raises(UsageError) as caught:
        understand(0, given)
    assert f"Column {given!r}: {unit!r} is no unit that is known here. Use " in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("wattage", "Column 'wattage' is not known and became a metric."),
        ("speedup", "Column 'speedup' is not known and became a metric."),
        ("val acc (%)", "Column 'val acc (%)' became a metric."),
        ("epoch_loss", "Column 'epoch_loss' became a metric."),
    ],
)
def test_what_is_said_of_a_column_that_became_a_metric(given: str, said: str) -> None:
    assert unknown_note(understand(0, given)) == said


@pytest.mark.parametrize(
    "given", ["time", "Time (s)", "total_s", "runtime [min]", "wall", "latency_ms", "seconds"]
)
def test_a_time_of_nobody_knows_what_is_told_how_to_be_called(given: str) -> None:
    said = unknown_note(understand(0, given))
    assert said.startswith(f"Column {given!r} is not known and became a metric.")
    assert said.endswith("call it job_s, epoch_s or step_s.")
