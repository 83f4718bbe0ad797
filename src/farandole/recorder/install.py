"""Letting the recorder into a process that may train: hooks once torch has been imported.

Nothing is opened before the process trains: launchers and helpers see the same variables.
"""

from __future__ import annotations

import sys
from typing import Any


def install() -> None:
    """Follow torch in this process, as soon as it is imported."""
    from farandole.launch.import_hook import after_import
    from farandole.recorder.loaders import Loaders

    loaders = Loaders()
    after_import(("torch",), lambda: _follow_training(loaders))
    after_import(("torch.utils.data.dataloader",), lambda: _follow_loaders(loaders))


def _follow_training(loaders: Any) -> None:
    import torch

    from farandole.recorder import ddp, opened, optimizers
    from farandole.recorder.recorder import when_opened

    # First, so that it tells of a step's gradients before the step ends.
    ddp.install(torch)
    optimizers.install(optimizers.Optimizers(loaders))
    when_opened(_watch)
    opened.follow(when_opened)


def _follow_loaders(loaders: Any) -> None:
    from farandole.recorder import loaders as hooks

    hooks.install(sys.modules["torch.utils.data.dataloader"], loaders)


def _watch(recorder: Any) -> None:
    from farandole.recorder import utilisation

    utilisation.watch(recorder)
