"""Letting the recorder into a process that may train: hooks once torch or Keras is imported.

Nothing is opened before the process trains: launchers and helpers see the same variables.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from farandole.recorder.settings import APART

_followed = False


def install() -> None:
    """Follow torch and Keras in this process, as soon as they are imported."""
    from farandole.launch.import_hook import after_import
    from farandole.recorder.loaders import Loaders

    loaders = Loaders()
    after_import(("argparse",), _follow_arguments)
    after_import(("torch",), lambda: _follow_training(loaders))
    after_import(("torch.utils.data.dataloader",), lambda: _follow_loaders(loaders))
    after_import(("keras",), lambda: _follow_keras(loaders))
    if os.environ.get(APART):
        after_import(("torch.utils.data.dataloader",), _drain_torch)
        after_import(("keras",), _drain_keras)


def _follow_arguments() -> None:
    from farandole.recorder.record import follow_arguments

    follow_arguments()


def _follow_training(loaders: Any) -> None:
    import torch

    from farandole.recorder import ddp, optimizers, passes

    # First, so that it tells of a step's gradients before the step ends.
    ddp.install(torch)
    followed = passes.Passes(torch)
    passes.install(torch, followed)
    optimizers.install(optimizers.Optimizers(loaders, followed))
    _follow_process()


def _follow_keras(loaders: Any) -> None:
    from farandole.recorder import keras

    keras.install(loaders)
    _follow_process()


def _follow_process() -> None:
    """Follow what every framework's worker does, once."""
    global _followed
    if _followed:
        return
    _followed = True
    from farandole.recorder import opened
    from farandole.recorder.recorder import when_opened

    when_opened(_watch)
    opened.follow(when_opened)


def _follow_loaders(loaders: Any) -> None:
    from farandole.recorder import loaders as hooks

    hooks.install(sys.modules["torch.utils.data.dataloader"], loaders)


def _drain_torch() -> None:
    from farandole.recorder import drain

    drain.follow_torch(sys.modules["torch.utils.data.dataloader"])


def _drain_keras() -> None:
    from farandole.recorder import drain

    drain.follow_keras()


def _watch(recorder: Any) -> None:
    from farandole.recorder import utilisation

    utilisation.watch(recorder)
