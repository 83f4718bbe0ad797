"""Tell fresh fruit from rotten by transfer learning; `farandole lab fruits` runs this file.

export KERAS_BACKEND=torch
farandole run -np 2 examples/fruits.py --data fruits
farandole study -np 1,2,4 --measure both -- examples/fruits.py --data fruits --seed '{seed}'

--data is a folder with train/<class>/ and test/<class>/; without it, textures are generated.
"""

from farandole.labs.data import load_fruits
from farandole.labs.examples.transfer_learning import read_flags, train

args = read_flags(__doc__, epochs=3, lr=0.0001, original_lr=0.1, finetune=True)
train(load_fruits, args, zoom=0.01, shift=0.01)
