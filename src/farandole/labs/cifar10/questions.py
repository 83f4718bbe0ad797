"""What the cifar10 lab asks, in its order."""

from __future__ import annotations

from farandole.labs.lab import Question

BATCH = Question(key="batch", text="How long does an epoch take on one worker, by batch?")
SPEEDUP = Question(key="speedup", text="What is the speedup, by batch and workers?")
COMMUNICATION = Question(
    key="communication", text="How much of it is communication, and at which bandwidth?"
)
ACCURACY = Question(
    key="accuracy", text="What does a large global batch do to accuracy, and what helps?"
)
REPLICAS = Question(
    key="replicas",
    text="Replicas as threads of one process, or processes? And does the order of samples matter?",
)
WIRE = Question(key="wire", text="What crosses the network besides gradients?")
BATCH_NORM = Question(key="batch_norm", text="Would gradients alone do?")
QUESTIONS = (BATCH, SPEEDUP, COMMUNICATION, ACCURACY, REPLICAS, WIRE, BATCH_NORM)
