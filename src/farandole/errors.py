"""Every error that Farandole raises on purpose: one base class, one subclass per situation.

A message says what was set, what is true, and what to do about it.
"""

from __future__ import annotations


class FarandoleError(Exception):
    """Base of all errors that Farandole raises on purpose."""


class _PeersDoing(Exception):  # noqa: N818 - a part of errors, not one by itself
    """An error on this rank that comes of what another one does or does not do."""

    def __init__(self, *args: object, culprit: int | None = None) -> None:
        super().__init__(*args)
        self.culprit = culprit
        """The other rank, where it is known."""


class UsageError(FarandoleError, ValueError):
    """An argument, flag or environment variable that cannot be used as given."""


class MissingExtraError(FarandoleError, ImportError):
    """A part that needs a package which is not installed."""


class NotInitializedError(FarandoleError, ValueError):
    """A function that needs `init()` was called before it."""


class ForkedProcessError(FarandoleError, RuntimeError):
    """A process that was forked from a worker tried to act as that worker."""


class StartError(_PeersDoing, FarandoleError, RuntimeError):
    """The workers did not all arrive: the message names those that are missing."""


class CollectiveError(FarandoleError, RuntimeError):
    """A collective operation failed, on every rank alike, and the library stays usable."""


class MismatchError(CollectiveError):
    """The ranks submitted different things under one name; nothing was exchanged."""


class UnfitError(UsageError, CollectiveError):
    """Values that an operation cannot be done on.

    Horovod finds it out before or after it has submitted them: programs catch a ValueError or a
    RuntimeError.
    """


class UnsupportedError(UsageError, NotImplementedError):
    """Arguments that do not go together; Horovod raises NotImplementedError for them."""


class OutputError(FarandoleError, OSError):
    """Our own standard output or error output cannot be written to."""


class StepsDifferError(CollectiveError):
    """The ranks are at different points of training: the message says where each of them is."""


class StallError(_PeersDoing, CollectiveError):
    """An operation waited for ranks that did not submit it, until its time was up."""


class PeerDiedError(_PeersDoing, CollectiveError):
    """A peer ended while an operation with it was under way."""


class TornWeightsError(CollectiveError):
    """An update of sharded weights was broken off: some of them are new and others old."""


HorovodInternalError = CollectiveError
"""Horovod's name for what a failed operation raises: it catches all that Farandole does."""


class HostsUpdatedInterrupt(FarandoleError, RuntimeError):  # noqa: N818 (Horovod's name)
    """Hosts have come or gone, in an elastic run: leave this generation with the state as it is."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("Hosts have come or gone.")
        self.skip_sync = skip_sync
        """Whether states need no sync(): workers have only gone."""


class NotNeededError(FarandoleError, RuntimeError):
    """This worker is not part of the next generation of an elastic run: it is to leave quietly."""


class WorkerFailedError(FarandoleError, RuntimeError):
    """A worker of a launch failed: the message says which, when and how."""

    def __init__(self, message: str, *, rank: int | None, exit_code: int) -> None:
        super().__init__(message)
        self.rank = rank
        """Which rank; None where no one rank is to blame."""
        self.exit_code = exit_code


class PickleRefusedError(FarandoleError, TypeError):
    """An object that is not plain data would need pickle, and pickle is off for this job."""


class DataError(FarandoleError, ValueError):
    """Training data that are not what was expected: the message says what was found."""


class StoreError(FarandoleError, RuntimeError):
    """A study's folder cannot be written to; what was written before is intact."""


class LabFailedError(FarandoleError, RuntimeError):
    """A lab whose studies gave no figures: the message says why the first of them did not."""


class ObjectFormatError(FarandoleError, ValueError):
    """Bytes from a peer are not an object in our format: damaged, cut short or hostile."""
