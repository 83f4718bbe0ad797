"""`farandole.param`: a cell's value, where the script asks for it."""

from __future__ import annotations

import json
import os
from typing import Any, TypeVar

from farandole.errors import UsageError
from farandole.recorder.settings import PARAMS

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
    if value is None:
        return default
    try:
        return _like(default, value)  # type: ignore[no-any-return]
    except (TypeError, ValueError):
        raise UsageError(
            f"The study's {name} is {value!r}, and param({name!r}, {default!r}) asks for "
            f"{type(default).__name__}. Correct -L {name}=..., or the default."
        ) from None


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
