"""Workers on several hosts: two names of this machine, reached by a shell that stays here.

Agents, connections and boards are those of real hosts; only the network is loopback.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.conftest import clean_environ, cli_argv, eventually, run_cli

pytestmark = pytest.mark.ranks

HOSTS = "127.0.0.2:2,127.0.0.3:1"
SHELL = '#!/bin/sh\nexec sh -c "$2"\n'
MEET = """
import json, os, sys
from farandole.world import connect, read_world
world = read_world(os.environ)
meeting = connect(world)
for number in range(3):
    answers = meeting.exchange(f"{world.rank}.{number}".encode())
    assert answers == [f"{rank}.{number}".encode() for rank in range(world.size)], answers
names = ("GROUP_RANK", "MASTER_ADDR", "MINE", "OTHER", "FARANDOLE_HOSTNAME")
print(json.dumps({
    "place": [world.rank, world.size, world.local_rank, world.local_size],
    "cross": [world.cross_rank, world.cross_size],
    "hosts": world.hosts,
    "cwd": os.getcwd(),
    **{name: os.environ.get(name) for name in names},
}))
"""
# A remote shell that floods the head's port before and while it starts the agent, with so many
# callers that are silent, that send something else, and that hang up; then it lets go of them.
FLOOD = """
import json, os, socket, subprocess, sys, threading
greeting = sys.stdin.buffer.readline()
((address, port), *_) = json.loads(greeting)["addresses"]
streams = []
def flood():
    for number in range(600):
        try:
            stream = socket.create_connection((address, port), 5)
        except OSError:
            continue
        if number % 3 == 1:
            stream.send(b"GET / HTTP/1.1")
        if number % 3 == 2:
            stream.close()
        streams.append(stream)
