"""Tell categories of photos apart by transfer learning; `farandole lab caltech` runs this file.

export KERAS_BACKEND=torch
farandole run -np 2 examples/caltech.py --data 256_ObjectCategories
farandole study -np 1,2,4 -- examples/caltech.py --data 256_ObjectCategories --seed '{seed}'
"""

import argparse

import keras

import farandole
import farandole.keras as hvd
from farandole.labs import networks
from farandole.labs.data import Augmentation, load_caltech
from farandole.recipes import RECIPES

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--data", help="folder with a folder for each category; without it, textures")
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--batch-size", type=int, default=32, help="of each worker")
parser.add_argument("--samples", type=int, default=0, help="to train on; 0: all")
parser.add_argument("--test-samples", type=int, default=0, help="to test on; 0: all")
parser.add_argument("--image-size", type=int, default=96, help="pixels of a side")
parser.add_argument("--lr", type=float, default=0.003, help="learning rate of one worker")
recipes = [*RECIPES, "original"]
parser.add_argument("--recipe", choices=recipes, default="warmup", help="what workers do to it")
parser.add_argument("--weights", help="pretrained, none, or a file; see docs/how-to/pretrained.md")
parser.add_argument("--finetune", action=argparse.BooleanOptionalAction, default=False)
parser.add_argument("--unwrapped", action="store_true", help="every worker trains alone")
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
if args.recipe == "original":  # the lab's own: 1.0 times the number of workers, from the first step
    args.recipe, args.lr = "linear", 1.0

hvd.init()
hvd.set_random_seed(args.seed)

sizes = {"samples": args.samples, "test_samples": args.test_samples, "size": args.image_size}
found = load_caltech(args.data, **sizes)
# What happens to an image depends on seed, epoch and image, not on the worker that gets it.
augment = Augmentation(seed=args.seed, rotation=0.05, zoom=0.2, shift=0.2, flip=True)
train = hvd.shard((found.x_train, found.y_train), args.batch_size, seed=args.seed, prepare=augment)
test = hvd.shard((found.x_test, found.y_test), 60, shuffle=False, remainder="keep")
chosen = networks.choose_weights(args.weights)
if hvd.rank() == 0:
    print(networks.describe_weights(chosen, args.weights), flush=True)
    farandole.record(pretrained=chosen != networks.NONE)
    for file in found.skipped:
        print(f"skipped {file}")

kinds = {"num_classes": len(found.classes), "chosen": chosen, "finetune": args.finetune}
model = networks.classifier(found.x_train, **kinds)
optimizer = keras.optimizers.Adam(args.lr)
if not args.unwrapped:  # without this line nobody averages gradients: N workers learn apart
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
if hvd.rank() == 0:
    accuracy = history.history["val_accuracy"][-1]
    print(f"test accuracy {accuracy:.4f} on {len(found.y_test)} images; workers: {hvd.size()}")
