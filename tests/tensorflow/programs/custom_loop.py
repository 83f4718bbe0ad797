# ruff: noqa: B905, PTH118
"""A program for Horovod and TensorFlow 2, as people have them; it knows nothing of Farandole."""

import os
import sys

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

# Horovod: initialize Horovod.
hvd.init()

# Horovod: pin GPU to be used to process local rank (one GPU per process)
gpus = tf.config.experimental.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
if gpus:
    tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")

generator = np.random.default_rng(0)
labels = generator.integers(0, 4, size=512)
images = generator.normal(scale=0.3, size=(512, 8, 8, 1)).astype(np.float32)
images[np.arange(512), labels, labels] += 2.0

dataset = tf.data.Dataset.from_tensor_slices((images, tf.cast(labels, tf.int64)))
dataset = dataset.shard(hvd.size(), hvd.rank()).repeat().shuffle(512, seed=hvd.rank()).batch(16)

model = tf.keras.Sequential(
    [
        tf.keras.layers.Conv2D(4, [3, 3], activation="relu"),
        tf.keras.layers.MaxPooling2D(pool_size=(2, 2)),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(16, activation="relu"),
        tf.keras.layers.Dense(4, activation="softmax"),
    ]
)
loss = tf.losses.SparseCategoricalCrossentropy()

# Horovod: adjust learning rate based on number of GPUs.
opt = tf.optimizers.Adam(0.003 * hvd.size())

checkpoint_dir = sys.argv[1]
checkpoint = tf.train.Checkpoint(model=model, optimizer=opt)


@tf.function
def training_step(images, labels, first_batch):
    with tf.GradientTape() as tape:
        probs = model(images, training=True)
        loss_value = loss(labels, probs)

    # Horovod: add Horovod Distributed GradientTape.
    tape = hvd.DistributedGradientTape(tape)

    grads = tape.gradient(loss_value, model.trainable_variables)
    opt.apply_gradients(zip(grads, model.trainable_variables))

    # Horovod: broadcast initial variable states from rank 0 to all other processes. Note: broadcast
    # should be done after the first gradient step to ensure optimizer initialization.
    if first_batch:
        hvd.broadcast_variables(model.variables, root_rank=0)
        hvd.broadcast_variables(opt.variables, root_rank=0)

    return loss_value


# Horovod: adjust number of steps based on number of GPUs.
for batch, (images, labels) in enumerate(dataset.take(80 // hvd.size())):
    loss_value = training_step(images, labels, batch == 0)
    if batch % 10 == 0 and hvd.local_rank() == 0:
        print(f"Step #{batch}\tLoss: {loss_value:.6f}")

mean = hvd.allreduce(loss_value, name="final")
weights = np.concatenate([np.ravel(each) for each in model.get_weights()])
spread = hvd.allreduce(tf.constant(weights), op=hvd.Max) - weights
print(f"rank {hvd.rank()} mean {float(mean):.6f} spread {float(tf.reduce_max(spread))}")

# Horovod: save checkpoints only on worker 0 to prevent other workers from corrupting it.
if hvd.rank() == 0:
    checkpoint.save(os.path.join(checkpoint_dir, "ckpt"))
