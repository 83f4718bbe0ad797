"""Checks: functions that run on every rank at once and assert what they like there."""

from __future__ import annotations

import faulthandler
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any

import pytest

from farandole.testing import FakeWorld, Member, Nursery

Check = Callable[[], Any]

# A check that hangs ends its world after this, with the stacks of all ranks.
_HANG_S = 100.0


class Checks:
    """The checks of a module, in the order in which they were written."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}

    def __call__(self, check: Check) -> Check:
        """Add a function (a decorator)."""
        self._checks[_name(check)] = check
        return check

    def of(self, **cases: Any) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
        """Add a function of one argument once for each of these values of it (a decorator)."""

        def add(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
            for case, value in cases.items():
                self._checks[f"{_name(check)}-{case}"] = partial(check, value)
            return check

        return add

    def each(self) -> pytest.MarkDecorator:
        """Make a test of every check, given to it as `check`."""
        return pytest.mark.parametrize("check", self._checks.values(), ids=self._checks)


class Ranks:
    """Runs checks on ranks that stay from check to check, initialised."""

    def __init__(self, nursery: Nursery, size: int, transport: str = "auto") -> None:
        self.size = size
        self._nursery, self._transport = nursery, transport
        self._world = self._open()

    def run(self, check: Check) -> list[Any]:
        """Run a check; return what it gave on each rank."""
        try:
            return self._world.run(_call, check, timeout_s=_HANG_S)
        except Exception:
            # Whatever it left behind must not spoil the checks after it.
            self._world.close()
            self._world = self._open()
            raise

    def __enter__(self) -> Ranks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._world.close()

    def _open(self) -> FakeWorld:
        return world_of(self.size, self._transport, self._nursery)


def world_of(size: int, transport: str, nursery: Nursery) -> FakeWorld:
    """Make a world with a transport; "hierarchical": two hosts, the first with one rank more."""
    if transport == "hierarchical":
        return FakeWorld(size, per_host=size // 2 + 1, nursery=nursery)
    return FakeWorld(size, transport=transport, nursery=nursery)


def on(*worlds: tuple[int, str]) -> Any:
    """Return a fixture: ranks in worlds of these sizes and transports."""

    @pytest.fixture(scope="module", params=worlds, ids=[f"{n}-{how}" for n, how in worlds])
    def ranks(request: pytest.FixtureRequest, nursery: Nursery) -> Iterator[Ranks]:
        with Ranks(nursery, *request.param) as ranks:
            yield ranks

    return ranks


@contextmanager
def raises(kind: type[BaseException], *words: str) -> Iterator[None]:
    """Expect an error of this kind whose message, of one line, has all these words."""
    try:
        yield
    except kind as error:
        text = str(error)
        missing = [word for word in words if word not in text]
        assert not missing, f"{missing} not in: {text}"
        assert "\n" not in text, text
    else:
        raise AssertionError(f"no {kind.__name__} was raised")


def _name(check: Callable[..., Any]) -> str:
    return check.__name__.removeprefix("check_")


def _call(_: Member, check: Check) -> Any:
    import farandole.torch as hvd

    faulthandler.dump_traceback_later(_HANG_S / 2)
    try:
        hvd.init()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return check()
    except Exception:
        # Said here, too, in case the other ranks hang because of it.
        traceback.print_exc(file=sys.stderr)
        raise
    finally:
        faulthandler.cancel_dump_traceback_later()
