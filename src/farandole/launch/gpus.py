"""How many GPUs workers could have, without importing torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def count_gpus(environ: Mapping[str, str], root: Path = Path("/")) -> int:
    """Count NVIDIA's GPUs that CUDA_VISIBLE_DEVICES leaves visible."""
    folder = root / "proc/driver/nvidia/gpus"
    present = sum(1 for _ in folder.iterdir()) if folder.is_dir() else 0
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if not present or visible is None:
        return present
    named = [part for part in visible.split(",") if part.strip() and part.strip() != "-1"]
    return min(present, len(named))
