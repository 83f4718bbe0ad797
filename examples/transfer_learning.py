"""Transfer learning with Keras, as examples/fruits.py and examples/caltech.py do it.

They import examples/transfer_learning.py as farandole.labs.examples.transfer_learning: either one
may be copied alone, and so may this file.
"""

import argparse

import keras

import farandole
import farandole.keras as hvd
from farandole.labs import networks
from farandole.labs.data import Augmentation
from farandole.recipes import RECIPES

OPTIMIZERS = {"adam": keras.optimizers.Adam, "adadelta": keras.optimizers.Adadelta}


def read_flags(description, **defaults):
    """Read the command line; `original_lr` among the defaults is the rate of --recipe original."""
    as_written = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=as_written)
    parser.add_argument("--data", help="folder with images; without it they are generated")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch-size", type=int, default=32, help="of each worker")
    parser.add_argument("--samples", type=int, default=0, help="to train on; 0: all")
    parser.add_argument("--test-samples", type=int, default=0, help="to test on; 0: all")
    parser.add_argument("--image-size", type=int, default=96, help="pixels of a side")
    parser.add_argument("--lr", type=float, help="learning rate of one worker")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adam")
    recipes = [*RECIPES, "original"]
    parser.add_argument("--recipe", choices=recipes, default="warmup", help="what workers do to it")
    parser.add_argument(
        "--weights", help="pretrained, none, or a file; see docs/how-to/pretrained.md"
    )
    parser.add_argument("--finetune", action=argparse.BooleanOptionalAction)
    parser.add_argument("--unwrapped", action="store_true", help="every worker trains alone")
    parser.add_argument("--seed", type=int, default=0)
    parser.set_defaults(**defaults)
    args = parser.parse_args()
    if args.recipe == "original":  # the lab's own rate times the workers, from the first step
        args.recipe, args.lr = "linear", args.original_lr
    return args


def train(load, args, **augmentation):
    """Train a new head on a base network with the images that `load` finds, and test it."""
    hvd.init()
    hvd.set_random_seed(args.seed)
    sizes = {"samples": args.samples, "test_samples": args.test_samples, "size": args.image_size}
    found = load(args.data, **sizes)
    # What happens to an image depends on seed, epoch and image, not on the worker that gets it.
    change = Augmentation(seed=args.seed, **augmentation)
    samples = found.x_train, found.y_train
    train = hvd.shard(samples, args.batch_size, seed=args.seed, prepare=change)
    test = hvd.shard((found.x_test, found.y_test), 60, shuffle=False, remainder="keep")
    chosen = networks.choose_weights(args.weights)
    if hvd.rank() == 0:
        print(networks.describe_weights(chosen, args.weights), flush=True)
        farandole.record(pretrained=chosen != networks.NONE)
        for file in found.skipped:
            print(f"skipped {file}")
    kinds = {"num_classes": len(found.classes), "chosen": chosen, "finetune": args.finetune}
    model = networks.classifier(found.x_train, **kinds)
    optimizer = OPTIMIZERS[args.optimizer](args.lr)
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
