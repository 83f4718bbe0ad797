"""What the launchers of these tests start."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Where the training script goes that a test writes."""
    return tmp_path / "train.py"
