"""Learn to steer from a car's camera with Keras; `farandole lab driving` runs this file.

export KERAS_BACKEND=torch
farandole run -np 2 examples/driving.py --data driving
farandole study -np 1,2,4 --measure both -- examples/driving.py --data driving --seed '{seed}'
"""

import argparse

import keras
from keras import layers

import farandole
import farandole.keras as hvd
from farandole.labs.data import load_driving
from farandole.recipes import RECIPES

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--data", help="folder with images and steering; without it, a drawn road")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=32, help="of each worker")
parser.add_argument("--samples", type=int, default=0, help="to train on; 0: all")
parser.add_argument("--test-samples", type=int, default=0, help="to test on; 0: all")
parser.add_argument("--lr", type=float, default=0.0001, help="learning rate of one worker")
parser.add_argument("--recipe", choices=RECIPES, default="warmup", help="what workers do to it")
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()


class OwnLoss(keras.callbacks.Callback):
    """Tell this worker's own losses: `farandole run` writes its rank before each line."""

    def on_epoch_end(self, epoch, logs):
        loss, val_loss = logs["loss"], logs["val_loss"]
        print(f"epoch {epoch + 1}: loss {loss:.4f}, val_loss {val_loss:.4f}", flush=True)
        farandole.record(epoch=epoch, rank_loss=loss, rank_val_loss=val_loss)


hvd.init()
hvd.set_random_seed(args.seed)

found = load_driving(args.data, samples=args.samples, test_samples=args.test_samples)
train = hvd.shard((found.x_train, found.y_train), args.batch_size, seed=args.seed)
test = hvd.shard((found.x_test, found.y_test), 100, shuffle=False, remainder="keep")
# What a car gets that always steers the same way, and knows the best one: no learning needed.
constant_mse = found.y_test.var()
if hvd.rank() == 0:
    farandole.record(constant_mse=constant_mse)
    for file in found.skipped:
        print(f"skipped {file}")

# NVIDIA's PilotNet (Bojarski et al. 2016); it takes images in bytes and gives the steering.
model = keras.Sequential(
    [
        keras.Input((66, 200, 3)),
        # Part of the network in the paper, too: normalisation that is not learned.
        layers.Rescaling(1 / 127.5, offset=-1.0),
        layers.Conv2D(24, 5, strides=2, activation="elu"),
        layers.Conv2D(36, 5, strides=2, activation="elu"),
        layers.Conv2D(48, 5, strides=2, activation="elu"),
        layers.Conv2D(64, 3, activation="elu"),
        layers.Conv2D(64, 3, activation="elu"),
        layers.Flatten(),
        layers.Dense(100, activation="elu"),
        layers.Dense(50, activation="elu"),
        layers.Dense(10, activation="elu"),
        # Begins as a car that drives straight ahead: most do, most of the time. With random weights
        # it begins far off, and learns a small drive by heart on the way back.
        layers.Dense(1, kernel_initializer="zeros"),
    ]
)
model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(args.lr)), loss="mse")
rate = hvd.callbacks.RecipeCallback(args.recipe, args.lr, decay="cosine", verbose=1)
history = model.fit(
    train,
    validation_data=test,
    epochs=RECIPES[args.recipe].epochs(args.epochs),
    verbose=0,
    # Its own loss first: from the next callback on, metrics are those of all workers.
    callbacks=[OwnLoss(), *hvd.callbacks.standard(callbacks=[rate])],
)
if hvd.rank() == 0:
    mse = history.history["val_loss"][-1]
    print(f"test MSE {mse:.4f}, of a constant {constant_mse:.4f}; workers: {hvd.size()}")
