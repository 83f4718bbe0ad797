"""States, and the loop that trains with them, without any other worker."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from farandole.elastic import generation
from farandole.elastic.checkpoint import CheckpointFiles
from farandole.elastic.generation import HostsChanged
from farandole.elastic.state import HostUpdateResult, ObjectState, State, run_fn
from farandole.errors import (
    HorovodInternalError,
    HostsUpdatedInterrupt,
    MismatchError,
    NotNeededError,
    PeerDiedError,
    UsageError,
)


def state_of(**entries: Any) -> Any:
    return ObjectState(bcast_object=lambda each: each, get_rank=lambda: 0, **entries)


def test_what_is_saved_is_a_copy() -> None:
    state = state_of(losses=[1.0], epoch=3)
    state.losses.append(2.0)
    state.epoch += 1
    state.restore()
    assert (state.losses, state.epoch) == ([1.0], 3)
    state.losses.append(3.0)
    state.commit()
    state.losses.append(4.0)
    state.restore()
    # What was restored once can be restored again.
    state.losses.append(5.0)
    state.restore()
    assert state.losses == [1.0, 3.0]


def test_an_entry_that_cannot_be_copied_is_named() -> None:
    with pytest.raises(UsageError, match=r"entry 'lock', a lock, cannot be copied.*TypeError"):
        state_of(lock=threading.Lock())


def test_a_rank_takes_over_what_rank_0_has() -> None:
    sent: list[Any] = []

    def broadcast(mine: Any) -> Any:
        sent.append(mine)
        return {"epoch": 7}

    state: Any = ObjectState(bcast_object=broadcast, get_rank=lambda: 1, epoch=3)
    state.epoch = 4
    state.sync()
    assert (sent, state.epoch) == ([{"epoch": 4}], 7)
    state.epoch = 8
    state.restore()
    assert state.epoch == 7


@pytest.mark.parametrize(
    ("updates", "skip_sync"),
    [
        ([HostUpdateResult.added], False),
        ([HostUpdateResult.removed], True),
        ([HostUpdateResult.removed, HostUpdateResult.added], False),
    ],
)
def test_changed_hosts_end_a_commit(updates: list[int], skip_sync: bool) -> None:
    state = state_of(epoch=0)
    state.commit()
    for number, update in enumerate(updates):
        state.on_hosts_updated(number + 1, update)
    state.epoch = 5
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.commit()
    assert caught.value.skip_sync is skip_sync
    assert state._last_updated_timestamp == len(updates)
    state.check_host_updates()
    state.restore()
    assert state.epoch == 5


def test_rank_0_says_whether_hosts_have_changed() -> None:
    state = ObjectState(bcast_object=lambda _: (0, 0, 0), get_rank=lambda: 1)
    state.on_hosts_updated(1, HostUpdateResult.added)
    state.check_host_updates()
    other = ObjectState(bcast_object=lambda _: (0, 9, 1), get_rank=lambda: 1)
    with pytest.raises(HostsUpdatedInterrupt):
        other.check_host_updates()


def test_a_change_on_the_launchers_board_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_of()
    changes: list[HostsChanged | None] = [None]
    monkeypatch.setattr(generation, "hosts_changed", lambda: changes[-1])
    assert state._host_messages.empty()
    changes.append(HostsChanged(time_ns=50, added=True, removed=False))
    assert not state._host_messages.empty()
    with pytest.raises(HostsUpdatedInterrupt):
        state.check_host_updates()
    state.check_host_updates()
    # A generation later the clock was set back.
    state.on_reset()
    changes.append(HostsChanged(time_ns=20, added=False, removed=True))
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.check_host_updates()
    assert caught.value.skip_sync


class Recorded(State):
    """A state that notes what is done with it."""

    def __init__(self) -> None:
        super().__init__(bcast_object=lambda each: each, get_rank=lambda: 0)
        self.done: list[str] = []
        self.register_reset_callbacks([lambda: self.done.append("callback")])

    def save(self) -> None:
        self.done.append("save")

    def restore(self) -> None:
        self.done.append("restore")

    def sync(self) -> None:
        self.done.append("sync")

    def reset(self) -> None:
        self.done.append("reset")


def trained(*happens: BaseException | str, reset: Any = lambda: None) -> tuple[Any, list[str]]:
    """What a training function's calls, which end as given, leave behind."""
    state, ends = Recorded(), iter(happens)

    def train(given: State, more: str, *, last: str) -> str:
        assert (given, more, last) == (state, "x", "y")
        state.done.append("train")
        end = next(ends)
        if isinstance(end, BaseException):
            raise end
        return end

    try:
        answer: Any = run_fn(train, reset)(state, "x", last="y")
    except BaseException as error:
        answer = error
    return answer, state.done


