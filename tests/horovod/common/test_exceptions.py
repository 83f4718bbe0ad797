"""Horovod's exceptions."""

from __future__ import annotations

import pytest

from farandole.errors import MismatchError, PeerDiedError, StallError
from farandole.horovod.common.exceptions import (
    HorovodInternalError,
    HorovodVersionMismatchError,
    HostsUpdatedInterrupt,
)


@pytest.mark.parametrize("kind", [MismatchError, PeerDiedError, StallError])
def test_what_fails_here_is_caught_by_scripts(kind: type[Exception]) -> None:
    with pytest.raises(HorovodInternalError):
        raise kind("a peer has ended")
    assert issubclass(HorovodInternalError, RuntimeError)


def test_the_others() -> None:
    assert HostsUpdatedInterrupt(True).skip_sync is True
    assert isinstance(HostsUpdatedInterrupt(), RuntimeError)
    error = HorovodVersionMismatchError("torch", "2.0", "2.1")
    assert isinstance(error, ImportError)
    assert (error.name, error.version, error.installed_version) == ("torch", "2.0", "2.1")
