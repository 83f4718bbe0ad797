# ruff: noqa: PTH118
"""A program for Horovod and tf.keras, as people have them; it knows nothing of Farandole."""

import os
import sys

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

# Horovod: initialize Horovod.
hvd.init()

generator = np.random.default_rng(hvd.rank())
labels = generator.integers(0, 4, size=256)
images = generator.normal(scale=0.3, size=(256, 8, 8, 1)).astype(np.float32)
images[np.arange(256), labels, labels] += 2.0
dataset = tf.data.Dataset.from_tensor_slices((images, tf.cast(labels, tf.int64)))
dataset = dataset.repeat().shuffle(256).batch(16)

model = tf.keras.Sequential(
    [
        tf.keras.layers.Conv2D(4, [3, 3], activation="relu"),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(4, activation="softmax"),
    ]
)

# Horovod: adjust learning rate based on number of GPUs.
scaled_lr = 0.003 * hvd.size()
opt = tf.optimizers.Adam(scaled_lr)

# Horovod: add Horovod DistributedOptimizer.
opt = hvd.DistributedOptimizer(opt, backward_passes_per_step=1, average_aggregated_gradients=True)
model.compile(loss=tf.losses.SparseCategoricalCrossentropy(), optimizer=opt, metrics=["accuracy"])

callbacks = [
    # Horovod: broadcast initial variable states from rank 0 to all other processes.
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    # Horovod: average metrics among workers at the end of every epoch.
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=scaled_lr, warmup_epochs=2, verbose=1),
]

# Horovod: save checkpoints only on worker 0 to prevent other workers from corrupting them.
if hvd.rank() == 0:
    path = os.path.join(sys.argv[1], "checkpoint-{epoch}.keras")
    callbacks.append(tf.keras.callbacks.ModelCheckpoint(path))

# Horovod: write logs on worker 0.
verbose = 2 if hvd.rank() == 0 else 0
history = model.fit(
    dataset, steps_per_epoch=40 // hvd.size(), callbacks=callbacks, epochs=3, verbose=verbose
)
weights = np.concatenate([np.ravel(each) for each in model.get_weights()])
spread = float(np.max(hvd.allgather(weights[None], name="weights").max(0) - weights))
losses = " ".join(f"{loss:.6f}" for loss in history.history["loss"])
print(f"rank {hvd.rank()} spread {spread} losses {losses}")
