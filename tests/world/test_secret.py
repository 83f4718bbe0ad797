from __future__ import annotations

import concurrent.futures
from pathlib import Path

import pytest

from farandole.errors import StartError, UsageError
from farandole.world.tcp import job_secret, key_file, source


def own(folder: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(folder)}


def given(folder: Path, content: bytes = b"s" * 32, mode: int = 0o600) -> dict[str, str]:
    file = folder / "secret"
    file.write_bytes(content)
    file.chmod(mode)
    return {"FARANDOLE_SECRET_FILE": str(file)}


def test_own_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    first = job_secret(own(tmp_path), "7.0")
    assert job_secret(own(tmp_path), "7.0") == first
    file = key_file(own(tmp_path))
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o077 == 0
    assert [path.name for path in file.parent.iterdir()] == ["key"]


def test_each_step_has_its_own_secret(tmp_path: Path) -> None:
    secrets = {job_secret(own(tmp_path), job) for job in ("7.0", "7.1", "8.0")}
    assert len(secrets) == 3


def test_each_user_has_their_own_secret(tmp_path: Path) -> None:
    assert job_secret(own(tmp_path / "a"), "7.0") != job_secret(own(tmp_path / "b"), "7.0")


def test_workers_that_start_at_once_have_one_key(tmp_path: Path) -> None:
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        found = set(pool.map(lambda _: job_secret(own(tmp_path), "7.0"), range(64)))
    assert len(found) == 1


def test_home_is_used_without_a_state_folder(tmp_path: Path) -> None:
    assert key_file({"HOME": str(tmp_path)}) == tmp_path / ".local/state/farandole/key"


def test_file_of_the_user_counts_more(tmp_path: Path) -> None:
    environ = given(tmp_path) | own(tmp_path / "state")
    assert job_secret(environ, "7.0") == job_secret(given(tmp_path), "7.0")
    assert not (tmp_path / "state").exists()
    assert source(environ) == f"FARANDOLE_SECRET_FILE={tmp_path / 'secret'}"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(UsageError, match=f"{mode:04o}.*chmod 600"):
        job_secret(given(tmp_path, mode=mode), "7.0")


@pytest.mark.parametrize("content", [b"", b"short"])
def test_file_with_too_little_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UsageError, match=f"has {len(content)} bytes"):
        job_secret(given(tmp_path, content), "7.0")


def test_missing_file_and_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing-here cannot be read"):
        job_secret({"FARANDOLE_SECRET_FILE": str(tmp_path / "nothing-here")}, "7.0")
    with pytest.raises(UsageError, match="is not a file"):
        job_secret({"FARANDOLE_SECRET_FILE": str(tmp_path)}, "7.0")


def test_own_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    job_secret(own(tmp_path), "7.0")
    key_file(own(tmp_path)).chmod(0o644)
    with pytest.raises(StartError, match="nobody else can read"):
        job_secret(own(tmp_path), "7.0")


def test_own_key_cannot_be_a_link(tmp_path: Path) -> None:
    """Whoever can place a link there could make it lead to a file that they know."""
    file = key_file(own(tmp_path))
    file.parent.mkdir(parents=True)
    target = tmp_path / "known"
    target.write_bytes(b"k" * 32)
    target.chmod(0o600)
    file.symlink_to(target)
    with pytest.raises(StartError, match="cannot be made or read"):
        job_secret(own(tmp_path), "7.0")
