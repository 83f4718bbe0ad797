"""The cifar10 lab's questions, answered from what its studies found."""

from __future__ import annotations

from farandole.labs.cifar10 import questions
from farandole.labs.cifar10.accuracy import answer_accuracy
from farandole.labs.cifar10.batch import answer_batch
from farandole.labs.cifar10.communication import answer_communication
from farandole.labs.cifar10.replicas import answer_replicas
from farandole.labs.cifar10.speedup import answer_speedup
from farandole.labs.cifar10.wire import answer_batch_norm, answer_wire
from farandole.labs.lab import Answered, Found


def answer(found: Found) -> tuple[Answered, ...]:
    """Answer every question, in order; one without figures says what is missing."""
    return (
        answer_batch(found, questions.BATCH),
        answer_speedup(found, questions.SPEEDUP),
        answer_communication(found, questions.COMMUNICATION),
        answer_accuracy(found, questions.ACCURACY),
        answer_replicas(found, questions.REPLICAS),
        answer_wire(found, questions.WIRE),
        answer_batch_norm(found, questions.BATCH_NORM),
    )
