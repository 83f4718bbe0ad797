"""What averages gradients: DDP by its modules, and passes that exchange nothing."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

from farandole.recorder.detail import call_site
from farandole.recorder.recorder import Recorder, current, when_opened, wrap


class _Ddp:
    """One DistributedDataParallel module."""

    def __init__(self, torch: Any, ddp: Any, where: str) -> None:
        self.inside = False
        """Whether a call of it is under way."""
        self.synced_last = True
        self.fields: dict[str, Any] = {
            "where": where,
            "forwards": 0,
            "bypassed": 0,
            "bypassed_where": "",
            "synced": 0,
            "unsynced": 0,
            "unsynced_updates": 0,
            "size": ddp.process_group.size(),
            "broadcast_buffers": bool(ddp.broadcast_buffers),
            "find_unused": bool(ddp.find_unused_parameters),
            "sync_batch_norm": any(
                isinstance(one, torch.nn.SyncBatchNorm) for one in ddp.module.modules()
            ),
        }


class Wrappers:
    """Follows all DDP modules of this worker."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._is_compiling: Callable[[], bool] = torch.compiler.is_compiling
        self._known: weakref.WeakKeyDictionary[Any, _Ddp] = weakref.WeakKeyDictionary()
        self._all: list[_Ddp] = []
        """Also those of a function that has ended."""
        self._told: dict[int, dict[str, Any]] = {}

    def made(self, ddp: Any) -> None:
        """Take note of a DDP module, and watch the one inside of it."""
        known = self._known[ddp] = _Ddp(self._torch, ddp, call_site(sys._getframe(2)))
        self._all.append(known)
        ddp.module.register_forward_pre_hook(
            lambda module, _: self._called(known) if module.training else None
        )

    def began(self, ddp: Any) -> None:
        """Take note of a call of a DDP module."""
        known = self._known.get(ddp)
        if known is None:
            return
        known.inside = True
        if ddp.training and self._torch.is_grad_enabled():
            known.synced_last = bool(ddp.require_backward_grad_sync)
            known.fields["forwards"] += 1
            known.fields["synced" if known.synced_last else "unsynced"] += 1

    def ended(self, ddp: Any) -> None:
        """Take note of the end of a call."""
        if (known := self._known.get(ddp)) is not None:
            known.inside = False

    def updated(self, *_: Any) -> None:
        """Take note of an optimizer's update (torch's post-hook)."""
        for known in list(self._known.values()):
            if known.fields["forwards"] and not known.synced_last:
                known.fields["unsynced_updates"] += 1

    def _called(self, known: _Ddp) -> None:
        if known.inside or self._is_compiling() or not self._torch.is_grad_enabled():
            return
        known.fields["bypassed"] += 1
        if not known.fields["bypassed_where"]:
            known.fields["bypassed_where"] = call_site(sys._getframe(2))

    def tell(self, recorder: Recorder) -> None:
        """Tell of all modules as they are now."""
        for number, known in enumerate(self._all):
            if self._told.get(number) != known.fields:
                self._told[number] = dict(known.fields)
                recorder.tell("wrapper", kind_of="ddp", number=number, **known.fields)


def install_torch(torch: Any) -> None:
    """Follow every DistributedDataParallel that is made from now on."""
    if not torch.distributed.is_available():
        return
    from torch.nn.parallel import DistributedDataParallel
    from torch.optim.optimizer import register_optimizer_step_post_hook

    wrappers = Wrappers(torch)

    @wrap(DistributedDataParallel, "__init__")
    def init(original: Callable[..., None], ddp: Any, *args: Any, **kwargs: Any) -> None:
        original(ddp, *args, **kwargs)
        if current() is not None:
            wrappers.made(ddp)

    @wrap(DistributedDataParallel, "forward")
    def forward(original: Callable[..., Any], ddp: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(ddp, *args, **kwargs)
        wrappers.began(ddp)
        try:
            return original(ddp, *args, **kwargs)
        finally:
            wrappers.ended(ddp)

    register_optimizer_step_post_hook(wrappers.updated)

    def opened(recorder: Recorder) -> None:
        def source() -> None:
            wrappers.tell(recorder)

        recorder.add_source(source)

    when_opened(opened)
