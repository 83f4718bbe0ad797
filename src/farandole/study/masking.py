"""Command lines without the secrets in them, so that a study can be shown."""

from __future__ import annotations

import re
from collections.abc import Sequence

MASK = "***"

# Words of a flag's or variable's name. `key` alone is none: --key may name a column. Plurals of
# token are counts (--max-tokens 512).
_SECRET = {"token", "secret", "secrets", "password", "passwd", "passphrase", "pwd", "credential"}
_SECRET |= {"credentials", "apikey", "authorization", "auth"}
_BEFORE_KEY = {"api", "access", "secret", "private", "account", "auth", "signing", "license"}
_BEFORE_KEY |= {"encryption", "ssh", "wandb", "comet", "openai", "master", "service", "storage"}
# Tokens of text and ways of authenticating: --token-length, --pad-token, --auth-method.
_PLAIN_WITH = {"length", "len", "count", "num", "max", "min", "id", "ids", "size", "type", "dim"}
_PLAIN_WITH |= {"pad", "eos", "bos", "mask", "unk", "sep", "cls", "per", "file", "path", "method"}
_PLAIN_WITH |= {"dropout", "embedding", "embeddings", "mode", "rate", "pooling", "mixing"}

_ASSIGNMENT = re.compile(r"(--?[\w.-]+|[A-Za-z_][\w.-]*)=(.*)", re.DOTALL)
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")
# scheme://user:password@host and scheme://token@host.
_URL = re.compile(r"([A-Za-z][\w+.-]*://)([^/\s@]+)@")
_QUERY = re.compile(r"([?&]([\w.-]+)=)([^&\s#]+)")
_HEADER = re.compile(r"(?i)\b(authorization\s*:\s*(?:\w+\s+)?|bearer\s+)([^\s'\"]+)")
# Well-known shapes of tokens, wherever they stand.
_SHAPES = re.compile(
    r"\b(?:sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|hf_[A-Za-z0-9]{20,}"
    r"|AKIA[0-9A-Z]{16}|xox[abprs]-[A-Za-z0-9-]{10,}|glpat-[\w-]{16,})"
)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def mask(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command with the values of secrets as `***`.

    Masked are values of flags and variables whose names say so (`--api-key K`, `WANDB_API_KEY=K`),
    credentials in URLs, headers, and tokens of well-known shapes. Numbers after a `token` flag
    are counts and stay.
    """
    masked: list[str] = []
    follows: str | None = None
    for word in argv:
        if follows is not None and not _is_flag(word) and not _is_count(follows, word):
            masked.append(MASK)
            follows = None
            continue
        follows = word if _FLAG.fullmatch(word) and is_secret(word) else None
        masked.append(_mask_word(word))
    return tuple(masked)


def is_secret(name: str) -> bool:
    """Tell whether a flag or variable of this name holds a secret."""
    words = [word for word in re.split(r"[^a-z0-9]+", _split_case(name).lower()) if word]
    if _PLAIN_WITH.intersection(words):
        return False
    if _SECRET.intersection(words):
        return True
    return any(
        word == "key" and index and words[index - 1] in _BEFORE_KEY
        for index, word in enumerate(words)
    ) or (name.isupper() and words[-1:] == ["key"])


def _mask_word(word: str) -> str:
    assignment = _ASSIGNMENT.fullmatch(word)
    if assignment and is_secret(assignment[1]) and not _is_count(assignment[1], assignment[2]):
        return f"{assignment[1]}={MASK}"
    word = _URL.sub(_mask_user, word)
    word = _QUERY.sub(lambda m: m[1] + (MASK if is_secret(m[2]) else m[3]), word)
    word = _HEADER.sub(lambda m: m[1] + MASK, word)
    return _SHAPES.sub(MASK, word)


def _mask_user(match: re.Match[str]) -> str:
    user, colon, _ = match[2].partition(":")
    # ssh://git@host names an account, and nothing to hide.
    if not colon and match[1] in ("ssh://", "git+ssh://"):
        return match[0]
    return f"{match[1]}{user}:{MASK}@" if colon else f"{match[1]}{MASK}@"


def _is_flag(word: str) -> bool:
    return _FLAG.fullmatch(word) is not None or (word.startswith("--") and "=" in word)


def _is_count(name: str, value: str) -> bool:
    """Tell whether this is a number of text tokens; a password of digits is still one."""
    return "token" in name.lower() and _NUMBER.fullmatch(value) is not None


def _split_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
