"""The process that calls a function for `farandole.run`, where it inherits nothing."""

from __future__ import annotations

import pickle
import subprocess
import sys

from farandole.launch.call import CALL_FOLDER, call_folder
from farandole.launch.function import encode_call
from tests.conftest import clean_environ


def test_a_call_in_a_folder_is_answered_there() -> None:
    with call_folder(encode_call(pow, (2, 5), {})) as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        variables = {CALL_FOLDER: str(folder), "FARANDOLE_RANK": "3"}
        subprocess.run(
            [sys.executable, "-m", "farandole.launch.call"],
            env=clean_environ(**variables),
            timeout=60,
            check=True,
        )
        kind, value = pickle.loads((folder / "answer-3").read_bytes())
        assert (kind, pickle.loads(value)) == ("value", 32)
    assert not folder.exists()
