"""Epochs to a target by global batch, and the metric that a number of epochs reaches."""
