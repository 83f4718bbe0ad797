"""Train on MNIST with Keras, on any number of workers; `farandole lab mnist` runs this file.

export KERAS_BACKEND=torch
farandole run -np 2 examples/mnist.py --data MNIST/raw
farandole study -np 1,2,4 --measure accuracy -- examples/mnist.py --data MNIST/raw --seed '{seed}'
"""

import argparse

import keras
from keras import layers

import farandole.keras as hvd
from farandole.labs.data import load_mnist
from farandole.recipes import RECIPES

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--data", help="folder with MNIST; without it, scikit-learn's digits")
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch-size", type=int, default=128, help="of each worker")
parser.add_argument("--samples", type=int, default=0, help="to train on; 0: all")
parser.add_argument("--test-samples", type=int, default=0, help="to test on; 0: all")
parser.add_argument("--lr", type=float, default=0.001, help="learning rate of one worker")
parser.add_argument("--recipe", choices=RECIPES, default="warmup", help="what workers do to it")
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

hvd.init()
hvd.set_random_seed(args.seed)

# Each worker gets its part of the data: another one in each epoch, and equally many batches.
found = load_mnist(args.data, samples=args.samples, test_samples=args.test_samples)
train = hvd.shard((found.x_train, found.y_train), args.batch_size, seed=args.seed)
test = hvd.shard((found.x_test, found.y_test), 500, shuffle=False, remainder="keep")

# The two-convolution network of Keras's first examples; it takes images in bytes.
model = keras.Sequential(
    [
        keras.Input((28, 28, 1)),
        layers.Rescaling(1 / 255),
        layers.Conv2D(32, 3, activation="relu"),
        layers.Conv2D(64, 3, activation="relu"),
        layers.MaxPooling2D(2),
        layers.Dropout(0.25),
        layers.Flatten(),
        layers.Dense(128, activation="relu"),
        layers.Dropout(0.5),
        layers.Dense(10, activation="softmax"),
    ]
)
optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(args.lr))
model.compile(optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])

# N workers make N times fewer updates, of larger batches: the recipe makes up for it by the rate.
rate = hvd.callbacks.RecipeCallback(args.recipe, args.lr, decay="cosine", verbose=1)
history = model.fit(
    train,
    validation_data=test,
    epochs=RECIPES[args.recipe].epochs(args.epochs),
    verbose=2 if hvd.rank() == 0 else 0,
    callbacks=hvd.callbacks.standard(callbacks=[rate]),
)
if hvd.rank() == 0:
    accuracy = history.history["val_accuracy"][-1]
    print(f"test accuracy {accuracy:.4f} on {len(found.y_test)} images; workers: {hvd.size()}")
