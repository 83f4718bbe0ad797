"""A study's page in a browser while its launches finish.

The page is served on this machine only, under an address with a secret in it, and is pushed to its
viewers by server-sent events. It is rendered when the study says so, between launches: what serves
it waits without taking time from the workers.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from farandole.errors import FarandoleError
from farandole.format import plural
from farandole.model.analyse import Comparison, ScalingInfo
from farandole.report.document import Document, Opening
from farandole.report.render import bundle, page, resource
from farandole.report.study import document
from farandole.study.folder import finished_folders, in_use
from farandole.study.plan import Planned, make_plan, pending, preview
from farandole.study.progress import Listener, Now, duration, planned_words
from farandole.study.read import read_head, read_launch
from farandole.study.records import Launch
from farandole.study.spec import spec_from_json

_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
# A viewer that is gone is found when something is sent to it.
_SIGN_OF_LIFE_S = 15.0
# Who does not take what is sent in this time is gone.
_STUCK_S = 10.0
_RETRY_MS = 1000
_WATCH_S = 1.0


class LivePage:
    """A page on a port of this machine: `with LivePage(load, folder) as live: ...`.

    Args:
        load: Reads what the page shows.
        folder: The study's, for commands to copy.
        port: 0: any that is free.
        token: The secret in the address; None: a new one.
    """

    def __init__(
        self,
        load: Callable[[], ScalingInfo | Comparison],
        folder: Path,
        *,
        port: int = 0,
        token: str | None = None,
    ) -> None:
        self._load, self._folder = load, folder
        self.token = token or secrets.token_urlsafe(16)
        self.changed = threading.Condition()
        self.status, self.over = "Waiting for the first launch.", False
        self.version, self.text = "", ""
        waiting = Opening(label=folder.name, note="", headline=self.status, sentences=())
        self._show(Document(title=self.status, openings=(waiting,), sections=()))
        self._server = _Server(("127.0.0.1", port), self)
        self._thread = threading.Thread(target=self._server.serve_forever, name="live page")

    def __enter__(self) -> LivePage:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let the viewers have the last state, and end all threads."""
        with self.changed:
            self.over = True
            self.changed.notify_all()
        self._server.shutdown()
        self._server.hang_up()
        self._server.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        """The port that it is on."""
        return int(self._server.server_address[1])

    @property
    def address(self) -> str:
        """Where a browser finds it."""
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    def say(self, status: str) -> None:
        """Show a line about how far the study is."""
        with self.changed:
            if status != self.status:
                self.status = status
                self.changed.notify_all()

    def refresh(self) -> None:
        """Show what was measured so far; what cannot be read yet changes nothing."""
        with contextlib.suppress(FarandoleError):
            self._show(document(self._load(), str(self._folder)))

    def _show(self, shown: Document) -> None:
        version = str(time.time_ns())
        text = page(shown, scripts=bundle(), live=resource("live.js"), version=version)
        with self.changed:
            self.version, self.text = version, text
            self.changed.notify_all()


class LiveListener(Listener):
    """Passes a study's progress on to the terminal, and to its page."""

    def __init__(self, shown: Listener) -> None:
        self.page: LivePage | None = None
        """Set before the first launch."""
        self._shown = shown
        self._launch = self._left = ""
        self._made = self._total = 0

    def say(self, line: str) -> None:
        """Show a sentence on the terminal."""
        self._shown.say(line)

    def began(
        self, one: Planned, *, number: int, total: int, seconds: float, left_s: float
    ) -> None:
        """Say which launch runs."""
        self._shown.began(one, number=number, total=total, seconds=seconds, left_s=left_s)
        self._made, self._total = number - 1, total
        self._launch = f"Launch {number} of {total}: {planned_words(one)}"
        self._left = f"; about {duration(left_s)} left" if left_s > 0 else ""
        self._show(f"{self._launch}{self._left}.")

    def now(self, moment: Now) -> None:
        """Say how far the launch is."""
        self._shown.now(moment)
        steps = f", {plural(moment.steps, 'step')}" if moment.steps else ""
        self._show(f"{self._launch}{steps}{self._left}.")

    def ended(self, launch: Launch, *, number: int, total: int, left_s: float) -> None:
        """Show the report anew, while no launch runs."""
        self._shown.ended(launch, number=number, total=total, left_s=left_s)
        self._made, self._total = number, total
        self._show(refresh=True)

    def finish(self, *, stopped: bool) -> None:
        """Show why there will be no other launch, and the last report."""
        made = f"{self._made} of {plural(self._total, 'launch')}"
        end = f"Stopped by you after {made}." if stopped else f"Finished: {made}."
        self._show(end, refresh=True)

    def _show(self, status: str = "", *, refresh: bool = False) -> None:
        if self.page is not None and status:
            self.page.say(status)
        if self.page is not None and refresh:
            self.page.refresh()


