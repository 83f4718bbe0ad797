"""The live page: who may see it, what it is told, and that nothing is left of it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from farandole.report.live import LiveListener, LivePage, how_far, watch
from farandole.study.folder import LOCK_FILE, create_study, in_use
from farandole.study.plan import Planned
from farandole.study.progress import Listener, Now
from tests.conftest import eventually
from tests.report.builders import HEADLINE, cell, study
from tests.study import scripts

LATER = "Use 4 workers: 3.17x faster."


class Events:
    """The events that a page sends, read as they come."""

    def __init__(self, live: LivePage | str, seen: str = "") -> None:
        address = live if isinstance(live, str) else live.address
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/.+/)", address)
        assert found is not None
        self._connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=30)
        self._connection.request("GET", f"{found[2]}events?{seen}")
        self._answer = self._connection.getresponse()
        assert self._answer.getheader("Content-Type") == "text/event-stream"

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        fields: dict[str, str] = {}
        for line in self._answer:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            fields[name] = value
            if not name and "data" in fields:
                yield fields["event"], json.loads(fields["data"])
            if not name:
                fields = {}
        self._connection.close()


def ask(live: LivePage, path: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=30)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode(), dict(answer.getheaders())
    connection.close()
    return found


def later() -> Any:
    info = study()
    return replace(info, answer=replace(info.answer, headline=LATER))


def test_only_who_knows_the_address_sees_the_page() -> None:
    with LivePage(study, Path("DIR")) as live:
        live.refresh()
        status, text, headers = ask(live, f"/{live.token}/")
        assert status == 200
        assert HEADLINE in text
        assert "connect-src 'self'" in text
        assert headers["Cache-Control"] == "no-store"
        for path in ("/", "/wrong/", "/wrong/events", f"/{live.token[:-1]}/", "/%C3%A9/"):
            assert ask(live, path)[0] == 403, path
        # A site elsewhere whose name leads to this machine.
        assert ask(live, f"/{live.token}/", Host="evil.example")[0] == 403
        assert ask(live, f"/{live.token}/other")[0] == 404
        assert live.address.startswith("http://127.0.0.1:")


def test_a_viewer_is_told_what_is_new_and_what_was_last() -> None:
    found = [study]
    with LivePage(lambda: found[0](), Path("DIR")) as live:
        events = iter(Events(live, seen=live.version))
        assert next(events) == ("status", ["Waiting for the first launch.", False])
        live.refresh()
        name, page = next(events)
        assert (name, HEADLINE in page) == ("report", True)
        assert len(page) < 500_000  # without the scripts
        found[0] = later
        second = iter(Events(live))
        assert next(second)[0] == "report"
        live.refresh()
        live.say("Finished.")
    for one in (events, second):
        told = list(one)
        assert any(LATER in data for name, data in told if name == "report")
        assert told[-1] == ("status", ["Finished.", True])


def test_nothing_is_left_and_a_silent_connection_does_not_hold_it_up() -> None:
    before = threading.active_count()
    live = LivePage(study, Path("DIR"))
    with live:
        silent = socket.create_connection(("127.0.0.1", live.port))
        eventually(lambda: threading.active_count() > before + 1)
        port = live.port
    assert threading.active_count() == before
    silent.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_a_stopped_study_says_so() -> None:
    shown: list[str] = []

    class Shown(Listener):
        def say(self, line: str) -> None:
            shown.append(line)

    with LivePage(study, Path("DIR")) as live:
        listener = LiveListener(Shown())
        listener.page = live
        one = Planned(cell=cell(2), purpose="speed", repeat=0)
        listener.say("hello")
        listener.began(one, number=4, total=9, seconds=5.0, left_s=120.0)
        assert live.status.startswith("Launch 4 of 9: 2 workers")
        listener.now(Now(elapsed_s=1.0, steps=30))
        assert "30 steps; about 2 min left" in live.status
        listener.finish(stopped=True)
        assert live.status == "Stopped by you after 3 of 9 launches."
    assert shown == ["hello"]


def test_how_far_a_folder_is(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    create_study(folder, label="", command=["x"], spec={}, machine={})
    assert how_far(folder) == "Stopped: 0 of 0 launches made."
    (folder / LOCK_FILE).write_text(f"{os.getpid()} {os.uname().nodename}\n")
    assert in_use(folder)
    assert how_far(folder).startswith("Running: 0 of")
    (folder / LOCK_FILE).write_text(f"{2**22 + 1} {os.uname().nodename}\n")
    assert not in_use(folder)


def test_a_folder_is_watched_until_somebody_stops(tmp_path: Path) -> None:
    folder, stop = tmp_path / "study", threading.Event()
    create_study(folder, label="", command=["x"], spec={}, machine={})
    with LivePage(study, folder) as live:
        thread = threading.Thread(target=watch, args=(live, [folder], stop))
        thread.start()
        eventually(lambda: HEADLINE in live.text)
        stop.set()
        thread.join()
        assert live.status.startswith("Stopped")


SLOW = """
import time
from pathlib import Path
print("img/sec: 100", flush=True)
while not Path("go").exists():
    time.sleep(0.05)
