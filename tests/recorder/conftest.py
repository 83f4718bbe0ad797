"""Where recorded scripts run that no launcher needs to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.recorder.forks import Forks


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """A process that has imported torch, and forks ranks in milliseconds."""
    started = Forks()
    yield started
    started.close()
