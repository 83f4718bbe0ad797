"""What happened in a worker: steps, communication, bytes, metrics, in blocks of plain lines.

Nothing here imports torch or NumPy by itself; without FARANDOLE_RECORD_DIR nothing is recorded, and
each place that could tell something costs one comparison with None.
"""

from __future__ import annotations

import os
import sys

from farandole.recorder.ending import LaunchEndedError, StopLaunch
from farandole.recorder.recorder import APART, Recorder, current, when_opened

__all__ = ["LaunchEndedError", "Recorder", "StopLaunch", "current", "install"]

_followed = False


def install() -> None:
    """Follow torch and Keras in this process, as soon as they are imported.

    Nothing is opened before the process trains: launchers and helpers see the same variables.
    """
    from farandole.launch.startup import after_import
    from farandole.recorder import batches, detail

    loaders = batches.Loaders()
    detailed = bool(detail.detail())
    calibrates = bool(os.environ.get(APART))

    def follow_arguments() -> None:
        from farandole.recorder import record

        record.follow_arguments()

    def follow_torch() -> None:
        import torch

        from farandole.recorder import ddp, optimizers

        # First, so that it tells of a step's gradients before the step ends.
        ddp.install(torch)
        passes = batches.Passes(torch)
        batches.follow_backward(torch, passes)
        if detailed:
            detail.install_torch(torch)
        optimizers.install(optimizers.Optimizers(loaders, passes))
        _follow_process()

    def follow_loaders() -> None:
        dataloader = sys.modules["torch.utils.data.dataloader"]
        batches.follow_loaders(dataloader, loaders)
        if calibrates:
            from farandole.recorder import contention

            contention.follow_torch_loaders(dataloader)

    def follow_keras() -> None:
        from farandole.recorder import keras

        keras.install(loaders)
        if detailed:
            detail.install_keras(sys.modules["keras"])
        _follow_process()
        if calibrates:
            from farandole.recorder import contention

            contention.follow_keras_data()

    if detailed:
        detail.install()
    after_import(("argparse",), follow_arguments)
    after_import(("torch",), follow_torch)
    after_import(("torch.utils.data.dataloader",), follow_loaders)
    after_import(("keras",), follow_keras)


def _follow_process() -> None:
    """Follow what every framework's worker does, once."""
    global _followed
    if not _followed:
        _followed = True
        from farandole.recorder import checkpoints, utilisation

        when_opened(utilisation.watch)
        checkpoints.follow(when_opened)
