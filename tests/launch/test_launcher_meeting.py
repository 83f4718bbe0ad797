"""Workers that a launcher starts find each other, or hear who is missing."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import run_cli

pytestmark = pytest.mark.ranks

MEET = """
import os, sys
from farandole.world import connect, read_world
world = read_world(os.environ)
if str(world.rank) in sys.argv[1:]:
    sys.exit(0)
meeting = connect(world)
for number in range(3):
    answers = meeting.exchange(f"{world.rank}.{number}".encode())
    assert answers == [f"{rank}.{number}".encode() for rank in range(world.size)], answers
print("met", world.source)
"""


def test_twenty_launches_at_once(script: Path) -> None:
    script.write_text(
        MEET
        + "import socket\n"
        + "if world.rank == 0:\n"
        + "    with socket.socket() as server:\n"
        + "        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
        + "        server.bind(('127.0.0.1', world.master_port)); server.listen()\n"
        + "        print('port', world.master_port); meeting.exchange(b'')\n"
        + "else:\n"
        + "    meeting.exchange(b'')\n"
    )
    with ThreadPoolExecutor(20) as pool:
        results = list(pool.map(lambda _: run_cli("run", "-np", "2", script), range(20)))
    assert [done.returncode for done in results] == [0] * 20, results
    assert all(done.stdout.count("met farandole") == 2 for done in results)


def test_a_rank_that_exits_before_init_is_named(script: Path) -> None:
    script.write_text(MEET)
    done = run_cli("run", "-np", "2", script, "1")
    assert done.returncode == 1
    assert "rank 1 failed first: it exited with code 0 while rank 0 waited for it" in done.stderr
    assert "StartError: rank 1 exited with code 0 without calling" in done.stderr


def test_a_rank_that_never_calls_init_is_named(script: Path) -> None:
    script.write_text(
        "import os, time\nif os.environ['RANK'] == '1': time.sleep(60)\n" + MEET,
    )
    done = run_cli("run", "-np", "2", "--start-timeout", "0.5", script)
    assert done.returncode == 1
    assert "StartError: rank 1 (pid " in done.stderr
    assert ") is running but has not called hvd.init()" in done.stderr


def test_a_wrapper_that_closes_descriptors_does_no_harm(script: Path) -> None:
    script.write_text(MEET)
    close = "import os, sys; os.closerange(3, 256); os.execv(sys.executable, sys.argv[1:])"
    done = run_cli("run", "-np", "2", "--", sys.executable, "-c", close, sys.executable, script)
    assert (done.returncode, done.stdout.count("met farandole")) == (0, 2), done.stderr
