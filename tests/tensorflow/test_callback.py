"""Operations inside of tf.function; the checks are in checks/callback.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import run_cli
from tests.tensorflow.launches import Launch, each

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(320)]


@each("callback")
def test_two_ranks(pair: Launch, check: str) -> None:
    pair.check(check)


@each("callback")
def test_one_core_and_one_thread(narrow: Launch, check: str) -> None:
    narrow.check(check)


KILLED = """
import os
import signal

import tensorflow as tf

import farandole.tensorflow as hvd

hvd.init()


@tf.function
def step(x):
    return hvd.allreduce(x)


for number in range(5):
    if number == 3 and hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    step(tf.ones(1000))
"""


def test_a_rank_that_is_killed_is_named(tmp_path: Path) -> None:
    """Not the one that waits for it in a tf.function, whose error is TensorFlow's."""
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    env = {"TF_CPP_MIN_LOG_LEVEL": "3"}
    done = run_cli("run", "-np", "2", script, env=env, timeout_s=200.0)
    assert done.returncode == 128 + 9
    assert "farandole: rank 1" in done.stderr
    assert "SIGKILL" in done.stderr
