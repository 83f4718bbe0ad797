"""What is measured, as records: a row's contestants, its figures to reach, and the settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from farandole.bench.contestant import Contestant
from farandole.bench.roster import PEERS

MODELS = ("mlp", "cnn", "resnet18")
BACKENDS = ("torch", "tensorflow", "jax")
"""Of Keras."""


class Quantity(Enum):
    """What a claim compares with its figures."""

    TIME_S = "time"
    """The subject's seconds; at most."""
    SPEED_RATIO = "speed ratio"
    """The subject's speed over the other's; at least."""
    TIME_RATIO = "time ratio"
    """The subject's time over the other's, or over its own in another state; at most."""
    TIME_MORE_S = "time difference"
    """The subject's seconds minus the other's; at most."""
    BYTES = "bytes"
    """The subject's bytes; at most."""
    EXCESS = "excess"
    """The subject's bytes minus the other's, over the row's unit of bytes; at most."""
    RANKING = "rank correlation"
    """Spearman's, of the subject's and the other's values of the row's `ranked`; at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A figure to reach, and how it is read from a row's contestants."""

    text: str
    quantity: Quantity
    subject: str
    against: str | None = None
    to_reach: float
    stretch: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlan:
    """One table: a series of some contestants of the group."""

    key: str
    title: str
    series: str
    contestants: tuple[str, ...]
    baseline: str | None = None
    """The contestant whose speed is 100 %."""
    unit: Literal["s", "bytes", "ratio"] = "s"
    """Of the series; "ratio" is of times, compared within a launch."""
    unit_bytes: int | None = None
    """For memory beside a baseline's: the bytes of one copy of the gradients."""
    of_ranks: bool = True
    """Whether the contestants are ranks; otherwise they are commands, and the title says all."""
    ranked: tuple[str, ...] = ()
    """Series whose order is compared: a throughput for each cell of a study, named after it."""
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Contestants whose launches are interleaved, and the rows that come of them."""

    key: str
    contestants: tuple[Contestant, ...]
    rows: tuple[RowPlan, ...]
    launches: int | None = None
    """How many of each unless the user says; None: as everywhere. For groups that take long."""
    time_limit_s: float = 300.0
    """Of one launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the command line chose."""

    num_ranks: int = 2
    rank_counts: tuple[int, ...] = (1, 2, 4, 8)
    models: tuple[str, ...] = MODELS
    peers: tuple[str, ...] = PEERS
    framework: Literal["torch", "keras"] = "torch"
    backends: tuple[str, ...] = BACKENDS
    """Of Keras, when that is the framework."""
    quick: bool = False
    steps: dict[str, tuple[int, int]] = field(
        default_factory=lambda: {"mlp": (10, 80), "cnn": (4, 24), "resnet18": (2, 8)}
    )
    """Model to warm-up steps and timed steps: two to fifteen seconds of training each."""

    def timed(self, number: int) -> int:
        """Return how many of `number` steps or repeats to time: a third when quick."""
        return max(2, number // 3) if self.quick else number
