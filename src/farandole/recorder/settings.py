"""What the environment says about recording: where to, until when, with which values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

RECORD_DIR = "FARANDOLE_RECORD_DIR"
STOP = "FARANDOLE_STOP"
TIMELINE = "FARANDOLE_TIMELINE"
PARAMS = "FARANDOLE_PARAMS"
APART = "FARANDOLE_APART"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The variables of a study that concern the recorder."""

    folder: str
    stop: str | None = None
    """The rule's JSON; it is read when something is recorded."""
    timeline: bool = False
    apart: str | None = None
    """JSON, for a copy of a script in a calibration."""


def read_settings(environ: Mapping[str, str]) -> Settings | None:
    """Read the variables; None when nothing is to be recorded."""
    folder = environ.get(RECORD_DIR)
    if not folder:
        return None
    return Settings(
        folder=folder,
        stop=environ.get(STOP) or None,
        timeline=environ.get(TIMELINE) == "1",
        apart=environ.get(APART) or None,
    )
