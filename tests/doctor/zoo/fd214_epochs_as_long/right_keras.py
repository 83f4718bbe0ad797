"""Steps per epoch are divided by the workers."""

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


def batches():
    order = numpy.random.default_rng(rank)
    while True:
        mine = order.permutation(numpy.arange(rank, 512, size))
        for at in range(0, len(mine) - 15, 16):
            yield x[mine[at : at + 16]], y[mine[at : at + 16]]


steps = 512 // 16 // size
model.fit(batches(), steps_per_epoch=steps, epochs=3, verbose=0, callbacks=[broadcast])
