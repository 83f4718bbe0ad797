"""Tell categories of photos apart by transfer learning; `farandole lab caltech` runs this file.

export KERAS_BACKEND=torch
farandole run -np 2 examples/caltech.py --data 256_ObjectCategories
farandole study -np 1,2,4 -- examples/caltech.py --data 256_ObjectCategories --seed '{seed}'

--data is a folder with a folder for each category; without it, textures are generated.
"""

from farandole.labs.data import load_caltech
from farandole.labs.examples.transfer_learning import read_flags, train

args = read_flags(__doc__, epochs=6, lr=0.003, original_lr=1.0, finetune=False)
train(load_caltech, args, rotation=0.05, zoom=0.2, shift=0.2, flip=True)
