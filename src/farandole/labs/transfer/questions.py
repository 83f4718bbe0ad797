"""What the labs on transfer learning ask."""

from __future__ import annotations

from farandole.labs.lab import Question

TIMES = Question(
    key="times", text="How long do a job and an epoch take, by workers and kind of device?"
)
ACCURACY = Question(
    key="accuracy", text="How does accuracy grow by epoch, in training and in validation?"
)
UTILISATION = Question(key="utilisation", text="How busy are the workers over time?")
OVERFITTING = Question(key="overfitting", text="Does the network overfit?")
STABLE = Question(
    key="stable", text="After how many epochs is the validation accuracy stable, by workers?"
)
SOONEST = Question(
    key="soonest", text="Which configuration reaches a stable validation accuracy soonest?"
)
KEEPING_ACCURACY = Question(
    key="keeping_accuracy", text="What does accuracy lose with more workers, and what keeps it?"
)
ORIGINAL = Question(key="original", text="What do the original's learning rates do?")
WRAPPED = Question(
    key="wrapped", text="What does the DistributedOptimizer do, and what happens without it?"
)
SIXTEEN = Question(key="sixteen", text="What would 16 workers do?")

QUESTIONS = (
    *(TIMES, ACCURACY, UTILISATION, OVERFITTING, STABLE, SOONEST),
    *(KEEPING_ACCURACY, ORIGINAL, WRAPPED, SIXTEEN),
)

TRAINING, VALIDATION = "accuracy", "val_accuracy"
"""Keras's names of the metrics."""
PRETRAINED = "pretrained"
"""Recorded by the scripts: 1 where the base network began with trained weights."""
