"""A rank that is killed while the others are in the middle of a tf.function: the last of checks."""

from __future__ import annotations

import os
import signal

import tensorflow as tf

import farandole.tensorflow as hvd


def check_a_rank_is_killed() -> None:
    step = tf.function(hvd.allreduce)
    for number in range(5):
        if number == 3 and hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        step(tf.ones(1000))
