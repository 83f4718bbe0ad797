"""One seed for everything that a training draws at random."""

from __future__ import annotations

import random
import sys

import numpy as np

from farandole.engine import context
from farandole.errors import UsageError

_SEEDS = 1 << 32  # as many as NumPy takes


def set_random_seed(seed: int) -> None:
    """Seed Python, NumPy, and those of PyTorch, TensorFlow and Keras that are imported.

    Every rank draws numbers of its own, so that dropout drops other units on each of them; rank 0
    draws those of a single process with this seed. Weights are therefore the same for any number of
    workers, once rank 0 has broadcast them. Call it after init() and before the model is made.

    Raises:
        UsageError: `seed` is not an integer from 0 to 2**32 - 1.
        NotInitializedError: init() was not called.

    Example:
        >>> hvd.init()  # doctest: +SKIP
        >>> hvd.set_random_seed(args.seed)
    """
    if not isinstance(seed, int | np.integer) or not 0 <= seed < _SEEDS:
        raise UsageError(f"set_random_seed({seed!r}): give an integer from 0 to 2**32 - 1.")
    rank = context.rank()
    own = int(np.random.SeedSequence((seed, rank)).generate_state(1)[0]) if rank else int(seed)
    random.seed(own)
    np.random.seed(own)
    # Keras' own function imports TensorFlow on every backend, which takes seconds. Its layers draw
    # from Python's numbers above, but on PyTorch dropout draws from PyTorch's.
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(own)
    if (tensorflow := sys.modules.get("tensorflow")) is not None:
        tensorflow.random.set_seed(own)
    if "keras" in sys.modules:
        from keras.src.backend.common import global_state
        from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR

        # It goes on from the numbers drawn before; without it Keras makes another.
        global_state.set_global_attribute(GLOBAL_SEED_GENERATOR, None)
