"""Metrics are averaged before anybody decides."""

import keras
import numpy as np

import farandole.keras as hvd

hvd.init()
keras.utils.set_random_seed(0)

generator = np.random.default_rng(1)
x = generator.normal(size=(812, 16)).astype("float32")
y = x[:, :4].argmax(1).astype("int32")
train = hvd.shard((x[:512], y[:512]), batch_size=16)
valid = hvd.shard((x[512:], y[512:]), batch_size=50, shuffle=False, remainder="keep")

model = keras.Sequential(
    [keras.Input((16,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(4, "softmax")]
)
optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9))
model.compile(optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    keras.callbacks.EarlyStopping(monitor="val_loss", patience=1),
]
model.fit(
    train,
    validation_data=valid,
    epochs=3,
    verbose=2 if hvd.rank() == 0 else 0,
    callbacks=callbacks,
)
