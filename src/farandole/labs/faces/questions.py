"""What the faces lab asks, and the networks that it asks it of."""

from __future__ import annotations

from farandole.labs.lab import Question

TECHNOLOGIES = Question(
    key="technologies",
    text="Which technologies carry multi-node training on CPUs and GPUs, and how do they fit?",
)
SPLIT = Question(
    key="split", text="How are a node's cores best shared out between processes and threads?"
)
BATCH = Question(key="batch", text="How does throughput depend on the batch?")
WEAK = Question(key="weak", text="How do the networks scale when every worker keeps its batch?")
STRONG = Question(key="strong", text="How do they scale when the global batch is shared out?")
WHY = Question(key="why", text="Why does strong scaling fall off, and weak scaling not?")
ORDER = Question(
    key="order", text="In which order of speed do the networks come, and where does it reverse?"
)
ACCURACY = Question(key="accuracy", text="What do more workers do to the accuracy of ages?")

QUESTIONS = (TECHNOLOGIES, SPLIT, BATCH, WEAK, STRONG, WHY, ORDER, ACCURACY)

MODELS = {"inceptionv3": "InceptionV3", "resnet50": "ResNet50", "vgg16": "VGG16"}
"""Names for the script, with those for people, in the lab's order."""
LAB_PARAMETERS = {"InceptionV3": 23_851_784, "ResNet50": 25_636_712, "VGG16": 138_357_544}
"""With 1000 classes, at 224 pixels where that matters. The lab gives VGG16's."""
