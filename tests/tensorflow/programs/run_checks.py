"""Run every check on this rank; say of each that it is done. The first that fails ends the job.

Not in the folder of the checks, whose names would then stand before those of other modules. With
CHECK_ONE_THREAD=1, on one core and with one of TensorFlow's threads. With CHECK_KILLED=1, rank 1
is killed in the end, when the others are in the middle of a tf.function.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import signal
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def main() -> None:
    import tensorflow as tf

    import farandole.tensorflow as hvd

    if os.environ.get("CHECK_ONE_THREAD"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        tf.config.threading.set_inter_op_parallelism_threads(1)
        tf.config.threading.set_intra_op_parallelism_threads(1)
    faulthandler.dump_traceback_later(240, exit=True)
    hvd.init()
    for name in sys.argv[1:]:
        module = importlib.import_module(f"tests.tensorflow.checks.{name}")
        for check in [value for key, value in vars(module).items() if key.startswith("check_")]:
            check()
            # One write, so that ranks' lines do not mix.
            sys.stdout.write(f"done {hvd.rank()} {name}.{check.__name__}\n")
            sys.stdout.flush()
    if os.environ.get("CHECK_KILLED"):
        step = tf.function(hvd.allreduce)
        for number in range(5):
            if number == 3 and hvd.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            step(tf.ones(1000))
    faulthandler.cancel_dump_traceback_later()


main()
