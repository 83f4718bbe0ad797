"""Every rank shuffles all of the data for itself."""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")
import keras
import numpy

import farandole.keras as hvd

hvd.init()
rank, size = hvd.rank(), hvd.size()
keras.utils.set_random_seed(rank)

x = numpy.random.default_rng(1).normal(size=(512, 16)).astype("float32")
y = x[:, :4].argmax(1)
model = keras.Sequential([keras.layers.Dense(32, activation="relu"), keras.layers.Dense(4)])
model.compile(
    optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
model.fit(x, y, batch_size=16, epochs=3, verbose=0, callbacks=[broadcast])
