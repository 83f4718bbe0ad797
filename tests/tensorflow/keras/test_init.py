"""farandole.keras where programs with tf.keras look for it; the checks are in checks/tf_keras.py.

What another backend of Keras's says is in tests/launch/test_horovod_alias.py.
"""

from __future__ import annotations

import pytest

from tests.tensorflow.launches import Launch, each

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(320)]


@each("tf_keras")
def test_two_ranks(pair: Launch, check: str) -> None:
    pair.check(check)
