"""The mnist lab as `farandole lab` knows it."""

from __future__ import annotations

from farandole.labs.lab import Lab, on_use
from farandole.labs.mnist.plan import LADDER, pilot, plan
from farandole.labs.mnist.questions import QUESTIONS

LAB = Lab(
    name="mnist",
    title="mnist: utilisation, efficiency, two nodes",
    line="utilisation by batch, time and accuracy on 1, 2, 4 workers, recipes that keep accuracy",
    questions=QUESTIONS,
    published=("mnist", "mnist_21_epochs", "mnist_two_nodes", "mnist_utilisation"),
    leading=("workers", "keeping_accuracy", "utilisation"),
    efforts=len(LADDER),
    data=on_use("data:describe_mnist"),
    pilot=pilot,
    plan=plan,
    answer=on_use("mnist.answers:answer"),
    corrections=on_use("mnist.corrections:corrections"),
)
