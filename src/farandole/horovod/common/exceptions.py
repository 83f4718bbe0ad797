"""Horovod's exceptions, as far as scripts catch them."""

from __future__ import annotations

from farandole.errors import CollectiveError

HorovodInternalError = CollectiveError
"""What a failed operation raises: `except HorovodInternalError` catches all that Farandole does."""


class HostsUpdatedInterrupt(RuntimeError):  # noqa: N818 (Horovod's name)
    """Hosts have come or gone. Only elastic runs raise it, which Farandole does not have yet."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__()
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """A framework is of another version than Horovod was compiled for.

    Farandole is not compiled for any, and does not raise it.
    """

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(
            f"{name} {installed_version} is installed, and {version} was there before.",
            name=name,
        )
        self.version = version
        self.installed_version = installed_version
