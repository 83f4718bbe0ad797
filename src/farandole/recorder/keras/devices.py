"""When a step of each backend is over: calls may return before a device has done what they ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from farandole.recorder.cuda import StreamClock, peak_bytes
from farandole.recorder.step import Later


class Device(Protocol):
    """Where one backend computes."""

    name: str

    def end(self, values: Sequence[Any]) -> Later | None:
        """Wait until these weights are there, or return what will know when they were."""

    def peak_bytes(self) -> int | None:
        """Return the most memory held on a GPU; None without one, or where it is not known."""


class Torch:
    """On a CPU calls return when they are done; on a GPU events of its stream tell."""

    def __init__(self, value: Any) -> None:
        self.name = str(value.device.type)
        self._stream = StreamClock() if self.name == "cuda" else None

    def end(self, values: Sequence[Any]) -> Later | None:
        """See Device."""
        return None if self._stream is None else self._stream.reached(self._stream.mark())

    def peak_bytes(self) -> int | None:
        """See Device."""
        return peak_bytes()


class TensorFlow:
    """On a CPU calls return when they are done; for a GPU they are waited for."""

    def __init__(self, value: Any) -> None:
        self.name = "cuda" if "GPU" in str(value.device).upper() else "cpu"

    def end(self, values: Sequence[Any]) -> Later | None:
        """See Device."""
        if self.name != "cpu":
            import tensorflow as tf

            tf.test.experimental.sync_devices()
        return None

    def peak_bytes(self) -> int | None:
        """See Device."""
        return None


class Jax:
    """Calls return at once, on a CPU too: what they give is waited for."""

    def __init__(self, value: Any) -> None:
        platform = next(iter(value.devices())).platform
        self.name = "cuda" if platform == "gpu" else str(platform)

    def end(self, values: Sequence[Any]) -> Later | None:
        """See Device."""
        import jax

        wait: Any = jax.block_until_ready
        # Keras keeps them in a list of its own kind, which JAX takes for something to pass over.
        wait(list(values))
        return None

    def peak_bytes(self) -> int | None:
        """See Device."""
        return None


KINDS: dict[str, Callable[[Any], Device]] = {"torch": Torch, "tensorflow": TensorFlow, "jax": Jax}