def test_training_goes_on_after_what_can_be_survived() -> None:
    answer, done = trained(
        HorovodInternalError("lost"),
        HostsUpdatedInterrupt(skip_sync=False),
        HostsUpdatedInterrupt(skip_sync=True),
        PeerDiedError("lost", culprit=1),
        "done",
    )
    assert answer == "done"
    assert done == [
        *["sync", "train", "restore", "reset", "callback"],
        *["sync", "train", "reset", "callback"],
        *["sync", "train", "reset", "callback"],
        *["train", "restore", "reset", "callback"],
        *["sync", "train"],
    ]


def test_a_loss_while_ranks_synchronise_keeps_the_commit() -> None:
    def broadcast(mine: Any) -> Any:
        raise PeerDiedError("lost", culprit=0)

    state: Any = ObjectState(bcast_object=broadcast, get_rank=lambda: 1, epoch=3)
    state.epoch = 4
    with pytest.raises(PeerDiedError):
        state.sync()
    state.restore()
    assert state.epoch == 3


def test_the_launcher_hears_who_has_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    state = Recorded()
    monkeypatch.setattr(generation, "note_state", lambda: state.done.append("note"))
    run_fn(lambda given: given.done.append("train"), lambda: None)(state)
    assert state.done == ["sync", "note", "train"]


def test_a_loss_while_the_next_generation_is_entered() -> None:
    lost: Iterator[bool] = iter([True, False])

    def reset() -> None:
        if next(lost):
            raise PeerDiedError("lost again", culprit=2)

    answer, done = trained(HostsUpdatedInterrupt(), "done", reset=reset)
    assert answer == "done"
    assert done == ["sync", "train", "restore", "reset", "callback", "sync", "train"]


@pytest.mark.parametrize("error", [MismatchError("shapes"), ValueError("mine")])
def test_what_would_fail_again_is_not_tried_again(error: Exception) -> None:
    answer, done = trained(error)
    assert answer is error
    assert done == ["sync", "train"]


def test_without_an_elastic_launcher_a_loss_ends_the_run() -> None:
    error = PeerDiedError("lost", culprit=1)
    answer, done = trained(error, reset=generation.next_generation)
    assert answer is error
    assert done == ["sync", "train"]


def test_a_worker_that_is_not_needed_leaves_quietly() -> None:
    def reset() -> None:
        raise NotNeededError("host removed")

    answer, _ = trained(HostsUpdatedInterrupt(), reset=reset)
    assert isinstance(answer, SystemExit)
    assert answer.code == 0


def test_files_outlive_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = CheckpointFiles(tmp_path / "states", every=2, keep=2)
    for commits in range(1, 9):
        files.committed(commits, {"commits": commits})
        files.finish()
    assert sorted(path.name for path in files.folder.iterdir()) == [
        "state-000000000006.farandole",
        "state-000000000008.farandole",
    ]
    assert files.newest() == {"commits": 8}
    newest = files.folder / "state-000000000008.farandole"
    newest.write_bytes(newest.read_bytes()[:-1])
    (files.folder / "state-000000000009.farandole").write_text("mine\n")
    (files.folder / "state-000000000010.farandole.part").write_text("begun")
    assert files.newest() == {"commits": 6}
    foreign, torn = capsys.readouterr().err.splitlines()
    assert "state-000000000009.farandole is not a whole state (it is no file of this" in foreign
    assert "state-000000000008.farandole is not a whole state (it was cut short" in torn


def test_a_full_disk_ends_no_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = CheckpointFiles(tmp_path / "states", every=1, keep=2)
    files.folder.rmdir()
    for commits in (1, 2):
        files.committed(commits, {})
        files.finish()
    assert capsys.readouterr().err.count("could not be written: No such file") == 1


@pytest.mark.parametrize("wrong", [{"every": 0}, {"keep": True}, {"every": 1.5}])
def test_numbers_of_files_are_whole(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="give a whole number of at least 1"):
        state_of().save_to(tmp_path, **wrong)


def test_only_plain_data_goes_into_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\[\"pattern\"\] is a re\.Pattern, which is not"):
        state_of(pattern=re.compile("x")).save_to(tmp_path)
