"""The head beside agents that this test plays: what it passes on, believes and refuses."""

from __future__ import annotations

import selectors
import signal
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from farandole.launch import control, remote_workers
from farandole.launch.control import TELL_BYTES
from farandole.launch.output import Outputs
from farandole.launch.placement import HostShare
from farandole.launch.plan import Plan
from farandole.launch.remote_workers import AgentLink, RemoteWorkers, lost_sentence
from farandole.world.channel import Connection
from tests.conftest import eventually

HELLO = control.Hello(
    host=0,
    name="n",
    address="127.0.0.1",
    master_port=1,
    python="3",
    torch="",
    farandole="1",
    cores=2,
)


class Silent:
    hosts: Sequence[str] = ()

    def poll(self) -> str | None:
        return None

    def close(self) -> None:
        pass


class Stage:
    """A head with two agents: n1 has rank 0, n2 has ranks 1 and 2."""

    def __init__(self, record_dir: Path) -> None:
        self.lines: list[str] = []
        self.agents: list[Connection] = []
        links = []
        for name, ranks in (("n1", (0,)), ("n2", (1, 2))):
            with socket.create_server(("127.0.0.1", 0)) as listener:
                one = socket.create_connection(listener.getsockname())
                other, _ = listener.accept()
            self.agents.append(Connection(one, b"s", caller=True))
            links.append(
                AgentLink(
                    share=HostShare(name=name, ranks=ranks),
                    connection=Connection(other, b"s", caller=False),
                    hello=HELLO,
                    process=Silent(),
                )
            )
        self.selector = selectors.DefaultSelector()
        outputs = Outputs(3, show=lambda _, line: self.lines.append(line), tag=True)
        plan = Plan(argv=("x",), num_workers=3, threads=1, silence_timeout_s=1.0)
        self.head = RemoteWorkers(links, outputs, self.selector, plan=plan, record_dir=record_dir)
        eventually(lambda: [self.turn(), all(agent.proven for agent in self.agents)][1])

    def turn(self) -> None:
        """Let both sides read what there is."""
        self.head.patience_s()
        for key, _ in self.selector.select(0.01):
            key.data()
        for agent in self.agents:
            agent.advance()

    def say(self, number: int, message: control.Message) -> None:
        self.agents[number].send(control.encode(message))

    def heard(self, number: int) -> control.Message:
        """Wait for what an agent hears next."""
        found: list[bytes] = []

        def came() -> bool:
            self.turn()
            data = self.agents[number].receive_one()
            if data is not None:
                found.append(data)
            return bool(found)

        eventually(came)
        return control.decode(found[0])

    def ends(self, count: int) -> list[tuple[int, str]]:
        """Wait for so many ends; return ranks and how their hosts were lost."""
        found: list[tuple[int, str]] = []

        def enough() -> bool:
            self.turn()
            found.extend((end.rank, end.lost) for end in self.head.exits())
            return len(found) >= count

        eventually(enough)
        return found

    def close(self) -> None:
        self.head.close()
        self.selector.close()
        for agent in self.agents:
            agent.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


def ended(rank: int, code: int = 0) -> control.Ended:
    return control.Ended(
        rank=rank,
        code=code,
        ago_ns=0,
        step=4,
        failure="",
        failure_ago_ns=0,
        secondary=False,
        culprit=-1,
    )


def test_posts_and_ends_go_to_the_other_hosts(stage: Stage) -> None:
    post = control.Post(rank=1, round=0, payload=b"hello")
    stage.say(1, post)
    assert stage.heard(0) == post
    stage.say(0, ended(0, 3))
    assert stage.heard(1) == ended(0, 3)
    assert stage.ends(1) == [(0, "")]
    assert stage.head.step(0) == 4


def test_signals_go_to_the_host_of_the_rank(stage: Stage) -> None:
    stage.head.send(2, signal.SIGTERM)
    assert stage.heard(1) == control.Signal(rank=2, signum=signal.SIGTERM)
    stage.head.ask_stop()
    assert stage.heard(0) == stage.heard(1) == control.AskStop()


