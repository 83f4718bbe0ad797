"""In the style of Horovod's Keras MNIST program: callbacks, scaled rate, rank 0 saves."""

import os
import tempfile

os.environ.setdefault("KERAS_BACKEND", "torch")

import horovod.keras as hvd
import keras
import numpy as np
from keras import layers

hvd.init()
keras.utils.set_random_seed(1 + hvd.rank())
generator = np.random.default_rng(0)
x = generator.normal(size=(1200, 12, 12, 1)).astype("float32")
y = x[:, 0, :10, 0].argmax(1).astype("int32")
x_train, y_train = x[:1000][hvd.rank() :: hvd.size()], y[:1000][hvd.rank() :: hvd.size()]
x_test, y_test = x[1000:], y[1000:]

model = keras.Sequential(
    [
        keras.Input((12, 12, 1)),
        layers.Conv2D(8, 3, activation="relu"),
        layers.MaxPooling2D(2),
        layers.Dropout(0.25),
        layers.Flatten(),
        layers.Dense(32, activation="relu"),
        layers.Dropout(0.5),
        layers.Dense(10, activation="softmax"),
    ]
)
opt = hvd.DistributedOptimizer(keras.optimizers.Adadelta(1.0 * hvd.size()))
model.compile(loss="sparse_categorical_crossentropy", optimizer=opt, metrics=["accuracy"])
with tempfile.TemporaryDirectory() as folder:
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=1.0 * hvd.size(), warmup_epochs=2),
    ]
    if hvd.rank() == 0:
        callbacks.append(keras.callbacks.ModelCheckpoint(f"{folder}/checkpoint-{{epoch}}.keras"))
    model.fit(
        x_train,
        y_train,
        batch_size=32,
        callbacks=callbacks,
        epochs=4,
        verbose=2 if hvd.rank() == 0 else 0,
        validation_data=(x_test, y_test),
    )
score = model.evaluate(x_test, y_test, verbose=0)
if hvd.rank() == 0:
    print(f"Test loss: {score[0]:.4f}")
    print(f"Test accuracy: {score[1]:.4f}")