Path("go").unlink()
"""


@pytest.mark.ranks
def test_interrupting_a_study_shows_on_its_page_and_on_that_of_a_report(tmp_path: Path) -> None:
    script, out = scripts.write(tmp_path, SLOW), tmp_path / "out"
    flags = ["-np", "1", "--repeats", "3", "--threads", "1", "--no-epoch", "--no-today"]
    flags += ["--keep-busy", "--live", "--throughput", scripts.THROUGHPUT, "--out", str(out)]
    farandole = [sys.executable, "-m", "farandole.cli.main"]
    options: dict[str, Any] = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with _ended_with_the_test(
        [*farandole, "study", *flags, "--", script], cwd=tmp_path, **options
    ) as made:
        address = _address(made.stderr)
        events = iter(Events(address))
        while "Launch 1 of 3" not in str(next(events)):
            pass
        (tmp_path / "go").touch()  # the next launch waits to be interrupted
        while "Launch 2 of 3" not in str(next(events)):
            pass
        with _ended_with_the_test([*farandole, "report", str(out), "--serve"], **options) as report:
            others = iter(Events(_address(report.stdout)))
            while next(others) != ("status", ["Running: 1 of 3 launches made.", False]):
                pass
            made.send_signal(signal.SIGINT)
            assert list(events)[-1] == ("status", ["Stopped by you after 1 of 3 launches.", True])
            assert made.wait(60) == 130
            while next(others) != ("status", ["Stopped: 1 of 3 launches made.", False]):
                pass
            report.send_signal(signal.SIGINT)
            assert list(others)[-1] == ("status", ["Stopped: 1 of 3 launches made.", True])
            assert report.wait(60) == 0
            assert "Traceback" not in report.stderr.read()


@contextlib.contextmanager
def _ended_with_the_test(argv: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Start a process; leaving Popen's own context would wait for one that nobody has ended."""
    with subprocess.Popen(argv, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def _address(stream: Any) -> str:
    for line in stream:
        found = re.search(r"http://127\.0\.0\.1:\d+/\S+/", line)
        if found:
            return found[0]
    raise AssertionError("no address was printed")


SERVER = """
import sys
from pathlib import Path
from farandole.report.live import LivePage
from tests.report import builders, test_live
make = {"first": builders.study, "later": test_live.later}[sys.argv[1]]
with LivePage(make, Path("DIR"), port=int(sys.argv[2]), token="secret") as live:
    print(live.address, flush=True)
    for line in sys.stdin:
        live.refresh()
        live.say(line.strip())
"""


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """Look at a live page with two viewers while its server is killed and comes back."""
    visiting = pytest.importorskip("tests.report.visiting", exc_type=pytest.skip.Exception)
    found: dict[str, Any] = {"errors": []}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    with visiting.browsing() as browser, contextlib.ExitStack() as stack:

        def serve(what: str) -> subprocess.Popen[str]:
            options: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            argv = [sys.executable, "-c", SERVER, what, port]
            return stack.enter_context(subprocess.Popen(argv, text=True, bufsize=1, **options))

        first = serve("first")
        address = first.stdout.readline().strip()
        tabs = [browser.new_context().new_page() for _ in range(2)]
        for tab in tabs:
            tab.on("pageerror", lambda error: found["errors"].append(str(error)))
            tab.goto(address)
        found["wrong"] = tabs[0].request.get(address.replace("secret", "guess")).status
        found["first"] = [tab.locator("h1").inner_text() for tab in tabs]
        first.stdin.write("Launch 2 of 3.\n")
        for tab in tabs:
            tab.wait_for_selector("#chart-speedup[data-drawn=yes]", timeout=60_000)
            tab.wait_for_selector("html[data-drawn=yes]", state="attached")
        tabs[0].locator("#method summary").click()
        found["status"] = [tab.locator("#live").inner_text() for tab in tabs]
        first.kill()
        tabs[0].wait_for_selector("#live[data-state=lost]", timeout=60_000)
        found["lost"] = [tabs[0].locator(one).first.inner_text() for one in ("#live", "h1")]
        first.wait()
        later = serve("later")
        later.stdin.write("Finished.\n")
        for tab in tabs:
            tab.wait_for_selector(f"h1:text('{LATER}')", timeout=60_000)
        tabs[0].wait_for_selector("html[data-drawn=yes]", state="attached")
        found["open"] = tabs[0].locator("#method[open]").count()
        found["buttons"] = tabs[0].locator("pre.copy button").count()
        found["commands"] = tabs[0].locator("pre.copy").count()
        later.stdin.close()
        tabs[0].wait_for_selector("#live[data-state=over]", timeout=60_000)
        found["last"] = tabs[0].locator("#live").inner_text()
        found["code"] = later.wait(60)
    return found


def test_a_browser_follows_the_study(seen: dict[str, Any]) -> None:
    assert seen["errors"] == []
    assert seen["wrong"] == 403
    assert seen["first"] == ["Waiting for the first launch."] * 2
    assert seen["status"] == ["Launch 2 of 3."] * 2


def test_a_page_outlives_its_server_and_finds_it_again(seen: dict[str, Any]) -> None:
    assert seen["lost"][0].startswith("No connection to the study.")
    assert seen["lost"][1] == HEADLINE
    assert seen["open"] == 1
    assert seen["buttons"] == seen["commands"] > 0
    assert (seen["last"], seen["code"]) == ("Finished.", 0)
