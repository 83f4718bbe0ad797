"""The process that calls a function for `farandole.run`, where it inherits nothing."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from farandole.launch.call import CALL_FOLDER, call_folder
from farandole.launch.function import encode_call
from tests.conftest import clean_environ


def test_a_call_in_a_folder_is_answered_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with call_folder("x7", encode_call(pow, (2, 5), {})) as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        variables = {CALL_FOLDER: "x7", "FARANDOLE_RANK": "3", "TMPDIR": str(tmp_path)}
        subprocess.run(
            [sys.executable, "-m", "farandole.launch.call"],
            env=clean_environ(**variables),
            timeout=60,
            check=True,
        )
        kind, value = pickle.loads((folder / "answer-3").read_bytes())
        assert (kind, pickle.loads(value)) == ("value", 32)
    assert not folder.exists()


def test_a_folder_that_is_there_already_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with (
        call_folder("x7", b"ours"),
        pytest.raises(FileExistsError),
        call_folder("x7", b"another's"),
    ):
        pass
