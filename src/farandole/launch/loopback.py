"""torch's store on one address, and for as long as its process lives.

torch serves the store of `init_process_group` on all interfaces, unless it is handed a socket.
Rank 0 inherits one from the launcher, bound to MASTER_PORT and held since the start: on loopback,
or with workers on several hosts on the address that leads to the others.

torch also ends the store with its group. A script that makes a second group after the first one
would lose the ranks that are there before rank 0 has let go of the first: they have the old store.
So rank 0 keeps its store, and every further group has keys of its own in it.
"""

from __future__ import annotations

import itertools
import os
import sys
from typing import Any


def prepare_torch() -> None:
    """Change what is needed in torch.distributed, which has just been imported."""
    import torch.distributed

    if hasattr(torch.distributed, "rendezvous") and torch.distributed.is_available():
        rendezvous = sys.modules["torch.distributed.rendezvous"]
        listen_on_one_address(rendezvous)
        keep_the_store(rendezvous)
    _adopt(torch.distributed)


def listen_on_one_address(rendezvous: Any) -> None:
    """Make torch's env:// and tcp:// rendezvous serve an address of this host on that only."""
    create = getattr(rendezvous, "_create_c10d_store", None)
    if create is None:
        return  # a torch that does it in another way is left alone

    def create_on_one_address(
        hostname: str,
        port: int,
        rank: int,
        world_size: int,
        timeout: Any,
        use_libuv: bool = True,
    ) -> Any:
        from farandole.world.environment import is_loopback
        from farandole.world.store import master_listener

        agent_serves = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        own = is_loopback(hostname) or hostname == os.environ.get("FARANDOLE_ADDRESS")
        if rank != 0 or agent_serves or not port or not own:
            return create(hostname, port, rank, world_size, timeout, use_libuv)
        listener = master_listener("127.0.0.1" if is_loopback(hostname) else hostname, port)
        if listener is None:
            return create(hostname, port, rank, world_size, timeout, use_libuv)
        return rendezvous.TCPStore(
            host_name=hostname,
            port=port,
            world_size=world_size,
            is_master=True,
            timeout=timeout,
            multi_tenant=True,
            # torch owns the descriptor from here on.
            master_listen_fd=listener.detach(),
            use_libuv=use_libuv,
        )

    rendezvous._create_c10d_store = create_on_one_address


def keep_the_store(rendezvous: Any) -> None:
    """Let the store at MASTER_PORT outlive its first group, and tell each group's keys apart."""
    create = getattr(rendezvous, "_create_c10d_store", None)
    if create is None:
        return
    kept: list[Any] = []
    further = itertools.count(2)

    def create_once(
        hostname: str,
        port: int,
        rank: int,
        world_size: int,
        timeout: Any,
        use_libuv: bool = True,
    ) -> Any:
        masters = str(port) == os.environ.get("MASTER_PORT")
        if not (kept and masters):
            store = create(hostname, port, rank, world_size, timeout, use_libuv)
            if masters:
                # Its keys stay torch's own, for whoever else may join.
                kept.append(store)
            return store
        from torch.distributed import PrefixStore  # type: ignore[attr-defined]

        store = rendezvous.TCPStore(
            host_name=hostname, port=port, world_size=world_size, is_master=False, timeout=timeout
        )
        return PrefixStore(f"group_{next(further)}", store)

    rendezvous._create_c10d_store = create_once


def _adopt(distributed: Any) -> None:
    """Offer torch.distributed to the front door, which may answer the script's own groups."""
    from importlib import import_module
    from pathlib import Path

    if not (Path(__file__).parent.parent / "torch" / "adopt.py").is_file():
        return
    import_module("farandole.torch.adopt").install(distributed)
