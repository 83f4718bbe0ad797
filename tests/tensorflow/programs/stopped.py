# ruff: noqa: B905, PTH118
"""A program for Horovod that saves when its time is over; rank 0 plays the scheduler."""

import itertools
import os
import signal
import sys

import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()
model = tf.keras.Sequential([tf.keras.Input([4]), tf.keras.layers.Dense(2)])
opt = tf.optimizers.SGD(0.01)
opt.build(model.trainable_variables)
hvd.broadcast_variables(model.variables, root_rank=0)
checkpoint = tf.train.Checkpoint(model=model, optimizer=opt)
data = tf.random.stateless_normal([16, 4], [7, hvd.rank()])


@tf.function
def training_step(images):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(images, training=True)))
    tape = hvd.DistributedGradientTape(tape)
    grads = tape.gradient(loss, model.trainable_variables)
    opt.apply_gradients(zip(grads, model.trainable_variables))


try:
    for step in itertools.count():
        training_step(data)
        if step == 20 and hvd.rank() == 0:
            os.kill(os.getppid(), signal.SIGUSR1)
except SystemExit:
    total = float(sum(tf.reduce_sum(variable) for variable in model.variables))
    print(f"rank {hvd.rank()} left after {int(opt.iterations)} with {total!r}", flush=True)
    if hvd.rank() == 0:
        checkpoint.save(os.path.join(sys.argv[1], "ckpt"))
    raise
