"""Claims by lab."""

from __future__ import annotations

import pytest

from farandole.labs.evidence import claims_of


def test_a_labs_claims_are_derived_again() -> None:
    found = claims_of("mnist")
    assert [claim.claimed for claim in found] == ["0.53", "0.84"]
    assert [claim.value for claim in found] == pytest.approx(
        [456.14687 / 379.69139, 379.69139 / 203.63445]
    )
    assert not any(claim.agrees for claim in found)


def test_a_lab_without_claims_has_none() -> None:
    assert claims_of("driving") == ()