def watch(live: LivePage, folders: list[Path], stop: threading.Event) -> None:
    """Show studies that other processes make, until somebody sets `stop`."""
    seen: Any = None
    while True:
        state = [(len(finished_folders(one)), in_use(one), _changed_ns(one)) for one in folders]
        if state != seen:
            seen = state
            live.refresh()
            live.say(" ".join(map(how_far, folders)))
        if stop.wait(_WATCH_S):
            return


def how_far(folder: Path) -> str:
    """Say in a sentence how far the study in a folder is."""
    head = read_head(folder)
    done = [read_launch(one, ranks=False) for one in finished_folders(folder)]
    if head.complete:
        return f"Finished: {plural(len(done), 'launch')}."
    total = len(done)
    with contextlib.suppress(FarandoleError, LookupError, TypeError, ValueError):
        spec = spec_from_json(head.spec)
        total += len(pending(spec, make_plan(spec, preview(spec)), done))
    way = "Running" if in_use(folder) else "Stopped"
    return f"{way}: {len(done)} of {plural(total, 'launch')} made."


def _changed_ns(folder: Path) -> int:
    return (folder / "study.json").stat().st_mtime_ns


class _Server(ThreadingHTTPServer):
    """Serves one page; every viewer has a thread, which waits for what is new."""

    daemon_threads = False  # so that closing waits for them

    def __init__(self, address: tuple[str, int], live: LivePage) -> None:
        self.live = live
        self.silent: set[socket.socket] = set()
        super().__init__(address, _Viewer)

    def hang_up(self) -> None:
        """End connections over which nothing was asked: browsers open some in advance."""
        for connection in list(self.silent):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing about viewers that went away."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Viewer(BaseHTTPRequestHandler):
    """Answers one request of a browser."""

    server: _Server
    timeout = _STUCK_S

    def setup(self) -> None:
        super().setup()
        self.server.silent.add(self.connection)

    def finish(self) -> None:
        self.server.silent.discard(self.connection)
        super().finish()

    def do_GET(self) -> None:
        """Send the page or its events to whoever knows the address."""
        self.server.silent.discard(self.connection)
        live = self.server.live
        path, _, seen = self.path.partition("?")
        _, token, *rest = [*path.split("/"), ""]
        known = secrets.compare_digest(token.encode(), live.token.encode())
        # Another name for this machine is how a site elsewhere would reach the page.
        hosts = (f"127.0.0.1:{live.port}", f"localhost:{live.port}")
        if not known or self.headers.get("Host") not in hosts:
            self.send_error(403, "Open the whole address that farandole printed")
        elif rest[:1] == ["events"]:
            self._begin("text/event-stream")
            for message in self._events(self.headers.get("Last-Event-ID") or seen):
                self.wfile.write(message)
        elif path == f"/{live.token}/":
            self._begin("text/html; charset=utf-8")
            self.wfile.write(live.text.encode())
        else:
            self.send_error(404)

    def _begin(self, kind: str) -> None:
        self.send_response(200)
        for name, value in {"Content-Type": kind, **_HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()

    def _events(self, version: str) -> Iterator[bytes]:
        """Return a message for every change, beginning with what the viewer has not seen."""
        live, status, over = self.server.live, "", False
        yield f"retry: {_RETRY_MS}\n\n".encode()
        while not over:
            with live.changed:
                live.changed.wait_for(
                    lambda: live.over or (live.version, live.status) != (version, status),  # noqa: B023
                    timeout=_SIGN_OF_LIFE_S,
                )
                over = live.over
                new_text = live.text if live.version != version else ""
                version, status = live.version, live.status
            if new_text:
                # The scripts are there already.
                data = json.dumps(new_text.replace(bundle(), ""))
                yield f"id: {version}\nevent: report\ndata: {data}\n\n".encode()
            yield f"event: status\ndata: {json.dumps([status, over])}\n\n".encode()

    def log_message(self, *_: Any) -> None:
        """Write nothing to the terminal."""