flood()
again = threading.Thread(target=flood)
again.start()
agent = subprocess.Popen(["sh", "-c", sys.argv[2]], stdin=subprocess.PIPE)
agent.stdin.write(greeting)
agent.stdin.flush()
again.join()
agent.stdin.write(sys.stdin.buffer.read())
agent.stdin.close()
sys.exit(agent.wait())
"""
WAIT = """
import os, sys, time
from pathlib import Path
Path(sys.argv[1], os.environ["RANK"]).write_text(f"{os.getpid()} {os.getppid()}")
time.sleep(60)
"""


@pytest.fixture
def shell(tmp_path: Path) -> Path:
    """A remote shell that reaches this machine under every name."""
    script = tmp_path / "shell"
    script.write_text(SHELL)
    script.chmod(0o700)
    return script


@contextmanager
def started(
    shell: Path, script: Path, here: Path
) -> Iterator[tuple[subprocess.Popen[str], list[list[int]]]]:
    """A head whose three workers run, with the processes of each and of its agent."""
    script.write_text(WAIT)
    here.mkdir()
    with subprocess.Popen(
        [*cli_argv(), "run", "--rsh", str(shell), "-H", HOSTS, str(script), str(here)],
        env=clean_environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as head:
        try:

            def found() -> list[list[int]]:
                files = [here / str(rank) for rank in range(3)]
                texts = [file.read_text() for file in files if file.exists()]
                return [[int(pid) for pid in text.split()] for text in texts if text]

            eventually(lambda: len(found()) == 3)
            yield head, found()
        finally:
            head.kill()


def gone(pids: list[list[int]]) -> bool:
    numbers = {pid for pair in pids for pid in pair}
    return all(
        not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        for pid in numbers
    )


def test_workers_of_two_hosts_meet(shell: Path, script: Path, tmp_path: Path) -> None:
    script.write_text(MEET)
    folder = tmp_path / "with space"
    folder.mkdir()
    done = run_cli(
        *("run", "--rsh", shell, "-H", HOSTS, "--env", "MINE=a b", "--env", "OTHER", script),
        env={"OTHER": "it's", "UNASKED": "x"},
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    assert "3 workers on 2 hosts (127.0.0.2:2, 127.0.0.3:1), " in done.stderr
    lines = dict(line.split("<stdout>:", 1) for line in done.stdout.splitlines())
    found = [json.loads(lines[f"[{rank}]"]) for rank in range(3)]
    assert [each["place"] for each in found] == [[0, 3, 0, 2], [1, 3, 1, 2], [2, 3, 0, 1]]
    assert [each["cross"] for each in found] == [[0, 2], [0, 1], [1, 2]]
    assert [each["GROUP_RANK"] for each in found] == ["0", "0", "1"]
    assert [each["FARANDOLE_HOSTNAME"] for each in found] == ["127.0.0.2"] * 2 + ["127.0.0.3"]
    assert {each["MASTER_ADDR"] for each in found} == {"127.0.0.1"}
    assert {(each["MINE"], each["OTHER"]) for each in found} == {("a b", "it's")}
    assert {each["cwd"] for each in found} == {str(folder)}
    assert found[0]["hosts"] == ["127.0.0.2", "127.0.0.3"]


def test_strangers_who_flood_the_heads_port_do_not_keep_a_job_from_starting(
    script: Path, tmp_path: Path
) -> None:
    (tmp_path / "flood.py").write_text(FLOOD)
    shell = tmp_path / "shell"
    shell.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path}/flood.py "$@"\n')
    shell.chmod(0o700)
    script.write_text(MEET)
    done = run_cli("run", "--rsh", shell, "-H", HOSTS, script)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3


@pytest.mark.parametrize(
    ("how", "code", "says"),
    [
        ("raise ValueError('bad loss')", 1, "failed first: ValueError: bad loss (train.py:3)"),
        ("sys.exit(7)", 7, "failed first (exit code 7)"),
        ("os.kill(os.getpid(), 9)", 137, "failed first (SIGKILL"),
    ],
)
def test_a_failing_rank_is_named_with_its_host(
    shell: Path, script: Path, how: str, code: int, says: str
) -> None:
    script.write_text(
        "import os, sys, time\n"
        "if os.environ['RANK'] == '2':\n"
        f"    print('last words', file=sys.stderr); {how}\n"
        "time.sleep(60)\n"
    )
    done = run_cli("run", "--rsh", shell, "-H", HOSTS, script)
    assert done.returncode == code
    assert f"farandole: rank 2 on host 127.0.0.3 {says}" in done.stderr
    assert "last words" in done.stderr


def test_ranks_hear_of_an_end_on_another_host(shell: Path, script: Path) -> None:
    script.write_text("import os, sys\nif os.environ['RANK'] == '2': sys.exit(0)\n" + MEET)
    done = run_cli("run", "--rsh", shell, "-H", HOSTS, script)
    assert done.returncode == 1
    assert "StartError: rank 2 on host 127.0.0.3 exited with code 0 without calling" in done.stderr


def test_a_stopped_rank_is_found(shell: Path, script: Path) -> None:
    script.write_text(
        "import os, signal, time\n"
        "if os.environ['RANK'] == '2': os.kill(os.getpid(), signal.SIGSTOP)\n"
        "time.sleep(60)\n"
    )
    done = run_cli("run", "--rsh", shell, "-H", HOSTS, "--silence-timeout", "0.5", script)
    assert done.returncode == 1
    assert "rank 2 on host 127.0.0.3 was stopped" in done.stderr


def test_a_rank_that_hangs_in_an_exit_handler_is_ended(shell: Path, script: Path) -> None:
    script.write_text(
        "import atexit, os, time\nif os.environ['RANK'] == '2': atexit.register(time.sleep, 100)\n"
    )
    done = run_cli("run", "--rsh", shell, "-H", HOSTS, "--exit-timeout", "1", script)
    assert done.returncode == 1
    assert "rank 2 on host 127.0.0.3 has not exited 1 s after the last of" in done.stderr


def test_processes_in_sessions_of_their_own_end_with_the_run(
    shell: Path, script: Path, tmp_path: Path
) -> None:
    script.write_text(
        "import os, subprocess, sys\n"
        "child = subprocess.Popen(['env', '-i', 'sleep', '60'], start_new_session=True)\n"
        "open(sys.argv[1] + os.environ['RANK'], 'w').write(str(child.pid))\n"
    )
    done = run_cli("run", "--rsh", shell, "-H", HOSTS, script, tmp_path / "pid", timeout_s=30)
    assert done.returncode == 0, done.stderr
    pids = [int((tmp_path / f"pid{rank}").read_text()) for rank in range(3)]
    assert not any(psutil.pid_exists(pid) for pid in pids)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_head_ends_all(
    shell: Path, script: Path, tmp_path: Path, signum: int
) -> None:
    with started(shell, script, tmp_path / "pids") as (head, pids):
        head.send_signal(signum)
        _, errors = head.communicate(timeout=20)
        assert head.returncode == 128 + signum
        assert "all workers have ended" in errors
        assert gone(pids)


def test_nothing_survives_a_killed_head(shell: Path, script: Path, tmp_path: Path) -> None:
    with started(shell, script, tmp_path / "pids") as (head, pids):
        head.kill()
        eventually(lambda: gone(pids), 10)


def test_a_killed_agent_is_a_lost_host(shell: Path, script: Path, tmp_path: Path) -> None:
    with started(shell, script, tmp_path / "pids") as (head, pids):
        os.kill(pids[2][1], signal.SIGKILL)
        _, errors = head.communicate(timeout=20)
        assert head.returncode == 1
        assert "farandole: host 127.0.0.3 (rank 2) was lost: it has ended" in errors
        assert gone(pids)


def test_an_agent_that_is_told_to_end_says_so(shell: Path, script: Path, tmp_path: Path) -> None:
    with started(shell, script, tmp_path / "pids") as (head, pids):
        os.kill(pids[0][1], signal.SIGTERM)
        _, errors = head.communicate(timeout=20)
        assert head.returncode == 1
        assert "host 127.0.0.2 (ranks 0, 1) was lost: its agent was told to end (SIGTERM)" in errors
        assert gone(pids)


def test_output_is_whole_and_kept(shell: Path, script: Path, tmp_path: Path) -> None:
    script.write_text(
        "import os, sys\n"
        "line = 'äöü' + os.environ['RANK']\n"
        "for _ in range(20_000): print(line)\n"
        "sys.stderr.write('no end')\n"
    )
    done = run_cli("run", "--rsh", shell, "-H", HOSTS, "--output-dir", tmp_path / "logs", script)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    for rank in range(3):
        assert lines.count(f"[{rank}]<stdout>:äöü{rank}") == 20_000
        assert (tmp_path / f"logs/rank.{rank}/stderr").read_text() == "no end"
    assert len(lines) == 60_000


def test_leftovers_are_ended_on_every_host(shell: Path, script: Path, tmp_path: Path) -> None:
    script.write_text(
        "import os, subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "open(sys.argv[1] + os.environ['RANK'], 'w').write(str(child.pid))\n"
    )
    done = run_cli("run", "--rsh", shell, "-H", HOSTS, script, tmp_path / "pid")
    assert done.returncode == 0, done.stderr
    assert gone([[int((tmp_path / f"pid{rank}").read_text())] for rank in range(3)])


def test_hosts_that_cannot_be_used_are_named_and_nothing_starts(
    tmp_path: Path, script: Path
) -> None:
    script.write_text("open('started', 'w')\n")
    shell = tmp_path / "shell"
    shell.write_text(
        '#!/bin/sh\ncase "$1" in\n'
        '127.0.0.2) exec sh -c "$2" ;;\n'
        "127.0.0.3) echo 'Connection timed out' >&2; exit 255 ;;\n"
        'esac\nexec sh -c "$(echo "$2" | sed s:farandole.launch.agent:farandole.not.there:)"\n'
    )
    shell.chmod(0o700)
    hosts = "127.0.0.2:1,127.0.0.3:1,127.0.0.4:1"
    done = run_cli("run", "--rsh", shell, "-H", hosts, script, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "127.0.0.3: its agent ended with code 255: Connection timed out" in done.stderr
    assert not (tmp_path / "started").exists()


def test_a_program_that_a_host_does_not_have_is_named(shell: Path, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/nowhere/interpreter\n")
    program.chmod(0o700)
    done = run_cli("run", "--rsh", shell, "-H", HOSTS, program)
    assert done.returncode == 1
    assert "farandole: host 127.0.0." in done.stderr
    assert "cannot be started: No such file or directory." in done.stderr


def test_the_secret_shows_nowhere(script: Path, tmp_path: Path) -> None:
    """What a remote shell is given, and what workers inherit, has nothing that proves the job."""
    shell = tmp_path / "shell"
    shell.write_text(
        "#!/bin/sh\nread line\n"
        f'echo "$line" > {tmp_path}/greeting\n'
        f'{{ echo "$@"; env; }} >> {tmp_path}/seen\n'
        'echo "$line" | sh -c "$2"\n'
    )
    shell.chmod(0o700)
    script.write_text(f"import os\nopen('{tmp_path}/seen', 'a').write(str(dict(os.environ)))\n")
    done = run_cli("run", "--rsh", shell, "-H", "127.0.0.2:1", script)
    assert done.returncode == 0, done.stderr
    secret = json.loads((tmp_path / "greeting").read_text())["secret"]
    assert len(secret) == 64
    seen = (tmp_path / "seen").read_text()
    assert "FARANDOLE_RANK" in seen
    assert secret not in seen
    assert secret not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-np", "8", "-H", "n1:2,n2:2"], "the hosts have 4 slots (n1:2, n2:2). Use -np 4"),
        (["-H", "n1:2,n1:2"], "n1 is there 2 times"),
        (["-H", "n1:0"], "n1 has 0 slots"),
        (["-H", "n1:1", "--rsh", "no-such-shell"], "--rsh no-such-shell: there is no such program"),
        (["-np", "2x2"], "name the hosts too"),
        (["-np", "2x2", "-H", "n1:2"], "2x2 needs 2 hosts, but there are 1"),
        (["-np", "2", "--launcher", "ssh"], "--launcher ssh needs hosts"),
        (["-H", "n1:1", "--launcher", "local"], "starts workers on this host only, but n1"),
        (["-np", "1", "--launcher", "pigeon"], "--launcher pigeon: choose from local, ssh"),
        (["-np", "1", "--env", "1=2"], "--env 1=2: give NAME or NAME=VALUE."),
        (["-np", "1", "--env", "NOT_SET_HERE"], "--env NOT_SET_HERE: there is no such variable"),
        (["-H", "n1:1", "--hostfile", "x"], "both name hosts"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from farandole.cli.main import main

    assert main(["run", *arguments, sys.executable, "-c", ""]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_an_unknown_host_is_one_line(capsys: pytest.CaptureFixture[str], shell: Path) -> None:
    from farandole.cli.main import main

    arguments = ["--rsh", str(shell), "-H", "no-such-host.invalid:1", sys.executable, "-c", ""]
    assert main(["run", *arguments]) == 1
    error = capsys.readouterr().err
    assert "no-such-host.invalid" in error
    assert error.count("\n") == 1
