"""Where the files lie that labs run and quote: the examples, and the published tables."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).resolve().parent


def examples_path(name: str) -> Path:
    """Return the path of an example: "cifar10.py".

    In a checkout `labs/examples` is a link to the `examples` folder at its top, so that there is
    one copy for readers and for `farandole lab`; a wheel has the files themselves.
    """
    return (_HERE / "examples" / name).resolve()


def published_path(name: str) -> Path:
    """Return the path of a table of published figures, named without its ending."""
    return _HERE / "published" / f"{name}.csv"
