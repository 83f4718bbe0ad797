"""A real sshd on addresses of loopback, with keys and settings of its own."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import eventually, run_cli

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.skipif(
        SSHD is None or shutil.which("ssh") is None,
        reason="a real sshd would run this: apt-get install openssh-server openssh-client",
    ),
]

FIGURE = (
    "import os\n"
    "print(os.environ['FARANDOLE_HOSTNAME'], 'img/sec:', 100 * int(os.environ['WORLD_SIZE']))\n"
)
SHOW = "import os\nprint(os.environ['FARANDOLE_HOSTNAME'], os.environ['RANK'])\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """An sshd that runs."""

    folder: Path
    port: int

    def rsh(self, *, key: str = "user", known: str = "known_hosts") -> str:
        """Return what `--rsh` gets to reach it with a key, knowing some hosts."""
        config = self.folder / f"config-{key}-{known}"
        config.write_text(
            "Host n1\n  HostName 127.0.0.2\n"
            f"Host *\n  Port {self.port}\n  IdentityFile {self.folder}/{key}\n"
            "  IdentitiesOnly yes\n  StrictHostKeyChecking yes\n"
            f"  UserKnownHostsFile {self.folder}/{known}\n  User {getpass.getuser()}\n"
        )
        return f"ssh -F {config}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    assert SSHD is not None
    folder = tmp_path_factory.mktemp("sshd")
    for name in ("host", "user", "stranger"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(argv, check=True, timeout=30)
    shutil.copy(folder / "user.pub", folder / "authorized")
    with socket.create_server(("127.0.0.2", 0)) as free:
        port = free.getsockname()[1]
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.2\nListenAddress 127.0.0.3\n"
        f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\nPidFile none\n"
        "StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n"
        "KbdInteractiveAuthentication no\nMaxStartups 50\n"
    )
    public = (folder / "host.pub").read_text().split()
    lines = [f"[127.0.0.{n}]:{port} {public[0]} {public[1]}" for n in (2, 3)]
    (folder / "known_hosts").write_text(
        "\n".join([*lines, f"[n1]:{port} {' '.join(public[:2])}\n"])
    )
    (folder / "known_none").touch()
    # Where Debian's sshd, run as root, keeps a part of itself locked away.
    locked = Path("/run/sshd")
    made = os.geteuid() == 0 and not locked.exists()
    if made:
        locked.mkdir(mode=0o755)
    log = (folder / "log").open("wb")
    with (
        log,
        subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(folder / "sshd_config")], stdout=log, stderr=log
        ) as process,
    ):
        try:
            server = Server(folder=folder, port=port)
            trial = [*server.rsh().split(), "-o", "BatchMode=yes", "127.0.0.2", "true"]

            def answers() -> bool:
                assert process.poll() is None, (folder / "log").read_text()
                done = subprocess.run(trial, capture_output=True, check=False, timeout=30)
                return done.returncode == 0

            try:
                eventually(answers, 15)
            except AssertionError:
                pytest.skip(f"sshd lets nobody in here: {(folder / 'log').read_text()[-300:]}")
            yield server
        finally:
            process.terminate()
            process.wait(20)
            if made:
                locked.rmdir()


def test_workers_by_ssh(server: Server, script: Path) -> None:
    script.write_text(SHOW)
    done = run_cli("run", "--rsh", server.rsh(), "-H", "127.0.0.2:2,127.0.0.3:1", script)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "[0]<stdout>:127.0.0.2 0",
        "[1]<stdout>:127.0.0.2 1",
        "[2]<stdout>:127.0.0.3 2",
    ]


def test_names_of_ssh_s_own_settings_are_found(server: Server, script: Path) -> None:
    script.write_text(SHOW)
    done = run_cli("run", "--rsh", server.rsh(), "-H", "n1:1", script)
    assert (done.returncode, done.stdout) == (0, "[0]<stdout>:n1 0\n"), done.stderr


@pytest.mark.parametrize(
    ("key", "known", "hosts", "says"),
    [
        ("stranger", "known_hosts", "127.0.0.2:1", "127.0.0.2: ssh did not get there ("),
        ("stranger", "known_hosts", "127.0.0.2:1", "Permission denied (publickey)"),
        ("user", "known_none", "127.0.0.2:1", "Host key verification failed"),
        (
            "user",
            "known_hosts",
            "127.0.0.2:1,127.0.0.4:1",
            "config-user-known_hosts 127.0.0.4 true",
        ),
    ],
)
def test_a_host_that_ssh_does_not_reach_is_named(
    server: Server, script: Path, key: str, known: str, hosts: str, says: str
) -> None:
    script.write_text("open('started', 'w')\n")
    rsh = server.rsh(key=key, known=known)
    done = run_cli("run", "--rsh", rsh, "-H", hosts, script, cwd=script.parent)
    assert done.returncode == 1
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (script.parent / "started").exists()


def study(server: Server, script: Path, hosts: str) -> subprocess.CompletedProcess[str]:
    flags = ("--repeats", "1", "--no-epoch", "--no-calibration", "--no-today", "--no-report")
    return run_cli(
        *("study", "--rsh", server.rsh(), "-H", hosts, "-np", "1,2x1", *flags),
        *("--throughput", "img/sec: ([0-9.]+)", "--out", "study", "--", sys.executable, script),
        cwd=script.parent,
    )


def test_a_study_by_ssh(server: Server, script: Path) -> None:
    script.write_text(FIGURE)
    done = study(server, script, "127.0.0.2:1,127.0.0.3:1")
    assert done.returncode == 0, done.stderr
    found = set()
    for place in (script.parent / "study/launches").iterdir():
        launch = json.loads((place / "launch.json").read_text())
        lines = (place / "output.txt").read_text().splitlines()
        names = {line.partition(">:")[2].split()[0] for line in lines}
        cell = launch["cell"]
        found.add((cell["workers"], cell["hosts"], launch["figures"]["throughput"], *sorted(names)))
    assert found == {(1, 1, 100.0, "127.0.0.2"), (2, 2, 200.0, "127.0.0.2", "127.0.0.3")}


def test_a_study_names_a_host_before_it_begins(server: Server, script: Path) -> None:
    script.write_text(FIGURE)
    done = study(server, script, "127.0.0.2:1,127.0.0.4:1")
    assert done.returncode == 1
    assert f"Try: {server.rsh()} 127.0.0.4 true" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (script.parent / "study").exists()
