"""Who takes part: Farandole, its peers, and the plain PyTorch that sets the limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farandole.bench.contestant import Contestant, Role, Starter

PEERS = ("gloo", "openmpi", "horovod", "ddp", "torchrun")
FARANDOLE = "farandole"
IN_TURNS = "in turns"
"""A contestant that measures both sides in each launch."""


def collectives(
    peers: Sequence[str], sizes: dict[str, tuple[int, int]], num_ranks: int
) -> list[Contestant]:
    """Return those who offer an all-reduce, Farandole first."""
    options = {"sizes": sizes}
    found = [hvd(FARANDOLE, "hvd_allreduce", num_ranks, options)]
    if "gloo" in peers:
        found.append(peer("gloo", Starter.DIRECT, "gloo_allreduce", num_ranks, options))
    if "openmpi" in peers:
        found.append(peer("openmpi", Starter.MPIEXEC, "mpi_allreduce", num_ranks, options))
    if "horovod" in peers:
        found.append(hvd("horovod", "hvd_allreduce", num_ranks, options))
    return found


def trainers(
    peers: Sequence[str],
    options: dict[str, Any],
    num_ranks: int,
    environment: dict[str, str] | None = None,
) -> list[Contestant]:
    """Return those who train data-parallel, Farandole first."""
    found = [hvd(FARANDOLE, "hvd_train", num_ranks, options, environment)]
    if "ddp" in peers:
        found.append(
            Contestant(
                name="ddp",
                role=Role.PEER,
                starter=Starter.DIRECT,
                worker="ddp_train",
                num_ranks=num_ranks,
                options=options,
                environment=environment or {},
                synchronized=True,
            )
        )
    if "horovod" in peers:
        found.append(hvd("horovod", "hvd_train", num_ranks, options, environment))
    return found


def hvd(
    name: str,
    worker: str,
    num_ranks: int,
    options: dict[str, Any],
    environment: dict[str, str] | None = None,
) -> Contestant:
    """Return a user of Horovod's API: Farandole, or Horovod itself when that is its name."""
    foreign = name == "horovod"
    return Contestant(
        name=name,
        role=Role.PEER if foreign else Role.SUBJECT,
        starter=Starter.HOROVODRUN if foreign else Starter.FARANDOLE,
        worker=worker,
        num_ranks=num_ranks,
        options={**options, "module": "horovod.torch" if foreign else "farandole.torch"},
        environment=environment or {},
        synchronized=worker == "hvd_train",
    )


def plain(
    name: str,
    options: dict[str, Any],
    num_ranks: int,
    barrier: str,
    environment: dict[str, str] | None = None,
) -> Contestant:
    """Return workers that do not communicate; `barrier` is "free" or "step"."""
    return Contestant(
        name=name,
        role=Role.REFERENCE,
        starter=Starter.DIRECT,
        worker="plain_train",
        num_ranks=num_ranks,
        options={**options, "barrier": barrier},
        environment=environment or {},
    )


def recording(options: dict[str, Any], num_ranks: int) -> Contestant:
    """Return Farandole's own training with a DataLoader, recorded and not recorded in turns."""
    return Contestant(
        name=IN_TURNS,
        role=Role.SUBJECT,
        starter=Starter.FARANDOLE,
        worker="recorder_train",
        num_ranks=num_ranks,
        options=options,
        environment={"FARANDOLE_RECORD_DIR": "{scratch}"},
        synchronized=True,
    )


def peer(
    name: str, starter: Starter, worker: str, num_ranks: int, options: dict[str, Any]
) -> Contestant:
    """Return another library's contestant."""
    return Contestant(
        name=name,
        role=Role.PEER,
        starter=starter,
        worker=worker,
        num_ranks=num_ranks,
        options=options,
    )
