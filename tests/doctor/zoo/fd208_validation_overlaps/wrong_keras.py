"""Validation begins before training ends."""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")
import keras
import numpy

import farandole.keras as hvd

hvd.init()
rank, size = hvd.rank(), hvd.size()
keras.utils.set_random_seed(0)

x = numpy.random.default_rng(1).normal(size=(512, 16)).astype("float32")
y = x[:, :4].argmax(1)
model = keras.Sequential([keras.layers.Dense(32, activation="relu"), keras.layers.Dense(4)])
model.compile(
    optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
train, valid = slice(0, 448), slice(384, 512)
model.fit(
    x[train][rank::size],
    y[train][rank::size],
    batch_size=16,
    epochs=3,
    verbose=0,
    validation_data=(x[valid], y[valid]),
    callbacks=[broadcast],
)
