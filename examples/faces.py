"""Estimate ages from faces by one of three large CNNs; `farandole lab faces` runs this file.

export KERAS_BACKEND=torch
farandole run -np 2 examples/faces.py --data wiki_crop --model resnet50
farandole study -np 1,2 -L batch=8 -L global_batch=16 -- examples/faces.py --loop 32 --epochs 9
"""

import argparse

import keras
from keras import layers

import farandole.keras as hvd
from farandole.labs.data import load_faces
from farandole.recipes import RECIPES

NETWORKS = {
    "resnet50": keras.applications.ResNet50,
    "inceptionv3": keras.applications.InceptionV3,  # takes images of 75 pixels or more
    "vgg16": keras.applications.VGG16,
}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--data", help="folder with faces and labels.csv; without it, textures")
parser.add_argument("--model", choices=(*NETWORKS, "small"), default="small")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=16, help="of each worker")
parser.add_argument("--samples", type=int, default=0, help="to train on; 0: all")
parser.add_argument("--test-samples", type=int, default=0, help="to test on; 0: all")
parser.add_argument("--loop", type=int, default=0, help="for speed: over so many images, no test")
parser.add_argument("--image-size", type=int, default=128, help="pixels of a side")
parser.add_argument("--lr", type=float, default=0.002, help="learning rate of one worker")
parser.add_argument("--recipe", choices=RECIPES, default="warmup", help="what workers do to it")
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

hvd.init()
hvd.set_random_seed(args.seed)

# What a step costs does not depend on what is on an image: a few will do for measuring that.
wanted = (args.loop, 1) if args.loop else (args.samples, args.test_samples)
found = load_faces(args.data, samples=wanted[0], test_samples=wanted[1], size=args.image_size)
train = hvd.shard((found.x_train, found.y_train), args.batch_size, seed=args.seed)
test = (found.x_test, found.y_test)
test = None if args.loop else hvd.shard(test, 50, shuffle=False, remainder="keep")
if hvd.rank() == 0:
    for file in found.skipped:
        print(f"skipped {file}")

shape, classes = (args.image_size, args.image_size, 3), len(found.classes)
images = keras.Input(shape)
# What InceptionV3 was made for, and good enough for the others: nothing is pretrained here.
x = layers.Rescaling(1 / 127.5, offset=-1.0)(images)
if args.model in NETWORKS:
    # Whole, with the dense layers at their ends, and trained as their authors did: Adam would keep
    # one more copy of VGG16's weights.
    x = NETWORKS[args.model](weights=None, input_shape=shape, classes=classes)(x)
    optimizer = keras.optimizers.SGD(args.lr, momentum=0.9)
else:
    for channels in (16, 32, 64, 128):
        x = layers.Conv2D(channels, 3, strides=2, padding="same", use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dense(classes, activation="softmax")(x)
    optimizer = keras.optimizers.Adam(args.lr)
model = keras.Model(images, x, name=args.model)
optimizer = hvd.DistributedOptimizer(optimizer)
model.compile(optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
rate = hvd.callbacks.RecipeCallback(args.recipe, args.lr, decay="cosine", verbose=1)
history = model.fit(
    train,
    validation_data=test,
    epochs=RECIPES[args.recipe].epochs(args.epochs),
    verbose=2 if hvd.rank() == 0 else 0,
    callbacks=hvd.callbacks.standard(callbacks=[rate]),
)
if hvd.rank() == 0 and not args.loop:
    accuracy = history.history["val_accuracy"][-1]
    print(f"test accuracy {accuracy:.4f} on {len(found.y_test)} faces; workers: {hvd.size()}")
