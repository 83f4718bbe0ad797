"""The fruits lab: a fine-tuned classifier of fresh and rotten fruit on 1, 2 and 4 GPUs."""
