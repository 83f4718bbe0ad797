"""The faces lab as `farandole lab` knows it."""

from __future__ import annotations

from farandole.labs.faces.effort import LADDER
from farandole.labs.faces.plan import pilot, plan
from farandole.labs.faces.questions import QUESTIONS
from farandole.labs.lab import Lab, on_use

LAB = Lab(
    name="faces",
    title="faces: three CNNs, weak and strong scaling",
    line="processes x threads, batches, weak and strong scaling of ResNet50, InceptionV3, VGG16",
    questions=QUESTIONS,
    published=("faces_weak", "faces_strong", "faces_split", "faces_batch"),
    leading=("weak", "strong", "why"),
    # Its own figures have these curves, by nodes; here they would be by processes.
    beside={"faces_weak": ()},
    efforts=len(LADDER),
    data=on_use("data:describe_faces"),
    pilot=pilot,
    plan=plan,
    answer=on_use("faces.answers:answer"),
    corrections=on_use("faces.corrections:corrections"),
)
