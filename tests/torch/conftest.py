"""Where the ranks of these tests come from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from farandole.testing import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """A nursery that has also imported what every torch optimizer imports when it is made.

    That takes seconds of each rank otherwise.
    """
    with Nursery(preload=("farandole.torch", "torch._dynamo", "pytest")) as nursery:
        yield nursery
