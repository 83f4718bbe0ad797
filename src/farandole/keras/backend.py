"""Which backend Keras runs on, and what to install when it is not there."""

from __future__ import annotations

import os

from farandole.errors import MissingExtraError

_EXTRAS = {"torch": "torch", "tensorflow": "tensorflow", "jax": "jax"}


def check_keras() -> None:
    """Import Keras, once.

    Raises:
        MissingExtraError: Keras or its backend is not installed, or it is Keras 2.
    """
    try:
        import keras
    except ImportError as error:
        raise missing(error.name) from error
    version = getattr(keras, "__version__", "0")
    if int(version.partition(".")[0]) < 3:
        raise MissingExtraError(
            f"farandole.keras needs Keras 3, and Keras {version} is installed. Use "
            "pip install 'keras>=3.5'; programs for Keras 2 mostly run as they are."
        )


def missing(module: str | None) -> MissingExtraError:
    """Return the error for a module that Keras could not import."""
    chosen = os.environ.get("KERAS_BACKEND")
    if module is None or module.partition(".")[0] == "keras":
        return MissingExtraError(
            "farandole.keras needs Keras, which is not installed: "
            "pip install 'farandole[keras,torch]' (or tensorflow or jax in the place of torch)."
        )
    package = module.partition(".")[0]
    extra = _EXTRAS.get(package.removesuffix("lib"), package)
    why = f"KERAS_BACKEND={chosen}" if chosen else "Keras's default backend"
    others = [name for name in _EXTRAS if name != extra]
    return MissingExtraError(
        f"{why} needs {package}, which is not installed: pip install 'farandole[keras,{extra}]', "
        f"or choose another backend by KERAS_BACKEND={others[0]} or {others[1]}."
    )


def backend_name() -> str:
    """Return "torch", "tensorflow" or "jax"."""
    import keras

    return str(keras.backend.backend())
