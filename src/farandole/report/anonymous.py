"""A study without whose it is: no host, user, path, address or commit."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from farandole.model.analyse import Comparison, ScalingInfo
from farandole.report.figures import studies

# What a reader may know of a machine; everything else could name its owner.
_KEPT = (
    "cpu",
    "physical_cores",
    "cores",
    "memory_bytes",
    "gpus",
    "system",
    "versions",
    "architecture",
    "quota",
)
_PATH = re.compile(r"(?<![\w.])(?:~|[A-Za-z]:)?[/\\](?:[^\s/\\'\":,;]+[/\\])+([^\s/\\'\":,;]*)")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_HOME = re.compile(r"[/\\](?:home|Users)[/\\]([^\s/\\'\":,;]+)")


def anonymous(found: ScalingInfo | Comparison) -> ScalingInfo | Comparison:
    """Return the same figures without names of hosts, users, paths and commits."""
    if isinstance(found, ScalingInfo):
        return anonymous_study(found, "study")
    names = [f"study {ascii_uppercase[index % 26]}" for index in range(len(found.infos))]
    labelled = studies(found)
    infos = tuple(anonymous_study(info, name) for info, name in zip(labelled, names, strict=True))
    secrets = {secret for info in labelled for secret in secrets_of(info)}
    renamed = {info.label: name for info, name in zip(labelled, names, strict=True)}
    shown: Comparison = scrubbed(replace(found, infos=()), Scrub(secrets, renamed))
    return replace(shown, infos=infos)


def anonymous_study(info: ScalingInfo, name: str) -> ScalingInfo:
    """Return a study without names, under a name of ours."""
    machine = {key: info.machine[key] for key in _KEPT if key in info.machine}
    spec = {key: value for key, value in info.spec.items() if key not in ("folder", "environ")}
    bare = replace(info, machine=machine, spec=spec, created="")
    shown: ScalingInfo = scrubbed(bare, Scrub(secrets_of(info), {info.label: name}))
    return replace(shown, label=name)


def secrets_of(info: ScalingInfo) -> set[str]:
    """Return names that must not be seen: hosts, and users in paths of homes."""
    host = info.machine.get("host")
    found = {host, host.split(".")[0]} if isinstance(host, str) and host else set()

    def collect(text: str) -> str:
        found.update(_HOME.findall(text))
        return text

    scrubbed((info.command, info.spec, info.machine), collect)
    # A host called "a" would make holes in every word.
    return {name for name in found if len(name) > 2}


class Scrub:
    """Takes names out of a text: paths, addresses, given names; and changes some whole texts."""

    def __init__(self, secrets: set[str], renamed: Mapping[str, str]) -> None:
        self._renamed = renamed
        self._words = [
            (re.compile(rf"(?<!\w){re.escape(old)}(?!\w)"), new)
            for old, new in [
                *((label, name) for label, name in renamed.items() if not _is_word(label)),
                *((secret, "host") for secret in sorted(secrets, key=len, reverse=True)),
            ]
        ]

    def __call__(self, text: str) -> str:
        if text in self._renamed:
            return self._renamed[text]
        text = _EMAIL.sub("name@example.org", text)
        text = _PATH.sub(lambda match: match[1] or "folder", text)
        for pattern, word in self._words:
            # The new words are ours and hold no backslash.
            text = pattern.sub(word, text)
        return text


def _is_word(label: str) -> bool:
    """Tell whether a label may be a word of our own sentences: `out`, the name of a folder."""
    return not label or (label.isalpha() and label.islower())


def scrubbed(value: Any, scrub: Callable[[str], str]) -> Any:
    """Return a record with every string and path in it scrubbed."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, Path):
        return Path(scrub(str(value)))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {
            item.name: scrubbed(getattr(value, item.name), scrub)
            for item in dataclasses.fields(value)
        }
        return replace(value, **changes)
    if isinstance(value, Mapping):
        return {scrub(str(key)): scrubbed(part, scrub) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(scrubbed(part, scrub) for part in value)
    if isinstance(value, list):
        return [scrubbed(part, scrub) for part in value]
    return value
