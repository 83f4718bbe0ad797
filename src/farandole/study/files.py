"""Files that launches of one study share, looked at after each of them."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import asdict
from pathlib import Path

from farandole.study.folder import write_json
from farandole.study.isolation import (
    Snapshot,
    Span,
    conflicts,
    read_between,
    sentence,
    take_snapshot,
    written,
    written_by_workers,
    written_during,
)
from farandole.study.records import Launch
from farandole.study.refuse import StudyRefusedError

_FILE = "written.json"
# A part of the second that a cell may cost beyond its training.
_LONGEST_S = 0.3


class Files:
    """Knows which launch wrote what, also after the study was interrupted."""

    def __init__(self, study: Path, folder: Path) -> None:
        """Look at the folder in which the script runs.

        Args:
            study: The study's own folder, which is left out.
            folder: Where the script runs.
        """
        self._study, self._folder = study, folder
        self._written: dict[str, str] = {}
        self._spans: list[Span] = []
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads((study / _FILE).read_text())
            self._written = dict(known["files"])
            self._spans = [Span(**span) for span in known["spans"]]
        self._before = self._look()

    def check(self, launch: Launch, *, began_unix_s: float) -> None:
        """Take note of what a launch wrote, and stop the study if it read what another wrote.

        Raises:
            StudyRefusedError: It did; the message names the file.
        """
        after = self._look()
        opened = [entry for rank in launch.ranks for entry in rank.opened]
        found = conflicts(
            written_during(self._spans, opened) | self._written,
            [*opened, *read_between(self._before, after)],
            began_unix_s=began_unix_s,
        )
        if found:
            raise StudyRefusedError(sentence(found[0], reader=launch.id))
        fresh = {*written(self._before, after), *written_by_workers(opened)}
        self._before = after
        self._written |= dict.fromkeys(sorted(fresh), launch.id)
        self._spans.append(
            Span(launch=launch.id, began_unix_s=began_unix_s, ended_unix_s=time.time())
        )
        known = {"files": self._written, "spans": [asdict(span) for span in self._spans]}
        write_json(self._study / _FILE, known, durable=False)

    def _look(self) -> Snapshot:
        return take_snapshot([self._folder], skip=[self._study], longest_s=_LONGEST_S)
