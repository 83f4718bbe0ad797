"""What the mnist lab asks."""

from __future__ import annotations

from farandole.labs.lab import Question

UTILISATION = Question(key="utilisation", text="How does utilisation depend on the batch?")
STEPS = Question(key="steps", text="How many steps does a job take?")
WORKERS = Question(
    key="workers",
    text="What time do 1, 2 and 4 workers take, how efficient, how accurate are they?",
)
BOTTLENECKS = Question(
    key="bottlenecks", text="Where are the bottlenecks: are utilisation or memory unequal?"
)
TWO_NODES = Question(key="two_nodes", text="What do two nodes change in batch and learning rate?")
KEEPING_ACCURACY = Question(
    key="keeping_accuracy", text="How is accuracy kept as the global batch grows?"
)
BEST = Question(key="best", text="Which number of workers gives the best accuracy?")

QUESTIONS = (UTILISATION, STEPS, WORKERS, BOTTLENECKS, TWO_NODES, KEEPING_ACCURACY, BEST)

METRIC = "val_accuracy"
