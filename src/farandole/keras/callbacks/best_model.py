"""The best model so far in a file: rank 0 writes, every rank agrees."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path
from typing import Any

import keras

from farandole.engine import context
from farandole.engine.objects import broadcast_object
from farandole.errors import CollectiveError, UsageError

_WEIGHTS = (".weights.h5",)
_MODEL = (".keras", ".h5")


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """Save the model whenever the monitored metric is better than ever before.

    Rank 0 decides and writes; all ranks go on when the file is there. It is written under another
    name first, so that there is never half a model. A metric that is not a number is never best.

    Put it after MetricAverageCallback: the best of rank 0's share is not the best of all.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
        *,
        filepath: str | os.PathLike[str] | None = None,
    ) -> None:
        """Prepare.

        Args:
            monitor: a name in the logs.
            verbose: 1 to let rank 0 say what it does.
            save_weights_only: leave the architecture and `compile`'s settings out.
            mode: "min", "max", or "auto" to know by the metric.
            save_freq: "epoch", or a number of batches.
            filepath: where to; may have {epoch} and names of metrics in it, as Keras's
                ModelCheckpoint has it. It can be set as an attribute later, before `fit`.
        """
        suffixes = _WEIGHTS if save_weights_only else _MODEL
        # Keras wants a path at once; Horovod's programs set the attribute later.
        super().__init__(
            filepath=f"unset{suffixes[0]}" if filepath is None else _checked(filepath, suffixes),
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
        self._suffixes = suffixes
        self.best: float | None = None
        if filepath is None:
            self.filepath: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Check that there is a path."""
        if self.filepath is None:
            raise UsageError(
                "BestModelCheckpoint has no filepath. Give it one: "
                "BestModelCheckpoint(filepath='best.keras')."
            )
        self.filepath = _checked(self.filepath, self._suffixes)
        super().on_train_begin(logs)

    def _save_model(self, epoch: int, batch: int | None, logs: dict[str, Any] | None) -> None:
        """Save if this is the best; Keras calls this at the end of an epoch or of some batches."""
        if self.monitor_op is None:
            self._set_monitor_op()
        path, error = None, None
        if context.rank() == 0:
            try:
                path = self._save_if_best(epoch, batch, logs or {})
            except Exception as reason:
                error = reason
        said = None if error is None else str(error) or type(error).__name__
        answer = broadcast_object((path, said, _plain(self.best)), name="keras.best_model")
        path, said, self.best = answer
        if said is not None:
            raise CollectiveError(
                f"Rank 0 could not save the best model as {self.filepath}: {said}"
            ) from error

    def _save_if_best(self, epoch: int, batch: int | None, logs: dict[str, Any]) -> str | None:
        """Return where the model was saved, or None."""
        filepath = self._get_file_path(epoch, batch, logs)
        if not _is_number(logs.get(self.monitor)):
            # Keras would take it for the best of all, and never find a better one.
            return None
        if not self._should_save_model(epoch, batch, logs, filepath):
            return None
        save = self.model.save_weights if self.save_weights_only else self.model.save
        if "://" in filepath:
            save(filepath, overwrite=True)  # object stores show whole files only
        else:
            _replace(Path(filepath), save, self._suffixes)
        return str(filepath)


def _replace(path: Path, save: Any, suffixes: tuple[str, ...]) -> None:
    """Save under a name beside its place, then rename."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder. Choose the name of a file.")
    path.parent.mkdir(parents=True, exist_ok=True)
    suffix = next(end for end in suffixes if path.name.endswith(end))
    # Keras goes by the end of the name.
    stem = path.name.removesuffix(suffix)
    temporary = path.with_name(f".{stem}.{os.getpid()}{suffix}")
    try:
        save(str(temporary), overwrite=True)
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _checked(filepath: str | os.PathLike[str], suffixes: tuple[str, ...]) -> str:
    path = os.fspath(filepath)
    if not path.endswith(suffixes):
        raise UsageError(
            f"filepath={path!r}: it must end in {' or '.join(suffixes)} here "
            f"(save_weights_only={suffixes == _WEIGHTS})."
        )
    return path


def _is_number(value: Any) -> bool:
    try:
        return value is None or not math.isnan(float(value))
    except (TypeError, ValueError):
        return True  # Keras has words for it


def _plain(value: Any) -> float | None:
    return None if value is None else float(value)
