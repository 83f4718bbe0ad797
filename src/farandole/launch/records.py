"""Records of workers on hosts that do not see the head's folder: kept there, sent at the end."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from farandole.errors import DataError
from farandole.launch.control import Piece

_PIECE_BYTES = 128 * 1024
# A file in the folder itself, not hidden: nothing else is written for another host.
_NAME = re.compile(r"\w[\w.-]*")


class Records:
    """Where the workers of this host record."""

    def __init__(self, folder: str, mark: str) -> None:
        """Find the head's folder, or make one.

        Args:
            folder: The head's folder; '' when nothing is recorded.
            mark: The name of a file in it.
        """
        self.folder: Path | None = None
        self._own = False
        if folder:
            self._own = not Path(folder, mark).is_file()
            self.folder = (
                Path(tempfile.mkdtemp(prefix="farandole-record-")) if self._own else Path(folder)
            )

    def pieces(self) -> Iterator[Piece]:
        """Read what has to be sent to the head; nothing when it sees the folder itself."""
        if not self._own or self.folder is None:
            return
        for path in sorted(self.folder.iterdir()):
            # What a script has put there under a name of its own stays, as its folders do.
            if not path.is_file() or not _NAME.fullmatch(path.name):
                continue
            with path.open("rb") as file:
                while data := file.read(_PIECE_BYTES):
                    yield Piece(name=path.name, data=data)

    def close(self) -> None:
        """Remove what was kept here."""
        if self._own and self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def keep(folder: Path, piece: Piece) -> None:
    """Add what another host sent to a file in the head's folder.

    Raises:
        DataError: It is named as no record is.
    """
    if not _NAME.fullmatch(piece.name):
        raise DataError(f"{piece.name!r} is not the name of a record.")
    with (folder / piece.name).open("ab") as file:
        file.write(piece.data)
