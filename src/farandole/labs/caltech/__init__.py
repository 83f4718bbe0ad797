"""The caltech lab: a new head on a frozen network, 257 categories, 2 to 8 GPUs of two kinds."""
