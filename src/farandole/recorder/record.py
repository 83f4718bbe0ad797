"""`farandole.record`: what a script reports about itself."""

from __future__ import annotations

import json
import math
import os
from typing import Any, TypeVar

from farandole.errors import UsageError
from farandole.recorder.recorder import PARAMS, Recorder, current, when_opened, wrap

_epoch: float | None = None
_script_params: dict[str, Any] = {}


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
    from farandole.recorder.steps import number_later

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


Value = TypeVar("Value")

_WORDS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def param(name: str, default: Value) -> Value:
    """Return the study's value of a factor, or the default outside of a study.

    Args:
        name: as in `-L name=...`; a study always has batch, workers, threads and seed.
        default: also says the type; a value that does not fit it is an error.

    Raises:
        UsageError: the study's value cannot be made into the default's type.

    Example:
        batch = farandole.param("batch", 32)
    """
    value = _params().get(name)
    try:
        used: Value = default if value is None else _like(default, value)
    except (TypeError, ValueError):
        raise UsageError(
            f"The study's {name} is {value!r}, and param({name!r}, {default!r}) asks for "
            f"{type(default).__name__}. Correct -L {name}=..., or the default."
        ) from None
    _tell_params({name: used})
    return used


def follow_arguments() -> None:
    """Report what argparse makes of the script's command line, without a line in the script."""
    import argparse

    @wrap(argparse.ArgumentParser, "parse_known_args")
    def parse(original: Any, parser: Any, args: Any = None, namespace: Any = None) -> Any:
        found = original(parser, args, namespace)
        if args is None:  # the process's own command line
            # Of texts only those that the script lists: others may be secrets, or paths.
            listed = {action.dest for action in parser._actions if action.choices is not None}
            _tell_params(
                {
                    name: value
                    for name, value in vars(found[0]).items()
                    if (name in listed and isinstance(value, str))
                    or (isinstance(value, int | float) and math.isfinite(value))
                }
            )
        return found


def _tell_params(values: dict[str, Any]) -> None:
    _script_params.update(values)
    when_opened(lambda recorder: recorder.setup(params=dict(_script_params)))


def _params() -> dict[str, Any]:
    text = os.environ.get(PARAMS)
    if not text:
        return {}
    try:
        params = json.loads(text)
    except ValueError:
        params = None
    if not isinstance(params, dict):
        raise UsageError(
            f"{PARAMS}={text!r} is not a JSON object. A study sets it; set one, or unset it."
        )
    return params


def _like(default: Any, value: Any) -> Any:
    if default is None or (isinstance(value, type(default)) and not isinstance(value, bool)):
        return value
    if isinstance(default, bool):
        if isinstance(value, bool):
            return value
        word = str(value).strip().lower()
        if word not in _WORDS:
            raise ValueError(value)
        return _WORDS[word]
    if isinstance(default, int):
        number = float(value)
        if number != int(number):
            raise ValueError(value)
        return int(number)
    return type(default)(value)
