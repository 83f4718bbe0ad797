"""A command with placeholders: only the names that a study knows are replaced."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

KNOWN = ("batch", "global_batch", "workers", "hosts", "threads", "seed", "cell_dir")
"""The names that every study knows; `-L` adds more."""

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def fill(argv: Sequence[str], values: Mapping[str, object]) -> tuple[str, ...]:
    """Put the values into the placeholders; braces around anything else pass untouched."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        return str(values[name]) if name in values else match[0]

    # One pass over each argument: a value that looks like a placeholder stays as it is.
    return tuple(_PLACEHOLDER.sub(value, part) for part in argv)


def names_in(argv: Iterable[str]) -> frozenset[str]:
    """Name what stands in braces in a command, known or not."""
    return frozenset(name for part in argv for name in _PLACEHOLDER.findall(part))
