"""Train a small CNN on the digits with Keras, on any number of workers and any backend.

KERAS_BACKEND=torch farandole run -np 2 examples/keras_digits.py
farandole study -np 1,2 -L batch=32,64 -- examples/keras_digits.py
"""

import keras
import numpy as np
from sklearn.datasets import load_digits

import farandole
import farandole.keras as hvd

hvd.init()
keras.utils.set_random_seed(1)
batch = farandole.param("batch", 32)  # what a study asks for; 32 outside of one

images, labels = load_digits(return_X_y=True)
x = (images.reshape(-1, 8, 8, 1) / 16).astype("float32")
y = labels.astype("int32")
order = np.random.default_rng(1).permutation(len(x))
x, y = x[order], y[order]
train = hvd.shard((x[300:], y[300:]), batch_size=batch)
valid = hvd.shard((x[:300], y[:300]), batch_size=100, shuffle=False, remainder="keep")

model = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.Conv2D(64, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(10),
    ]
)
rate = 0.05 * hvd.size()
model.compile(
    optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(rate, momentum=0.9)),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
history = model.fit(
    train,
    validation_data=valid,
    epochs=5,
    verbose=2 if hvd.rank() == 0 else 0,
    callbacks=hvd.callbacks.standard(initial_lr=rate, warmup_epochs=2),
)
if hvd.rank() == 0:
    print(f"accuracy {history.history['val_accuracy'][-1]:.3f}; workers: {hvd.size()}")
