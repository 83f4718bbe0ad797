"""`farandole.record`: what a script reports about itself."""

from __future__ import annotations

from typing import Any

from farandole.recorder.recorder import Recorder, current

_epoch: float | None = None


def record(**values: Any) -> None:
    """Report metrics to the study, if there is one; without a study this does nothing.

    Numbers on a GPU are fetched in the background: this never waits for it.

    Args:
        values: `samples` is how many samples this rank has trained on in this step, `step` and
            `epoch` say what the metrics belong to (`epoch` holds until another is given), and all
            others are metrics: numbers, or tensors with one element.

    Example:
        farandole.record(samples=len(x), loss=loss, epoch=epoch)
    """
    global _epoch
    recorder = current()
    if recorder is None:
        return
    pop = values.pop
    samples, step, epoch = pop("samples", None), pop("step", None), pop("epoch", None)
    if samples is not None and (count := _number(recorder, "samples", samples)) is not None:
        recorder.samples(count)
    if epoch is not None:
        _epoch = _number(recorder, "epoch", epoch)
    if step is not None:
        number = _number(recorder, "step", step)
        step = None if number is None else int(number)
    for name, value in values.items():
        if getattr(value, "is_cuda", False):
            _record_from_gpu(recorder, name, value, step)
        elif (figure := _number(recorder, name, value)) is not None:
            recorder.metric(name, figure, step=step, epoch=_epoch)


def _record_from_gpu(recorder: Recorder, name: str, value: Any, step: int | None) -> None:
    from farandole.recorder.cuda import number_later

    if value.numel() != 1:
        _refuse(recorder, name, value)
        return
    recorder.metric(name, number_later(value), step=step, epoch=_epoch)


def _number(recorder: Recorder, name: str, value: Any) -> float | None:
    try:
        # A tensor that is part of a graph warns when it is taken for a number.
        return float(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, RuntimeError):
        _refuse(recorder, name, value)
        return None


def _refuse(recorder: Recorder, name: str, value: Any) -> None:
    # A note and not an error: a study must not end a script that runs without one.
    what = f"a {type(value).__name__}"
    if hasattr(value, "shape"):
        what += f" of shape {list(value.shape)}"
    recorder.note(f"record({name}=...) was given {what}, which is not one number; it was left out.")
