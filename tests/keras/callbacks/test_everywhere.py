"""The callbacks on each backend, for real; on torch with three ranks.

On TensorFlow only what reaches into its compiled step: metrics are read, and ends agreed on, as on
torch.
"""

from __future__ import annotations

import pytest

from tests.keras.checking import JAX, LAUNCH_S, TENSORFLOW, THREE, Check, Outcomes, each

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(LAUNCH_S + 20)]


_PROGRAM = "callbacks.everywhere"
_IN_THE_STEP = (
    "check_metrics_are_those_of_one_process",
    "check_warmup_sets_the_rate_of_every_batch",
    "check_momentum_is_corrected_when_the_rate_changes",
    "check_a_recipe_sets_the_rate_of_every_batch",
    "check_broadcast_gives_every_rank_the_roots_state",
    "check_broadcast_of_a_model_that_its_first_batch_builds",
)


@each(_PROGRAM, THREE, JAX)
def test_on_real_ranks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)


@each(_PROGRAM, TENSORFLOW, only=_IN_THE_STEP)
def test_on_tensorflow(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)