def test_output_is_shown_and_agents_are_told_how_much_was_taken(stage: Stage) -> None:
    message = control.Output(rank=2, stream="stdout", data=b"x" * TELL_BYTES + b"\n")
    stage.say(1, message)
    assert stage.heard(1) == control.Heard(total_bytes=len(control.encode(message)))
    assert stage.lines == ["[2]<stdout>:" + "x" * TELL_BYTES + "\n"]


def test_looks(stage: Stage) -> None:
    stage.say(
        1, control.Status(steps={"1": 7, "2": 8, "0": 99, "x": 1}, stopped=[2, 0], exiting=[1, 0])
    )
    eventually(lambda: [stage.turn(), stage.head.step(2) == 8][1])
    found = stage.head.look(at_states=True)
    # A host tells of its own ranks only.
    assert (found.stopped, found.exiting) == (frozenset({2}), frozenset({1}))
    assert found.steps == {0: 0, 1: 7, 2: 8}


@pytest.mark.parametrize(
    "message",
    [
        control.Output(rank=0, stream="stdout", data=b"not mine"),
        control.Output(rank=1, stream="stdin", data=b""),
        control.Post(rank=5, round=0, payload=b""),
        control.Piece(name="../../etc/passwd", data=b"x"),
        control.LastSteps(last_step=1, last_recorded=0),
    ],
    ids=["rank of another host", "stream", "no rank", "file", "last step"],
)
def test_a_host_that_says_what_it_may_not_is_lost(
    stage: Stage, message: control.Message, tmp_path: Path
) -> None:
    stage.say(1, message)
    ends = stage.ends(2)
    assert [rank for rank, _ in ends] == [1, 2]
    assert "host n2 (ranks 1, 2) was lost: its agent sent what cannot be used" in ends[0][1]
    assert stage.lines == []
    assert list(tmp_path.iterdir()) == []
    told = stage.heard(0)
    assert isinstance(told, control.Ended)
    assert (told.rank, told.code, told.failure) == (1, -9, ends[0][1])


def test_an_agent_that_hangs_up_is_a_lost_host(stage: Stage) -> None:
    stage.say(1, ended(1))
    stage.agents[1].close()
    assert stage.ends(2) == [(1, ""), (2, "host n2 (ranks 1, 2) was lost: it has ended.")]


def test_an_agent_that_says_nothing_for_long_is_lost(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [remote_workers.time.monotonic()]
    monkeypatch.setattr(remote_workers.time, "monotonic", lambda: now[0])
    for _ in range(2):
        # However long a look is away, it may be the head itself that slept.
        now[0] += 1000
        stage.head.look(at_states=True)
    assert stage.head.exits() == []
    for _ in range(3):
        now[0] += 6
        stage.head.look(at_states=True)
    (first, *_) = stage.head.exits()
    assert "its agent has said nothing for" in first.lost


def test_agents_leave_when_told(stage: Stage) -> None:
    for number, ranks in enumerate([(0,), (1, 2)]):
        for rank in ranks:
            stage.say(number, ended(rank))
    assert len(stage.ends(3)) == 3
    for number in range(2):
        stage.say(number, control.Piece(name=f"rank-{number}.jsonl", data=b"{}\n"))
        stage.say(number, control.Leaving(reason=""))
    stage.head.end_leftovers(patient=True)
    assert stage.head.exits() == []
    assert stage.lines == []


def test_a_host_that_is_lost_at_the_end_is_told_of(stage: Stage) -> None:
    for number, ranks in enumerate([(0,), (1, 2)]):
        for rank in ranks:
            stage.say(number, ended(rank))
    assert len(stage.ends(3)) == 3
    stage.say(0, control.Leaving(reason=""))
    stage.agents[1].close()
    stage.head.end_leftovers(patient=True)
    assert stage.lines == [
        "farandole: host n2 (ranks 1, 2) was lost: it has ended. Records from there may be "
        "missing.\n"
    ]


def test_sentences() -> None:
    assert (
        lost_sentence("n2", (3,), "it has ended", "") == "host n2 (rank 3) was lost: it has ended."
    )
    assert lost_sentence("n2", (2, 3), "it has ended", "code 1") == (
        "host n2 (ranks 2, 3) was lost: it has ended (code 1)."
    )
