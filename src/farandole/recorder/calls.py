"""Collectives that a script calls itself, by file and line, and workers that wait for good.

Torch.distributed's functions are wrapped once more, outside of what counts their bytes; Farandole's
tell by `recorder.calls`. What DDP or an optimizer exchanges by itself is not the script's.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from farandole.recorder.collectives import CONTROL, OBJECTS, PAYLOAD
from farandole.recorder.detail import call_site, detail, frames, is_users
from farandole.recorder.recorder import Recorder, current, when_opened

MOST_CALLS = 400
"""Calls whose order is kept; repeats of one site in a row are one."""
MOST_SITES = 200
_LOOK_EVERY_S = 1.0
_WAITS_AFTER_S = 3.0
_IDLE = 0.5
"""Of a second of CPU time in a second: who uses more computes."""


class CallLog:
    """The script's own collectives of this worker."""

    def __init__(self) -> None:
        self.count = 0
        self._numbers: dict[tuple[str, str], int] = {}
        self._counts: list[int] = []
        self._shapes: list[str] = []
        self._order: list[int] = []
        self._told = 0
        self._main = threading.main_thread()

    def called(self, operation: str, what: str, frame: Any = None) -> None:
        """Take note of a call, if it comes from the script on its main thread."""
        if threading.current_thread() is not self._main:
            return
        for hear in listeners:
            hear(operation)
        where = call_site(frame or sys._getframe(1))
        if not where:
            return
        self.count += 1
        site = operation, where
        number = self._numbers.get(site)
        if number is None:
            if len(self._numbers) == MOST_SITES:
                return
            number = self._numbers[site] = len(self._numbers)
            self._counts.append(0)
            self._shapes.append(what)
        self._counts[number] += 1
        if len(self._order) < MOST_CALLS and (not self._order or self._order[-1] != number):
            self._order.append(number)

    def line(self) -> dict[str, Any] | None:
        """Return what was called so far, if that is more than was told."""
        if self._told == self.count:
            return None
        self._told = self.count
        return {
            "kind": "calls",
            "sites": [list(site) for site in self._numbers],
            "counts": list(self._counts),
            "order": list(self._order),
            "shapes": list(self._shapes),
        }


listeners: list[Callable[[str], None]] = []
"""Told of each collective by its operation, those of a group included."""
_log = CallLog()
_inside = threading.local()


def install_torch(torch: Any) -> None:
    """Follow torch.distributed's functions."""
    _begin()
    if not torch.distributed.is_available():
        return
    for name in (*PAYLOAD, *OBJECTS, *CONTROL):
        original = getattr(torch.distributed, name, None)
        if original is not None:
            followed = _followed(name, original, torch.compiler.is_compiling)
            for module in (torch.distributed, torch.distributed.distributed_c10d):
                if getattr(module, name, None) is original:
                    setattr(module, name, followed)


def install_keras(keras: Any) -> None:
    """Follow Farandole's functions, which tell by themselves."""
    _begin()


def _followed(
    name: str, original: Callable[..., Any], is_compiling: Callable[[], bool]
) -> Callable[..., Any]:
    place, argument = PAYLOAD.get(name, (0, "tensor"))

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or getattr(_inside, "counted", False) or current() is None:
            return original(*args, **kwargs)
        # A group of some workers has collectives of its own.
        if kwargs.get("group") is None:
            payload = args[place] if len(args) > place else kwargs.get(argument)
            shape = getattr(payload, "shape", None)
            _log.called(name, "" if shape is None else "x".join(map(str, shape)), sys._getframe(1))
        else:
            for hear in listeners:
                hear(name)
        _inside.counted = True
        try:
            return original(*args, **kwargs)
        finally:
            _inside.counted = False

    return function


_begun = False


def _begin() -> None:
    global _begun
    if not _begun:
        _begun = True
        when_opened(_opened)


def _opened(recorder: Recorder) -> None:
    recorder.calls = _log
    recorder.add_source(_log.line)
    if detail() == "doctor":
        thread = threading.Thread(
            target=_watch, args=(recorder,), name="farandole-doctor", daemon=True
        )
        thread.start()


def _watch(recorder: Recorder) -> None:
    """Tell of a main thread that stays within a collective."""
    main = threading.main_thread().ident
    last: tuple[int, int] = (-1, -1)
    since_s, cpu_s, told_s = time.monotonic(), time.process_time(), 0.0
    while not recorder.closed:
        time.sleep(_LOOK_EVERY_S)
        now_s, used_s = time.monotonic(), time.process_time()
        idle = used_s - cpu_s < _IDLE * _LOOK_EVERY_S
        cpu_s = used_s
        progress = recorder.steps, _log.count
        if progress != last or not idle:
            last, since_s = progress, now_s
            continue
        waited_s = now_s - since_s
        if waited_s < _WAITS_AFTER_S or now_s - told_s < _WAITS_AFTER_S:
            continue
        call, where = _waits_in(sys._current_frames().get(main or 0))
        if call and not recorder.closed:
            told_s = now_s
            recorder.tell("waiting", call=call, where=where, seconds=waited_s, step=recorder.steps)
            # Its own thread is waiting: nobody else writes now.
            recorder.flush()


def _waits_in(frame: Any) -> tuple[str, str]:
    """Return the collective that a thread is in and where the script called it; "" for none."""
    call = ""
    for one in frames(frame):
        file, name = one.f_code.co_filename, one.f_code.co_name
        if file.startswith("<frozen importlib"):
            return "", ""  # it is still importing
        if is_users(file):
            return call, call_site(one)
        inside = "/torch/distributed/" in file or "/farandole/" in file
        if (inside and "/recorder/" not in file) or name == "_engine_run_backward":
            call = name
    return call, ""
