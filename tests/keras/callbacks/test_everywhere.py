"""The callbacks on each backend, for real; on torch with three ranks."""

from __future__ import annotations

import pytest

from tests.keras.checking import JAX, LAUNCH_S, TENSORFLOW, THREE, Check, Outcomes, each

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(LAUNCH_S + 20)]


@each("callbacks.everywhere", THREE, TENSORFLOW, JAX)
def test_on_real_ranks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)
