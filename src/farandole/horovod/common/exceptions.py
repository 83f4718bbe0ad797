"""Horovod's exceptions, as far as scripts catch them."""

from __future__ import annotations

from farandole.errors import HorovodInternalError, HostsUpdatedInterrupt

__all__ = ["HorovodInternalError", "HorovodVersionMismatchError", "HostsUpdatedInterrupt"]


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
