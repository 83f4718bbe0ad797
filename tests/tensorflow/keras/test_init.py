"""farandole.keras where programs with tf.keras look for it; the checks are in checks/tf_keras.py.

What another backend of Keras's says is in tests/launch/test_horovod_alias.py.
"""

from __future__ import annotations

from tests.checking import LAUNCHES, TENSORFLOW, Check, Outcomes, each

pytestmark = LAUNCHES


@each("tensorflow.checks.tf_keras", TENSORFLOW)
def test_on_real_ranks(outcomes: Outcomes, check: Check) -> None:
    outcomes.expect(check)
