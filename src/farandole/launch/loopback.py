"""torch's store on loopback: in a local run nothing listens where another machine could reach it.

torch serves the store of `init_process_group` on all interfaces, unless it is handed a socket.
Rank 0 inherits one from the launcher, bound to MASTER_PORT on loopback and held since the start.
"""

from __future__ import annotations

import os
import sys
from typing import Any


def prepare_torch() -> None:
    """Change what is needed in torch.distributed, which has just been imported."""
    import torch.distributed

    if hasattr(torch.distributed, "rendezvous") and torch.distributed.is_available():
        listen_on_loopback(sys.modules["torch.distributed.rendezvous"])
    _adopt(torch.distributed)


def listen_on_loopback(rendezvous: Any) -> None:
    """Make torch's env:// and tcp:// rendezvous serve loopback addresses on loopback only."""
    create = getattr(rendezvous, "_create_c10d_store", None)
    if create is None:
        return  # a torch that does it in another way is left alone

    def create_on_loopback(
        hostname: str,
        port: int,
        rank: int,
        world_size: int,
        timeout: Any,
        use_libuv: bool = True,
    ) -> Any:
        from farandole.world.environment import is_loopback
        from farandole.world.listener import loopback_listener

        agent_serves = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        if rank != 0 or agent_serves or not port or not is_loopback(hostname):
            return create(hostname, port, rank, world_size, timeout, use_libuv)
        listener = loopback_listener(port)
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

    rendezvous._create_c10d_store = create_on_loopback


def _adopt(distributed: Any) -> None:
    """Offer torch.distributed to the front door, which may answer the script's own groups."""
    from importlib import import_module
    from pathlib import Path

    if not (Path(__file__).parent.parent / "torch" / "adopt.py").is_file():
        return
    import_module("farandole.torch.adopt").install(distributed)
