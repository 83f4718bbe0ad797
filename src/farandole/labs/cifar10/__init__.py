"""The cifar10 lab: where the time of a training step goes."""
