"""The mnist lab: utilisation against batch, workers, accuracy as the batch grows, two nodes."""
