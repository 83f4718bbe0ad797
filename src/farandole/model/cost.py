"""What a cell costs at a price per worker and hour."""

from __future__ import annotations

from farandole.errors import UsageError
from farandole.model.info.job import Cost, JobTime
from farandole.model.info.metric import MetricRow
from farandole.model.measured import Measured

_HOUR_S = 3600.0


def price(
    found: Measured,
    job: JobTime | None,
    metric: MetricRow | None,
    price_per_worker_hour: float,
) -> Cost | None:
    """Return workers x price x time, for an epoch, the job and the target; None without a time.

    Raises:
        UsageError: when the price is not a number above 0.
    """
    if not price_per_worker_hour > 0:
        raise UsageError(
            f"A price of {price_per_worker_hour} per worker and hour is not above 0. "
            f"Pass what one worker costs in an hour, such as --price 2.5."
        )
    rate = found.cell.workers * price_per_worker_hour / _HOUR_S
    throughput = found.throughput("samples/s")
    epoch_s = job.epoch_s if job else None
    job_s = job.job_s if job else None
    target_s = metric.target_s if metric else None
    if throughput is None and epoch_s is None and job_s is None and target_s is None:
        return None
    return Cost(
        cell=found.cell,
        label=found.label,
        price_per_worker_hour=price_per_worker_hour,
        per_epoch=rate * epoch_s.value if epoch_s else None,
        job=rate * job_s.value if job_s else None,
        to_target=rate * target_s if target_s is not None else None,
        per_million_samples=1e6 / throughput.value * rate if throughput else None,
    )
